//! Noted steps of runs that publish nothing, as a turn that is no task: each such run has a stream of its own for them.

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_aws::DynamoDbStateStore;
use dormouse_ports::{
    ClaimOutcome, Commit, CommitError, Commits, InvocationStatus, InvocationWrite, Invocations, Map, PausedInvocation,
    Records, SessionExpectation, SessionWrite,
};
use serde_json::{Value, json};

use crate::noted::{
    Bench, Run, SESSION, TABLE, TASK, at, claim_request, is_noted, is_refused, is_whole, saved_by_another, session,
    session_write,
};
use crate::noted_ends::{ENDS, canceled, put_aside};
use crate::noted_steps::document;

/// A run that publishes nothing, of which nothing is stored.
fn fresh(bench: &Bench) -> Run {
    Run::fresh(bench.process()).quiet()
}

/// The same as another worker takes it over.
async fn taken_over(bench: &Bench, owner: &str, now: i64) -> Run {
    Run::taken_over(bench.process(), owner, now).await.quiet()
}

fn ending(write: InvocationWrite) -> Commit {
    Commit { invocation: Some(write), ..Commit::new("end", at(70)) }
}

/// Its worker makes no step any more, neither one that is noted nor a whole one.
async fn check_gone(old: &Run, told: &str) {
    let mut old = old.clone();
    old.say();
    for _ in 0..2 {
        let refused = old.store.step(&old.progress()).await;
        assert!(is_refused(&refused), "{told}: {refused:?}");
    }
}

#[tokio::test]
async fn each_step_of_a_run_that_publishes_nothing_is_one_write_but_few() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = fresh(&bench);
    let mut whole = Vec::new();
    for step in 0..40 {
        let spent = run.step_costs(&bench).await;
        if is_whole(&spent) {
            whole.push(step);
            assert_eq!(session(&reader).await, (run.version, run.kept().into_map()));
        } else {
            assert!(is_noted(&spent) && spent["PutItem"].1 <= 2.0, "step {step}: {spent:?}");
        }
        run.check(&reader).await;
    }
    assert_eq!(whole, [0, 33]);
    assert_eq!(reader.tip(SESSION).await.expect("an answer").position, 0);
    run.say();
    run.commit(&run.complete()).await.expect("it is written");
    assert_eq!(session(&reader).await, (3, run.kept().into_map()));
    let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
    assert_eq!(record.status, InvocationStatus::Completed { state: run.state().into_map() });
}

#[tokio::test]
async fn who_takes_it_over_has_all_its_steps_and_the_worker_before_makes_no_more() {
    for steps in [1, 5] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut old = fresh(&bench).going(&bench, steps).await;
        let mut new = taken_over(&bench, "worker-b", 61).await;
        assert_eq!((session(&reader).await.0, &new.committed), (1, &old.told(1)));
        old.say();
        // It is written whole behind the note that was refused, and finds its claim gone.
        let step = old.store.step(&old.progress()).await;
        assert!(matches!(step, Err(CommitError::InvocationConflict)), "{step:?}");
        let end = old.store.commit(&old.complete()).await;
        assert!(is_refused(&end), "{end:?}");

        new.whole_step(&bench).await;
        new.noted_step(&bench).await;
        check_gone(&old, "behind the steps of another").await;
        new.noted_step(&bench).await;
        new.check(&reader).await;
        new.say();
        new.commit(&new.complete()).await.expect("it is written");
        assert_eq!(session(&reader).await, (new.version, new.kept().into_map()));
        assert_eq!(new.list("messages").len(), steps + 4, "each is there once");
    }
}

/// The second of them has made no step.
#[tokio::test]
async fn it_is_taken_over_twice() {
    for steps in [1, 4] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let old = fresh(&bench).going(&bench, steps).await;
        let process = bench.process();
        let second = Run::taken_over(process.clone(), "worker-b", 61).await.quiet();
        let again = Run::taken_over(process, "worker-b", 61).await;
        assert_eq!((&again.committed, &second.committed), (&old.told(1), &old.told(1)), "the answer may be lost");
        let mut third = taken_over(&bench, "worker-c", 200).await;
        assert_eq!(third.committed, old.told(1));
        check_gone(&old, "the first").await;
        check_gone(&second, "the second").await;
        third.whole_step(&bench).await;
        third.noted_step(&bench).await;
        check_gone(&old, "the first, later").await;
        check_gone(&second, "the second, later").await;
        third.check(&reader).await;
        let fourth = taken_over(&bench, "worker-d", 400).await;
        assert_eq!(fourth.committed, third.told(session(&reader).await.0));
    }
}

/// The claim is several requests: steps land before each of them in turn, one or several in a row.
#[tokio::test]
async fn a_step_that_lands_while_it_is_taken_over_is_part_of_it_or_refused() {
    let mut most = 0;
    for steps in [1, 3] {
        for first in 0..6 {
            for count in [1, 3] {
                let bench = Bench::new().await;
                let reader = bench.process();
                let mut old = fresh(&bench).going(&bench, steps).await;
                let (store, mut gate) = bench.gated();
                let request = claim_request("worker-b", 61);
                let step = async |number: usize| {
                    most = most.max(number);
                    if (first..first + count).contains(&number) {
                        tries(&mut old, false).await;
                    }
                };
                let outcome = gate.drive(store.claim(&request), step).await.expect("an answer");
                drop(gate);
                let ClaimOutcome::Granted(record) = outcome else { panic!("{outcome:?}") };
                assert_eq!(record.paused, old.told(1), "{steps} steps, {count} before request {first}");
                check_gone(&old, "taken over").await;
                let mut new = Run::of_record(store, &request, *record).await.quiet();
                new.step().await.expect("it is written");
                new.step().await.expect("it is written");
                new.check(&reader).await;
            }
        }
    }
    assert!(most >= 2, "the claim, the steps, and the end of the right to more of them");
}

/// Makes the next step of `old`, unless it is refused.
async fn tries(old: &mut Run, is_whole: bool) {
    let mut next = old.clone();
    next.say();
    let mut step = next.progress();
    if is_whole {
        step.journal.documents.push(document("beside"));
    }
    match next.commit(&step).await {
        Ok(()) => *old = next,
        refused => assert!(is_refused(&refused), "{refused:?}"),
    }
}

/// To read it is several requests: before each of them in turn come steps, the first of which is whole.
#[tokio::test]
async fn who_reads_it_while_it_goes_on_is_told_of_one_of_its_steps() {
    for place in 0..4 {
        let bench = Bench::new().await;
        let mut run = fresh(&bench).going(&bench, 3).await;
        let mut committed = vec![run.committed.state.clone()];
        let (reader, mut gate) = bench.gated();
        let steps = async |number: usize| {
            if number == place {
                for step in 0..3 {
                    tries(&mut run, step == 0).await;
                    committed.push(run.committed.state.clone());
                }
            }
        };
        let read = gate.drive(reader.load_invocation(&TASK.into()), steps).await;
        let state = read.expect("it can be read").expect("it is there").paused.state;
        assert!(committed.contains(&state), "before request {place}: {state:?}");
    }
}

#[tokio::test]
async fn what_ends_it_without_its_session_saves_what_its_steps_have_said() {
    for (name, end) in ENDS {
        for owner in ["worker-a", "worker-b"] {
            for saves_meanwhile in [false, true] {
                let told = format!("{name}, by {owner}, another turn saves: {saves_meanwhile}");
                let bench = Bench::new().await;
                let reader = bench.process();
                let old = fresh(&bench).going(&bench, 4).await;
                if owner != old.owner.as_str() {
                    taken_over(&bench, owner, 61).await;
                }
                let mut expected = old.kept().into_map();
                if saves_meanwhile {
                    let (save, theirs) = saved_by_another(1);
                    reader.commit(&save).await.expect("it is saved");
                    expected = theirs;
                }
                let commit = ending(end(listed(&reader).await, owner.into()));
                bench.process().commit(&commit).await.unwrap_or_else(|error| panic!("{told}: {error}"));
                assert_eq!(session(&reader).await, (2, expected), "{told}");
                check_gone(&old, &told).await;
                if name == "put aside" {
                    check_aside(&reader, &old, &told).await;
                }
            }
        }
    }
}

/// The pause as it is listed, without what its steps have made of it.
async fn listed(reader: &DynamoDbStateStore) -> PausedInvocation {
    let listed = reader.load_pauses(&[TASK.into()]).await.expect("an answer").remove(0);
    listed.expect("it can be read").expect("it is there").paused
}

/// What was put aside has the state of the last step of `old`.
async fn check_aside(reader: &DynamoDbStateStore, old: &Run, told: &str) {
    let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
    assert_eq!(record.paused.state, old.committed.state, "{told}");
}

/// What lands while it is ended.
#[derive(Clone, Copy, Debug)]
enum Lands {
    Step,
    /// One that is whole, and one that is noted behind it.
    Steps,
    /// The save of another turn.
    Save,
}

/// To end it is several requests: something lands before each of them in turn.
#[tokio::test]
async fn what_lands_while_it_is_ended_is_kept_or_refused() {
    for (name, end) in ENDS {
        for lands in [Lands::Step, Lands::Steps, Lands::Save] {
            for place in 0..6 {
                let told = format!("{lands:?} before request {place}, {name}");
                let bench = Bench::new().await;
                let reader = bench.process();
                let mut old = fresh(&bench).going(&bench, 3).await;
                let (store, mut gate) = bench.gated();
                let commit = ending(end(listed(&reader).await, old.owner.clone()));
                let mut saved = None;
                let between = async |number: usize| {
                    if number != place {
                        return;
                    }
                    match lands {
                        Lands::Step => tries(&mut old, false).await,
                        Lands::Steps => {
                            tries(&mut old, true).await;
                            tries(&mut old, false).await;
                        }
                        Lands::Save => {
                            let (save, theirs) = saved_by_another(1);
                            saved = reader.commit(&save).await.ok().map(|()| theirs);
                        }
                    }
                };
                let outcome = gate.drive(store.commit(&commit), between).await;
                outcome.unwrap_or_else(|error| panic!("{told}: {error}"));
                assert_eq!(session(&reader).await.1, saved.unwrap_or_else(|| old.kept().into_map()), "{told}");
                let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
                let is_ended = matches!(record.status, InvocationStatus::Canceled(_) | InvocationStatus::Errored(_));
                assert!(is_ended, "{told}: {:?}", record.status);
                if name == "put aside" {
                    check_aside(&reader, &old, &told).await;
                }
                check_gone(&old, &told).await;
            }
        }
    }
}

fn messages(state: &Map) -> Vec<Value> {
    state.get("messages").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Another turn says something behind all that the session has.
async fn another_says(store: &DynamoDbStateStore) {
    let (version, mut state) = session(store).await;
    let mut said = messages(&state);
    said.push(json!({ "role": "user", "content": "what another turn says" }));
    state.insert("messages".to_owned(), said.into());
    let save = session_write(version, Some((state.into(), "1".to_owned())));
    store.commit(&Commit { session: Some(save), ..Commit::new("another", at(0)) }).await.expect("it is saved");
}

/// Another turn saves before it is put aside, before it may go on, behind the claim, or never. Who goes on carries its save over
/// as an engine does: what it has more than the state with which its session was saved last.
#[tokio::test]
async fn what_was_put_aside_goes_on_behind_what_another_turn_has_said() {
    for when in 0..4 {
        let bench = Bench::new().await;
        let reader = bench.process();
        let saves = async |place: usize| {
            if place == when {
                another_says(&reader).await;
            }
        };
        let old = fresh(&bench).going(&bench, 4).await;
        saves(0).await;
        let aside = ending(put_aside(listed(&reader).await, old.owner.clone()));
        bench.process().commit(&aside).await.expect("it is put aside");
        saves(1).await;
        let retry = InvocationWrite::Retry { paused: Box::new(listed(&reader).await) };
        let retry = Commit { invocation: Some(retry), ..Commit::new("retry", at(100)) };
        bench.process().commit(&retry).await.expect("it may go on");
        let (process, request) = (bench.process(), claim_request("worker-b", 200));
        let outcome = process.claim(&request).await.expect("an answer");
        let ClaimOutcome::Granted(record) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.paused.state, old.committed.state);
        saves(2).await;

        let base = messages(record.saved.as_ref().unwrap_or(&record.paused.state));
        let mut new = Run::of_record(process, &request, *record).await.quiet();
        new.say();
        let (version, theirs) = session(&reader).await;
        assert_eq!(version == new.version, when == 3, "{when}: {version}, {}", new.version);
        let merged = [messages(&theirs), new.list("messages")[base.len()..].to_vec()].concat();
        let merged = if version == new.version { new.list("messages") } else { merged };
        new.version = version;
        let mut step = new.progress();
        let state = Map::from_iter([("messages".to_owned(), merged.clone().into())]);
        step.session = Some(session_write(version, Some((state.into(), "1".to_owned()))));
        new.commit(&step).await.expect("it is written");
        assert_eq!(messages(&session(&reader).await.1), merged);
        let mut said: Vec<String> = merged.iter().map(Value::to_string).collect();
        said.sort_unstable();
        said.dedup();
        let expected = 5 + usize::from(when < 3);
        assert_eq!((said.len(), merged.len()), (expected, expected), "{when}: {merged:?}");
        check_gone(&old, "it goes on").await;
    }
}

/// What gives up a lease with it saves nothing by that.
#[tokio::test]
async fn what_is_put_aside_with_a_lease_behind_another_turn_keeps_its_steps() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let old = fresh(&bench).going(&bench, 4).await;
    another_says(&reader).await;
    let aside = ending(put_aside(listed(&reader).await, old.owner.clone()));
    let released = SessionWrite { expect: SessionExpectation::Any, ..session_write(0, None) };
    let aside = Commit { session: Some(released), ..aside };
    bench.process().commit(&aside).await.expect("it is put aside");
    check_aside(&reader, &old, "with a lease").await;
}

/// The id of an invocation that is long gone may be given again, and batches of that may be there still.
#[tokio::test]
async fn batches_at_other_places_of_its_stream_are_none_of_its_own() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let place = 9 * 1024 + 1;
    let number = AttributeValue::N(place.to_string());
    let [pk, sk] = [format!("STREAM#notes:{TASK}"), format!("{place:020}")].map(AttributeValue::S);
    let put = bench.embedded.client().put_item().table_name(TABLE).item("pk", pk).item("sk", sk);
    put.item("first_position", number.clone()).item("last_position", number).send().await.expect("it is written");
    let old = fresh(&bench).going(&bench, 3).await;
    old.check(&reader).await;
    let mut new = taken_over(&bench, "worker-b", 61).await;
    assert_eq!(new.committed, old.told(1));
    check_gone(&old, "taken over").await;
    new.whole_step(&bench).await;
    new.noted_step(&bench).await;
    new.check(&reader).await;
}

/// As behind a node that is a graph, none of whose nodes ran.
#[tokio::test]
async fn what_was_noted_does_not_come_behind_a_whole_step_of_the_same_number() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let grown = |mut run: Run| {
        run.grow("messages", json!({ "role": "assistant", "content": "said without a number" }));
        run
    };
    let mut old = grown(fresh(&bench).going(&bench, 1).await);
    let step = old.progress();
    old.commit(&step).await.expect("it is written");
    old.check(&reader).await;
    let mut new = grown(taken_over(&bench, "worker-b", 61).await);
    let step = new.progress();
    new.commit(&step).await.expect("it is written");
    new.check(&reader).await;
    // The fence of its claim stands in its place.
    new.step().await.expect("it is written");
    new.check(&reader).await;
    let third = taken_over(&bench, "worker-c", 200).await;
    assert_eq!(third.committed, new.told(session(&reader).await.0));
    assert_eq!(third.list("messages").len(), 4);
}

/// What happens while a step is on its way.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    TakenOver,
    Canceled,
    PutAside,
    /// All of it, by so many items at a time.
    Erased(i32),
}

impl Meanwhile {
    async fn happens(self, bench: &Bench) {
        let process = bench.process();
        let write = match self {
            Self::TakenOver => {
                taken_over(bench, "worker-b", 61).await;
                return;
            }
            Self::Erased(page_size) => {
                bench.erase(page_size).await;
                return;
            }
            Self::Canceled => canceled(listed(&process).await),
            Self::PutAside => put_aside(listed(&process).await, "worker-a".into()),
        };
        process.commit(&ending(write)).await.expect("it ends");
    }
}

/// Its worker knows nothing of it, and has sent its step already.
#[tokio::test]
async fn a_step_that_is_on_its_way_is_refused_and_leaves_nothing() {
    use Meanwhile::{Canceled, Erased, PutAside, TakenOver};
    let all: [&[Meanwhile]; 12] = [
        &[TakenOver],
        &[Canceled],
        &[PutAside],
        &[TakenOver, Canceled],
        &[Erased(1)],
        &[TakenOver, Erased(1)],
        &[Canceled, Erased(1)],
        &[PutAside, Erased(1)],
        &[Erased(100)],
        &[TakenOver, Erased(100)],
        &[Canceled, Erased(100)],
        &[PutAside, Erased(100)],
    ];
    for meanwhile in all {
        for steps in [1, 2, 4] {
            let told = format!("{meanwhile:?} behind {steps} steps");
            let bench = Bench::new().await;
            let reader = bench.process();
            let (store, mut gate) = bench.gated();
            let mut old = Run::fresh(store.clone()).quiet();
            for _ in 0..steps {
                gate.drive(old.step(), async |_| {}).await.expect("it is written");
            }
            let kept = old.kept().into_map();
            let mut late = old.clone();
            late.say();
            let step = late.progress();
            for attempt in 0..2 {
                let happens = async |number: usize| {
                    if (attempt, number) == (0, 0) {
                        for one in meanwhile {
                            one.happens(&bench).await;
                        }
                    }
                };
                let refused = gate.drive(store.step(&step), happens).await;
                assert!(is_refused(&refused), "{told}: {refused:?}");
            }
            if matches!(meanwhile.last(), Some(Erased(_))) {
                let left = bench.left().await;
                assert!(left.is_empty(), "{told}: {left:?}");
                continue;
            }
            let (_, state) = session(&reader).await;
            let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
            match record.status {
                InvocationStatus::Canceled(_) => assert_eq!(state, kept, "{told}"),
                InvocationStatus::Resuming(_) | InvocationStatus::Errored(_) => {
                    assert_eq!(record.paused.state, old.committed.state, "{told}");
                }
                InvocationStatus::Suspended
                | InvocationStatus::Accepted { .. }
                | InvocationStatus::Completed { .. } => panic!("{told}: {:?}", record.status),
            }
        }
    }
}
