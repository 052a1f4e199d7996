//! Counters as items: one for each name, with an attribute for each counter, and the end of their period.
//!
//! All changes are updates of single attributes, so that writers that do not know of each other take from the same
//! counters. An update that happened carries the id of its commit, and is not repeated.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{CounterChange, CounterWrite, Counters, DocumentKey, StoreError};
use jiff::Timestamp;

use super::item::{Item, optional_time, time_value, ttl_value};
use super::journal::DocumentItems;
use super::keys::{Key, LEFT, PERIOD_ENDS_AT};
use super::write::{ItemWrite, TTL_NAME};

/// The change that `write` asks for, as an update.
pub(super) fn counter_write(write: &CounterWrite, now: Timestamp, commit_id: AttributeValue) -> ItemWrite {
    let key = Key::document(&write.key);
    let change = match &write.change {
        CounterChange::Take { needs, amounts } => {
            let taken = amounts.iter().map(|(name, amount)| (name.clone(), amount.saturating_neg())).collect();
            let update = added(&key, &taken)
                .when("attribute_not_exists(period_ends_at) OR period_ends_at > :now")
                .with(":now", time_value(now));
            needs.iter().fold(update, |update, (name, amount)| {
                let condition = format!("{LEFT}{name} >= :needs_{name}");
                update.when(&condition).with(&format!(":needs_{name}"), whole(*amount))
            })
        }
        CounterChange::Add { amounts } => added(&key, amounts),
        CounterChange::Begin { ending, left, ends_at, forget_at } => {
            begun(&key, left, (*ends_at, *forget_at)).until(*ending)
        }
    };
    // A repeated commit must not take twice.
    change.when("attribute_not_exists(commit_id) OR commit_id <> :commit").with(":commit", commit_id)
}

fn added(key: &Key, amounts: &BTreeMap<String, i64>) -> ItemWrite {
    let clauses: Vec<String> = amounts.keys().map(|name| format!("{LEFT}{name} :add_{name}")).collect();
    let add = if clauses.is_empty() { String::new() } else { format!(" ADD {}", clauses.join(", ")) };
    let update = ItemWrite::update(key, format!("SET commit_id = :commit{add}"));
    amounts.iter().fold(update, |update, (name, amount)| update.with(&format!(":add_{name}"), whole(*amount)))
}

fn begun(
    key: &Key,
    left: &BTreeMap<String, i64>,
    (ends_at, forget_at): (Option<Timestamp>, Option<Timestamp>),
) -> ItemWrite {
    let sets = left.keys().map(|name| format!(", {LEFT}{name} = :left_{name}")).collect::<String>();
    let ends = [(PERIOD_ENDS_AT, ":ends", ends_at.map(time_value)), (TTL_NAME, ":forget", forget_at.map(ttl_value))];
    let set = ends.iter().filter(|(.., end)| end.is_some()).map(|(name, value, _)| format!(", {name} = {value}"));
    let set = set.collect::<String>();
    let unset: Vec<&str> = ends.iter().filter(|(.., end)| end.is_none()).map(|(name, ..)| *name).collect();
    let unset = if unset.is_empty() { String::new() } else { format!(" REMOVE {}", unset.join(", ")) };
    let update = ItemWrite::update(key, format!("SET commit_id = :commit{sets}{set}{unset}"));
    let update =
        left.iter().fold(update, |update, (name, amount)| update.with(&format!(":left_{name}"), whole(*amount)));
    ends.into_iter().fold(update, |update, (_, name, end)| match end {
        Some(end) => update.with(name, end),
        None => update,
    })
}

impl ItemWrite {
    /// Only where the period of the counters ends at `ending`.
    fn until(self, ending: Option<Timestamp>) -> Self {
        match ending {
            Some(ending) => self.when("period_ends_at = :ending").with(":ending", time_value(ending)),
            None => self.when("attribute_not_exists(period_ends_at)"),
        }
    }
}

fn whole(amount: i64) -> AttributeValue {
    AttributeValue::N(amount.to_string())
}

impl DocumentItems {
    pub(super) async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.table.get_item(Key::document(key)).await?.map(|item| counters_of(&item)).transpose()
    }
}

fn counters_of(item: &Item) -> Result<Counters, StoreError> {
    let amounts = item.iter().filter_map(|(name, value)| Some((name.strip_prefix(LEFT)?, value)));
    let left = amounts.map(|(name, value)| {
        let amount = value.as_n().ok().and_then(|digits| digits.parse().ok());
        let unreadable = || StoreError::Corrupt(format!("the counter {name} is no whole number"));
        Ok((name.to_owned(), amount.ok_or_else(unreadable)?))
    });
    Ok(Counters { left: left.collect::<Result<_, StoreError>>()?, ends_at: optional_time(item, PERIOD_ENDS_AT)? })
}
