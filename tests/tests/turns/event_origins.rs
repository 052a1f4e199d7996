//! A signal that an event carries is for whoever waits for such an event, and for nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::sync::Arc;

use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update, suspend};
use dormouse_harness::{EventOrigin, FreshTurn, Harness, Mode, Signal, SignalOrigin, Transmission, TurnOutcome};
use dormouse_maintenance::doctor::Finding;
use dormouse_ports::{Category, EventShape, Invocations, Map, ShapeId, SignalDescriptor, SignalState, Signals};
use dormouse_tests::{Stage, diagnose, map};
use serde_json::{Value, json};

/// What each graph waits for; `person` waits for no event.
const WAITS: [(&str, Option<&str>); 3] = [("export", Some("exporter")), ("payment", Some("bank")), ("person", None)];

fn wait_for(source: &str) -> Value {
    json!({ "pattern": { "source": [source], "detail-type": ["Finished"] }, "correlation": "$.detail.id" })
}

fn shape_of(source: &str) -> ShapeId {
    let pattern = map(wait_for(source)["pattern"].clone());
    EventShape { pattern, correlation: "$.detail.id".to_owned() }.id()
}

/// Waits for the signal `s`.
fn graph(name: &str, source: Option<&str>) -> Arc<CompiledGraph> {
    let accepted = json!({ "type": "object", "properties": { "answer": { "type": "string" } } });
    let wait = SignalDescriptor::new("s").with("accepts", accepted);
    let wait = source.map_or(wait.clone(), |source| wait.with("event", wait_for(source)));
    let schema = StateSchema::new().field("answer", Field::new(FieldType::Str, ""));
    let graph = GraphBuilder::new(name, schema).entry("ask").function("ask", move |_: State| {
        let wait = wait.clone();
        async move { Err::<Update, _>(suspend(wait).await) }
    });
    Arc::new(graph.edge("ask", END).compile().unwrap())
}

fn worker(stage: &Stage) -> Harness {
    stage.harness_on(stage.store.clone(), Mode::Stateless, WAITS.map(|(name, source)| graph(name, source)))
}

fn answer(text: &str) -> Map {
    map(json!({ "answer": text }))
}

/// What the rule for events of `of` makes of an event that `sender` sent.
fn event(of: Option<&str>, sender: &str) -> Signal {
    let source = Some(sender.to_owned());
    let detail_type = Some("Finished".to_owned());
    let origin = SignalOrigin::Event(EventOrigin { shape: of.map(shape_of), source, detail_type });
    Signal { origin, ..Signal::new("s", answer(sender)) }
}

async fn begins(worker: &Harness, graph: &str) -> TurnOutcome {
    let turn = FreshTurn::new(graph, Map::new());
    worker.turn(FreshTurn { invocation_id: Some("i".into()), ..turn }).await.outcome
}

fn answered(outcome: &TurnOutcome) -> Value {
    let TurnOutcome::Completed(done) = outcome else { panic!("{outcome:?}") };
    done.state["answer"].clone()
}

#[tokio::test]
async fn an_event_wakes_only_who_waits_for_such_an_event() {
    for (graph, source) in WAITS {
        let stage = Stage::default();
        let worker = worker(&stage);
        assert!(matches!(begins(&worker, graph).await, TurnOutcome::Suspended(_)));
        for other in ["exporter", "bank"].into_iter().filter(|other| Some(*other) != source) {
            let outcome = worker.turn(event(Some(other), other)).await.outcome;
            assert!(matches!(outcome, TurnOutcome::Buffered { .. }), "{graph}, {other}: {outcome:?}");
        }
        let asleep = stage.store.load_invocation(&"i".into()).await.unwrap().unwrap();
        assert_eq!(asleep.paused.generation, 1, "{graph} sleeps on");
        let outcome = match source {
            Some(source) => worker.turn(event(Some(source), source)).await.outcome,
            None => worker.turn(Transmission::signal("s", answer("person"))).await.outcome,
        };
        assert_eq!(answered(&outcome), source.unwrap_or("person"));
    }
}

#[tokio::test]
async fn what_came_early_is_taken_up_by_its_origin_only() {
    for (graph, source) in WAITS {
        let stage = Stage::default();
        let worker = worker(&stage);
        for early in ["exporter", "bank"] {
            worker.turn(event(Some(early), early)).await;
        }
        let begun = begins(&worker, graph).await;
        match source {
            Some(source) => assert_eq!(answered(&begun), source),
            None => assert!(matches!(begun, TurnOutcome::Suspended(_)), "{begun:?}"),
        }
    }
}

#[tokio::test]
async fn of_two_that_came_early_by_two_ways_the_first_that_fits_stands() {
    for (first, expected) in [("bank", "bank"), ("", "person")] {
        let stage = Stage::default();
        let worker = worker(&stage);
        let misfit = if first.is_empty() { map(json!({ "answer": 1 })) } else { answer(first) };
        let early = Signal { payload: misfit, ..event(Some("bank"), "bank") };
        worker.turn(early).await;
        stage.clock.advance(std::time::Duration::from_secs(1));
        worker.turn(Transmission::signal("s", answer("person"))).await;
        assert_eq!(answered(&begins(&worker, "payment").await), expected);
        assert_eq!(
            dormouse_maintenance::parked_signals(&worker, &stage.maintenance()).await.unwrap(),
            [],
            "both are consumed"
        );
    }
}

#[tokio::test]
async fn a_rule_that_takes_too_much_wakes_nobody() {
    let stage = Stage::default();
    let worker = worker(&stage);
    begins(&worker, "payment").await;
    let outcome = worker.turn(event(Some("bank"), "exporter")).await.outcome;
    let TurnOutcome::Errored(error) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.category, Category::RequestInvalid);
    assert!(error.message.contains("source `exporter`"), "{}", error.message);
    assert_eq!(answered(&worker.turn(event(Some("bank"), "bank")).await.outcome), "bank");
}

/// Nobody knows the shape of what a rule of an earlier version carries.
#[tokio::test]
async fn an_event_of_an_earlier_rule_wakes_who_may_wait_for_it_and_is_never_kept() {
    let stage = Stage::default();
    let worker = worker(&stage);
    let outcome = worker.turn(event(None, "bank")).await.outcome;
    assert!(
        matches!(&outcome, TurnOutcome::Errored(error) if error.category == Category::HarnessSignalCorrelationFailed)
    );
    begins(&worker, "payment").await;
    let foreign = worker.turn(event(None, "exporter")).await.outcome;
    assert!(matches!(&foreign, TurnOutcome::Errored(error) if error.category == Category::RequestInvalid));
    assert_eq!(answered(&worker.turn(event(None, "bank")).await.outcome), "bank");
}

/// A pause of an earlier version has no signal of its own for events.
#[tokio::test]
async fn a_pause_of_an_earlier_version_is_woken_by_its_events_and_by_no_others() {
    let stage = Stage::default();
    let worker = worker(&stage);
    begins(&worker, "payment").await;
    stage.store.plant_signal(&dormouse_ports::SignalId::from("s").of_event(&shape_of("bank")), None);
    let diagnosis = diagnose(&worker, &stage.maintenance(), "i").await.unwrap();
    assert_eq!(diagnosis.remarks[0].finding, Finding::Waiting);
    assert!(matches!(worker.turn(event(Some("exporter"), "exporter")).await.outcome, TurnOutcome::Buffered { .. }));
    let done = worker.turn(event(Some("bank"), "bank")).await.outcome;
    assert_eq!(answered(&done), "bank");
    let again = worker.turn(event(Some("bank"), "bank")).await.outcome;
    assert!(matches!(again, TurnOutcome::Completed(done) if done.repeated));
}

#[tokio::test]
async fn the_name_of_what_an_event_brings_is_nobody_elses() {
    let stage = Stage::default();
    let worker = worker(&stage);
    begins(&worker, "payment").await;
    let stored = dormouse_ports::SignalId::from("s").of_event(&shape_of("bank"));
    let outcome = worker.turn(Transmission::signal(stored.clone(), answer("forged"))).await.outcome;
    assert!(
        matches!(&outcome, TurnOutcome::Errored(error) if error.category == Category::RequestInvalid),
        "{outcome:?}"
    );
    let known = stage.store.load_signal(&stored, dormouse_ports::Clock::now(&*stage.clock)).await.unwrap().unwrap();
    assert!(matches!(known.state, SignalState::Waiting { .. }));
}

#[tokio::test]
async fn the_doctor_says_with_what_a_parked_signal_came() {
    let stage = Stage::default();
    let worker = worker(&stage);
    worker.turn(event(Some("bank"), "bank")).await;
    let parked = dormouse_maintenance::parked_signals(&worker, &stage.maintenance()).await.unwrap();
    assert_eq!((parked[0].signal_id.as_str(), &parked[0].event_shape), ("s", &Some(shape_of("bank"))));
}

/// Whoever sent the event believes that it was taken.
#[tokio::test]
async fn the_doctor_names_the_pause_whose_event_did_not_fit() {
    for (payload, reason) in
        [(json!({ "answer": 1 }), "field `answer`"), (json!({ "answer": "y".repeat(300_000) }), "the limit is")]
    {
        let stage = Stage::default();
        let worker = worker(&stage);
        begins(&worker, "payment").await;
        let misfit = Signal { payload: map(payload), ..event(Some("bank"), "bank") };
        let TurnOutcome::Errored(error) = worker.turn(misfit).await.outcome else { panic!("it fits") };
        assert!(error.is_unfit() && error.invocation_id == Some("i".into()), "{error:?}");
        let diagnosis = diagnose(&worker, &stage.maintenance(), "i").await.unwrap();
        let told = diagnosis.remarks.iter().find(|remark| remark.finding == Finding::EventUnfit).expect("it is told");
        assert!(diagnosis.is_trouble() && told.sentence.contains(reason), "{}", told.sentence);
        assert_eq!(answered(&worker.turn(event(Some("bank"), "bank")).await.outcome), "bank");
    }
}
