//! Why an invocation sleeps, in words, and what helps where it should not.

mod rules;

use std::time::Duration;

use dormouse_ports::{
    AnswerRule, Category, Claim, DueAction, InvocationId, InvocationRecord, InvocationStatus, Map, PausedInvocation,
    SignalState, Surroundings, Until, Upkeep, limits,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::aside::is_aside;
use crate::correlate::unfit;
use crate::harness::subscription_failed;
use crate::signal::{store_failed, subscription_to};
use crate::sweep::{TOGETHER, since};
use crate::{Fate, Harness, ParkedSignal, Transmission, TurnError, TurnOutcome};
pub use rules::RulesSeen;

/// By how much a wake-up may be late before it counts as lost: a sweep comes every minute.
const LATE: Duration = Duration::from_secs(120);
/// How many signals a sentence names.
const NAMED: usize = 5;

/// What can be the matter with an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It completed.
    Completed,
    /// It ended with an error.
    Failed,
    /// Every worker that took it up died: it is put aside.
    PutAside,
    /// It was canceled.
    Canceled,
    /// It sleeps, and everything that would wake it is in place.
    Waiting,
    /// A worker continues it at this moment.
    ClaimHeld,
    /// The worker that continued it died.
    ClaimExpired,
    /// It is claimed for longer than any turn may take: a clock is wrong.
    ClaimStuck,
    /// It fell due and was not woken.
    Overdue,
    /// No sweep has seen to its wake-up, though there was time enough.
    Unregistered,
    /// The index of what sleeps does not know it: no sweep would find it.
    RowMissing,
    /// Nothing leads from the signal to it.
    SignalMissing,
    /// The signal is here, parked, and was not handed over.
    SignalParked,
    /// The signal id leads to another invocation.
    SignalTaken,
    /// The event bus has no enabled rule that would carry the event it waits for.
    RuleMissing,
    /// An event came for it, and what it carried did not fit.
    EventUnfit,
    /// There is such a rule, and it stands since later than the pause: an event that came before reached nobody.
    RuleLate,
    /// Whether there is such a rule cannot be seen.
    RuleUnseen,
    /// Since it went to sleep, signals came for which nobody waits: one of them may have been meant for it.
    SignalsAstray,
    /// The pause declares neither `accepts` nor `into`: its answer may set every field of the state.
    AcceptsEverything,
    /// A turn of its session runs, or died a moment ago.
    SessionLeased,
    /// Its session is leased for longer than any turn may take: a clock is wrong.
    LeaseStuck,
    /// No worker of this version knows the graph.
    GraphUnknown,
    /// The graph is not the one that went to sleep; it goes on all the same.
    GraphChanged,
    /// The graph is not the one that went to sleep, and leaves the pause to workers that still have that one.
    GraphPinned,
    /// The graph is not the one that went to sleep, and does not take the pause.
    GraphRefuses,
    /// The state has a schema version from which nothing leads to the present one.
    NoMigration,
}

impl Finding {
    /// Whether somebody or something has to act; the others only explain.
    pub fn is_trouble(self) -> bool {
        match self {
            Self::Completed
            | Self::Failed
            | Self::Canceled
            | Self::Waiting
            | Self::ClaimHeld
            | Self::RuleLate
            | Self::RuleUnseen
            | Self::SignalsAstray
            | Self::AcceptsEverything
            | Self::SessionLeased
            | Self::GraphChanged => false,
            Self::ClaimExpired
            | Self::PutAside
            | Self::ClaimStuck
            | Self::Overdue
            | Self::Unregistered
            | Self::RowMissing
            | Self::SignalMissing
            | Self::SignalParked
            | Self::SignalTaken
            | Self::RuleMissing
            | Self::EventUnfit
            | Self::LeaseStuck
            | Self::GraphUnknown
            | Self::GraphPinned
            | Self::GraphRefuses
            | Self::NoMigration => true,
        }
    }

    /// What [`Harness::repair`] would do about it, where it can do anything.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::ClaimExpired | Self::ClaimStuck => Some("take the claim over and go on with the accepted payload"),
            Self::Overdue => Some("do now what was to be done when it fell due"),
            Self::Unregistered => Some("register the wake-up"),
            Self::RowMissing => Some("write the row of the index again"),
            Self::SignalMissing => Some("write the signal item again"),
            Self::SignalParked => Some("hand the parked signal over"),
            Self::RuleMissing => Some("make or enable the rule"),
            Self::Completed
            | Self::Failed
            | Self::PutAside
            | Self::Canceled
            | Self::Waiting
            | Self::ClaimHeld
            | Self::SignalTaken
            | Self::RuleLate
            | Self::EventUnfit
            | Self::RuleUnseen
            | Self::SignalsAstray
            | Self::AcceptsEverything
            | Self::SessionLeased
            | Self::LeaseStuck
            | Self::GraphUnknown
            | Self::GraphChanged
            | Self::GraphPinned
            | Self::GraphRefuses
            | Self::NoMigration => None,
        }
    }
}

/// One thing that the doctor has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// What it is about.
    pub finding: Finding,
    /// The same for people, in a sentence.
    pub sentence: String,
}

/// What the doctor has to say about an invocation; at least one remark.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The invocation, as it was looked at.
    pub record: InvocationRecord,
    /// The most important remark first.
    pub remarks: Vec<Remark>,
}

impl Diagnosis {
    /// Whether something is wrong.
    pub fn is_trouble(&self) -> bool {
        self.remarks.iter().any(|remark| remark.finding.is_trouble())
    }

    /// Adds what may have been meant for the invocation, if it sleeps: those of the `parked` signals that came since.
    pub fn mind(&mut self, parked: &[ParkedSignal]) {
        let paused = &self.record.paused;
        let came_since = |signal: &&ParkedSignal| {
            signal.received_at >= paused.suspended_at && !paused.waits().any(|awaited| awaited == signal.stored_as())
        };
        let astray: Vec<_> = parked.iter().filter(came_since).map(|signal| format!("`{}`", signal.signal_id)).collect();
        if astray.is_empty() || !matches!(self.record.status, InvocationStatus::Suspended) {
            return;
        }
        let named = astray.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if astray.len() > NAMED { format!(" and {} more", astray.len() - NAMED) } else { String::new() };
        let sentence = format!(
            "since it went to sleep, signals came for which nobody waits: {named}{more}; was one of them meant for it?"
        );
        self.remarks.push(remark(Finding::SignalsAstray, sentence));
    }
}

impl Harness {
    /// Says why the invocation `id` sleeps, or why it does not go on. Many can be looked at with the same `rules`.
    ///
    /// # Errors
    /// `not_found` when it was never suspended; otherwise when the store does not answer.
    pub async fn diagnose(&self, id: &InvocationId, rules: &RulesSeen) -> Result<Diagnosis, TurnError> {
        let record = *self.load_invocation(id).await?.ok_or_else(|| never_slept(id))?;
        let around = match Self::has_surroundings(&record) {
            true => self.look_around(&[&record.paused]).await?.pop().unwrap_or_default(),
            false => Surroundings::default(),
        };
        self.examine(record, &around, rules).await
    }

    /// The same of each of `ids`, with few requests for a hundred of them.
    ///
    /// # Errors
    /// When the store does not answer. One that cannot be read is told instead of its diagnosis.
    pub async fn diagnose_all(
        &self,
        ids: &[InvocationId],
        rules: &RulesSeen,
    ) -> Result<Vec<Result<Diagnosis, TurnError>>, TurnError> {
        let mut diagnoses = Vec::new();
        for ids in ids.chunks(TOGETHER) {
            let loaded = self.engine().ports().store.load_invocations(ids).await.map_err(store_failed)?;
            let paused: Vec<_> = loaded.iter().flatten().flatten().filter(|it| Self::has_surroundings(it)).collect();
            let paused: Vec<_> = paused.into_iter().map(|record| &record.paused).collect();
            let mut around = match self.look_around(&paused).await {
                Ok(around) => around.into_iter(),
                // One of them is not readable: each is looked at by itself.
                Err(_) => {
                    for id in ids {
                        diagnoses.push(self.diagnose(id, rules).await);
                    }
                    continue;
                }
            };
            for (id, loaded) in ids.iter().zip(loaded) {
                let record = loaded.map_err(store_failed).and_then(|record| record.ok_or_else(|| never_slept(id)));
                diagnoses.push(match record {
                    Ok(record) => {
                        let around = Self::has_surroundings(&record).then(|| around.next()).flatten();
                        self.examine(record, &around.unwrap_or_default(), rules).await
                    }
                    Err(error) => Err(error),
                });
            }
        }
        Ok(diagnoses)
    }

    /// What is over leads nowhere.
    fn has_surroundings(record: &InvocationRecord) -> bool {
        matches!(record.status, InvocationStatus::Suspended | InvocationStatus::Resuming(_))
    }

    async fn look_around(&self, paused: &[&PausedInvocation]) -> Result<Vec<Surroundings>, TurnError> {
        self.engine().ports().store.surroundings(paused, self.now()).await.map_err(store_failed)
    }

    async fn examine(
        &self,
        record: InvocationRecord,
        around: &Surroundings,
        rules: &RulesSeen,
    ) -> Result<Diagnosis, TurnError> {
        let mut remarks = Vec::new();
        match &record.status {
            InvocationStatus::Completed { .. } => remarks.push(remark(Finding::Completed, "it completed".to_owned())),
            InvocationStatus::Errored(failure) => {
                let sentence = format!("it ended with `{}`: {}", failure.category, failure.message);
                let finding = if is_aside(&record) { Finding::PutAside } else { Finding::Failed };
                remarks.push(remark(finding, sentence));
            }
            InvocationStatus::Canceled(cancellation) => {
                remarks.push(remark(Finding::Canceled, cancellation.message()));
            }
            InvocationStatus::Resuming(claim) => {
                remarks.push(self.of_claim(claim));
                self.look_at_graph(&record.paused, &mut remarks);
                self.look_at_indexes(&record.paused, around, &mut remarks);
                if record.paused.generation == 0 {
                    self.look_at_lease(&record.paused, around, &mut remarks);
                }
            }
            InvocationStatus::Suspended => {
                self.look_at_due(&record.paused, &mut remarks);
                self.look_at_graph(&record.paused, &mut remarks);
                self.look_at_indexes(&record.paused, around, &mut remarks);
                look_at_signals(&record.paused, around, &mut remarks);
                remarks.extend(rules.remark_on(&record.paused));
                self.look_at_unfit(&record.paused, &mut remarks).await?;
                self.look_at_lease(&record.paused, around, &mut remarks);
                remarks.extend(look_at_answer(&record.paused));
                if !remarks.iter().any(|remark| remark.finding.is_trouble()) {
                    remarks.insert(0, remark(Finding::Waiting, waiting(&record.paused, self.now())));
                }
            }
        }
        Ok(Diagnosis { record, remarks })
    }

    fn of_claim(&self, claim: &Claim) -> Remark {
        if limits::lasts_too_long(claim.until, self.now()) {
            let sentence = format!(
                "it is claimed until {}, longer than any turn may take: the next delivery or sweep takes it over; look for \
                a machine whose clock is wrong",
                claim.until
            );
            return remark(Finding::ClaimStuck, sentence);
        }
        if claim.until > self.now() {
            let sentence = format!("a worker continues it now; if it dies, its claim ends at {}", claim.until);
            return remark(Finding::ClaimHeld, sentence);
        }
        if claim.is_unowned() {
            let sentence = "what it goes on with is accepted, and no worker has taken it up yet";
            return remark(Finding::ClaimExpired, sentence.to_owned());
        }
        let sentence = format!(
            "the worker that continued it died; its claim ended at {}, and the accepted payload waits for another worker",
            claim.until
        );
        remark(Finding::ClaimExpired, sentence)
    }

    fn look_at_due(&self, paused: &PausedInvocation, remarks: &mut Vec<Remark>) {
        let Some(due) = &paused.wake.due else { return };
        if since(due.at, self.now()) >= LATE {
            let ago = in_words(self.now().duration_since(due.at));
            let why = match due.action {
                DueAction::Resume(_) | DueAction::Fail => "its timer was lost and no sweep has come",
                DueAction::Announce(_) => {
                    "its timer was lost and no sweep has come, or the event bus does not take what is to be told"
                }
            };
            let sentence = format!("it fell due at {}, {ago} ago: {why}", due.at);
            remarks.push(remark(Finding::Overdue, sentence));
        }
    }

    fn look_at_graph(&self, paused: &PausedInvocation, remarks: &mut Vec<Remark>) {
        let graph = &paused.graph;
        if paused.generation == 0 && self.graphs().get(graph).is_ok() {
            // It has not begun: any shape will do.
            return;
        }
        let upgrade = self.upgrade_of(paused.clone());
        let reason = upgrade.outcome.map_err(|error| error.message).err().unwrap_or_default();
        let (finding, sentence) = match upgrade.fate {
            Fate::Same => return,
            Fate::Reshaped | Fate::Migrated => {
                (Finding::GraphChanged, format!("graph `{graph}` was changed after it went to sleep"))
            }
            Fate::GraphUnknown => {
                let sentence = format!("no graph `{graph}` is registered here: a worker that has it must run");
                (Finding::GraphUnknown, sentence)
            }
            Fate::NeedsMigration => {
                (Finding::NoMigration, format!("its state cannot be brought to the present schema: {reason}"))
            }
            Fate::Pinned => {
                let sentence = format!(
                    "graph `{graph}` was changed after it went to sleep, and leaves it to workers of the shape that wrote \
                    it: one of them must run"
                );
                (Finding::GraphPinned, sentence)
            }
            Fate::Refused | Fate::Unreadable => {
                let sentence = format!(
                    "graph `{graph}` was changed after it went to sleep and does not take it: {reason}; bring back what it \
                    needs, or cancel it"
                );
                (Finding::GraphRefuses, sentence)
            }
        };
        remarks.push(remark(finding, sentence));
    }

    fn look_at_indexes(&self, paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Remark>) {
        match &around.row {
            None => {
                let sentence = "the index of what sleeps does not have it: no sweep would find it";
                remarks.push(remark(Finding::RowMissing, sentence.to_owned()));
            }
            Some(row) if paused.generation > 0 && !row.registered && since(paused.suspended_at, self.now()) >= LATE => {
                let sentence = "no sweep has seen to it that its wake-up is registered";
                remarks.push(remark(Finding::Unregistered, sentence.to_owned()));
            }
            Some(_) => {}
        }
    }

    /// A pause needs no lease to go on. What has not begun does, and its session's next turn; and a lease tells of a turn
    /// that runs or died.
    fn look_at_lease(&self, paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Remark>) {
        let (Some(session), Some(until)) = (&paused.session_id, around.leased_until) else { return };
        remarks.push(if limits::lasts_too_long(until, self.now()) {
            let sentence = format!(
                "its session `{session}` is leased until {until}, longer than any turn may take: the next turn takes it \
                over; look for a machine whose clock is wrong"
            );
            remark(Finding::LeaseStuck, sentence)
        } else if until > self.now() {
            let sentence = format!("a turn of its session `{session}` runs now; if it dies, its lease ends at {until}");
            remark(Finding::SessionLeased, sentence)
        } else {
            let sentence = format!(
                "a turn of its session `{session}` died; its lease ended at {until}, and the next \
                turn takes it over"
            );
            remark(Finding::SessionLeased, sentence)
        });
    }

    /// An event that did not fit lies in the queue of what failed; whoever sent it believes that it was taken.
    async fn look_at_unfit(&self, paused: &PausedInvocation, remarks: &mut Vec<Remark>) -> Result<(), TurnError> {
        if paused.wake.event.is_none() {
            return Ok(());
        }
        let name = unfit(&paused.invocation_id, paused.generation);
        let noted = self.engine().ports().store.sweep_position(&name).await.map_err(store_failed)?;
        remarks.extend(noted.map(|noted| {
            let sentence = format!(
                "an event came for it that did not fit, and lies with what failed ({noted}); have it sent again as the pause \
                 accepts it"
            );
            remark(Finding::EventUnfit, sentence)
        }));
        Ok(())
    }

    /// Does what helps against `finding`. The sentence says what came of it; `None` where there is no remedy.
    ///
    /// # Errors
    /// When the remedy does not work; nothing is worse then than it was.
    pub async fn repair(&self, record: &InvocationRecord, finding: Finding) -> Result<Option<String>, TurnError> {
        let paused = &record.paused;
        let store = &self.engine().ports().store;
        let upkeep = async |upkeep: Upkeep, done: &str| {
            store.upkeep(&upkeep).await.map(|()| Some(done.to_owned())).map_err(store_failed)
        };
        match finding {
            Finding::RowMissing => upkeep(Upkeep::Row(Box::new(paused.clone())), "the row was written again").await,
            Finding::SignalMissing => {
                upkeep(Upkeep::Wait(Box::new(paused.clone())), "the wait was written again").await
            }
            Finding::Unregistered => self.register_now(paused).await.map(Some),
            Finding::ClaimExpired | Finding::ClaimStuck => {
                match self.take_over(&paused.invocation_id, Some(paused.generation)).await? {
                    Some(outcome) => said(outcome).map(Some),
                    None => Ok(Some("another worker was faster".to_owned())),
                }
            }
            Finding::Overdue => {
                let due_at = paused.wake.due.as_ref().map(|due| due.at);
                let due = Transmission::due(paused.invocation_id.clone(), paused.generation, due_at);
                said(self.turn(due).await.outcome).map(Some)
            }
            Finding::SignalParked => self.hand_over(paused).await.map(Some),
            Finding::RuleMissing => self.make_rule_now(paused).await.map(Some),
            Finding::Completed
            | Finding::Failed
            | Finding::PutAside
            | Finding::Canceled
            | Finding::Waiting
            | Finding::ClaimHeld
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

    async fn register_now(&self, paused: &PausedInvocation) -> Result<String, TurnError> {
        let subscribed = self.register_wake(&subscription_to(paused)).await;
        subscribed.map_err(subscription_failed)?;
        let row = Upkeep::Registered(dormouse_ports::PendingRow::of(paused));
        self.engine().ports().store.upkeep(&row).await.map_err(store_failed)?;
        Ok("the wake-up is registered".to_owned())
    }

    async fn make_rule_now(&self, paused: &PausedInvocation) -> Result<String, TurnError> {
        let rules = self.event_rules().list_rules().await.map_err(subscription_failed)?;
        self.rules().make_rule_of(paused, &rules).await.map_err(subscription_failed)?;
        Ok("the rule is there and enabled".to_owned())
    }

    /// The parked payload, as if it came now.
    async fn hand_over(&self, paused: &PausedInvocation) -> Result<String, TurnError> {
        let mut handed = "the signal is parked no more".to_owned();
        for id in paused.waits() {
            let known = self.engine().ports().store.load_signal(&id, self.now()).await.map_err(store_failed)?;
            let Some(SignalState::Buffered(signal)) = known.map(|record| record.state) else { continue };
            let part = paused.fan_in.as_ref().and_then(|fan_in| fan_in.part_of(&id.origin().1)).map(str::to_owned);
            let callback =
                Transmission::callback(paused.invocation_id.clone(), Some(paused.generation), signal.payload);
            handed = said(self.turn(Transmission { part, ..callback }).await.outcome)?;
        }
        Ok(handed)
    }
}

fn look_at_signals(paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Remark>) {
    for (id, known) in &around.signals {
        let (shape, id) = id.origin();
        let (finding, sentence) = match known {
            // A pause of an earlier version has none for events, and is found by the plain one.
            None if shape.is_some() => continue,
            Some(SignalState::Waiting { invocation_id, .. }) if *invocation_id == paused.invocation_id => continue,
            Some(SignalState::Waiting { invocation_id, .. }) => {
                (Finding::SignalTaken, format!("signal `{id}` leads to another invocation, {invocation_id}"))
            }
            Some(SignalState::Buffered(signal)) => {
                let sentence = format!("signal `{id}` came at {} and was not handed over", signal.received_at);
                (Finding::SignalParked, sentence)
            }
            Some(SignalState::Delivered { .. }) | None => {
                let sentence = format!("nothing leads from signal `{id}` to it: its signal item is missing");
                (Finding::SignalMissing, sentence)
            }
        };
        remarks.push(remark(finding, sentence));
    }
}

fn never_slept(id: &InvocationId) -> TurnError {
    let message = format!("there is no invocation {id} that ever slept; a finished one is kept for 30 days");
    TurnError::new(Category::NotFound, message)
}

/// What came of a turn, in a sentence.
fn said(outcome: TurnOutcome) -> Result<String, TurnError> {
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

/// Names a pause whose answer is not limited to what was asked. Answers of several parts go into one field.
fn look_at_answer(paused: &PausedInvocation) -> Option<Remark> {
    let rule = AnswerRule::of(&paused.descriptor).unwrap_or_default();
    (rule.accepts_everything() && paused.fan_in.is_none()).then(|| {
        let node = paused.suspended_at_node.join("/");
        let sentence = format!(
            "its answer may set every field of the state: let node `{node}` declare what it accepts (`accepts` or `into`)"
        );
        remark(Finding::AcceptsEverything, sentence)
    })
}

fn remark(finding: Finding, sentence: String) -> Remark {
    Remark { finding, sentence }
}

/// For whom a healthy pause waits, since when and until when.
fn waiting(paused: &PausedInvocation, now: Timestamp) -> String {
    let node = paused.suspended_at_node.join("/");
    let slept = in_words(now.duration_since(paused.suspended_at));
    let mut sentence = format!("it has slept for {slept} at node `{node}` and {}", waits_for(paused));
    if let Some(event) = &paused.wake.event {
        let pattern = serde_json::Value::Object(event.pattern.clone());
        sentence.push_str(&format!(", which an event may carry that matches {pattern}"));
    }
    match &paused.wake.due {
        Some(due) => {
            let what = match &due.action {
                DueAction::Resume(payload) if *payload == Map::new() => "it goes on by itself",
                DueAction::Resume(_) => "it goes on with a default answer",
                DueAction::Fail => "it ends as timed out",
                DueAction::Announce(told) => {
                    &format!("its deadline passes and `{}` is told on the bus", told.step.as_str())
                }
            };
            sentence.push_str(&format!("; at {} {what}", due.at));
        }
        None => sentence.push_str("; it waits for as long as that takes"),
    }
    sentence
}

/// What a pause waits for; of several signals, who has answered and who has not.
fn waits_for(paused: &PausedInvocation) -> String {
    let Some(fan_in) = &paused.fan_in else {
        return format!("waits for signal `{}`", paused.descriptor.signal_id);
    };
    let missing: Vec<_> = fan_in.missing().collect();
    let answered: Vec<_> = fan_in.answers.iter().map(|answer| answer.part.as_str()).collect();
    let needed = match fan_in.until {
        Until::All => "all".to_owned(),
        Until::AtLeast(count) => count.to_string(),
    };
    let answered = if answered.is_empty() { "nobody".to_owned() } else { answered.join(", ") };
    let (of, missing) = (fan_in.expected.len(), missing.join(", "));
    format!("waits for {needed} of {of} answers: {answered} answered, {missing} did not")
}

/// A span of time as people say it: the two largest units.
pub fn in_words(span: SignedDuration) -> String {
    let seconds = span.as_secs().unsigned_abs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}
