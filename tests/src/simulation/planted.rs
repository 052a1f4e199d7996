//! Bugs put in on purpose, to show that the simulation finds them. Ports that lie stand for code that forgot something:
//! the product itself has no switch for them.

mod request;
mod store;

use std::fmt;

use dormouse_ports::{Commit, DocumentWrite, InvocationWrite, Journal};

use super::Store;
pub(crate) use request::{key, lies_apart, serve};
pub(crate) use store::LyingStore;

/// A bug that can be put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A save does not check the session's version.
    DropVersion,
    /// A save does not check that its lease still stands.
    DropFence,
    /// A lease is granted although another turn holds it.
    IgnoreLease,
    /// A commit does not check who holds the claim.
    DropOwner,
    /// A claim is granted although another delivery holds it.
    SkipClaim,
    /// A claim does not check which pause is meant.
    DropGeneration,
    /// A claim that a wrong clock made lasts as long as it says.
    BelieveClaim,
    /// A lease that a wrong clock gave lasts as long as it says.
    BelieveLease,
    /// Who passes over a claim that a wrong clock made takes whichever is there.
    PassOverAny,
    /// Who takes over a dead worker's claim delivers what it brings itself.
    ReplacePayload,
    /// Who wants to take over a dead worker's claim, and finds none, goes on with nothing.
    TakeOverNothing,
    /// A pause does not look whether its signal is there already.
    OverlookSignal,
    /// A pause does not keep what it accepts.
    ForgetRule,
    /// What events bring is kept and found under the plain names of signals.
    MixOrigins,
    /// What a tenant's key brings is kept and found under the names of another tenant.
    MixSignals,
    /// A signal that nobody waits for is acknowledged and not kept.
    LoseSignal,
    /// Session and pause are written one after the other.
    TearSuspend,
    /// As before, in the other order.
    SwapWrites,
    /// The second pause of an invocation gets no row in the index of what sleeps.
    ForgetRow,
    /// Rows stay when an invocation ends.
    KeepRow,
    /// The signal of a pause stays awaited when an invocation ends with an error.
    KeepWait,
    /// A cancellation is acknowledged and not kept.
    LoseCancellation,
    /// The end of an invocation that never slept does not check whether it was canceled.
    EndCanceled,
    /// What is told of a session does not check whether somebody else has told something meanwhile.
    AppendAnywhere,
    /// Accepting a task does not check whether its key was used.
    AcceptTwice,
    /// What happens, and what clients are told of it, are written one after the other.
    TellApart,
    /// Events are written behind the documents that they belong to.
    EventApart,
    /// The answer of an idempotency key is written behind what it answers.
    KeyApart,
    /// An append is not told of in the feed of all events.
    ForgetFeed,
    /// Whoever changes a task does not look whether it has ended.
    OverlookEnd,
    /// The tenant of a resource is not checked.
    MixTenants,
    /// An answer of one part is noted without a look whether another one came meanwhile.
    NoteBlindly,
    /// The answer that decides does not check whether another one came meanwhile.
    DecideBlindly,
    /// Who had not answered stays awaited when the others have decided.
    KeepLosers,
    /// A late duplicate of a delivered signal is parked for whoever uses its id next.
    ParkDelivered,
    /// Rows of signals stay that are parked no more.
    KeepParkedRow,
    /// A deadline is passed without a look whether another worker passed it already.
    DropRung,
    /// That a deadline has passed is told to nobody.
    LoseAnnouncement,
    /// A listing ends with its first page.
    FirstPageOnly,
    /// A subscription for an event makes no rule.
    RuleNotMade,
    /// A rule is made when the pause that needs it has been written.
    RuleAfterPause,
    /// A wake-up that the scheduler refused counts as registered.
    OverlookRefusal,
    /// Rows do not say which rule their pause needs.
    ForgetNeed,
    /// A rule goes as soon as a sweep finds that nobody needs it.
    RemoveAtOnce,
    /// An event that does not fit counts as delivered.
    AcknowledgeMisfit,
    /// An event that failed counts as delivered.
    AcknowledgeFailure,
    /// What is told of a commit stands in the feed at the time at which the work for it began.
    StampEarly,
    /// Who reads a feed goes on behind the last that is there, and not where the feed is complete.
    ReadUnsettled,
    /// Of a transaction only the first half of its items is written.
    TearTransaction,
    /// Whoever collects what nothing refers to does not see who refers to it.
    ForgetOwners,
    /// What nothing refers to is not removed.
    KeepOrphans,
    /// A claim does not count as an attempt.
    ForgetAttempt,
    /// What has got further still counts as having failed before.
    CarryAttempts,
    /// What was put aside can be claimed.
    ClaimAside,
    /// Whoever puts something aside ends its wait.
    EndAside,
    /// What is tried again goes on with nothing.
    RetryWithNothing,
    /// What is tried again has no row in the index of what sleeps.
    RetryWithoutRow,
    /// What is tried again has as many attempts behind it as before.
    RetryAtTheEnd,
    /// The sweep does itself what it finds.
    SweepItself,
    /// A request whose time is over is cut off and may be tried again, whatever of it is under way.
    CutCommit,
    /// A commit that was not answered counts as one that did not happen.
    DoubtIsNo,
    /// What a node records gets lost before it is committed.
    DropEntries,
    /// What a node records is committed twice.
    DoubleEntries,
    /// Tasks end without a receipt.
    EndUnproved,
    /// The session forgets which receipt was its last one.
    ForgetChain,
    /// The session forgets which messages no run was given.
    ForgetUnheard,
    /// What is stored in events for replays gets lost.
    DropMaterial,
    /// How far the worker of an agent has come is acknowledged and not kept.
    ForgetStep,
    /// That a call which must not run twice has begun is not kept.
    ForgetMark,
    /// What a task has taken from a quota is not given back when it ends.
    KeepTaken,
}

impl PlantedBug {
    /// Every bug that can be put in.
    pub const ALL: [Self; 70] = [
        Self::DropVersion,
        Self::DropFence,
        Self::IgnoreLease,
        Self::DropOwner,
        Self::SkipClaim,
        Self::DropGeneration,
        Self::BelieveClaim,
        Self::BelieveLease,
        Self::PassOverAny,
        Self::ReplacePayload,
        Self::TakeOverNothing,
        Self::OverlookSignal,
        Self::ForgetRule,
        Self::MixOrigins,
        Self::MixSignals,
        Self::LoseSignal,
        Self::TearSuspend,
        Self::SwapWrites,
        Self::ForgetRow,
        Self::KeepRow,
        Self::KeepWait,
        Self::LoseCancellation,
        Self::EndCanceled,
        Self::AppendAnywhere,
        Self::AcceptTwice,
        Self::TellApart,
        Self::EventApart,
        Self::KeyApart,
        Self::ForgetFeed,
        Self::OverlookEnd,
        Self::MixTenants,
        Self::NoteBlindly,
        Self::DecideBlindly,
        Self::KeepLosers,
        Self::ParkDelivered,
        Self::KeepParkedRow,
        Self::DropRung,
        Self::LoseAnnouncement,
        Self::FirstPageOnly,
        Self::RuleNotMade,
        Self::RuleAfterPause,
        Self::OverlookRefusal,
        Self::ForgetNeed,
        Self::RemoveAtOnce,
        Self::AcknowledgeMisfit,
        Self::AcknowledgeFailure,
        Self::StampEarly,
        Self::ReadUnsettled,
        Self::TearTransaction,
        Self::ForgetOwners,
        Self::KeepOrphans,
        Self::ForgetAttempt,
        Self::CarryAttempts,
        Self::ClaimAside,
        Self::EndAside,
        Self::RetryWithNothing,
        Self::RetryWithoutRow,
        Self::RetryAtTheEnd,
        Self::SweepItself,
        Self::CutCommit,
        Self::DoubtIsNo,
        Self::DropEntries,
        Self::DoubleEntries,
        Self::EndUnproved,
        Self::ForgetChain,
        Self::ForgetUnheard,
        Self::DropMaterial,
        Self::ForgetStep,
        Self::ForgetMark,
        Self::KeepTaken,
    ];

    /// Where it can be put in.
    pub fn store(self) -> Store {
        let of_dynamodb =
            [Self::StampEarly, Self::ReadUnsettled, Self::TearTransaction, Self::ForgetOwners, Self::KeepOrphans];
        if of_dynamodb.contains(&self) { Store::DynamoDb } else { Store::Memory }
    }

    /// From which seed on it pays to look for it: of the seeds below none is known that shows it.
    pub fn look_from(self) -> u64 {
        let rare = [
            (Self::AcknowledgeMisfit, 80),
            (Self::CarryAttempts, 40),
            (Self::CutCommit, 100),
            (Self::DoubtIsNo, 160),
            (Self::DropRung, 55),
            (Self::ForgetNeed, 80),
            (Self::OverlookRefusal, 70),
            (Self::PassOverAny, 515),
            (Self::RemoveAtOnce, 150),
        ];
        rare.iter().find(|(bug, _)| *bug == self).map_or(0, |(_, from)| *from)
    }
}

impl fmt::Display for PlantedBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The two halves in which `bug` writes `commit`, if it does.
pub(crate) fn torn(bug: Option<PlantedBug>, commit: &Commit) -> Option<(Commit, Commit)> {
    let Commit { journal, session, .. } = commit;
    let is_pause = matches!(commit.invocation, Some(InvocationWrite::Suspend { .. }));
    let saves = session.as_ref().is_some_and(|write| write.save.is_some());
    let part = |number: u8| Commit { id: format!("{}-{number}", commit.id), ..commit.clone() };
    let told = |journal: Journal| Commit { session: None, invocation: None, journal, ..part(2) };
    let first = |journal: Journal| Commit { journal, ..part(1) };
    let documents = |is_first: fn(&DocumentWrite) -> bool| journal.documents.iter().cloned().partition(is_first);
    match bug {
        Some(PlantedBug::TearSuspend | PlantedBug::SwapWrites) if is_pause && saves => {
            let save = Commit { invocation: None, journal: Journal::default(), ..part(1) };
            let pause = Commit { session: None, ..part(2) };
            Some(if bug == Some(PlantedBug::TearSuspend) { (save, pause) } else { (pause, save) })
        }
        Some(PlantedBug::TellApart) if commit.invocation.is_some() && !journal.is_empty() => {
            Some((first(Journal::default()), told(journal.clone())))
        }
        Some(PlantedBug::EventApart) if !journal.appends.is_empty() => {
            let appends = journal.appends.clone();
            let documents = journal.documents.clone();
            let appends = Journal { appends, ..Journal::default() };
            let documents = Journal { documents, ..Journal::default() };
            Some((first(documents), told(appends)))
        }
        Some(PlantedBug::KeyApart) if journal.documents.iter().any(|write| write.key.kind == KEYS) => {
            let (kept, late): (Vec<_>, Vec<_>) = documents(|write| write.key.kind != KEYS);
            let kept = Journal::new(kept, journal.appends.clone());
            Some((first(kept), told(Journal::new(late, Vec::new()))))
        }
        _ => None,
    }
}

/// The kind of the documents that hold what idempotency keys were answered with.
const KEYS: &str = "idempotency";
