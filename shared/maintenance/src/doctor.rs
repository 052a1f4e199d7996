//! The reason for which an invocation is suspended, in words, and the remedy where it should not be.

mod finding;
mod repair;
mod rules;
mod words;

use dormouse_harness::{Harness, TurnError, is_put_aside, store_failed};
use dormouse_ports::{
    AnswerRule, Category, Claim, DueAction, InvocationId, InvocationRecord, InvocationStatus, Invocations,
    MaintenanceStore, PausedInvocation, SignalState, Surroundings, limits, unfit_note,
};
use jiff::Timestamp;

use crate::order::TOGETHER;
use crate::time::since;
use crate::upgrade::{MigrationOutcome, upgrade_of};
pub use finding::{Diagnosis, Finding, Observation};
use finding::{LATE, remark};
pub use repair::repair;
pub use rules::RulesSeen;
use words::waiting;
pub use words::{in_words, then};

/// Looks at invocations, with the rules that were on the bus.
#[derive(Debug)]
pub struct Doctor<'h> {
    harness: &'h Harness,
    store: &'h MaintenanceStore,
    rules: RulesSeen,
    /// A graph that runs elsewhere.
    elsewhere: Option<&'h str>,
}

impl<'h> Doctor<'h> {
    /// A doctor for what workers of `harness` run.
    pub fn new(harness: &'h Harness, store: &'h MaintenanceStore, rules: RulesSeen) -> Self {
        Self { harness, store, rules, elsewhere: None }
    }

    /// The same where `graph` is one that those who serve the store have, and the program that looks into it has not: that it is
    /// not here is no trouble.
    #[must_use]
    pub fn beside(self, graph: &'h str) -> Self {
        Self { elsewhere: Some(graph), ..self }
    }

    /// Diagnoses why the invocation `id` is suspended, or why it does not go on.
    ///
    /// # Errors
    /// `not_found` when it was never suspended; otherwise when the store does not answer.
    pub async fn diagnose(&self, id: &InvocationId) -> Result<Diagnosis, TurnError> {
        let record =
            self.invocations().load_invocation(id).await.map_err(store_failed)?.ok_or_else(|| never_slept(id))?;
        let around = match Self::has_surroundings(&record) {
            true => self.look_around(&[&record.paused]).await?.pop().unwrap_or_default(),
            false => Surroundings::default(),
        };
        self.examine(record, &around).await
    }

    /// The same of each of `ids`, with few requests for a hundred of them.
    ///
    /// # Errors
    /// If the store does not answer. The error of an invocation that cannot be read stands in the place of its
    /// diagnosis.
    pub async fn diagnose_all(&self, ids: &[InvocationId]) -> Result<Vec<Result<Diagnosis, TurnError>>, TurnError> {
        let mut diagnoses = Vec::new();
        for ids in ids.chunks(TOGETHER) {
            let loaded = self.invocations().load_invocations(ids).await.map_err(store_failed)?;
            let paused: Vec<_> = loaded.iter().flatten().flatten().filter(|it| Self::has_surroundings(it)).collect();
            let paused: Vec<_> = paused.into_iter().map(|record| &record.paused).collect();
            let mut around = match self.look_around(&paused).await {
                Ok(around) => around.into_iter(),
                // One of them is not readable: each is looked at by itself.
                Err(_) => {
                    for id in ids {
                        diagnoses.push(self.diagnose(id).await);
                    }
                    continue;
                }
            };
            for (id, loaded) in ids.iter().zip(loaded) {
                let record = loaded.map_err(store_failed).and_then(|record| record.ok_or_else(|| never_slept(id)));
                diagnoses.push(match record {
                    Ok(record) => {
                        let around = Self::has_surroundings(&record).then(|| around.next()).flatten();
                        self.examine(record, &around.unwrap_or_default()).await
                    }
                    Err(error) => Err(error),
                });
            }
        }
        Ok(diagnoses)
    }

    /// True unless the invocation is over, which leads nowhere.
    fn has_surroundings(record: &InvocationRecord) -> bool {
        matches!(
            record.status,
            InvocationStatus::Suspended | InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_)
        )
    }

    async fn look_around(&self, paused: &[&PausedInvocation]) -> Result<Vec<Surroundings>, TurnError> {
        self.store.diagnostics.surroundings(paused, self.now()).await.map_err(store_failed)
    }

    fn invocations(&self) -> &dyn Invocations {
        &*self.harness.engine().ports().store.invocations
    }

    fn now(&self) -> Timestamp {
        self.harness.engine().ports().clock.now()
    }

    async fn examine(&self, record: InvocationRecord, around: &Surroundings) -> Result<Diagnosis, TurnError> {
        let mut remarks = Vec::new();
        match &record.status {
            InvocationStatus::Completed { .. } => remarks.push(remark(Finding::Completed, "it completed".to_owned())),
            InvocationStatus::Errored(failure) => {
                let sentence = format!("it ended with `{}`: {}", failure.category, failure.message);
                let finding = if is_put_aside(&record) { Finding::PutAside } else { Finding::Failed };
                remarks.push(remark(finding, sentence));
            }
            InvocationStatus::Canceled(cancellation) => {
                remarks.push(remark(Finding::Canceled, cancellation.message()));
            }
            InvocationStatus::Accepted { .. } => {
                let sentence = "what it goes on with is accepted, and no worker has taken it up yet";
                remarks.push(remark(Finding::ClaimExpired, sentence.to_owned()));
                self.look_at_claimed(&record.paused, around, &mut remarks);
            }
            InvocationStatus::Resuming(claim) => {
                remarks.push(self.of_claim(claim));
                self.look_at_claimed(&record.paused, around, &mut remarks);
            }
            InvocationStatus::Suspended => {
                self.look_at_due(&record.paused, &mut remarks);
                self.look_at_graph(&record.paused, &mut remarks);
                self.look_at_indexes(&record.paused, around, &mut remarks);
                look_at_signals(&record.paused, around, &mut remarks);
                remarks.extend(self.rules.remark_on(&record.paused));
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

    fn of_claim(&self, claim: &Claim) -> Observation {
        if limits::lasts_too_long(claim.until, self.now()) {
            let sentence = format!(
                "it is claimed until {}, longer than any turn may take: the next delivery or sweep takes it over; look for \
                a machine whose clock is wrong",
                claim.until
            );
            return remark(Finding::ClaimStuck, sentence);
        }
        if claim.until > self.now() {
            let sentence = format!(
                "a worker continues it now; if that has died, or could not write what it did, its claim ends at {}, and \
                another one goes on",
                claim.until
            );
            return remark(Finding::ClaimHeld, sentence);
        }
        let sentence = format!(
            "the worker that continued it died; its claim ended at {}, and the accepted payload waits for another worker",
            claim.until
        );
        remark(Finding::ClaimExpired, sentence)
    }

    /// Looks at what goes on as soon as a worker has its claim.
    fn look_at_claimed(&self, paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Observation>) {
        self.look_at_graph(paused, remarks);
        self.look_at_indexes(paused, around, remarks);
        if !paused.has_paused() {
            self.look_at_lease(paused, around, remarks);
        }
    }

    fn look_at_due(&self, paused: &PausedInvocation, remarks: &mut Vec<Observation>) {
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

    fn look_at_graph(&self, paused: &PausedInvocation, remarks: &mut Vec<Observation>) {
        let graph = &paused.graph;
        if !paused.has_paused() && self.harness.graphs().get(graph).is_ok() {
            // It has not begun: any shape will do.
            return;
        }
        let upgrade = upgrade_of(self.harness.graphs(), paused.clone());
        let reason = upgrade.outcome.map_err(|error| error.message).err().unwrap_or_default();
        let (finding, sentence) = match upgrade.fate {
            MigrationOutcome::Same => return,
            MigrationOutcome::Reshaped | MigrationOutcome::Migrated => {
                (Finding::GraphChanged, format!("graph `{graph}` was changed after it went to sleep"))
            }
            MigrationOutcome::GraphUnknown if self.elsewhere == Some(graph.as_str()) => return,
            MigrationOutcome::GraphUnknown => {
                let sentence = format!("no graph `{graph}` is registered here: a worker that has it must run");
                (Finding::GraphUnknown, sentence)
            }
            MigrationOutcome::NeedsMigration => {
                (Finding::NoMigration, format!("its state cannot be brought to the present schema: {reason}"))
            }
            MigrationOutcome::Pinned => {
                let sentence = format!(
                    "graph `{graph}` was changed after it went to sleep, and leaves it to workers of the shape that wrote \
                    it: one of them must run"
                );
                (Finding::GraphPinned, sentence)
            }
            MigrationOutcome::Refused | MigrationOutcome::Unreadable => {
                let sentence = format!(
                    "graph `{graph}` was changed after it went to sleep and does not take it: {reason}; bring back what it \
                    needs, or cancel it"
                );
                (Finding::GraphRefuses, sentence)
            }
        };
        remarks.push(remark(finding, sentence));
    }

    fn look_at_indexes(&self, paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Observation>) {
        match &around.row {
            // The index of claims has it.
            None if !paused.has_paused() => {}
            None => {
                let sentence = "the index of what sleeps does not have it: no sweep would find it";
                remarks.push(remark(Finding::RowMissing, sentence.to_owned()));
            }
            Some(row) if paused.has_paused() && !row.registered && since(paused.suspended_at, self.now()) >= LATE => {
                let sentence = "no sweep has seen to it that its wake-up is registered";
                remarks.push(remark(Finding::Unregistered, sentence.to_owned()));
            }
            Some(_) => {}
        }
    }

    /// A pause needs no lease to go on. An invocation that has not begun does, and its session's next turn; and a lease
    /// shows a turn that runs or died.
    fn look_at_lease(&self, paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Observation>) {
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

    /// An event that did not fit lies in the queue of failed events; its sender believes that it was taken.
    async fn look_at_unfit(&self, paused: &PausedInvocation, remarks: &mut Vec<Observation>) -> Result<(), TurnError> {
        if paused.wake.event.is_none() {
            return Ok(());
        }
        let name = unfit_note(&paused.invocation_id, paused.generation);
        let noted = self.harness.engine().ports().store.notes.note(&name).await.map_err(store_failed)?;
        remarks.extend(noted.map(|noted| {
            let sentence = format!(
                "an event came for it that did not fit, and lies with what failed ({noted}); have it sent again as the pause \
                 accepts it"
            );
            remark(Finding::EventUnfit, sentence)
        }));
        Ok(())
    }
}

fn look_at_signals(paused: &PausedInvocation, around: &Surroundings, remarks: &mut Vec<Observation>) {
    for (id, known) in &around.signals {
        let (bringer, id) = id.origin();
        let (finding, sentence) = match known {
            // A pause of an earlier version has none for events, and is found by the plain one.
            None if bringer.is_some() => continue,
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
    TurnError::new(Category::NotFound, not_kept(id))
}

/// Sentence for one who names an invocation of which there is no record.
pub fn not_kept(id: &InvocationId) -> String {
    format!(
        "nothing that sleeps has the id {id}, and nothing that has ended within 30 days has exactly this one: \
         `pending` lists what sleeps; what has ended is found by its whole id"
    )
}

/// Names a pause that does not limit its answer to the fields that were asked for. Answers of several parts go into one
/// field.
fn look_at_answer(paused: &PausedInvocation) -> Option<Observation> {
    let rule = AnswerRule::of(&paused.descriptor).unwrap_or_default();
    (rule.accepts_everything() && paused.fan_in.is_none()).then(|| {
        let node = paused.suspended_at_node.join("/");
        let sentence = format!(
            "its answer may set every field of the state: let node `{node}` declare what it accepts (`accepts` or `into`)"
        );
        remark(Finding::AcceptsEverything, sentence)
    })
}
