//! Steps of tasks that are noted beside their events: what they cost, what is read of them, and which are written whole.

use std::collections::BTreeMap;

use dormouse_aws::DynamoDbStateStore;
use dormouse_ports::{
    Append, Commit, CommitError, Commits, CounterChange, CounterWrite, DocumentKey, DocumentWrite, InvocationStatus,
    InvocationWrite, Invocations, Map, PausedInvocation, Records, SharedField, SharedItems, StreamEnd,
};
use serde_json::{Value, json};

use crate::faults::Fault;
use crate::noted::{
    Bench, Run, SESSION, TASK, append_behind, at, check_stream, is_behind, is_noted, is_whole, saved_by_another,
    session, telling,
};

/// A text that no compression makes smaller than half.
fn noise(words: u32) -> String {
    (0..words).map(|place| format!("{:08x}", place.wrapping_mul(2_654_435_761))).collect()
}

#[tokio::test]
async fn the_first_step_is_whole_and_each_of_the_next_is_one_write() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::fresh(bench.process());
    for step in 0..12 {
        let spent = run.step_costs(&bench).await;
        if step == 0 {
            assert!(is_whole(&spent), "{spent:?}");
        } else {
            assert!(is_noted(&spent) && spent["PutItem"].1 <= 2.0, "step {step}: {spent:?}");
        }
        run.check(&reader).await;
    }
    check_stream(&reader, 12).await;
    let read = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
    let among = reader.load_invocations(&["task_0".into(), TASK.into()]).await.expect("an answer");
    let among: Vec<_> = among.into_iter().map(|one| one.expect("it can be read")).collect();
    assert_eq!(among, [None, Some(read)]);
}

#[tokio::test]
async fn the_session_follows_with_the_next_whole_write() {
    for completes in [true, false] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::with_steps(&bench, 1).await;
        let first = session(&reader).await;
        assert_eq!(first, (1, run.kept().into_map()));
        for _ in 0..3 {
            run.noted_step(&bench).await;
            assert_eq!(session(&reader).await, first);
        }
        run.say();
        let commit = if completes { run.complete() } else { run.suspend() };
        run.commit(&commit).await.expect("it is written");
        assert_eq!(
            session(&reader).await,
            (2, run.kept().into_map()),
            "saved with the first step, and with the last write"
        );
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        if completes {
            assert_eq!(record.status, InvocationStatus::Completed { state: run.state().into_map() });
        } else {
            assert_eq!(record.status, InvocationStatus::Suspended);
            assert_eq!((record.paused.generation, record.paused.session_version), (1, Some(2)));
            assert_eq!(record.paused.state, run.state());
        }
        check_stream(&reader, 5).await;
    }
}

/// An engine that is refused reads the session again, and carries its save over: however many others saved, the version that it
/// has read counts then, even where it is the one that it had counted.
#[tokio::test]
async fn a_whole_write_finds_what_other_turns_have_saved_meanwhile() {
    for others in [1, 2, 3, 4] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::with_steps(&bench, 4).await;
        for version in 1..=others {
            reader.commit(&saved_by_another(version).0).await.expect("it is saved");
        }
        let theirs = session(&reader).await;
        run.say();
        let refused = run.commit(&run.complete()).await;
        assert!(matches!(refused, Err(CommitError::SessionConflict)), "{refused:?} behind {others}");
        assert_eq!(session(&reader).await, theirs);
        // Whole, since it writes a document beside.
        run.version = theirs.0;
        let mut step = run.progress();
        step.journal.documents.push(document("beside"));
        run.commit(&step).await.expect("it is saved behind the others");
        run.check(&reader).await;
        run.noted_step(&bench).await;
        run.check(&reader).await;
        run.say();
        run.commit(&run.complete()).await.expect("it is saved behind its own");
        assert_eq!(session(&reader).await, (others + 3, run.kept().into_map()), "behind {others}");
    }
}

#[tokio::test]
async fn another_writer_of_the_stream_makes_the_next_step_whole() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 3).await;
    let mut other = Commit::new("other", at(0));
    other.journal.appends.push(append_behind(&run.tip));
    reader.commit(&other).await.expect("it is written");
    run.check(&reader).await;

    run.say();
    let first = run.progress();
    let refused = run.commit(&first).await;
    assert!(is_behind(&refused), "{refused:?}");
    run.catch_up().await;
    let again = Commit { id: first.id, ..run.progress() };
    let spent = run.costs(&bench, &again).await;
    assert!(is_whole(&spent), "{spent:?}");
    run.check(&reader).await;
    assert_eq!(session(&reader).await, (2, run.kept().into_map()));
    run.noted_step(&bench).await;
    run.check(&reader).await;
    check_stream(&reader, 6).await;
}

#[tokio::test]
async fn a_step_is_whole_behind_what_its_worker_appended_behind_another_writer() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 3).await;
    for is_behind_another in [true, false] {
        if is_behind_another {
            let mut other = Commit::new("other", at(0));
            other.journal.appends.push(append_behind(&run.tip));
            reader.commit(&other).await.expect("it is written");
            run.catch_up().await;
        }
        run.store.commit(&telling(holding(&run), &run.tip)).await.expect("it is written");
        run.catch_up().await;
        if is_behind_another {
            run.whole_step(&bench).await;
        }
        run.noted_step(&bench).await;
        run.check(&reader).await;
    }
    check_stream(&reader, 9).await;
}

/// The condition that its worker has it.
fn holding(run: &Run) -> InvocationWrite {
    InvocationWrite::AssertClaimed { invocation_id: TASK.into(), generation: 0, owner: run.owner.clone() }
}

/// To read a run is several requests: before each of them in turn come steps, the first of which is whole.
#[tokio::test]
async fn who_reads_a_run_while_it_goes_on_is_told_of_one_of_its_steps() {
    for place in 0..4 {
        let bench = Bench::new().await;
        let mut run = Run::with_steps(&bench, 3).await;
        let mut committed = vec![run.committed.state.clone()];
        let (reader, mut gate) = bench.gated();
        let steps = async |number: usize| {
            if number != place {
                return;
            }
            for step in 0..3 {
                run.say();
                run.set("plan", &json!({ "step": step }));
                let mut commit = run.progress();
                if step == 0 {
                    commit.journal.documents.push(document("beside"));
                }
                let spent = run.costs(&bench, &commit).await;
                assert_eq!(is_noted(&spent), step > 0, "{spent:?}");
                committed.push(run.committed.state.clone());
            }
        };
        let read = gate.drive(reader.load_invocation(&TASK.into()), steps).await;
        let state = read.expect("it can be read").expect("it is there").paused.state;
        assert!(committed.contains(&state), "before request {place}: {state:?}");
    }
}

#[tokio::test]
async fn a_step_is_whole_after_many_that_were_noted() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 1).await;
    let (mut in_a_row, mut most, mut whole) = (0, 0, 0);
    for _ in 0..40 {
        let spent = run.step_costs(&bench).await;
        if is_noted(&spent) {
            in_a_row += 1;
            most = most.max(in_a_row);
        } else {
            assert!(is_whole(&spent), "{spent:?}");
            (in_a_row, whole) = (0, whole + 1);
            assert_eq!(session(&reader).await, (run.version, run.kept().into_map()));
        }
        run.check(&reader).await;
    }
    assert!(most <= 32 && (1..=2).contains(&whole), "{most} in a row, {whole} whole");
    check_stream(&reader, 41).await;
}

pub(crate) fn document(id: &str) -> DocumentWrite {
    let key = DocumentKey::new("thing", id);
    DocumentWrite { key, expect: 0, body: Some(Map::new()), listed: Vec::new(), expires_at: None }
}

/// What differs from a small step of words: its name, in the state, and in the commit.
type Difference = (&'static str, fn(&mut Run), fn(&mut Commit));

const DIFFERENCES: [Difference; 9] = [
    ("a large message", |run| run.grow("messages", json!({ "content": noise(3_000) })), |_| {}),
    ("a document", |_| {}, |commit| commit.journal.documents.push(document("beside"))),
    ("counters", |_| {}, |commit| commit.journal.counters.push(counters())),
    ("accepted work", |_| {}, |commit| commit.journal.accepts.push(accepted())),
    ("another stream", |_| {}, |commit| commit.journal.appends.push(of_another_stream())),
    ("a list that shrank", |run| with_list(run, |list| list.truncate(2)), |_| {}),
    ("a list that was replaced", |run| with_list(run, |list| list[0] = json!("another beginning")), |_| {}),
    ("no number of its own", |run| run.paused.step -= 1, |_| {}),
    ("a claim that is over", |_| {}, |commit| commit.now = at(60)),
];

fn counters() -> CounterWrite {
    let left = BTreeMap::from([("tokens".to_owned(), 5)]);
    let change = CounterChange::Begin { ending: None, left, ends_at: None, forget_at: None };
    CounterWrite { key: DocumentKey::new("quota", "q"), change }
}

fn accepted() -> PausedInvocation {
    PausedInvocation::before_first_pause("task_2".into(), "agent", at(0))
}

fn of_another_stream() -> Append {
    Append { stream: "other".to_owned(), end: StreamEnd::Store, first: 1, entries: vec![Map::new()], fed: None }
}

fn with_list(run: &mut Run, change: fn(&mut Vec<Value>)) {
    let mut list = run.list("messages");
    change(&mut list);
    run.fields.insert("messages", SharedField::Items(SharedItems::default().grown(&list)));
}

#[tokio::test]
async fn what_is_more_than_a_small_step_is_whole() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 4).await;
    for (name, in_state, in_commit) in DIFFERENCES {
        run.say();
        in_state(&mut run);
        let mut step = run.progress();
        in_commit(&mut step);
        let spent = run.costs(&bench, &step).await;
        assert!(is_whole(&spent), "{name}: {spent:?}");
        run.check(&reader).await;
        assert_eq!(session(&reader).await, (run.version, run.kept().into_map()), "{name}");
        run.noted_step(&bench).await;
        run.check(&reader).await;
    }
    let beside = reader.document(&document("beside").key, at(0)).await.expect("an answer");
    let left = reader.counters(&counters().key).await.expect("an answer").expect("they are there").left;
    let other = reader.tip("other").await.expect("an answer").position;
    assert_eq!((beside.map(|it| it.version), left.get("tokens"), other), (Some(1), Some(&5), 1));
    assert!(reader.load_invocation(&"task_2".into()).await.expect("an answer").is_some());
}

/// Checks that three steps of `run` are written, each once, and that it goes on behind them and ends.
async fn check_that_it_goes_on(mut run: Run, reader: &DynamoDbStateStore) {
    run.check(reader).await;
    check_stream(reader, 3).await;
    run.step().await.expect("it is written");
    run.check(reader).await;
    check_stream(reader, 4).await;
    run.say();
    run.commit(&run.complete()).await.expect("it is written");
    assert_eq!(session(reader).await, (run.version, run.kept().into_map()));
}

#[tokio::test]
async fn a_step_whose_answer_was_lost_is_written_once() {
    for (attempts, lost) in [(8, 1), (8, 2), (1, 1)] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::fresh(bench.process_trying(attempts));
        run.step().await.expect("it is written");
        run.noted_step(&bench).await;
        bench.faults.script("PutItem", (0..lost).map(|_| Fault::lost()));
        run.step().await.expect("it happened");
        assert_eq!(bench.faults.left(), 0);
        check_that_it_goes_on(run, &reader).await;
    }
}

#[tokio::test]
async fn a_step_that_did_not_happen_is_written_when_it_is_committed_again() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::fresh(bench.process_trying(1));
    run.step().await.expect("it is written");
    run.noted_step(&bench).await;
    let before = run.clone();
    run.say();
    let step = run.progress();
    bench.faults.script("PutItem", [Fault::throttled()]);
    let failed = run.commit(&step).await;
    assert!(matches!(failed, Err(CommitError::Store(_))), "{failed:?}");
    assert_eq!(bench.faults.left(), 0);
    before.check(&reader).await;
    run.commit(&step).await.expect("it is written");
    run.check(&reader).await;
    check_stream(&reader, 3).await;
}

#[tokio::test]
async fn a_step_that_is_committed_twice_is_written_once() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 2).await;
    run.say();
    let step = run.progress();
    run.commit(&step).await.expect("it is written");
    for process in [run.store.clone(), bench.process()] {
        process.commit(&step).await.expect("it was written");
    }
    check_that_it_goes_on(run, &reader).await;
}

#[tokio::test]
async fn the_first_step_of_another_process_is_whole() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let first = Run::with_steps(&bench, 4).await;
    let mut second = Run::taken_over(bench.process(), "worker-b", 61).await;
    second.whole_step(&bench).await;
    second.noted_step(&bench).await;
    second.noted_step(&bench).await;
    second.check(&reader).await;
    // In the process of the first worker, which knows an earlier end.
    let mut third = Run::taken_over(first.store, "worker-c", 200).await;
    assert_eq!(third.committed, second.told(session(&reader).await.0));
    third.whole_step(&bench).await;
    third.noted_step(&bench).await;
    third.check(&reader).await;
    check_stream(&reader, 9).await;
    third.say();
    third.commit(&third.complete()).await.expect("it is written");
    assert_eq!(session(&reader).await, (third.version, third.kept().into_map()));
    assert_eq!(third.list("messages").len(), 10, "a message of each step");
}

/// Changes the state and the place of `run` at random.
fn change(run: &mut Run, dice: &mut fastrand::Rng) {
    let step = run.paused.step;
    match dice.u8(..14) {
        0 => run.grow("outputs", json!({ "step": step, "value": null })),
        1 => run.grow("outputs", Value::Null),
        2 => run.set("outputs", &json!([])),
        3 => run.set("outputs", &Value::Null),
        4 => run.set("plan", &Value::Null),
        5 => run.set("plan", &json!({ "steps": [step, null, { "deep": [[]] }], "share": 0.1, "none": null })),
        6 => run.set("notes", &json!(noise(dice.u32(..60)))),
        7 => {
            let names = ["outputs", "plan", "notes"];
            run.fields.remove(names[dice.usize(..names.len())]);
        }
        8 => run.paused.trace_context = dice.bool().then(|| format!("00-{step:032x}-{step:016x}-01")),
        9 => {
            run.paused.metadata =
                if dice.bool() { Map::new() } else { Map::from_iter([("step".to_owned(), step.into())]) }
        }
        10 => run.paused.outer_attempts = if dice.bool() { Vec::new() } else { vec![1, dice.u32(..9)] },
        11 => run.paused.attempt_index = dice.u32(..3),
        12 => run.paused.completed_positions.clear(),
        _ => {
            let count = dice.usize(..3);
            let list = run.list("outputs");
            run.set("outputs", &list.into_iter().take(count).collect());
        }
    }
}

#[tokio::test]
async fn whatever_changes_in_a_step_is_read_as_it_was_committed() {
    for (seed, publishes) in [(1, true), (2, true), (3, false), (4, false)] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut run = Run::fresh(bench.process()).publishing(publishes);
        let mut noted = 0;
        for step in 0..200_u64 {
            if step > 0 && dice.u8(..20) == 0 {
                let now = run.until + 1;
                let before = run.told(session(&reader).await.0);
                run = Run::taken_over(bench.process(), &format!("worker-{step}"), now).await.publishing(publishes);
                assert_eq!(run.committed, before, "seed {seed}, step {step}");
            }
            run.advance();
            if dice.bool() {
                run.grow("messages", json!({ "content": format!("step {step}"), "calls": null }));
            }
            for _ in 0..dice.u8(..4) {
                change(&mut run, &mut dice);
            }
            run.until += i64::from(dice.u8(..10) == 0);
            let commit = run.progress();
            let spent = run.costs(&bench, &commit).await;
            noted += u32::from(is_noted(&spent));
            run.check(&reader).await;
        }
        assert!(noted > 50, "seed {seed}: {noted} were noted");
        let published = if publishes { 200 } else { 0 };
        assert_eq!(reader.tip(SESSION).await.expect("an answer").position, published);
        run.advance();
        run.commit(&run.complete()).await.expect("it is written");
        assert_eq!(session(&reader).await, (run.version, run.kept().into_map()), "seed {seed}");
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        assert_eq!(record.status, InvocationStatus::Completed { state: run.state().into_map() }, "seed {seed}");
    }
}
