//! The promises of every [`Checkpointer`].

use std::sync::Arc;

use dormouse_ports::{
    CheckpointFilter, CheckpointRecord, CheckpointSummary, Checkpointer, FanOutInstance, FanOutProgress,
    InstanceProgress, InstanceState, InvocationId, SavePoint, SaveSource, StoreError,
};
use jiff::Timestamp;
use serde_json::json;

use super::large::noise;
use super::scene::{at, delicate_state, map, position};

/// The backend under test.
pub(super) type Backend = Arc<dyn Checkpointer>;

fn record(id: &str, now: Timestamp) -> CheckpointRecord {
    CheckpointRecord {
        invocation_id: InvocationId::from(id),
        correlation_id: "correlation-1".to_owned(),
        graph: "import".to_owned(),
        state: delicate_state(),
        parent_states: vec![map(json!({"outer": 1.0})), map(json!({"middle": [1, 2]}))],
        at: Some(SavePoint { path: vec!["outer".into(), "inner".into(), "classify".into()], merged: true }),
        completed_positions: vec![position(), position()],
        fan_out_progress: vec![progress()],
        last_saved_at: now,
        schema_version: "2".to_owned(),
        session_version: Some(3),
    }
}

fn progress() -> FanOutProgress {
    let instance = |state, result, result_is_error| InstanceProgress {
        state,
        result,
        result_is_error,
        ..InstanceProgress::not_started()
    };
    FanOutProgress {
        namespace: vec!["outer".into()],
        fan_out_node_name: "inner".into(),
        enclosing_fan_out_lineage: vec![FanOutInstance {
            namespace: Vec::new(),
            fan_out_node_name: "outer".into(),
            fan_out_index: 1,
        }],
        visit: 2,
        instance_count: 4,
        instances: vec![
            InstanceProgress {
                extra_outputs: map(json!({"z": 1.0, "a": null})),
                ..instance(InstanceState::Completed, json!({"kept": [1, 1.0]}), false)
            },
            instance(InstanceState::Completed, json!({"category": "node_exception"}), true),
            InstanceProgress {
                completed_inner_positions: vec![position()],
                ..instance(InstanceState::InFlight, json!(null), false)
            },
            InstanceProgress::not_started(),
        ],
    }
}

async fn save(backend: &Backend, record: &CheckpointRecord) {
    backend.save(record, SaveSource::Node).await.expect("it is saved");
}

async fn load(backend: &Backend, id: &str) -> Option<CheckpointRecord> {
    backend.load(&InvocationId::from(id)).await.expect("the backend answers")
}

async fn all(backend: &Backend, filter: &CheckpointFilter) -> (Vec<CheckpointSummary>, usize) {
    let mut found = Vec::new();
    let mut pages = 0;
    let mut cursor = None;
    loop {
        let page = backend.list(filter, cursor.as_deref()).await.expect("the backend answers");
        (found, pages) = ([found, page.items].concat(), pages + 1);
        cursor = page.next;
        if cursor.is_none() {
            found.sort_by_key(|summary| summary.invocation_id.clone());
            return (found, pages);
        }
    }
}

fn ids(found: &[CheckpointSummary]) -> Vec<&str> {
    found.iter().map(|summary| summary.invocation_id.as_str()).collect()
}

pub(super) async fn an_unknown_invocation_has_none(backend: Backend) {
    assert_eq!(load(&backend, "i1").await, None);
}

pub(super) async fn a_record_can_be_loaded_with_every_detail(backend: Backend) {
    let saved = record("i1", at(0));
    save(&backend, &saved).await;
    let loaded = load(&backend, "i1").await.expect("it is there");
    assert_eq!(loaded, saved);
    assert_eq!(serde_json::to_string(&loaded).ok(), serde_json::to_string(&saved).ok(), "in the same order");
}

pub(super) async fn the_latest_record_counts(backend: Backend) {
    save(&backend, &record("i1", at(0))).await;
    let later = CheckpointRecord {
        state: map(json!({"later": true})),
        parent_states: Vec::new(),
        at: None,
        completed_positions: Vec::new(),
        fan_out_progress: Vec::new(),
        ..record("i1", at(1))
    };
    save(&backend, &later).await;
    assert_eq!(load(&backend, "i1").await, Some(later));
}

pub(super) async fn a_record_that_comes_late_changes_nothing(backend: Backend) {
    let newest = record("i1", at(5));
    save(&backend, &newest).await;
    for second in [4, 5] {
        let late = CheckpointRecord { correlation_id: "late".to_owned(), ..record("i1", at(second)) };
        save(&backend, &late).await;
    }
    assert_eq!(load(&backend, "i1").await, Some(newest));
}

pub(super) async fn invocations_are_apart(backend: Backend) {
    let other = CheckpointRecord { state: map(json!({"other": 1})), ..record("i1#2", at(0)) };
    save(&backend, &record("i1", at(0))).await;
    save(&backend, &other).await;
    backend.delete(&InvocationId::from("i1")).await.expect("it is removed");
    assert_eq!(load(&backend, "i1").await, None);
    assert_eq!(load(&backend, "i1#2").await, Some(other));
}

pub(super) async fn every_source_but_one_is_durable_at_once(backend: Backend) {
    for (second, source) in [(0, SaveSource::Node), (1, SaveSource::FanOutNode)] {
        let saved = record("i1", at(second));
        backend.save(&saved, source).await.expect("it is saved");
        assert_eq!(load(&backend, "i1").await, Some(saved));
    }
}

pub(super) async fn what_was_held_back_is_flushed_with_the_fan_out(backend: Backend) {
    backend.save(&record("i1", at(0)), SaveSource::FanOutInternal).await.expect("it is saved or held back");
    let whole = record("i1", at(1));
    backend.save(&whole, SaveSource::FanOutNode).await.expect("it is saved");
    assert_eq!(load(&backend, "i1").await, Some(whole));
}

pub(super) async fn large_records_replace_each_other(backend: Backend) {
    for (second, state) in [(0, noise(1)), (1, noise(2)), (2, delicate_state()), (3, noise(3))] {
        let saved = CheckpointRecord { state, ..record("i1", at(second)) };
        save(&backend, &saved).await;
        assert!(load(&backend, "i1").await == Some(saved));
    }
}

pub(super) async fn a_large_record_that_comes_late_changes_nothing(backend: Backend) {
    let newest = CheckpointRecord { state: noise(1), ..record("i1", at(5)) };
    save(&backend, &newest).await;
    save(&backend, &CheckpointRecord { state: noise(2), ..record("i1", at(4)) }).await;
    save(&backend, &newest).await;
    assert!(load(&backend, "i1").await == Some(newest));
}

pub(super) async fn deleting_is_idempotent(backend: Backend) {
    let id = InvocationId::from("i1");
    backend.delete(&id).await.expect("there is nothing to remove");
    for state in [delicate_state(), noise(1)] {
        save(&backend, &CheckpointRecord { state, ..record("i1", at(0)) }).await;
        backend.delete(&id).await.expect("it is removed");
        backend.delete(&id).await.expect("it is gone already");
        assert!(load(&backend, "i1").await.is_none());
    }
    let again = record("i1", at(-5));
    save(&backend, &again).await;
    assert_eq!(load(&backend, "i1").await, Some(again), "a removed record leaves no trace");
}

pub(super) async fn records_are_listed_page_by_page(backend: Backend) {
    let names: Vec<String> = (0..8).map(|number| format!("i{number}")).collect();
    for name in &names {
        save(&backend, &record(name, at(0))).await;
    }
    let (found, pages) = all(&backend, &CheckpointFilter::default()).await;
    assert_eq!(ids(&found), names);
    assert!(pages > 1, "the check needs small pages");
    assert_eq!(found[0], record("i0", at(0)).summary());
    assert_eq!(found[0].completed_node_count, 2);
}

pub(super) async fn filters_must_all_hold(backend: Backend) {
    save(&backend, &record("i1", at(0))).await;
    save(&backend, &record("i2", at(10))).await;
    save(&backend, &CheckpointRecord { correlation_id: "other".to_owned(), ..record("i3", at(10)) }).await;
    save(&backend, &CheckpointRecord { graph: "export".to_owned(), ..record("i4", at(10)) }).await;
    let of_correlation =
        CheckpointFilter { correlation_id: Some("correlation-1".to_owned()), ..CheckpointFilter::default() };
    let and_graph = CheckpointFilter { graph: Some("import".to_owned()), ..of_correlation.clone() };
    let and_time = CheckpointFilter { saved_after: Some(at(0)), ..and_graph.clone() };
    assert_eq!(ids(&all(&backend, &of_correlation).await.0), ["i1", "i2", "i4"]);
    assert_eq!(ids(&all(&backend, &and_graph).await.0), ["i1", "i2"]);
    assert_eq!(ids(&all(&backend, &and_time).await.0), ["i2"]);
}

pub(super) async fn a_foreign_cursor_is_refused(backend: Backend) {
    let refused = backend.list(&CheckpointFilter::default(), Some("from elsewhere")).await;
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
}
