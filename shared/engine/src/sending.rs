//! Work that may be cut off, but not while a commit of it is under way: the one that cuts could not report then what
//! was written.
//!
//! The engine's store reports every commit to the [`Sending`] around it, and that one to those around it in turn. As
//! with the ambient context, it needs no runtime, and does not cross a task that a node spawns by itself.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use async_trait::async_trait;
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, InvocationWrite, StepWritten, StoreError,
};
use futures::future::{Either, select};

/// Commits that a piece of work has sent to the store.
#[derive(Clone, Debug, Default)]
pub struct Sending(Arc<SentSignal>);

#[derive(Debug, Default)]
struct SentSignal {
    in_flight: AtomicUsize,
    wrote: AtomicBool,
    /// Commits of which it is not known whether they were written.
    doubts: AtomicUsize,
    around: Option<Sending>,
}

impl Sending {
    /// For work that begins here: a surrounding [`Sending`] is notified of the commits of this work too.
    pub fn begin() -> Self {
        let around = CURRENT.with_borrow(Clone::clone);
        Self(Arc::new(SentSignal { around, ..SentSignal::default() }))
    }

    /// Does `work`, and is notified of its commits.
    pub async fn over<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            let _entered = SendingGuard::new(self.clone());
            work.as_mut().poll(cx)
        })
        .await
    }

    /// True if a lasting record may have been written: a session, an invocation or a document, and not only a right
    /// that was given back.
    pub fn may_have_written(&self) -> bool {
        self.0.wrote.load(Ordering::SeqCst) || self.0.doubts.load(Ordering::SeqCst) > 0
    }

    /// It was found out that the last commit in doubt was not written, and cannot be any more.
    pub(crate) fn resolve_doubt() {
        tell(CURRENT.with_borrow(Clone::clone).as_ref(), |one| {
            // Below zero there is nothing to resolve.
            let _ = one.doubts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |doubts| doubts.checked_sub(1));
        });
    }

    /// True if no lasting record was written, nor can be by the commits that were sent.
    fn is_clean(&self) -> bool {
        self.0.in_flight.load(Ordering::SeqCst) == 0 && !self.may_have_written()
    }
}

/// Notifies `innermost` and all around it.
fn tell(innermost: Option<&Sending>, how: impl Fn(&SentSignal)) {
    std::iter::successors(innermost, |one| one.0.around.as_ref()).for_each(|one| how(&one.0));
}

/// Reason for which work did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShort {
    /// Its time was over, and it has written nothing.
    Clean,
    /// It has written, or may have; its outcome is unknown.
    InDoubt,
}

/// Does `work` until `expired` ends. Once it has sent a lasting commit to the store, it may go on until the future that
/// `grace` makes then ends too, so that its writes are accounted for.
///
/// # Errors
/// [`CutShort`] when it was not done by then.
pub async fn cut_off<T, G: Future<Output = ()>>(
    work: impl Future<Output = T>,
    expired: impl Future<Output = ()>,
    grace: impl FnOnce() -> G,
) -> Result<T, CutShort> {
    let sending = Sending::begin();
    let mut work = pin!(sending.over(work));
    if let Either::Left((done, _)) = select(work.as_mut(), pin!(expired)).await {
        return Ok(done);
    }
    let mut grace = pin!(grace());
    poll_fn(|cx| {
        if sending.is_clean() {
            return Poll::Ready(Err(CutShort::Clean));
        }
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if sending.is_clean() {
            return Poll::Ready(Err(CutShort::Clean));
        }
        grace.as_mut().poll(cx).map(|()| Err(CutShort::InDoubt))
    })
    .await
}

thread_local! {
    static CURRENT: RefCell<Option<Sending>> = const { RefCell::new(None) };
}

/// Makes a [`Sending`] the current one until it is dropped, also by a panic.
struct SendingGuard(Option<Sending>);

impl SendingGuard {
    fn new(own: Sending) -> Self {
        Self(CURRENT.with_borrow_mut(|current| current.replace(own)))
    }
}

impl Drop for SendingGuard {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = self.0.take());
    }
}

/// A commit under way. If it is dropped without an answer, its outcome is unknown.
struct CommitInFlight {
    told: Option<Sending>,
    lasts: bool,
    answered: bool,
}

impl CommitInFlight {
    fn of(commit: &Commit) -> Self {
        let told = CURRENT.with_borrow(Clone::clone);
        tell(told.as_ref(), |one| {
            one.in_flight.fetch_add(1, Ordering::SeqCst);
        });
        Self { told, lasts: lasts(commit), answered: false }
    }

    fn wrote(&self) {
        if self.lasts {
            tell(self.told.as_ref(), |one| one.wrote.store(true, Ordering::SeqCst));
        }
    }

    fn doubt(&self) {
        if self.lasts {
            tell(self.told.as_ref(), |one| {
                one.doubts.fetch_add(1, Ordering::SeqCst);
            });
        }
    }
}

impl Drop for CommitInFlight {
    fn drop(&mut self) {
        if !self.answered {
            self.wrote();
        }
        tell(self.told.as_ref(), |one| {
            one.in_flight.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// True if `commit` leaves more behind than rights that were given back.
fn lasts(commit: &Commit) -> bool {
    let saves = commit.session.as_ref().is_some_and(|write| write.save.is_some());
    let moves = commit.invocation.as_ref().is_some_and(|write| match write {
        InvocationWrite::Release { .. } | InvocationWrite::Keep { .. } | InvocationWrite::AssertClaimed { .. } => false,
        InvocationWrite::Suspend { .. }
        | InvocationWrite::Progress { .. }
        | InvocationWrite::PutAside { .. }
        | InvocationWrite::Retry { .. }
        | InvocationWrite::Accept { .. }
        | InvocationWrite::Deliver { .. }
        | InvocationWrite::Complete { .. }
        | InvocationWrite::Conclude { .. }
        | InvocationWrite::Fail { .. }
        | InvocationWrite::Cancel { .. }
        | InvocationWrite::CancelBeforeStart { .. }
        | InvocationWrite::Advance { .. }
        | InvocationWrite::Answer { .. } => true,
    });
    saves || moves || !commit.journal.is_empty()
}

/// The commits of a store, which reports each.
pub(crate) struct ReportingCommits(pub(crate) Arc<dyn Commits>);

#[async_trait]
impl Commits for ReportingCommits {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.0.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        reported(commit, self.0.commit(commit)).await
    }

    async fn step(&self, commit: &Commit) -> Result<StepWritten, CommitError> {
        reported(commit, self.0.step(commit)).await
    }
}

/// The outcome of `writing`, which writes `commit`.
async fn reported<T>(commit: &Commit, writing: impl Future<Output = Result<T, CommitError>>) -> Result<T, CommitError> {
    let mut in_flight = CommitInFlight::of(commit);
    let written = writing.await;
    in_flight.answered = true;
    match &written {
        Ok(_) => in_flight.wrote(),
        Err(error) if error.may_be_written() => in_flight.doubt(),
        Err(_) => {}
    }
    written
}
