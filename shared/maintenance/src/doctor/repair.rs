//! Remedies for findings.

use dormouse_harness::{Callback, Harness, Transmission, TurnError, TurnOutcome, store_failed, subscription_failed};
use dormouse_ports::{
    Category, IndexRepair, InvocationRecord, MaintenanceStore, PausedInvocation, PendingRow, SignalState, Subscription,
};

use super::finding::Finding;

/// Applies the remedy against `finding`. Returns the outcome in a sentence; `None` where there is no remedy.
///
/// # Errors
/// If the remedy does not work; nothing is worse then than it was.
pub async fn repair(
    harness: &Harness,
    store: &MaintenanceStore,
    record: &InvocationRecord,
    finding: Finding,
) -> Result<Option<String>, TurnError> {
    let paused = &record.paused;
    let mend = async |repair: IndexRepair, done: &str| {
        store.sleepers.repair(&repair).await.map(|()| Some(done.to_owned())).map_err(store_failed)
    };
    match finding {
        Finding::RowMissing => mend(IndexRepair::Row(Box::new(paused.clone())), "the row was written again").await,
        Finding::SignalMissing => mend(IndexRepair::Wait(Box::new(paused.clone())), "the wait was written again").await,
        Finding::Unregistered => register_now(harness, store, paused).await.map(Some),
        Finding::ClaimExpired | Finding::ClaimStuck => {
            match harness.take_over(&paused.invocation_id, Some(paused.generation)).await? {
                Some(outcome) => in_words(outcome).map(Some),
                None => Ok(Some("another worker was faster".to_owned())),
            }
        }
        Finding::Overdue => {
            let due_at = paused.wake.due.as_ref().map(|due| due.at);
            let due = Transmission::due(paused.invocation_id.clone(), paused.generation, due_at);
            in_words(harness.turn(due).await.outcome).map(Some)
        }
        Finding::SignalParked => hand_over(harness, paused).await.map(Some),
        Finding::RuleMissing => make_rule_now(harness, paused).await.map(Some),
        Finding::Completed
        | Finding::Failed
        | Finding::PutAside
        | Finding::Canceled
        | Finding::Waiting
        | Finding::ClaimHeld
        | Finding::Queued
        | Finding::SignalTaken
        | Finding::RuleLate
        | Finding::EventUnfit
        | Finding::RuleUnseen
        | Finding::SignalsAstray
        | Finding::AcceptsEverything
        | Finding::SessionLeased
        | Finding::LeaseStuck
        | Finding::GraphUnknown
        | Finding::GraphChanged
        | Finding::GraphPinned
        | Finding::GraphRefuses
        | Finding::NoMigration => Ok(None),
    }
}

async fn register_now(
    harness: &Harness,
    store: &MaintenanceStore,
    paused: &PausedInvocation,
) -> Result<String, TurnError> {
    let subscribed = harness.wakes().register(&Subscription::from(paused)).await;
    subscribed.map_err(subscription_failed)?;
    let row = IndexRepair::Registered(PendingRow::of(paused));
    store.sleepers.repair(&row).await.map_err(store_failed)?;
    Ok("the wake-up is registered".to_owned())
}

async fn make_rule_now(harness: &Harness, paused: &PausedInvocation) -> Result<String, TurnError> {
    let rules = harness.rules().list().await.map_err(subscription_failed)?;
    harness.rules().make_rule_of(paused, &rules).await.map_err(subscription_failed)?;
    Ok("the rule is there and enabled".to_owned())
}

/// The parked payload, as if it came now.
async fn hand_over(harness: &Harness, paused: &PausedInvocation) -> Result<String, TurnError> {
    let mut handed = "the signal is parked no more".to_owned();
    for id in paused.waits() {
        let ports = harness.engine().ports();
        let known = ports.store.signals.load_signal(&id, ports.clock.now()).await.map_err(store_failed)?;
        let Some(SignalState::Buffered(signal)) = known.map(|record| record.state) else { continue };
        let part = paused.fan_in.as_ref().and_then(|fan_in| fan_in.part_of(&id.origin().1)).map(str::to_owned);
        let callback = Callback::new(paused.invocation_id.clone(), Some(paused.generation), signal.payload);
        handed = in_words(harness.turn(Callback { part, ..callback }).await.outcome)?;
    }
    Ok(handed)
}

/// Outcome of a turn, in a sentence.
fn in_words(outcome: TurnOutcome) -> Result<String, TurnError> {
    match outcome {
        TurnOutcome::Completed(_) => Ok("it went on and completed".to_owned()),
        TurnOutcome::Suspended(turn) => Ok(format!("it went on and waits for signal `{}`", turn.descriptor.signal_id)),
        TurnOutcome::Stale { .. } | TurnOutcome::Buffered { .. } => Ok("it was past that already".to_owned()),
        TurnOutcome::Errored(error) if error.category == Category::SuspensionTimedOut => {
            Ok(format!("it ended, as was asked for: {}", error.message))
        }
        TurnOutcome::Errored(error) => Err(*error),
    }
}
