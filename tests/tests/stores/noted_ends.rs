//! Noted steps and who else may change their run: who takes it over, ends it, puts it aside, or erases it.

use std::sync::Arc;

use dormouse_aws::Belongings;
use dormouse_ports::{
    Append, Cancellation, Category, ClaimOutcome, Commit, CommitError, Commits, FailureRecord, Fed, FeedRequest,
    InvocationStatus, InvocationWrite, Invocations, Map, Owner, PausedInvocation, Records, SharedField, SharedItems,
    SharedMap, StoreError, StreamEnd,
};
use jiff::Timestamp;
use serde_json::json;

use crate::faults::Fault;
use crate::noted::{
    Bench, Run, SESSION, TABLE, TASK, append_behind, at, check_stream, claim_request, is_behind, is_refused,
    saved_by_another, session, session_write, telling,
};

#[tokio::test]
async fn who_takes_a_run_over_has_all_its_steps_and_the_worker_before_makes_no_more() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut old = Run::with_steps(&bench, 5).await;
    let mut new = Run::taken_over(bench.process(), "worker-b", 61).await;
    assert_eq!(session(&reader).await.0, 1);
    assert_eq!(new.committed, old.told(1));
    // Nothing of it is seen in the stream.
    check_stream(&reader, 5).await;
    assert_eq!(reader.tip(SESSION).await.expect("an answer"), old.tip);

    old.say();
    let step = old.store.step(&old.progress()).await;
    assert!(is_behind(&step), "{step:?}");
    let whole = old.store.step(&old.progress()).await;
    assert!(matches!(whole, Err(CommitError::InvocationConflict)), "{whole:?}");
    let end = old.store.commit(&old.complete()).await;
    assert!(is_refused(&end), "{end:?}");
    check_stream(&reader, 5).await;

    new.whole_step(&bench).await;
    new.noted_step(&bench).await;
    old.catch_up().await;
    let late = old.store.step(&old.progress()).await;
    assert!(is_refused(&late), "{late:?}");
    new.noted_step(&bench).await;
    new.check(&reader).await;
    check_stream(&reader, 8).await;
    new.say();
    new.commit(&new.complete()).await.expect("it is written");
    assert_eq!(session(&reader).await, (new.version, new.kept().into_map()));
    assert_eq!(new.list("messages").len(), 9, "each is there once");
    check_stream(&reader, 9).await;
}

#[tokio::test]
async fn a_whole_write_of_the_worker_before_finds_the_run_taken_over() {
    for ends in [false, true] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut old = Run::with_steps(&bench, 3).await;
        let mut new = Run::taken_over(bench.process(), "worker-b", 61).await;
        old.say();
        let write = if ends { old.complete() } else { old.suspend() };
        let refused = old.store.commit(&write).await;
        assert!(matches!(refused, Err(CommitError::InvocationConflict)), "{refused:?}");
        new.whole_step(&bench).await;
        let refused = old.store.commit(&write).await;
        assert!(is_refused(&refused), "{refused:?}");
        new.check(&reader).await;
        check_stream(&reader, 4).await;
    }
}

#[tokio::test]
async fn another_writer_of_the_stream_goes_on_behind_a_take_over() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut old = Run::with_steps(&bench, 3).await;
    let mut new = Run::taken_over(bench.process(), "worker-b", 61).await;
    let mut other = Commit::new("other", at(0));
    other.journal.appends.push(append_behind(&old.tip));
    reader.commit(&other).await.expect("it is written");
    check_stream(&reader, 4).await;
    old.say();
    for catches_up in [false, true] {
        if catches_up {
            old.catch_up().await;
        }
        let refused = old.store.step(&old.progress()).await;
        assert!(is_refused(&refused), "{refused:?}");
    }
    let refused = new.step().await;
    assert!(is_behind(&refused), "{refused:?}");
    new.catch_up().await;
    new.whole_step(&bench).await;
    new.noted_step(&bench).await;
    new.check(&reader).await;
    check_stream(&reader, 6).await;
}

/// The second of them has made no step.
#[tokio::test]
async fn a_run_is_taken_over_twice() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let old = Run::with_steps(&bench, 4).await;
    let process = bench.process();
    let mut second = Run::taken_over(process.clone(), "worker-b", 61).await;
    let again = Run::taken_over(process, "worker-b", 61).await;
    assert_eq!((&again.committed, &second.committed), (&old.told(1), &old.told(1)), "the answer may be lost");
    let mut third = Run::taken_over(bench.process(), "worker-c", 200).await;
    assert_eq!(third.committed, old.told(1));
    check_stream(&reader, 4).await;
    assert_eq!(reader.tip(SESSION).await.expect("an answer"), old.tip);
    for mut behind in [old, second.clone()] {
        behind.say();
        for _ in 0..2 {
            let refused = behind.store.step(&behind.progress()).await;
            assert!(is_refused(&refused), "{refused:?}");
        }
    }
    third.whole_step(&bench).await;
    third.noted_step(&bench).await;
    second.catch_up().await;
    let refused = second.step().await;
    assert!(is_refused(&refused), "{refused:?}");
    third.check(&reader).await;
    check_stream(&reader, 6).await;
}

#[tokio::test]
async fn a_claim_that_has_to_be_asked_for_again_ends_the_right_of_the_worker_before() {
    for operation in ["UpdateItem", "GetItem", "Query", "PutItem", "TransactWriteItems"] {
        for fault in [Fault::throttled(), Fault::lost()] {
            let bench = Bench::new().await;
            let mut old = Run::with_steps(&bench, 3).await;
            let process = bench.process_trying(1);
            let request = claim_request("worker-b", 61);
            bench.faults.script(operation, [fault.clone()]);
            let first = process.claim(&request).await;
            bench.faults.script("none", []);
            let told = format!("{fault:?} at {operation}: {first:?}");
            let ClaimOutcome::Granted(record) = process.claim(&request).await.expect("an answer") else {
                panic!("{told}")
            };
            assert_eq!(record.paused, old.told(1), "{told}");
            old.say();
            for _ in 0..2 {
                let refused = old.store.step(&old.progress()).await;
                assert!(is_refused(&refused), "{refused:?}, {told}");
            }
            let mut new = Run::of_record(process, &request, *record).await;
            new.whole_step(&bench).await;
            new.noted_step(&bench).await;
            new.check(&bench.process()).await;
            check_stream(&bench.process(), 5).await;
        }
    }
}

/// Nobody has to wait until it ends.
#[tokio::test]
async fn a_claim_behind_which_the_steps_cannot_be_read_now_is_given_back() {
    for operation in ["Query", "PutItem"] {
        let bench = Bench::new().await;
        let old = Run::with_steps(&bench, 3).await;
        bench.faults.script(operation, [Fault::throttled()]);
        let failed = bench.process_trying(1).claim(&claim_request("worker-b", 61)).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{operation}: {failed:?}");
        assert_eq!(bench.faults.left(), 0);
        let outcome = bench.process().claim(&claim_request("worker-c", 62)).await.expect("an answer");
        let ClaimOutcome::Granted(record) = outcome else { panic!("{operation}: {outcome:?}") };
        assert_eq!(record.paused, old.told(1), "{operation}");
        let InvocationStatus::Resuming(claim) = record.status else { panic!("{:?}", record.status) };
        assert_eq!((claim.owner.as_str(), claim.attempts), ("worker-c", 2), "no worker died of it");
    }
}

/// The claim is several requests: steps land before each of them in turn, one or several in a row.
#[tokio::test]
async fn a_step_that_lands_while_its_run_is_taken_over_is_part_of_it_or_refused() {
    let mut most = 0;
    for first in 0..8 {
        for count in [1, 3] {
            let bench = Bench::new().await;
            let reader = bench.process();
            let mut old = Run::with_steps(&bench, 3).await;
            let (store, mut gate) = bench.gated();
            let request = claim_request("worker-b", 61);
            let step = async |number: usize| {
                most = most.max(number);
                if (first..first + count).contains(&number) {
                    let mut next = old.clone();
                    match next.step().await {
                        Ok(()) => old = next,
                        refused => assert!(is_refused(&refused), "{refused:?} before request {number}"),
                    }
                }
            };
            let outcome = gate.drive(store.claim(&request), step).await.expect("an answer");
            drop(gate);
            let ClaimOutcome::Granted(record) = outcome else { panic!("{outcome:?}") };
            assert_eq!(record.paused, old.told(1), "{count} before request {first}");
            let last = old.tip.position;
            check_stream(&reader, last).await;
            old.say();
            for _ in 0..2 {
                let refused = old.store.step(&old.progress()).await;
                assert!(is_refused(&refused), "{refused:?}");
            }
            let mut new = Run::of_record(store, &request, *record).await;
            new.step().await.expect("it is written");
            new.step().await.expect("it is written");
            new.check(&reader).await;
            check_stream(&reader, last + 2).await;
        }
    }
    assert!(most >= 2, "the claim, the steps, and the end of the right to more of them");
}

/// What another process does to a run that it has never seen.
pub(crate) fn canceled(paused: PausedInvocation) -> InvocationWrite {
    InvocationWrite::Cancel { paused: Box::new(paused), cancellation: Cancellation { reason: None, at: at(70) } }
}

fn failure() -> FailureRecord {
    FailureRecord { category: Category::NodeException, message: "it broke".to_owned() }
}

fn failed(paused: PausedInvocation, owner: Owner) -> InvocationWrite {
    InvocationWrite::Fail { paused: Box::new(paused), owner: Some(owner), failure: failure() }
}

pub(crate) fn put_aside(paused: PausedInvocation, owner: Owner) -> InvocationWrite {
    InvocationWrite::PutAside { paused: Box::new(paused), owner, failure: failure() }
}

fn released(paused: PausedInvocation, owner: Owner) -> InvocationWrite {
    let PausedInvocation { invocation_id, generation, .. } = paused;
    InvocationWrite::Release { invocation_id, generation, owner, again_at: None }
}

pub(crate) type End = (&'static str, fn(PausedInvocation, Owner) -> InvocationWrite);

pub(crate) const ENDS: [End; 3] =
    [("canceled", |paused, _| canceled(paused)), ("failed", failed), ("put aside", put_aside)];

#[tokio::test]
async fn what_ends_a_run_without_its_session_saves_what_its_steps_have_said() {
    for (name, end) in ENDS {
        for taken_over in [false, true] {
            for saves_meanwhile in [false, true] {
                let told = format!("{name}, taken over: {taken_over}, another turn saves: {saves_meanwhile}");
                let bench = Bench::new().await;
                let reader = bench.process();
                let mut old = Run::with_steps(&bench, 4).await;
                let process = bench.process();
                let owner = match taken_over {
                    true => Run::taken_over(process.clone(), "worker-b", 61).await.owner,
                    false => old.owner.clone(),
                };
                let mut expected = old.kept().into_map();
                if saves_meanwhile {
                    let (save, theirs) = saved_by_another(1);
                    reader.commit(&save).await.expect("it is saved");
                    expected = theirs;
                }
                // As it is listed, without what its steps have made of it.
                let listed = reader.load_pauses(&[TASK.into()]).await.expect("an answer").remove(0);
                let paused = listed.expect("it can be read").expect("it is there").paused;
                let tip = reader.tip(SESSION).await.expect("an answer");
                let commit = telling(end(paused, owner), &tip);
                process.commit(&commit).await.unwrap_or_else(|error| panic!("{told}: {error}"));
                assert_eq!(session(&reader).await, (2, expected), "{told}");
                old.say();
                for _ in 0..2 {
                    let refused = old.store.step(&old.progress()).await;
                    assert!(is_refused(&refused), "{told}: {refused:?}");
                }
                check_stream(&reader, 5).await;
            }
        }
    }
}

/// The process of the worker itself ends it, with what it has committed.
#[tokio::test]
async fn a_worker_that_fails_saves_what_its_steps_have_said() {
    for (name, end) in ENDS {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::with_steps(&bench, 4).await;
        let said = run.kept().into_map();
        // What it says in the step that fails is lost.
        run.say();
        let commit = telling(end(run.committed.clone(), run.owner.clone()), &run.tip);
        run.store.commit(&commit).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(session(&reader).await, (2, said), "{name}");
        check_stream(&reader, 5).await;
    }
}

/// What another turn has said is in the session, and not in the run: an engine that was refused carries its save over.
#[tokio::test]
async fn what_was_merged_into_the_session_of_a_run_is_saved_with_its_steps() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let mut run = Run::with_steps(&bench, 3).await;
    let theirs = json!({ "role": "user", "content": "what another turn says" });
    let state = Map::from_iter([("messages".to_owned(), json!([theirs]))]);
    let session_of_another = Some(session_write(1, Some((state.into(), "1".to_owned()))));
    let another = Commit { session: session_of_another, ..Commit::new("another", at(0)) };
    reader.commit(&another).await.expect("it is saved");

    // Whole, since it appends to another stream beside.
    run.say();
    let beside =
        Append { stream: "other".to_owned(), end: StreamEnd::Store, first: 1, entries: vec![Map::new()], fed: None };
    let mut step = run.progress();
    step.journal.appends.push(beside.clone());
    let refused = run.commit(&step).await;
    assert!(matches!(refused, Err(CommitError::SessionConflict)), "{refused:?}");
    run.version = 2;

    let merged = |run: &Run| {
        let messages: Vec<_> = std::iter::once(theirs.clone()).chain(run.list("messages")).collect();
        let messages = SharedField::Items(SharedItems::default().grown(&messages));
        SharedMap::of_fields([(Arc::from("messages"), messages)])
    };
    for number in 0..4 {
        if number > 0 {
            run.say();
        }
        let mut step = run.progress();
        if number == 0 {
            step.journal.appends.push(beside.clone());
        }
        if let Some(InvocationWrite::Progress { paused, .. }) = &mut step.invocation {
            paused.session_version = Some(run.version);
        }
        let save = Some((merged(&run), "1".to_owned()));
        step.session = Some(session_write(run.version, save));
        run.commit(&step).await.unwrap_or_else(|error| panic!("step {number}: {error}"));
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        assert_eq!(record.paused.state, run.state());
    }
    bench.process().commit(&telling(canceled(run.committed.clone()), &run.tip)).await.expect("it is canceled");
    assert_eq!(session(&reader).await.1, merged(&run).into_map());
}

/// A node saves the session in the midst of a step. Its worker dies behind that, or goes on, or somebody cancels the run.
#[tokio::test]
async fn what_a_node_saves_in_the_midst_of_a_step_has_the_steps_before() {
    for (publishes, is_canceled) in [(true, false), (true, true), (false, false), (false, true)] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let read = async || reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        let mut run = Run::fresh(bench.process()).publishing(publishes).going(&bench, 3).await;
        let noted = read().await;
        assert!(noted.saved.is_some());
        run.say();
        run.commit(&run.held_save()).await.expect("it is saved");
        let kept = run.kept().into_map();
        assert_eq!(session(&reader).await, (2, kept.clone()));
        let behind = read().await;
        // What is carried over onto the session begins behind what that has of the run.
        assert_eq!((&behind.paused, &behind.saved), (&noted.paused, &None));
        if is_canceled {
            let cancel = run.telling(canceled(behind.paused));
            bench.process().commit(&cancel).await.expect("it is canceled");
            assert_eq!(session(&reader).await, (2, kept));
        } else {
            run.whole_step(&bench).await;
            run.noted_step(&bench).await;
            assert!(read().await.saved.is_some());
            run.check(&reader).await;
        }
    }
}

/// Of a step before which nothing was noted, where the save demands nothing of the claim: the step is whole.
#[tokio::test]
async fn what_a_node_saves_behind_a_whole_step_is_no_other_turn_to_its_run() {
    for publishes in [true, false] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::fresh(bench.process()).publishing(publishes).going(&bench, 1).await;
        run.say();
        run.commit(&run.free_save()).await.expect("it is saved");
        assert_eq!(session(&reader).await, (2, run.kept().into_map()));
        run.whole_step(&bench).await;
        let new = Run::taken_over(bench.process(), "worker-b", 61).await;
        // So nothing is carried over onto what it has saved itself.
        assert_eq!((new.version, session(&reader).await), (3, (3, new.kept().into_map())));
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        assert_eq!((record.paused.state, record.saved), (run.state(), None));
    }
}

type Leave = (&'static str, fn(&Run) -> Commit);

const LEAVES: [Leave; 4] = [
    ("put aside", |run| run.telling(put_aside(run.committed.clone(), run.owner.clone()))),
    ("released", |run| run.telling(released(run.committed.clone(), run.owner.clone()))),
    ("kept", kept_for_another),
    ("handed over", handed_over),
];

fn kept_for_another(run: &Run) -> Commit {
    let (invocation_id, owner) = (TASK.into(), run.owner.clone());
    let keep = InvocationWrite::Keep { invocation_id, generation: 0, owner, at_once: true };
    Commit { invocation: Some(keep), ..Commit::new("keep", at(50)) }
}

fn handed_over(run: &Run) -> Commit {
    let mut commit = run.progress();
    if let Some(InvocationWrite::Progress { claim, .. }) = &mut commit.invocation {
        *claim = None;
    }
    commit
}

#[tokio::test]
async fn a_run_that_its_worker_left_goes_on_with_all_its_steps() {
    for (publishes, (name, leave)) in [true, false].into_iter().flat_map(|it| LEAVES.map(|leave| (it, leave))) {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut old = Run::fresh(bench.process()).publishing(publishes).going(&bench, 4).await;
        let commit = leave(&old);
        old.commit(&commit).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
        if matches!(record.status, InvocationStatus::Errored(_)) {
            assert_eq!(record.paused.state, old.committed.state, "{name}");
            let retry = InvocationWrite::Retry { paused: Box::new(record.paused) };
            let retry = Commit { invocation: Some(retry), ..Commit::new("retry", at(55)) };
            bench.process().commit(&retry).await.expect("it may go on");
        }
        let mut new = Run::taken_over(bench.process(), "worker-b", 200).await.publishing(publishes);
        assert_eq!(new.committed, old.told(session(&reader).await.0), "{name}");
        let last = old.tip.position;
        if publishes {
            check_stream(&reader, last).await;
        }
        old.say();
        for _ in 0..2 {
            let refused = old.store.step(&old.progress()).await;
            assert!(is_refused(&refused), "{name}: {refused:?}");
        }
        new.whole_step(&bench).await;
        new.noted_step(&bench).await;
        new.check(&reader).await;
        new.say();
        new.commit(&new.complete()).await.expect("it is written");
        assert_eq!(session(&reader).await, (new.version, new.kept().into_map()), "{name}");
        assert_eq!(new.list("messages").len(), 7, "{name}");
        if publishes {
            check_stream(&reader, last + 3).await;
        }
    }
}

/// To cancel is several requests: a step of the worker, or the save of another turn, lands before each of them in turn.
#[tokio::test]
async fn what_lands_while_a_run_is_canceled_is_kept_or_refused() {
    for place in 0..8 {
        for another_saves in [false, true] {
            let told = format!("before request {place}, another turn saves: {another_saves}");
            let bench = Bench::new().await;
            let reader = bench.process();
            let mut old = Run::with_steps(&bench, 3).await;
            let (store, mut gate) = bench.gated();
            let (mut landed, mut saved) = (false, None);
            let mut outcome = Ok(());
            for _ in 0..3 {
                let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
                let cancel = telling(canceled(record.paused), &reader.tip(SESSION).await.expect("an answer"));
                let between = async |number: usize| {
                    if number != place || landed {
                        return;
                    }
                    landed = true;
                    if another_saves {
                        let (save, theirs) = saved_by_another(1);
                        saved = reader.commit(&save).await.ok().map(|()| theirs);
                        return;
                    }
                    let mut next = old.clone();
                    match next.step().await {
                        Ok(()) => old = next,
                        refused => assert!(is_refused(&refused), "{told}: {refused:?}"),
                    }
                };
                outcome = gate.drive(store.commit(&cancel), between).await;
                if !is_behind(&outcome) {
                    break;
                }
            }
            outcome.unwrap_or_else(|error| panic!("{told}: {error}"));
            let record = reader.load_invocation(&TASK.into()).await.expect("an answer").expect("it is there");
            assert!(matches!(record.status, InvocationStatus::Canceled(_)), "{told}: {:?}", record.status);
            let expected = saved.unwrap_or_else(|| old.kept().into_map());
            assert_eq!(session(&reader).await, (2, expected), "{told}");
            check_stream(&reader, old.tip.position + 1).await;
        }
    }
}

#[tokio::test]
async fn a_feed_tells_of_what_was_appended_and_of_nothing_else() {
    let bench = Bench::new().await;
    let reader = bench.process();
    let fed = |mut commit: Commit| {
        commit.journal.appends[0].fed = Some(Fed::to("feed"));
        commit
    };
    let mut old = Run::fresh(bench.process());
    old.say();
    old.commit(&fed(old.progress())).await.expect("it is written");
    for _ in 0..3 {
        old.step().await.expect("it is written");
    }
    let mut new = Run::taken_over(bench.process(), "worker-b", 61).await;
    let told = async |limit: usize| {
        let (feed, until) = ("feed".to_owned(), Timestamp::MAX);
        let mut request = FeedRequest { feed, labels: None, after: None, until, limit };
        let mut rows = Vec::new();
        loop {
            let page = reader.feed(&request).await.expect("an answer");
            for append in page.appends {
                assert_eq!(append.entries.len() as u64, append.row.count);
                rows.push(append.row.first);
            }
            request.after = page.upto.or(request.after);
            if !page.more {
                return rows;
            }
        }
    };
    assert_eq!((told(1).await, told(10).await), (vec![1], vec![1]));
    new.say();
    new.commit(&fed(new.progress())).await.expect("it is written");
    new.step().await.expect("it is written");
    assert_eq!((told(1).await, told(10).await), (vec![1, 5], vec![1, 5]));
}

/// A run in the midst of its work, of which everything was erased, by so many items at a time, after it was canceled or before.
async fn erased(bench: &Bench, is_canceled: bool, page_size: i32) -> Run {
    let run = Run::with_steps(bench, 4).await;
    if is_canceled {
        bench.process().commit(&telling(canceled(run.committed.clone()), &run.tip)).await.expect("it is canceled");
    }
    bench.erase(page_size).await;
    run
}

#[tokio::test]
async fn with_a_session_its_noted_steps_are_erased() {
    for is_canceled in [false, true] {
        let bench = Bench::new().await;
        let reader = bench.process();
        erased(&bench, is_canceled, 100).await;
        assert_eq!(reader.entries(SESSION, 0, 100).await.expect("an answer"), []);
        assert_eq!(session(&reader).await.0, 0);
        assert_eq!(reader.load_invocation(&TASK.into()).await.expect("an answer"), None);
        let scanned = bench.embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let steps: Vec<_> =
            scanned.items.unwrap_or_default().into_iter().filter(|it| it.contains_key("step")).collect();
        assert!(steps.is_empty(), "{steps:?}");
    }
}

/// To erase is several requests: a step of the worker lands before each of them in turn.
#[tokio::test]
async fn a_step_that_lands_while_its_session_is_erased_goes_with_it() {
    let mut most = 0;
    for place in 0..16 {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = Run::with_steps(&bench, 3).await;
        let owners = [SESSION.to_owned(), TASK.to_owned()].into();
        let belongings = Belongings { owners, ..Belongings::default() };
        let (store, mut gate) = bench.gated();
        let eraser = store.eraser();
        let between = async |number: usize| {
            most = most.max(number);
            if number == place {
                let mut next = run.clone();
                match next.step().await {
                    Ok(()) => run = next,
                    refused => assert!(is_refused(&refused), "{refused:?} before request {number}"),
                }
            }
        };
        gate.drive(eraser.erase(&belongings), between).await.expect("it erases");
        drop(gate);
        let eraser = bench.process().eraser();
        while eraser.erase(&belongings).await.expect("it erases").values().any(|count| *count > 0) {}
        run.say();
        for _ in 0..2 {
            let late = run.store.step(&run.progress()).await;
            let left = reader.entries(SESSION, 0, 100).await.expect("an answer");
            assert!(late.is_err() && left.is_empty(), "a step before request {place}: {late:?}, {left:?}");
        }
    }
    assert!(most >= 4, "what is read, the batches, the end of the stream, and the heads: {most}");
}

/// Who takes a run over may have read it before its session was erased.
#[tokio::test]
async fn a_run_that_is_taken_over_while_its_session_is_erased_leaves_nothing() {
    for place in 0..4 {
        let bench = Bench::new().await;
        let reader = bench.process();
        Run::with_steps(&bench, 3).await;
        let owners = [SESSION.to_owned(), TASK.to_owned()].into();
        let belongings = Belongings { owners, ..Belongings::default() };
        let (store, mut gate) = bench.gated();
        let request = claim_request("worker-b", 61);
        let mut is_erased = false;
        let between = async |number: usize| {
            if number == place {
                bench.process().eraser().erase(&belongings).await.expect("it erases");
                is_erased = true;
            }
        };
        let outcome = gate.drive(store.claim(&request), between).await;
        assert!(is_erased || place > 2, "it is claimed, read and fenced");
        let is_granted = matches!(outcome, Ok(ClaimOutcome::Granted(_)));
        let tip = reader.tip(SESSION).await.expect("an answer");
        let told = format!("before request {place}: {outcome:?}, {tip:?}");
        assert_eq!((is_granted, tip.known.is_some()), (!is_erased, !is_erased), "{told}");
    }
}

/// Its worker was in the midst of a step, which takes as long as a model does.
#[tokio::test]
async fn a_step_that_comes_after_its_session_was_erased_leaves_nothing() {
    for (is_canceled, page_size) in [(false, 100), (true, 100), (false, 1), (true, 1)] {
        let bench = Bench::new().await;
        let reader = bench.process();
        let mut run = erased(&bench, is_canceled, page_size).await;
        run.say();
        for _ in 0..2 {
            let late = run.store.step(&run.progress()).await;
            let left = reader.entries(SESSION, 0, 100).await.expect("an answer");
            assert!(
                late.is_err() && left.is_empty(),
                "canceled before: {is_canceled}, {page_size} items, {late:?}, {left:?}"
            );
        }
        assert_eq!(reader.load_invocation(&TASK.into()).await.expect("an answer"), None);
    }
}

/// The same of a run that publishes nothing: before its first step that is noted nothing stands where its notes are.
#[tokio::test]
async fn a_step_of_a_silent_run_that_comes_after_it_was_erased_leaves_nothing() {
    for steps in [1, 3] {
        let bench = Bench::new().await;
        let mut run = Run::fresh(bench.process());
        let silent = |run: &Run| {
            let mut step = run.progress();
            step.journal.appends.clear();
            step
        };
        for _ in 0..steps {
            run.say();
            let step = silent(&run);
            run.commit(&step).await.expect("it is written");
        }
        let owners = [SESSION.to_owned(), TASK.to_owned()].into();
        let belongings = Belongings { owners, ..Belongings::default() };
        bench.process().eraser().erase(&belongings).await.expect("it erases");
        run.say();
        for _ in 0..2 {
            let late = run.store.step(&silent(&run)).await;
            assert!(late.is_err(), "behind {steps} steps: {late:?}");
        }
        let scanned = bench.embedded.client().scan().table_name(TABLE).send().await.expect("an answer");
        let left: Vec<_> = scanned.items.unwrap_or_default().into_iter().filter(|it| it.contains_key("step")).collect();
        assert!(left.is_empty(), "behind {steps} steps: {left:?}");
    }
}
