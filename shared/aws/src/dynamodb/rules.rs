//! The entries of the rules on the bus: an item for each shape of event that a wait relies on.

use std::sync::Arc;

use dormouse_ports::{RuleEntry, RuleIncarnation, RuleUpdate, ShapeId, StoreError};
use jiff::Timestamp;

use super::fault::{RequestFault, fault};
use super::item::{Item, number, number_value, optional_time, text, text_value, time, time_value};
use super::keys::{EDITION, IDLE_SINCE, Key, MADE_AT, RULES, SK, STANDS_SINCE, TOUCHES};
use super::requests::Table;
use super::write::{ItemWrite, WriteOutcome};

/// The entry is as it was read: of the same edition, and untouched.
const UNTOUCHED: &str = "rule_edition = :edition AND touches = :touches";

/// Entries of rules.
#[derive(Clone)]
pub(super) struct RuleItems {
    pub(super) table: Arc<Table>,
}

impl RuleItems {
    pub(super) async fn update(&self, update: &RuleUpdate) -> Result<(), StoreError> {
        self.table.put_plainly(update_write(update)).await
    }

    /// Repeating it after a lost answer touches the entry twice, which is harmless.
    pub(super) async fn touch(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError> {
        let changes = format!(
            "SET {EDITION} = if_not_exists({EDITION}, :fresh), {MADE_AT} = if_not_exists({MADE_AT}, :now) \
             ADD {TOUCHES} :one REMOVE {IDLE_SINCE}"
        );
        let write = ItemWrite::update(&Key::rule(shape), changes)
            .with(":fresh", text_value(fresh.as_str()))
            .with(":now", time_value(now))
            .with(":one", number_value(1));
        match self.table.write_alone(&write).await? {
            WriteOutcome::Done(item) => entry(&item),
            WriteOutcome::Refused(_) => Err(StoreError::Corrupt("an entry of a rule refused to be touched".to_owned())),
        }
    }

    pub(super) async fn all(&self) -> Result<Vec<RuleEntry>, StoreError> {
        let mut entries = Vec::new();
        let mut start = None;
        loop {
            let (items, last) = self.table.retry.run(|| self.query(start.clone())).await?;
            for item in &items {
                entries.push(entry(item)?);
            }
            start = last;
            if start.is_none() {
                return Ok(entries);
            }
        }
    }

    async fn query(&self, start: Option<Item>) -> Result<(Vec<Item>, Option<Item>), RequestFault> {
        let request = self.table.query().consistent_read(true);
        let request = request.key_condition_expression("pk = :pk");
        let request = request.expression_attribute_values(":pk", text_value(RULES)).set_exclusive_start_key(start);
        let answer = request.send().await.map_err(|error| fault("Query", &self.table.name, &error))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}

/// Changes an entry as it was read.
fn update_write(update: &RuleUpdate) -> ItemWrite {
    match update {
        RuleUpdate::Idle { entry, since } => idle_write(entry, *since),
        RuleUpdate::Stands { entry, since } => stands_write(entry, *since),
        RuleUpdate::Unneeded(entry) => removal(entry),
    }
}

/// Notes that no wait needs the rule.
fn idle_write(read: &RuleEntry, since: Timestamp) -> ItemWrite {
    let write = ItemWrite::update(&Key::rule(&read.shape), format!("SET {IDLE_SINCE} = :since"));
    untouched(write, read).with(":since", time_value(since))
}

/// Notes that the rule stands.
fn stands_write(read: &RuleEntry, since: Timestamp) -> ItemWrite {
    ItemWrite::update(&Key::rule(&read.shape), format!("SET {STANDS_SINCE} = :since"))
        .when("rule_edition = :edition")
        .with(":edition", text_value(read.edition.as_str()))
        .with(":since", time_value(since))
}

/// Removes the entry.
fn removal(read: &RuleEntry) -> ItemWrite {
    untouched(ItemWrite::delete(&Key::rule(&read.shape)), read)
}

fn untouched(write: ItemWrite, read: &RuleEntry) -> ItemWrite {
    write
        .when(UNTOUCHED)
        .with(":edition", text_value(read.edition.as_str()))
        .with(":touches", number_value(read.touches))
}

fn entry(item: &Item) -> Result<RuleEntry, StoreError> {
    let unreadable = |what: &str| StoreError::Corrupt(format!("an entry of a rule has no {what} that can be read"));
    Ok(RuleEntry {
        shape: ShapeId::parse(text(item, SK)?).ok_or_else(|| unreadable("shape"))?,
        edition: RuleIncarnation::parse(text(item, EDITION)?).ok_or_else(|| unreadable("edition"))?,
        touches: number(item, TOUCHES)?,
        made_at: time(item, MADE_AT)?,
        stands_since: optional_time(item, STANDS_SINCE)?,
        idle_since: optional_time(item, IDLE_SINCE)?,
    })
}
