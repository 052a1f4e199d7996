//! Expected outcome of a migration of everything that sleeps, counted by graph and outcome: the report of a million
//! pauses is as short as that of ten.

use std::collections::BTreeMap;

use dormouse_api::WEBHOOK_GRAPH;
use dormouse_engine::Upgrade;
use dormouse_maintenance::{MigrationOutcome, PauseUpgrade, migration_report};
use serde_json::{Value, json};

use super::ask::BoundsArgs;
use super::print::Printer;
use super::{InspectError, InspectOutcome};
use crate::target::OpenedStore;

/// Number of invocations of a group that are named.
const NAMED: usize = 10;
/// Number of reasons that are distinguished for each fate of a graph: messages may name what only one pause has.
const REASONS: usize = 20;

/// Pauses of one graph with the same fate, for the same reason.
#[derive(Debug, Default)]
struct Group {
    count: u64,
    named: Vec<String>,
}

/// By graph, fate and reason.
#[derive(Debug, Default)]
struct Groups(BTreeMap<(String, MigrationOutcome, String), Group>);

impl Groups {
    fn add(&mut self, pause: PauseUpgrade) {
        let reason = match &pause.outcome {
            Ok(Upgrade::Same | Upgrade::Reshaped) => String::new(),
            Ok(Upgrade::Migrated { from }) => format!("from schema version `{from}`"),
            Err(error) => error.message.clone(),
        };
        let mut key = (pause.graph, pause.fate, reason);
        let alike = self.0.keys().filter(|(graph, fate, _)| (graph, fate) == (&key.0, &key.1)).count();
        if alike >= REASONS && !self.0.contains_key(&key) {
            key.2 = "other reasons".to_owned();
        }
        let group = self.0.entry(key).or_default();
        group.count += 1;
        if group.named.len() < NAMED {
            group.named.push(pause.invocation_id.to_string());
        }
    }

    fn count(&self, takes: impl Fn(MigrationOutcome) -> bool) -> u64 {
        self.0.iter().filter(|((_, fate, _), _)| takes(*fate)).map(|(_, group)| group.count).sum()
    }

    fn into_json(self) -> Vec<Value> {
        let group = |((graph, fate, reason), group): ((String, MigrationOutcome, String), Group)| {
            json!({ "graph": graph, "fate": fate.as_str(), "reason": reason, "count": group.count,
                "invocations": group.named })
        };
        self.0.into_iter().map(group).collect()
    }

    fn print(&self, printer: &Printer) -> Result<(), InspectError> {
        for ((graph, fate, reason), group) in &self.0 {
            let what = match fate {
                MigrationOutcome::Same => "go on as they are",
                MigrationOutcome::Reshaped => "go on in a graph of another shape",
                MigrationOutcome::Migrated => "go on after a migration",
                MigrationOutcome::Pinned => "wait for workers of the shape that wrote them",
                MigrationOutcome::NeedsMigration => "sleep on until there is a migration",
                MigrationOutcome::GraphUnknown => "sleep on until a worker has the graph",
                MigrationOutcome::Refused => "sleep on: refused",
                MigrationOutcome::Unreadable => "cannot be read",
            };
            printer.verdict(!fate.goes_on(), &format!("{graph}: {} {what}", group.count))?;
            if !reason.is_empty() {
                printer.line(&format!("      {reason}"))?;
            }
            if !fate.goes_on() {
                let more = if group.count > NAMED as u64 { ", ..." } else { "" };
                printer.line(&format!("      {}{more}", group.named.join(", ")))?;
            }
        }
        Ok(())
    }
}

/// Counts the expected outcome of each pause, page by page.
pub(super) async fn report(
    opened: &OpenedStore,
    bounds: &BoundsArgs,
    json: bool,
) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    let mut groups = Groups::default();
    let mut cursor = bounds.cursor.clone();
    loop {
        let page = migration_report(&opened.harness, &opened.maintenance, cursor.as_deref()).await?;
        // Deliveries of webhooks go on in whoever serves the store: no program of agents has their graph.
        page.pauses.into_iter().filter(|pause| pause.graph != WEBHOOK_GRAPH).for_each(|pause| groups.add(pause));
        cursor = page.next;
        if cursor.is_none() || bounds.limit.is_some_and(|limit| groups.count(|_| true) >= limit) {
            break;
        }
    }
    let examined = groups.count(|_| true);
    let stay = groups.count(|fate| !fate.goes_on());
    if json {
        let groups = groups.into_json();
        printer.json(&json!({ "examined": examined, "stay": stay, "groups": groups, "next": cursor }))?;
    } else {
        groups.print(&printer)?;
        printer.line(&format!("{examined} examined, {stay} would stay asleep"))?;
        if let Some(next) = cursor {
            printer.line(&format!("more follows: --cursor {next}"))?;
        }
    }
    Ok(if stay > 0 { InspectOutcome::Trouble } else { InspectOutcome::Fine })
}
