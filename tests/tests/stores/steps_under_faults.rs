//! Durable steps of a task on the embedded table, under faults that chance chooses: several workers, each with a memory of its
//! own, claim the task, take steps, rest, end and die, others write to its stream and its session, read it or erase it all, and
//! every request may be lost, be served without an answer, or arrive when nobody waits for it any more. All chance comes from the
//! seed.

mod actors;
mod facts;
mod world;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use dormouse_ports::{FeedRequest, Records};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use futures::task::noop_waker;
use jiff::Timestamp;

use actors::{CLAIM, Desk, Rules};
use world::{Counts, FEED, Planted, STREAM, World, at_once};

/// The number of seeds that every change has to stand; whoever has time sets `DORMOUSE_TEST_STEPS`.
const SEEDS: u64 = 12;
/// The number of seeds that may go by until something is found that is wrong with the table.
const UNTIL_FOUND: u64 = 400;
/// Rounds of a run, in each of which one request goes on, mostly.
const ROUNDS: usize = 900;
/// Of so many seeds in one all is erased.
const ERASED: u64 = 4;
/// Rounds behind a claim.
const NEWLY: i32 = 12;
/// Rounds that go on behind an end.
const AFTERWARDS: usize = 60;
/// How often the last worker is polled, at most.
const MOST_POLLS: usize = 10_000;

/// Those who are at work.
struct Actors<'w> {
    world: &'w World,
    futures: BTreeMap<u64, (bool, LocalBoxFuture<'static, ()>)>,
    rules: Rules,
    /// How often others come, in percent.
    visits: u8,
}

impl Actors<'_> {
    fn begin(&mut self, is_worker: bool, task: impl FnOnce(Desk) -> LocalBoxFuture<'static, ()>) {
        let actor = self.world.fresh();
        self.futures.insert(actor, (is_worker, task(Desk::new(self.world, actor, self.rules))));
    }

    /// Lets somebody come, now and then.
    fn come(&mut self) {
        let workers = self.futures.values().filter(|(is_worker, _)| *is_worker).count();
        let others = self.futures.len() - workers;
        let [worker, other, what] = self.world.chance(|chance| [chance.u8(..100), chance.u8(..100), chance.u8(..100)]);
        if workers < 3 && worker < 12 {
            self.begin(true, |desk| desk.work(false).boxed_local());
        }
        let is_aside = self.world.tell(|ledger| ledger.is_aside());
        if others < 2 && (other < self.visits || (is_aside && other < 40)) {
            match what {
                _ if is_aside && what < 90 => self.begin(false, |desk| desk.retry().boxed_local()),
                ..4 => self.begin(false, |desk| desk.cancel().boxed_local()),
                4..20 => self.begin(false, |desk| desk.turn().boxed_local()),
                20..25 => self.begin(false, |desk| desk.retry().boxed_local()),
                25..70 => self.begin(false, |desk| desk.read().boxed_local()),
                _ => self.begin(false, |desk| desk.say().boxed_local()),
            }
        }
        let has_steps = self.world.tell(|ledger| ledger.steps() > 3);
        if self.rules.erases && has_steps && others < 2 && other == 99 {
            self.begin(false, |desk| desk.erase().boxed_local());
        }
    }

    /// Polls each once.
    fn go_on(&mut self) {
        let waker = noop_waker();
        self.futures.retain(|_, (_, future)| future.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    }

    fn kill(&mut self, actor: u64) {
        self.futures.remove(&actor);
        self.world.orphan(actor);
    }
}

/// Runs `seed`; what happened in it.
fn run(seed: u64, planted: Option<Planted>) -> Result<Counts, String> {
    let world = World::new(seed, planted);
    run_in(&world, seed % ERASED == ERASED - 1).map_err(|violation| format!("{violation}\n{}", world.trace()))
}

fn run_in(world: &World, erases: bool) -> Result<Counts, String> {
    let rules = Rules { leases: world.chance(fastrand::Rng::bool), erases };
    let [faults, lateness] = world.chance(|chance| [[2, 8, 20][chance.usize(..3)], [15, 2, 1][chance.usize(..3)]]);
    let visits = if world.chance(fastrand::Rng::bool) { 5 } else { 1 };
    at_once(Desk::new(world, 0, Rules { leases: false, ..rules }).accept());
    world.calm(false);
    let mut actors = Actors { world, futures: BTreeMap::new(), rules, visits };
    let mut afterwards = 0;
    let (mut granted, mut newly) = (0, 0);
    for _ in 0..ROUNDS {
        actors.come();
        actors.go_on();
        let [late, dies, ahead, passes] = world.chance(|chance| [(); 4].map(|()| chance.u8(..100)));
        // What is late shows most right behind a claim.
        let now_granted = world.counts().granted;
        newly = if now_granted == granted { newly - i32::from(newly > 0) } else { NEWLY };
        granted = now_granted;
        let lateness = if newly > 0 { 50 } else { lateness };
        if late < lateness {
            world.go_on(false, 0);
        }
        if let Some(dead) = world.go_on(true, faults) {
            actors.kill(dead);
        }
        if dies < faults / 4 {
            let at = world.chance(|chance| chance.usize(..actors.futures.len().max(1)));
            if let Some(dead) = actors.futures.keys().nth(at).copied() {
                actors.kill(dead);
            }
        }
        let passed = if ahead < 2 { u64::from(passes) * 600 } else { u64::from(passes) / 10 };
        world.clock.advance(Duration::from_millis(passed));
        if let Some(violation) = world.violation() {
            return Err(violation);
        }
        afterwards += usize::from(world.tell(|ledger| ledger.has_ended()));
        if afterwards > AFTERWARDS {
            break;
        }
    }
    let left: Vec<u64> = actors.futures.keys().copied().collect();
    for actor in left {
        actors.kill(actor);
    }
    end(world, rules)?;
    Ok(world.counts())
}

/// Lets nothing go wrong any more, and the task come to its end; looks at that, and at the feed. Where all is to be erased, lets
/// that come to its end.
fn end(world: &World, rules: Rules) -> Result<(), String> {
    world.calm(true);
    if rules.erases {
        at_once(Desk::new(world, world.fresh(), rules).erase());
        while world.has_late() {
            world.go_on(false, 0);
        }
        let is_done = world.counts().erased > 0;
        world.report(if is_done { Ok(()) } else { Err("it was not all erased".to_owned()) });
        return world.violation().map_or(Ok(()), Err);
    }
    let comes_to_an_end = |mut work: LocalBoxFuture<'static, ()>| {
        let waker = noop_waker();
        (0..MOST_POLLS).any(|_| work.poll_unpin(&mut Context::from_waker(&waker)).is_ready())
    };
    let desk = || Desk::new(world, world.fresh(), rules);
    world.clock.advance(2 * CLAIM);
    if world.tell(|ledger| ledger.is_aside()) {
        at_once(desk().retry());
    }
    if !world.tell(|ledger| ledger.has_ended()) {
        let (heir, before) = (desk(), world.counts().steps);
        let is_done = comes_to_an_end(heir.work(true).boxed_local());
        let ended = world.tell(|ledger| ledger.has_ended());
        if !is_done || !ended || world.counts().steps != before + 2 {
            let violation = world.violation().unwrap_or_default();
            return Err(format!("the last worker did not come to the end of the task; {violation}"));
        }
    }
    // What was under way all the time arrives now.
    while world.has_late() {
        world.go_on(false, 0);
    }
    at_once(desk().say());
    world.look();
    let fed = at_once(appends(world))?;
    world.report(world.tell(|ledger| ledger.is_fed(&fed)));
    world.violation().map_or(Ok(()), Err)
}

/// Where each append begins that the feed reports, and its number of entries.
async fn appends(world: &World) -> Result<Vec<(u64, u64)>, String> {
    let store = world.store(0);
    let mut appends = Vec::new();
    let (feed, labels, until) = (FEED.to_owned(), None, Timestamp::MAX);
    let mut request = FeedRequest { feed, labels, after: None, until, limit: 100 };
    loop {
        let page = store.feed(&request).await.map_err(|error| error.to_string())?;
        for append in page.appends {
            let (first, count) = (append.row.first, append.row.count);
            let positions = append.entries.iter().map(|entry| entry.position);
            if append.row.stream != STREAM || !positions.eq(first..first + count) {
                return Err(format!("the feed reports {append:?}"));
            }
            appends.push((first, count));
        }
        request.after = page.upto.or(request.after);
        if !page.more {
            return Ok(appends);
        }
    }
}

/// What comes of each seed below `count`, on all cores, until something is found.
fn on_all_cores(count: u64, planted: Option<Planted>) -> BTreeMap<u64, Result<Counts, String>> {
    let next = AtomicU64::new(0);
    let results = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < count) {
                    let result = run(seed, planted);
                    if result.is_err() {
                        next.store(count, Ordering::Relaxed);
                    }
                    results.lock().expect("a lock").insert(seed, result);
                }
            });
        }
    });
    results.into_inner().expect("a lock")
}

#[test]
fn steps_are_all_there_once_and_in_order_on_every_seed() {
    let seeds = std::env::var("DORMOUSE_TEST_STEPS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    let mut sum = Counts::default();
    let mut with_notes = 0;
    for (seed, result) in on_all_cores(seeds, None) {
        let counts = result.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        sum.steps += counts.steps;
        sum.noted += counts.noted;
        sum.granted += counts.granted;
        sum.granted_notes += counts.granted_notes;
        sum.read += counts.read;
        sum.erased += counts.erased;
        sum.late += counts.late;
        sum.faults += counts.faults;
        with_notes += u64::from(counts.granted_notes > 0);
    }
    println!("{sum:?}; with notes that were taken over: {with_notes} of {seeds}");
    let happened = [sum.steps, sum.noted, sum.granted, sum.late, sum.faults];
    assert!(happened.iter().all(|count| *count > 20), "hardly anything happened: {sum:?}");
    assert!(sum.noted * 3 >= sum.steps, "too few steps were noted: {sum:?}");
    assert!(with_notes * 4 >= seeds, "steps that were noted were taken over in {with_notes} runs: {sum:?}");
    assert!(sum.read > 0, "nobody read it: {sum:?}");
    assert!(sum.erased > 0 || seeds < ERASED, "nothing was erased: {sum:?}");
}

#[test]
fn a_seed_repeats_itself() {
    let once = run(3, None).map(|counts| format!("{counts:?}"));
    let again = run(3, None).map(|counts| format!("{counts:?}"));
    assert_eq!(once, again);
}

#[test]
fn what_is_wrong_with_a_table_is_found() {
    for planted in [Planted::OpenStreams, Planted::OpenClaims, Planted::NoFences] {
        let results = on_all_cores(UNTIL_FOUND, Some(planted));
        let found = results.iter().find_map(|(seed, result)| result.as_ref().err().map(|found| (seed, found)));
        let Some((seed, found)) = found else { panic!("{UNTIL_FOUND} seeds did not find {planted:?}") };
        println!("{planted:?} is found by seed {seed}: {}", found.lines().next().unwrap_or_default());
    }
}
