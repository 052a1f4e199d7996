//! What every released version has written stays readable, and what slept under it goes on.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::path::Path;

use dormouse_aws::{DynamoDbCheckpointer, StoreConfig, ensure_table};
use dormouse_harness::{Callback, FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::{MigrationOutcome, SweepScope};
use dormouse_ports::{Category, Checkpointer, InvocationId, Invocations, MaintenanceStore, Map};
use dormouse_tests::released::{TABLE, VERSION, WRITTEN, checkpoint, folder, given, maintenance, store, text, worker};
use dormouse_tests::{Stage, map};
use serde_json::{Value, json};

/// The records of one version, under the workers of today.
struct Past {
    embedded: EmbeddedDynamoDb,
    stage: Stage,
    alone: Harness,
}

impl Past {
    async fn of(records: &Path) -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
        let client = embedded.client();
        ensure_table(&client, TABLE).await.unwrap();
        let items: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(records).unwrap()).unwrap();
        embedded.import(TABLE, items).await.unwrap();
        let stage = Stage::default();
        stage.clock.advance(WRITTEN);
        let alone = worker(&stage, &client, Mode::Stateless).unwrap();
        Self { embedded, stage, alone }
    }

    fn maintenance(&self) -> MaintenanceStore {
        maintenance(&self.embedded.client())
    }

    async fn completes(&self, turn: impl Into<Transmission> + Send) -> Map {
        let outcome = self.alone.turn(turn).await.outcome;
        let TurnOutcome::Completed(done) = outcome else { panic!("it does not complete: {outcome:?}") };
        done.state
    }

    async fn became(&self, id: &str) -> TurnOutcome {
        self.alone.look_up(&id.into()).await.unwrap()
    }

    async fn state_of(&self, id: &str) -> Map {
        let outcome = self.became(id).await;
        let TurnOutcome::Completed(done) = outcome else { panic!("{id} did not complete: {outcome:?}") };
        done.state
    }

    async fn failure_of(&self, id: &str) -> Category {
        let outcome = self.became(id).await;
        let TurnOutcome::Errored(error) = outcome else { panic!("{id} did not fail: {outcome:?}") };
        error.category.clone()
    }

    async fn reports_that_all_go_on(&self) {
        let mut fates = Vec::new();
        let mut cursor = None;
        loop {
            let page = dormouse_maintenance::migration_report(&self.alone, &self.maintenance(), cursor.as_deref())
                .await
                .unwrap();
            fates.extend(page.pauses.into_iter().map(|pause| (pause.invocation_id, pause.fate)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        fates.sort();
        let asleep = [
            "accepted",
            "advanced",
            "asleep-large",
            "asleep-nested",
            "asleep-poll",
            "asleep-session",
            "asleep-small",
            "claimed",
        ];
        assert_eq!(fates, asleep.map(|id| (InvocationId::from(id), MigrationOutcome::Same)));
    }

    async fn sleepers_go_on(&self) {
        for (number, id) in ["asleep-small", "asleep-large", "asleep-nested", "asleep-session"].iter().enumerate() {
            let answer = map(json!({ "answer": number }));
            let state = self.completes(Transmission::callback(*id, None, answer)).await;
            assert_eq!((&state["answer"], &state["name"]), (&json!(number), &json!(id)));
            assert_eq!(state["text"], text(id));
            let said = state["messages"].as_array().unwrap().len();
            assert_eq!(said, if *id == "asleep-nested" { 0 } else { 2 }, "{id}");
        }
    }

    async fn a_poll_that_was_half_answered_is_decided(&self) {
        let grace = Callback::new("asleep-poll", None, map(json!({ "vote": "no" })));
        let state = self.completes(Callback { part: Some("grace".to_owned()), ..grace }).await;
        assert_eq!(state["votes"]["answers"], json!({ "ada": { "vote": "yes" }, "grace": { "vote": "no" } }));
    }

    async fn what_was_accepted_is_begun(&self) {
        let state = self.completes(Transmission::callback("accepted", None, map(json!({ "answer": 3 })))).await;
        assert_eq!((&state["answer"], &state["text"]), (&json!(3), &json!(text("accepted"))));
    }

    async fn the_dead_are_taken_over(&self) {
        self.stage.sweep_on(&self.alone, &self.maintenance(), SweepScope::Everything).await.unwrap();
        assert_eq!(self.state_of("claimed").await["answer"], 5);
    }

    async fn ends_are_told(&self) {
        assert_eq!(self.state_of("completed").await["answer"], 1);
        assert_eq!(self.failure_of("failed").await, Category::SuspensionTimedOut);
        assert_eq!(self.failure_of("canceled").await, Category::InvocationCanceled);
        assert_eq!(self.failure_of("forestalled").await, Category::InvocationCanceled);
        let again = self.completes(Transmission::signal("completed", Map::new())).await;
        assert_eq!(again["answer"], 1);
    }

    async fn what_was_parked_is_taken(&self) {
        let state = self.completes(Transmission::start("ask", given("early"))).await;
        assert_eq!(state["answer"], 7);
    }

    async fn the_session_goes_on(&self) {
        let sessioned = worker(&self.stage, &self.embedded.client(), Mode::Sessioned).unwrap();
        let start = FreshTurn::new("ask", given("another"));
        let outcome = sessioned.turn(FreshTurn { session_id: Some("session".into()), ..start }).await.outcome;
        let TurnOutcome::Suspended(asleep) = outcome else { panic!("{outcome:?}") };
        assert_eq!(asleep.state["messages"].as_array().unwrap().len(), 3);
    }

    async fn the_rest_of_a_ladder_is_climbed(&self) {
        let store = store(&self.embedded.client());
        let record = store.load_invocation(&"advanced".into()).await.unwrap().unwrap();
        assert_eq!(record.paused.wake.rung(), 1);
        self.stage.clock.advance(WRITTEN);
        self.stage.sweep_on(&self.alone, &self.maintenance(), SweepScope::Due).await.unwrap();
        assert_eq!(self.state_of("advanced").await["answer"], -1);
    }

    async fn the_checkpoint_is_read(&self) {
        let checkpointer = DynamoDbCheckpointer::new(&self.embedded.client(), TABLE, StoreConfig::default());
        assert_eq!(checkpointer.load(&"checkpointed".into()).await.unwrap(), Some(checkpoint()));
    }
}

#[tokio::test]
async fn what_a_released_version_wrote_goes_on() {
    let mut versions: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    versions.sort();
    let present = folder().join(format!("{VERSION}.json"));
    assert!(versions.contains(&present), "`make record-fixtures` keeps the records of version {VERSION}");
    for records in versions {
        let past = Past::of(&records).await;
        past.reports_that_all_go_on().await;
        past.sleepers_go_on().await;
        past.a_poll_that_was_half_answered_is_decided().await;
        past.the_dead_are_taken_over().await;
        past.what_was_accepted_is_begun().await;
        past.ends_are_told().await;
        past.what_was_parked_is_taken().await;
        past.the_session_goes_on().await;
        past.the_rest_of_a_ladder_is_climbed().await;
        past.the_checkpoint_is_read().await;
    }
}
