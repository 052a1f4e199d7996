//! Writing a commit: all of it or nothing, and certainty about which.
//!
//! A lost answer is found again in two ways. A transaction carries the commit's id as its request token, so that the
//! same request within ten minutes gets the same answer. And every session, invocation, document and stream keeps the
//! id of the commit that wrote it last: a condition that fails on an item with our own id fails on our own success.
//! Only of a plain update nothing is left if its answer was lost and its item was changed again before the repetition.
//! That of a session is in doubt then; another is reported as a conflict.
//!
//! Appends to streams are reported in feeds with the instant at which they were sent: no attempt takes effect long
//! after its recorded instant, so that readers know how far a feed is complete. Each attempt is another request then,
//! and the first way is closed; but the entries of an append, which no commit writes again, keep the id of their commit
//! for ever.
//!
//! Rows of lists and feeds are written ahead of the transaction, those of feeds with the instant of its attempt. A
//! transaction that is not sent soon behind its rows is given another instant. Of a durable step, for which a run waits,
//! rows of feeds travel in the transaction; of what takes from counters, which may refuse it, all rows do.
//!
//! A durable step may be no more than the batch of its events, with a note of what it changed (`steps`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use dormouse_ports::{
    Clock, Commit, CommitError, InvocationWrite, JournalConflict, SessionWrite, StepWritten, StoreError,
};
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::blobs::{BlobOrigin, Bodies};
use super::encode::Encoder;
use super::fault::{RequestFault, fault};
use super::invocation::InvocationItems;
use super::item::{Item, optional_text, text_value};
use super::journal::AppendWrites;
use super::keys::{COMMIT_ID, Key};
use super::plan::{Notes, Plan, PlanPart};
use super::recent::RecentLists;
use super::requests::Table;
use super::session;
use super::signal::SignalItems;
use super::steps::{FENCE_ATTEMPTS, NotedStep, RecentSteps, StepNotes, Unsaved, owner_of_stream};
use super::write::{ItemWrite, WriteOutcome};

/// Number of times that an append to streams is sent once more because the one before it was sent later, by another
/// clock.
const MOST_EARLY: usize = 8;

/// Time after its instant within which an attempt is sent: what its rows may take. Part of
/// [`under_way`](super::StoreConfig::under_way).
const ROWS_TAKE: SignedDuration = SignedDuration::from_millis(500);

/// Answer of the items of a commit.
#[derive(Debug)]
enum ItemsVerdict {
    Happened,
    /// The index of the first item that refused, and the item as it was found.
    Refused(usize, Option<Item>),
}

/// What came of a commit that is written whole.
enum WholeVerdict {
    Written,
    /// Nothing: it ends an invocation of which steps may be noted, and was to save what they have brought to its session, as far as
    /// that was known. The item of the invocation.
    Noted(Item),
}

/// Reasons that pass by themselves. They may stand beside a failed condition, which then means nothing: the conflicting
/// transaction may be our own earlier attempt.
const PASSING: &[&str] =
    &["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"];

/// Writes commits, as one change or as none.
#[derive(Clone)]
pub(super) struct CommitWriter {
    pub(super) table: Arc<Table>,
    pub(super) bodies: Arc<Bodies>,
    pub(super) signals: SignalItems,
    /// Gives the instant at which a commit is sent.
    pub(super) clock: Arc<dyn Clock>,
    /// Lists that durable steps have stored.
    pub(super) recent: Arc<RecentLists>,
    /// Steps behind which the next ones may be noted.
    pub(super) steps: Arc<RecentSteps>,
    /// Reads steps that were noted.
    pub(super) notes: StepNotes,
    pub(super) invocations: InvocationItems,
}

impl CommitWriter {
    pub(super) async fn write(&self, commit: &Commit) -> Result<(), CommitError> {
        let notes = if self.steps.are_none(commit) { Notes::Absent } else { Notes::Unknown };
        let written = match self.write_whole(commit, notes).await {
            Ok(WholeVerdict::Written) => Ok(()),
            Ok(WholeVerdict::Noted(item)) => self.write_with_notes(commit, item).await,
            Err(error) => Err(error),
        };
        match &written {
            Ok(()) => self.steps.written(commit)?,
            Err(error) if error.may_be_written() => self.steps.forget_touched(commit),
            Err(_) => {}
        }
        written
    }

    /// Writes a durable step, which may be noted in the batch of its events, or in one of its own where it publishes none.
    pub(super) async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        let own = self.steps.in_own_stream(commit);
        let noted = own.as_ref().unwrap_or(commit);
        if let (Some(step), [append]) = (self.steps.noting(noted)?, noted.journal.appends.as_slice()) {
            noted.journal.check()?;
            let origin = BlobOrigin { owners: Vec::new(), now: commit.now };
            let mut encoder = Encoder::new(&self.bodies.config, origin);
            let append = AppendWrites::of(&mut encoder, append, text_value(&commit.id))?;
            if encoder.blobs.is_empty() {
                match self.note(noted, step, &append).await {
                    // Nobody else appends there but who takes the run over, or ends it: the claim is looked at.
                    Err(CommitError::Journal(_)) if own.is_some() => {}
                    written => return written.map(|()| StepWritten::Noted),
                }
            }
        }
        self.write(commit).await.map(|()| StepWritten::Whole)
    }

    async fn note(&self, commit: &Commit, step: NotedStep, append: &AppendWrites<'_>) -> Result<(), CommitError> {
        let earliest = append.earliest().unwrap_or(Timestamp::MIN);
        let in_doubt = AtomicBool::new(false);
        let attempt = async || {
            let at = self.clock.now().max(earliest);
            self.put_rows(append.row(at).into_iter().collect(), at).await?;
            self.table.attempt(&append.noted(&step.note, at)).await.inspect_err(|fault| {
                in_doubt.fetch_or(matches!(fault, RequestFault::Transient(_)), Ordering::Relaxed);
            })
        };
        let noted = match self.table.retry.run(attempt).await {
            Ok(WriteOutcome::Done(_)) => Ok(()),
            Ok(WriteOutcome::Refused(found)) if is_ours(commit, found.as_ref()) => Ok(()),
            Ok(WriteOutcome::Refused(_)) => {
                Err(CommitError::Journal(JournalConflict::Stream(append.stream().to_owned())))
            }
            Err(error) => self.settle(commit, Some(&append.witness()), (error, in_doubt.into_inner())).await,
        };
        match noted {
            Ok(()) => self.steps.noted(step),
            Err(_) => self.steps.forget(step.invocation_id()),
        }
        noted
    }

    /// Writes `commit`, which ends an invocation, or its pause, of which steps may be noted, as its `item` says: what they have
    /// brought to its session is saved as well, unless another turn has saved since.
    async fn write_with_notes(&self, commit: &Commit, mut item: Item) -> Result<(), CommitError> {
        for attempt in 0..FENCE_ATTEMPTS {
            let found = match self.invocations.whole_record(&item).await {
                Ok(record) => self.notes.unsaved(record, &item).await,
                Err(error) => Err(error),
            };
            // What cannot be read can be ended all the same.
            let is_corrupt = matches!(found, Err(StoreError::Corrupt(_)));
            let (unsaved, fence) = if is_corrupt { (None, None) } else { found? };
            let mut alone = Commit { id: format!("{}-alone-{attempt}", commit.id), ..commit.clone() };
            alone.journal.appends.extend(fence);
            let saving = unsaved.map(|unsaved| saving(&alone, format!("{}-saving-{attempt}", commit.id), unsaved));
            let saved = match &saving {
                Some(saving) => self.write_whole(saving, Notes::Known(&item)).await,
                None => Err(CommitError::SessionConflict),
            };
            let written = match saved {
                Err(CommitError::SessionConflict) => self.write_whole(&alone, Notes::Known(&item)).await,
                saved => saved,
            };
            match written {
                // Its worker has noted a step meanwhile.
                Err(CommitError::Journal(JournalConflict::Stream(stream))) if owner_of_stream(&stream).is_some() => {}
                // It has written one whole.
                Ok(WholeVerdict::Noted(found)) => item = found,
                Ok(WholeVerdict::Written) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(CommitError::Store(StoreError::Unavailable("the run takes steps faster than it can be ended".to_owned())))
    }

    async fn write_whole(&self, commit: &Commit, notes: Notes<'_>) -> Result<WholeVerdict, CommitError> {
        let (growing, known) = self.recent.knowing(commit);
        let mut plan = Plan::of(commit, &growing, known, (&self.bodies.config, notes))?;
        self.bodies.put_blobs(std::mem::take(&mut plan.encoder.blobs)).await?;
        let pieces = std::mem::take(&mut plan.encoder.pieces).into_iter();
        self.table.put_all(pieces.map(|(key, item)| ItemWrite::put(&key, item)).collect()).await?;
        let in_doubt = AtomicBool::new(false);
        let verdict = if plan.sendings.is_empty() {
            self.table.put_all(plan.rows(commit.now)).await?;
            self.write_plan(commit, &plan, &in_doubt).await
        } else {
            self.send(commit, &plan, &in_doubt).await
        };
        match verdict {
            Ok(ItemsVerdict::Happened) => {
                self.recent.note(commit, &plan.encoder);
                Ok(WholeVerdict::Written)
            }
            Ok(ItemsVerdict::Refused(index, found)) => match (plan.part(index), found) {
                (Some(PlanPart::Invocation), Some(found)) if plan.is_noted_elsewhere(&found) => {
                    Ok(WholeVerdict::Noted(found))
                }
                (Some(PlanPart::Session(write)), found)
                    if plan.is_plain()
                        && in_doubt.load(Ordering::Relaxed)
                        && session::may_be_beneath(write, found.as_ref()) =>
                {
                    let id = &write.session_id;
                    Err(CommitError::Unknown(format!("an attempt to save {id} was not answered; it was changed since")))
                }
                (part, found) => Err(self.refusal(part, found.as_ref()).await),
            },
            Err(error) => {
                let settled = self.settle(commit, plan.witness.as_ref(), (error, in_doubt.into_inner())).await;
                settled.map(|()| WholeVerdict::Written)
            }
        }
    }

    /// Sends appends to streams, each attempt with its own instant; notes in `in_doubt` as
    /// [`write_plan`](Self::write_plan) does.
    async fn send(&self, commit: &Commit, plan: &Plan<'_>, in_doubt: &AtomicBool) -> Result<ItemsVerdict, StoreError> {
        let mut earliest = plan.earliest();
        for _ in 0..MOST_EARLY {
            let attempt = || {
                let at = self.clock.now().max(earliest);
                async move {
                    self.put_rows(plan.rows(at), at).await?;
                    let parts = plan.sent_at(commit, at);
                    let items = parts.iter().map(|(_, write)| write.in_transaction(&self.table.name));
                    let items = items.collect::<Result<_, _>>().map_err(RequestFault::Permanent)?;
                    let sent = self.transact(commit, items, &format!("{} {at}", commit.id)).await;
                    sent.inspect_err(|fault| {
                        in_doubt.fetch_or(matches!(fault, RequestFault::Transient(_)), Ordering::Relaxed);
                    })
                }
            };
            let ItemsVerdict::Refused(index, found) = self.table.retry.run(attempt).await? else {
                return Ok(ItemsVerdict::Happened);
            };
            if let Some(key) = &plan.witness
                && is_ours(commit, self.table.get_item(key.clone()).await?.as_ref())
            {
                return Ok(ItemsVerdict::Happened);
            }
            match plan.too_early(plan.part(index), found.as_ref()) {
                Some(at) if at > earliest => earliest = at,
                Some(_) | None => return Ok(ItemsVerdict::Refused(index, found)),
            }
        }
        let streams = plan.sendings.iter().map(AppendWrites::stream).collect::<Vec<_>>().join(", ");
        Err(StoreError::Unavailable(format!(
            "{MOST_EARLY} attempts to append to {streams}: each time, another writer had taken a later instant"
        )))
    }

    /// Writes `rows` ahead of the change of an attempt of `at`, which is to be sent soon behind them.
    async fn put_rows(&self, rows: Vec<ItemWrite>, at: Timestamp) -> Result<(), RequestFault> {
        self.table.put_all(rows).await.map_err(RequestFault::Permanent)?;
        if self.clock.now().duration_since(at) > ROWS_TAKE {
            return Err(RequestFault::Busy(StoreError::Unavailable("the table is slow".to_owned())));
        }
        Ok(())
    }

    /// Notes in `in_doubt` that an attempt may have happened although it was not answered so.
    async fn write_plan(
        &self,
        commit: &Commit,
        plan: &Plan<'_>,
        in_doubt: &AtomicBool,
    ) -> Result<ItemsVerdict, StoreError> {
        let doubt =
            |fault: &RequestFault| in_doubt.fetch_or(matches!(fault, RequestFault::Transient(_)), Ordering::Relaxed);
        let retry = &self.table.retry;
        match plan.parts.as_slice() {
            [] => Ok(ItemsVerdict::Happened),
            [(_, write)] if plan.is_plain() => {
                let attempt = async || {
                    self.table.attempt(write).await.inspect_err(|fault| {
                        doubt(fault);
                    })
                };
                match retry.run(attempt).await? {
                    WriteOutcome::Done(_) => Ok(ItemsVerdict::Happened),
                    WriteOutcome::Refused(found) if is_ours(commit, found.as_ref()) => Ok(ItemsVerdict::Happened),
                    WriteOutcome::Refused(found) => Ok(ItemsVerdict::Refused(0, found)),
                }
            }
            parts => {
                let items = parts.iter().map(|(_, write)| write.in_transaction(&self.table.name));
                let items: Vec<TransactWriteItem> = items.collect::<Result<_, _>>()?;
                let attempt = async || {
                    self.transact(commit, items.clone(), &commit.id).await.inspect_err(|fault| {
                        doubt(fault);
                    })
                };
                retry.run(attempt).await
            }
        }
    }

    /// Sends one transaction; the same `name` names the same request.
    async fn transact(
        &self,
        commit: &Commit,
        items: Vec<TransactWriteItem>,
        name: &str,
    ) -> Result<ItemsVerdict, RequestFault> {
        let request = self.table.client.transact_write_items().set_transact_items(Some(items));
        let error = match request.client_request_token(token(name)).send().await {
            Ok(_) => return Ok(ItemsVerdict::Happened),
            Err(error) => error,
        };
        if let SdkError::ServiceError(answer) = &error
            && let TransactWriteItemsError::TransactionCanceledException(canceled) = answer.err()
        {
            return verdict(commit, canceled.cancellation_reasons());
        }
        Err(fault("TransactWriteItems", &self.table.name, &error))
    }

    /// After the last attempt failed: finds out if one of them happened all the same. One that was not answered may
    /// happen yet.
    async fn settle(
        &self,
        commit: &Commit,
        witness: Option<&Key>,
        (error, in_doubt): (StoreError, bool),
    ) -> Result<(), CommitError> {
        if !in_doubt {
            return Err(error.into());
        }
        if let Some(key) = witness
            && let Ok(found) = self.table.attempt_get(key).await
            && is_ours(commit, found.as_ref())
        {
            return Ok(());
        }
        Err(CommitError::Unknown(error.to_string()))
    }

    async fn refusal(&self, part: Option<PlanPart<'_>>, found: Option<&Item>) -> CommitError {
        match part {
            Some(PlanPart::Session(write)) => session::refusal(write, found),
            Some(PlanPart::Invocation) => CommitError::InvocationConflict,
            Some(PlanPart::Signal) => self.signals.wait_refusal(found).await,
            Some(PlanPart::Document(write)) => CommitError::Journal(JournalConflict::Document(write.key.clone())),
            Some(PlanPart::Counters(key)) => CommitError::Journal(JournalConflict::Counters(key.clone())),
            Some(PlanPart::Stream(stream)) => CommitError::Journal(JournalConflict::Stream(stream.to_owned())),
            Some(PlanPart::Unconditional) | None => {
                CommitError::Store(StoreError::Unavailable("an unconditional change was refused".to_owned()))
            }
        }
    }
}

/// `commit` under the name `id`, with what the steps that were noted have brought to the session.
fn saving(commit: &Commit, id: String, unsaved: Unsaved) -> Commit {
    let Unsaved { paused, session, stored } = unsaved;
    let session = match &commit.session {
        Some(own) => SessionWrite { save: session.save, expect: session.expect, ..own.clone() },
        None => session,
    };
    let mut growing = commit.growing.clone();
    growing.fields.extend(stored.iter().map(|list| list.field.as_str().into()));
    growing.stored.extend(stored);
    let invocation = match &commit.invocation {
        Some(InvocationWrite::PutAside { owner, failure, .. }) => {
            let (owner, failure) = (owner.clone(), failure.clone());
            Some(InvocationWrite::PutAside { paused: Box::new(paused), owner, failure })
        }
        write => write.clone(),
    };
    Commit { id, session: Some(session), invocation, growing, ..commit.clone() }
}

fn verdict(commit: &Commit, reasons: &[CancellationReason]) -> Result<ItemsVerdict, RequestFault> {
    if reasons.iter().any(|reason| is_ours(commit, reason.item())) {
        return Ok(ItemsVerdict::Happened);
    }
    let coded = |wanted: &[&str]| reasons.iter().position(|reason| wanted.contains(&reason.code().unwrap_or("None")));
    if let Some(index) = coded(PASSING) {
        let code = reasons[index].code().unwrap_or_default();
        return Err(RequestFault::Busy(StoreError::Unavailable(format!("the transaction was canceled: {code}"))));
    }
    if let Some(index) = coded(&["ConditionalCheckFailed"]) {
        return Ok(ItemsVerdict::Refused(index, reasons[index].item().cloned()));
    }
    let sentences: Vec<&str> = reasons.iter().filter_map(CancellationReason::message).collect();
    Err(RequestFault::Permanent(StoreError::Invalid(format!("the transaction was canceled: {}", sentences.join("; ")))))
}

/// True if the item `found` was last written by `commit`.
fn is_ours(commit: &Commit, found: Option<&Item>) -> bool {
    found.and_then(|item| optional_text(item, COMMIT_ID)) == Some(commit.id.as_str())
}

/// The commit's id as a request token, which may have 36 characters.
fn token(id: &str) -> String {
    if (1..=36).contains(&id.len()) { id.to_owned() } else { hex::encode(&Sha256::digest(id)[..16]) }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::AttributeValue;
    use dormouse_ports::{GrowingLists, Journal};

    use super::*;

    fn commit() -> Commit {
        Commit {
            id: "c1".to_owned(),
            now: jiff::Timestamp::UNIX_EPOCH,
            session: None,
            invocation: None,
            journal: Journal::default(),
            growing: GrowingLists::default(),
        }
    }

    fn reason(code: &str, commit_id: Option<&str>) -> CancellationReason {
        let item = commit_id.map(|id| Item::from([(COMMIT_ID.to_owned(), AttributeValue::S(id.to_owned()))]));
        CancellationReason::builder().code(code).set_item(item).build()
    }

    #[test]
    fn a_conflict_outweighs_a_failed_condition() {
        let reasons = [reason("ConditionalCheckFailed", Some("other")), reason("TransactionConflict", None)];
        assert!(matches!(verdict(&commit(), &reasons), Err(RequestFault::Busy(_))));
    }

    #[test]
    fn the_first_failed_condition_counts() {
        let reasons = [reason("None", None), reason("ConditionalCheckFailed", Some("other"))];
        assert!(matches!(verdict(&commit(), &reasons), Ok(ItemsVerdict::Refused(1, Some(_)))));
    }

    #[test]
    fn our_own_trace_means_success() {
        let reasons = [reason("None", None), reason("ConditionalCheckFailed", Some("c1"))];
        assert!(matches!(verdict(&commit(), &reasons), Ok(ItemsVerdict::Happened)));
    }

    #[test]
    fn tokens_fit() {
        assert_eq!(token("short"), "short");
        assert_eq!(token(&"x".repeat(100)).len(), 32);
        assert_eq!(token("").len(), 32);
    }
}
