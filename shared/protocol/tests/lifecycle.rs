//! The life of a task, every status against every other.

use dormouse_protocol::EventKind;
use dormouse_protocol::Map;
use dormouse_protocol::id::{SessionId, TaskId, WorkspaceId};
use dormouse_protocol::lifecycle::StatusStep;
use dormouse_protocol::resource::TaskStatus::{
    AuthRequired, Canceled, Completed, Failed, InputRequired, Submitted, Working,
};
use dormouse_protocol::resource::{Failure, OutcomeStatus, Task, TaskInput, TaskStatus};
use jiff::Timestamp;

/// The narrative's table.
const ALLOWED: &[(TaskStatus, &[TaskStatus])] = &[
    (Submitted, &[Working, Canceled, Failed]),
    (Working, &[InputRequired, AuthRequired, Completed, Failed, Canceled]),
    (InputRequired, &[Working, Failed, Canceled]),
    (AuthRequired, &[Working, Failed, Canceled]),
    (Completed, &[]),
    (Failed, &[]),
    (Canceled, &[]),
];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn task(status: TaskStatus) -> Task {
    let place = (WorkspaceId::new("workspace_1"), SessionId::new("session_1"));
    let input = TaskInput::Payload(Map::new());
    Task { status, ..Task::submitted(TaskId::new("task_1"), place, input, "ada", at(0)) }
}

fn failure() -> Option<Failure> {
    Some(Failure { code: "internal_error".to_owned(), message: "broken".to_owned(), details: Map::new() })
}

#[test]
fn the_steps_that_move_are_those_of_the_narrative() {
    assert_eq!(ALLOWED.iter().map(|(from, _)| *from).collect::<Vec<_>>(), TaskStatus::ALL);
    for (from, allowed) in ALLOWED {
        for to in TaskStatus::ALL {
            assert_eq!(from.may_become(to), allowed.contains(&to), "{from:?} -> {to:?}");
        }
        assert_eq!(from.is_terminal(), allowed.is_empty(), "{from:?}");
    }
}

#[test]
fn every_step_changes_exactly_what_it_should() {
    for from in TaskStatus::ALL {
        for to in TaskStatus::ALL {
            let before = task(from);
            let mut after = before.clone();
            let step = after.advance(to, at(9), failure());
            if !from.may_become(to) {
                assert_eq!(after, before, "{from:?} -> {to:?} is {step:?}");
                continue;
            }
            assert!(matches!(step, StatusStep::Moves(_)), "{from:?} -> {to:?} is {step:?}");
            assert_eq!((after.status, after.envelope.updated_at), (to, at(9)));
            let when = |is: bool| is.then(|| at(9));
            assert_eq!(after.started_at, when(to == Working), "{from:?} -> {to:?}");
            assert_eq!(after.completed_at, when(to == Completed || to == Failed), "{from:?} -> {to:?}");
            assert_eq!(after.canceled_at, when(to == Canceled), "{from:?} -> {to:?}");
            assert_eq!(after.failure.is_some(), to == Failed, "{from:?} -> {to:?}");
        }
    }
}

#[test]
fn what_comes_after_a_cancel_is_dropped_and_a_second_cancel_repeats() {
    let mut canceled = task(Working);
    assert_eq!(canceled.advance(Canceled, at(1), None), StatusStep::Moves(EventKind::TaskCanceled));
    for late in [Completed, Failed] {
        assert_eq!(canceled.advance(late, at(2), failure()), StatusStep::Dropped);
    }
    assert_eq!(canceled.advance(Canceled, at(3), None), StatusStep::Repeats);
    assert_eq!(canceled.advance(Working, at(4), None), StatusStep::Forbidden);
    assert_eq!((canceled.canceled_at, canceled.completed_at, canceled.failure), (Some(at(1)), None, None));
}

#[test]
fn a_cancel_after_the_end_is_forbidden() {
    for end in [Completed, Failed] {
        assert_eq!(end.step(Canceled), StatusStep::Forbidden);
    }
}

#[test]
fn a_task_starts_once_however_often_it_waits() {
    let mut waiting = task(Submitted);
    let steps = [Working, InputRequired, Working, AuthRequired, Working, Completed];
    let told: Vec<_> = (1..).zip(steps).map(|(second, to)| waiting.advance(to, at(second), None)).collect();
    let expected = [
        EventKind::TaskStarted,
        EventKind::TaskInputRequired,
        EventKind::TaskStatusChanged,
        EventKind::TaskAuthRequired,
        EventKind::TaskStatusChanged,
        EventKind::TaskCompleted,
    ];
    assert_eq!(told, expected.map(StatusStep::Moves));
    assert_eq!((waiting.started_at, waiting.completed_at), (Some(at(1)), Some(at(6))));
}

#[test]
fn an_outcome_is_spelled_otherwise_than_its_task() {
    let outcomes: Vec<_> = TaskStatus::ALL.map(TaskStatus::outcome).into_iter().flatten().collect();
    assert_eq!(outcomes, [OutcomeStatus::Succeeded, OutcomeStatus::Failed, OutcomeStatus::Canceled]);
    let waiting: Vec<_> = TaskStatus::ALL.into_iter().filter(|status| status.is_suspended()).collect();
    assert_eq!(waiting, [InputRequired, AuthRequired]);
    for status in TaskStatus::ALL {
        assert_eq!(serde_json::to_value(status).expect("a word"), status.as_str());
    }
}
