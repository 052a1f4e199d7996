//! Lanes: what a process does for different callers, kept apart where they would be in each other's way.
//!
//! The store does one thing at a time, and the processor as many as it has cores. A tenant with a hundred requests under
//! way has a hundred pieces of work before both, and one that asks now and then would wait behind all of them. So the
//! lanes take turns, at each step: a step is what a request does between two waits, or one request to the store. Who
//! waits for a model or a clock stands in no line, and a lane that is alone has everything.
//!
//! A step may be long: a page of a megabyte is read and written in one. So a lane leaves one place free while another tenant has
//! asked for something lately, where there is more than one: that tenant's next step finds it, and waits for no other. Streams and
//! sockets, which look again and again while nothing happens, ask for nothing: no place stays idle for them.
//!
//! A request to the store that is in this process keeps a core busy as a step does. So a lane that leaves a core free counts both
//! together: on two cores it has one step or one request to the store at a time.

use std::fmt;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use std::time::Duration;

use dormouse_harness::{Admission, AdmissionLimits, AdmissionWait, Admitted};
use dormouse_ports::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

/// Requests to the store that are worked on at a time: one is read or written while the other is made or understood.
const STORE: usize = 2;
/// Time for which a place is kept free for a tenant that has asked for something: the next steps of the same request come within
/// it, and the next request of one who is at work.
const LATELY: Duration = Duration::from_millis(400);
/// What is under way waits for as long as it takes.
const WAIT: AdmissionWait = AdmissionWait { longest: Duration::from_secs(24 * 3600), refusable: false };

tokio::task_local! {
    static LANE: Lane;
    /// Whether the present work is what a caller asked for, and does not just wait for what may come.
    static IS_ASKED: bool;
}

/// For whom something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// For the process itself: what falls due, the sweep, commands beside it.
    #[default]
    House,
    /// For callers without credentials.
    Nobody,
    /// For callers whose credentials nobody has seen yet, good or not.
    Strangers,
    /// For those who have proved to be somebody, and are of no tenant.
    Deployment,
    /// For a tenant.
    Tenant(Arc<str>),
}

impl Lane {
    /// The lane in which the present task works.
    pub(crate) fn current() -> Self {
        LANE.try_with(Clone::clone).unwrap_or_default()
    }

    /// `work`, all of which is done in this lane, but for the tasks that it spawns.
    pub(crate) fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        LANE.scope(self, work)
    }
}

/// A resource that the lanes use in turn. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns {
    all: Admission<Lane>,
    /// The places that one lane may have while other tenants ask for something.
    beside_others: Admission<Lane>,
    /// The cores that one lane may keep busy then, where something else keeps the same ones busy.
    cores_beside_others: Option<Admission<Lane>>,
    seen: Arc<Mutex<SeenTenants>>,
    clock: Arc<dyn Clock>,
}

/// The right to use the resource; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _all: Admitted<Lane>,
    _beside_others: [Option<Admitted<Lane>>; 2],
}

/// When tenants asked for something, by the monotonic clock.
#[derive(Debug, Default)]
struct SeenTenants {
    /// The last one, and when it did.
    last: Option<(Lane, Duration)>,
    /// When the last one before it did that is another one.
    other: Option<Duration>,
}

impl SeenTenants {
    /// Notes that something is done in `lane`, which a caller `is_asked` for; true if a tenant of another lane has asked
    /// lately.
    fn note(&mut self, lane: &Lane, is_asked: bool, now: Duration) -> bool {
        let others = match &self.last {
            Some((last, _)) if last == lane => self.other,
            Some((_, at)) => Some(*at),
            None => None,
        };
        if is_asked && matches!(lane, Lane::Tenant(_)) {
            self.other = others;
            self.last = Some((lane.clone(), now));
        }
        others.is_some_and(|at| now.saturating_sub(at) < LATELY)
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.all.fmt(f)
    }
}

impl Turns {
    /// A resource that does `at_once` things at a time, `per_lane` of one lane, and one less than all while others ask.
    pub(crate) fn new(at_once: usize, per_lane: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            all: places(at_once, per_lane, &clock),
            beside_others: places(usize::MAX, all_but_one(at_once).min(per_lane), &clock),
            cores_beside_others: None,
            seen: Arc::default(),
            clock,
        }
    }

    /// The processor of this machine.
    pub(crate) fn of_processor(clock: Arc<dyn Clock>) -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self::new(cores, cores, clock)
    }

    /// The store in this process, which works on the cores of `processor`.
    pub(crate) fn of_store(processor: &Self) -> Self {
        let cores_beside_others = Some(processor.beside_others.clone());
        let seen = processor.seen.clone();
        Self { cores_beside_others, seen, ..Self::new(STORE, STORE, processor.clock.clone()) }
    }

    /// Waits for the turn of `lane`, which lasts until what it gives is dropped.
    pub(crate) async fn take(&self, lane: Lane) -> Turn {
        let leaves_one = self.leaves_one(&lane);
        self.clone().enter(lane, leaves_one).await
    }

    /// `work` in a turn of the lane of the present task. Both the wait for the turn and the work are done in a task of their
    /// own, which ends with what this gives: who takes a turn for each step has none in between, and what it would be given
    /// then it would keep from all others until its own next step. `None` when the work has panicked.
    pub(crate) async fn beside_steps<F>(&self, work: impl FnOnce(Turn) -> F + Send + 'static) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let lane = Lane::current();
        let leaves_one = self.leaves_one(&lane);
        let turn = self.clone().enter(lane, leaves_one);
        let mut task = JoinSet::new();
        task.spawn(async move { work(turn.await).await });
        task.join_next().await?.ok()
    }

    /// In this order always, and nobody who has all of them waits for another turn.
    async fn enter(self, lane: Lane, leaves_one: bool) -> Turn {
        let own = if leaves_one { Some(place(&self.beside_others, &lane).await) } else { None };
        let cores = self.cores_beside_others.as_ref().filter(|_| leaves_one);
        let cores = if let Some(cores) = cores { Some(place(cores, &lane).await) } else { None };
        Turn { _all: place(&self.all, &lane).await, _beside_others: [own, cores] }
    }

    /// True if `lane`, in which something is done now, leaves a place to others.
    fn leaves_one(&self, lane: &Lane) -> bool {
        *lane != Lane::House && self.note(lane)
    }

    fn note(&self, lane: &Lane) -> bool {
        let is_asked = IS_ASKED.try_with(|is_asked| *is_asked).unwrap_or(true);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).note(lane, is_asked, self.clock.monotonic())
    }

    /// `work` in `lane`, which takes a turn for each of its steps, and waits for what may come: no place is left for it.
    pub(crate) fn wait<F: Future>(&self, lane: Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        IS_ASKED.scope(false, self.share(lane, work))
    }

    /// `work` that a caller in `lane` asks for in the midst of work that [waits](Self::wait).
    pub(crate) fn asked<F: Future>(&self, lane: &Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        let seen = self.clone();
        let lane = lane.clone();
        IS_ASKED.scope(true, async move {
            seen.note(&lane);
            work.await
        })
    }

    /// `work` in `lane`, which takes a turn for each of its steps.
    pub(crate) fn share<F: Future>(&self, lane: Lane, work: F) -> impl Future<Output = F::Output> + use<F> {
        Stepwise { turns: self.clone(), lane: lane.clone(), work: Box::pin(lane.scope(work)), waiting: None }
    }
}

/// So many places for all lanes, and for each.
fn places(running: usize, running_per_key: usize, clock: &Arc<dyn Clock>) -> Admission<Lane> {
    let (waiting, waiting_per_key) = (usize::MAX, usize::MAX);
    Admission::new(AdmissionLimits { running, running_per_key, waiting, waiting_per_key }, clock.clone())
}

fn all_but_one(places: usize) -> usize {
    places.saturating_sub(1).max(1)
}

/// A place for `lane`.
async fn place(places: &Admission<Lane>, lane: &Lane) -> Admitted<Lane> {
    loop {
        // A line of any length refuses nobody, and what is under way waits on.
        if let Ok(place) = places.enter(lane.clone(), WAIT).await {
            return place;
        }
    }
}

/// Work that takes a turn for each step.
struct Stepwise<F> {
    turns: Turns,
    lane: Lane,
    work: Pin<Box<F>>,
    waiting: Option<BoxFuture<'static, Turn>>,
}

impl<F: Future> Future for Stepwise<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let (turns, lane) = (&this.turns, &this.lane);
        let waiting = this.waiting.get_or_insert_with(|| {
            let (turns, lane) = (turns.clone(), lane.clone());
            async move { turns.take(lane).await }.boxed()
        });
        let Poll::Ready(turn) = waiting.as_mut().poll(cx) else { return Poll::Pending };
        this.waiting = None;
        let polled = this.work.as_mut().poll(cx);
        drop(turn);
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::mem::replace;
    use std::sync::Mutex;

    use dormouse_testkit::ManualClock;
    use futures::future::join_all;
    use jiff::Timestamp;

    use super::*;

    fn tenant(name: &str) -> Lane {
        Lane::Tenant(name.into())
    }

    fn turns(at_once: usize) -> Turns {
        Turns::new(at_once, at_once, Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH)))
    }

    /// Ready when it is asked again, which is at once.
    async fn step_ends() {
        let mut asked = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Names of the lanes in the order of the steps that were done, with `noisy` pieces of work of one tenant begun before
    /// one of another, each of `steps` steps.
    async fn steps(at_once: usize, noisy: usize, steps: usize) -> Vec<&'static str> {
        let turns = turns(at_once);
        let done = Mutex::new(Vec::new());
        let work = async |name: &'static str| {
            for _ in 0..steps {
                done.lock().expect("no panic").push(name);
                step_ends().await;
            }
        };
        let crowd = (0..noisy).map(|_| turns.share(tenant("noisy"), work("noisy")).boxed_local());
        let all = crowd.chain([turns.share(tenant("quiet"), work("quiet")).boxed_local()]);
        // Nobody is done before all have lined up.
        let held = join_all((0..at_once).map(|_| turns.take(Lane::House))).await;
        let all: Vec<_> = all.collect();
        let release = async {
            tokio::task::yield_now().await;
            drop(held);
        };
        futures::join!(join_all(all), release);
        done.into_inner().expect("no panic")
    }

    #[tokio::test]
    async fn a_step_of_another_lane_is_done_among_the_next_ones() {
        for at_once in [1, 2, 4] {
            let order = steps(at_once, 100, 6).await;
            assert_eq!(order.len(), 606);
            let last = order.iter().rposition(|name| *name == "quiet").expect("it was done");
            // Six of its own, and before each of them what has a turn until it stands in line, what has one then, and one more.
            assert!(last < 6 * (2 * at_once + 2), "{at_once}: {:?}", &order[..=last]);
        }
    }

    #[tokio::test]
    async fn a_lane_that_is_alone_has_everything() {
        let turns = turns(3);
        let taken = join_all((0..3).map(|_| turns.take(tenant("noisy")))).await;
        assert_eq!(format!("{turns:?}"), "Admission { running: 3, waiting: 0 }");
        assert!(turns.take(tenant("noisy")).now_or_never().is_none());
        drop(taken);
        assert!(turns.take(tenant("noisy")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_lane_leaves_a_place_to_a_tenant_that_has_asked_lately() {
        let turns = turns(3);
        drop(turns.take(tenant("quiet")).await);
        let noisy: Vec<_> = (0..3).map(|_| Box::pin(turns.take(tenant("noisy")))).collect();
        let mut noisy: Vec<_> = noisy.into_iter().map(|mut turn| ((&mut turn).now_or_never(), turn)).collect();
        assert_eq!(noisy.iter().filter(|(taken, _)| taken.is_some()).count(), 2);
        let held = turns.take(tenant("quiet")).now_or_never().expect("the place that was left");
        assert!(turns.take(tenant("another")).now_or_never().is_none(), "there are no more");
        drop(held);
        // A place of its own is what it goes on with.
        drop(noisy.remove(0));
        let (_, last) = noisy.pop().expect("the one that waits");
        assert!(last.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_core_that_is_left_is_left_by_steps_and_requests_to_the_store_together() {
        let processor = turns(2);
        let store = Turns::of_store(&processor);
        let both = [&processor, &store];
        drop(store.take(tenant("quiet")).await);
        for held in both {
            let held = held.take(tenant("noisy")).now_or_never().expect("nobody is in its way");
            for resource in both {
                assert!(resource.take(tenant("noisy")).now_or_never().is_none(), "it has its core");
                assert!(resource.take(tenant("quiet")).now_or_never().is_some(), "the one that was left");
                assert!(resource.take(Lane::House).now_or_never().is_some());
            }
            drop(held);
        }
    }

    #[tokio::test]
    async fn a_lane_that_is_alone_has_the_store_beside_its_steps() {
        let processor = turns(2);
        let store = Turns::of_store(&processor);
        let both = [&processor, &processor, &store, &store];
        let taken: Vec<_> = both.iter().map(|turns| turns.take(tenant("noisy")).now_or_never()).collect();
        assert!(taken.iter().all(Option::is_some));
    }

    #[tokio::test]
    async fn work_that_asks_the_store_in_the_midst_of_its_steps_waits_for_no_step_of_its_own() {
        for cores in [1, 2] {
            let processor = turns(cores);
            let store = Turns::of_store(&processor);
            drop(processor.take(tenant("quiet")).await);
            let begin = |name: &str| {
                let store = store.clone();
                let work = async move {
                    for _ in 0..4 {
                        let asked = store.beside_steps(|turn| async move {
                            step_ends().await;
                            drop(turn);
                        });
                        asked.await.expect("no panic");
                        step_ends().await;
                    }
                };
                tokio::spawn(processor.share(tenant(name), work))
            };
            let all: Vec<_> = (0..20).flat_map(|_| ["noisy", "noisy", "quiet"]).map(begin).collect();
            for _ in 0..10_000 {
                tokio::task::yield_now().await;
            }
            let left = all.iter().filter(|work| !work.is_finished()).count();
            assert_eq!(left, 0, "{cores} cores: {processor:?} {store:?}");
        }
    }

    #[tokio::test]
    async fn a_request_to_the_store_that_nobody_waits_for_any_more_holds_no_turn() {
        let processor = turns(1);
        let store = Turns::of_store(&processor);
        drop(processor.take(tenant("quiet")).await);
        let held = store.take(tenant("noisy")).await;
        let asks = store.clone();
        let asked = async move { asks.beside_steps(|turn| async { drop(turn) }).await };
        let mut asked = Box::pin(processor.share(Lane::House, tenant("noisy").scope(asked)));
        assert!((&mut asked).now_or_never().is_none());
        tokio::task::yield_now().await;
        drop(asked);
        drop(held);
        tokio::task::yield_now().await;
        assert_eq!(format!("{store:?}"), "Admission { running: 0, waiting: 0 }");
        assert!(processor.take(tenant("noisy")).now_or_never().is_some());
    }

    #[test]
    fn tenants_are_seen_for_a_while_and_the_process_itself_is_none() {
        let mut seen = SeenTenants::default();
        let mut note = |lane: &Lane, at: u64| seen.note(lane, true, Duration::from_millis(at));
        assert!(!note(&tenant("a"), 0) && !note(&tenant("a"), 40));
        assert!(!note(&Lane::Strangers, 800), "it is long ago");
        assert!(note(&tenant("b"), 200), "another one was there");
        assert!(note(&tenant("b"), 400) && !note(&tenant("b"), 440));
        assert!(note(&Lane::Strangers, 480), "strangers leave a place, too");
        assert!(note(&tenant("a"), 520), "and are not what one is left for");
    }

    #[tokio::test]
    async fn no_place_is_left_for_what_waits_and_one_for_what_is_asked_in_its_midst() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
        let turns = Turns::new(2, 2, clock.clone());
        let have_all = async || {
            let both = [turns.take(tenant("noisy")).now_or_never(), turns.take(tenant("noisy")).now_or_never()];
            both.iter().all(Option::is_some)
        };
        let store = turns.clone();
        let looks = async move { store.beside_steps(|turn| async { drop(turn) }).await };
        turns.wait(tenant("quiet"), looks).await.expect("no panic");
        assert!(have_all().await);
        let (asks, quiet) = (turns.clone(), tenant("quiet"));
        turns.wait(tenant("quiet"), async move { asks.asked(&quiet, async {}).await }).await;
        assert!(!have_all().await);
        // It is left for a moment.
        clock.advance(LATELY);
        assert!(have_all().await);
    }

    #[tokio::test]
    async fn who_waits_for_something_else_holds_no_turn() {
        let turns = turns(1);
        let (send, receive) = tokio::sync::oneshot::channel::<()>();
        let waits = turns.share(tenant("noisy"), receive);
        let answers = turns.share(tenant("quiet"), async { send.send(()) });
        let (heard, sent) = futures::join!(waits, answers);
        assert!(heard.is_ok() && sent.is_ok());
    }

    #[tokio::test]
    async fn who_goes_away_in_the_midst_holds_no_turn() {
        let turns = turns(1);
        let held = turns.take(Lane::House).await;
        let mut gone = Box::pin(turns.share(tenant("noisy"), async {}));
        assert!((&mut gone).now_or_never().is_none());
        drop(held);
        drop(gone);
        assert!(turns.take(tenant("quiet")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn work_knows_its_lane_and_tasks_of_the_process_have_their_own() {
        let of_work = turns(1).share(tenant("acme"), async { Lane::current() }).await;
        assert_eq!((of_work, Lane::current()), (tenant("acme"), Lane::House));
    }
}
