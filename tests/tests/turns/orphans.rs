//! What is kept apart from its record goes when nothing refers to it any more, and not before.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::collections::BTreeSet;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeTransmitInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;
use dormouse_aws::ensure_table;
use dormouse_harness::{FreshTurn, Harness, Mode, Transmission, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Commit, Commits, Garbage, InvocationId, Invocations, Journal, PausedInvocation, Sessions};
use dormouse_tests::released::{TABLE, store, text, worker};
use dormouse_tests::{Stage, map, raw};
use serde_json::{Value, json};

const DAY: Duration = Duration::from_secs(24 * 3600);

struct Scene {
    embedded: EmbeddedDynamoDb,
    stage: Stage,
    harness: Harness,
}

impl Scene {
    async fn new() -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
        ensure_table(&embedded.client(), TABLE).await.unwrap();
        let stage = Stage::default();
        let harness = worker(&stage, &embedded.client(), Mode::Stateless).unwrap();
        Self { embedded, stage, harness }
    }

    /// Puts `id` to sleep; its state is a blob, and what it said a piece of a list.
    async fn sleeps(&self, id: &str, session: Option<&str>) {
        let start = FreshTurn::new("ask", map(json!({ "name": id, "text": text("asleep-large") })));
        let start = FreshTurn { invocation_id: Some(id.into()), session_id: session.map(Into::into), ..start };
        let mode = if session.is_some() { Mode::Sessioned } else { Mode::Stateless };
        let worker = worker(&self.stage, &self.embedded.client(), mode).unwrap();
        let outcome = worker.turn(start).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
    }

    async fn completes(&self, id: &str) {
        let outcome = self.harness.turn(Transmission::callback(id, None, map(json!({ "answer": 1 })))).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Completed(_)), "{outcome:?}");
    }

    /// Removes the record of `id`, as its lifetime does.
    async fn expires(&self, id: &str) {
        let key = |text: &str| AttributeValue::S(text.to_owned());
        let delete = self.embedded.client().delete_item().table_name(TABLE).key("sk", key("PAUSED"));
        delete.key("pk", key(&format!("INVOCATION#{id}"))).send().await.unwrap();
    }

    /// How much sweeps remove until everything was looked at.
    async fn collected(&self) -> usize {
        self.collected_by(&self.embedded.client()).await
    }

    async fn collected_by(&self, client: &Client) -> usize {
        let store = store(client);
        let mut cursor = None;
        let mut removed = 0;
        loop {
            let collected =
                store.collect_garbage(self.harness.engine().ports().clock.now(), cursor.as_deref()).await.unwrap();
            removed += collected.removed;
            cursor = collected.next;
            if collected.done {
                return removed;
            }
        }
    }

    /// Chunks and pieces, by the key of their partition.
    async fn apart(&self) -> BTreeSet<(String, String)> {
        let items = raw::items(&self.embedded.client(), TABLE).await;
        let text = |value: &Value| value["S"].as_str().unwrap().to_owned();
        let keys = items.iter().map(|item| (text(&item["pk"]), text(&item["sk"])));
        keys.filter(|(pk, sk)| pk.starts_with("BLOB#") || sk.starts_with("SEGMENT#")).collect()
    }

    async fn loads(&self, id: &str) -> bool {
        let record = store(&self.embedded.client()).load_invocation(&InvocationId::from(id)).await.unwrap();
        record.is_some_and(|record| record.paused.outermost_state()["text"] == text("asleep-large"))
    }
}

#[tokio::test]
async fn the_state_of_a_pause_goes_after_it_and_that_of_another_stays() {
    let scene = Scene::new().await;
    scene.sleeps("over", None).await;
    scene.sleeps("asleep", None).await;
    let before = scene.apart().await;
    assert_eq!(before.len(), 4, "equal states of two invocations are two blobs, and each said something: {before:?}");
    scene.completes("over").await;
    scene.stage.clock.advance(DAY / 2);
    assert_eq!(scene.collected().await, 0, "whoever wrote it may be about to refer to it");
    scene.stage.clock.advance(DAY);
    let before = scene.apart().await;
    let removed = scene.collected().await;
    assert_eq!(removed, 1, "the paused state; its end has another one");
    assert_eq!(scene.apart().await.len(), before.len() - 1);
    assert_eq!(scene.collected().await, 0);
    assert!(scene.loads("asleep").await);
    scene.completes("asleep").await;
    let outcome = scene.harness.look_up(&"over".into()).await.unwrap();
    assert!(matches!(&outcome, TurnOutcome::Completed(done) if done.state["text"] == text("asleep-large")));
}

#[tokio::test]
async fn everything_of_an_invocation_goes_when_its_record_has_expired() {
    let scene = Scene::new().await;
    scene.sleeps("asleep", None).await;
    let of_the_sleeper = scene.apart().await;
    scene.sleeps("over", None).await;
    scene.completes("over").await;
    scene.expires("over").await;
    scene.stage.clock.advance(DAY);
    let more = scene.apart().await.len() - of_the_sleeper.len();
    assert_eq!(more, 4, "two states, and what it said before and after its pause");
    assert_eq!(scene.collected().await, more);
    assert_eq!(scene.apart().await, of_the_sleeper);
}

#[tokio::test]
async fn the_state_of_work_that_a_journal_accepts_stays_as_long_as_the_work() {
    let scene = Scene::new().await;
    let now = scene.harness.engine().ports().clock.now();
    let state = map(json!({ "text": text("asleep-large") }));
    let paused =
        PausedInvocation { state: state.into(), ..PausedInvocation::before_first_pause("accepted".into(), "ask", now) };
    let journal = Journal { accepts: vec![paused], ..Journal::default() };
    store(&scene.embedded.client()).commit(&Commit { journal, ..Commit::new("accepts", now) }).await.unwrap();
    let apart = scene.apart().await.len();
    assert!(apart > 0);
    scene.stage.clock.advance(2 * DAY);
    assert_eq!(scene.collected().await, 0, "nobody has come for it yet");
    assert!(scene.loads("accepted").await);
    scene.expires("accepted").await;
    scene.stage.clock.advance(DAY);
    assert_eq!(scene.collected().await, apart);
}

#[tokio::test]
async fn a_session_and_its_pause_share_a_blob_until_both_have_moved_on() {
    let scene = Scene::new().await;
    scene.sleeps("talk", Some("s")).await;
    scene.stage.clock.advance(2 * DAY);
    assert_eq!(scene.collected().await, 0);
    assert!(scene.loads("talk").await);
}

#[tokio::test]
async fn what_was_said_in_a_deleted_session_goes_with_the_last_who_sleeps_on_it() {
    let scene = Scene::new().await;
    scene.sleeps("talk", Some("s")).await;
    scene.sleeps("other", Some("another")).await;
    let said = async |session: &str| {
        let home = format!("SESSION#{session}");
        scene.apart().await.into_iter().filter(|(pk, _)| *pk == home).count()
    };
    let before = said("s").await;
    let of_another = said("another").await;
    assert!(before > 0 && of_another > 0, "what was said is a piece of the session");
    store(&scene.embedded.client()).delete_session(&"s".into()).await.unwrap();
    let mut place = None;
    // Rounds are one stretch here; one is made each day.
    let mut rounds = async |count: usize| {
        for _ in 0..count {
            scene.stage.clock.advance(DAY);
            let now = scene.harness.engine().ports().clock.now();
            let collected = store(&scene.embedded.client()).collect_garbage(now, place.as_deref()).await.unwrap();
            assert!(collected.done);
            place = collected.next;
        }
    };
    rounds(5).await;
    assert_eq!(said("s").await, before, "an invocation sleeps on it");
    assert!(scene.loads("talk").await);
    scene.expires("talk").await;
    rounds(1).await;
    assert_eq!(said("s").await, before, "it was seen in the round before");
    rounds(1).await;
    assert_eq!((said("s").await, said("another").await), (0, of_another));
}

/// Another version wrote the record of who sleeps on what was said: nobody here knows in which session that was.
#[tokio::test]
async fn what_cannot_be_read_keeps_what_it_may_refer_to() {
    let scene = Scene::new().await;
    scene.sleeps("talk", Some("s")).await;
    store(&scene.embedded.client()).delete_session(&"s".into()).await.unwrap();
    let key = |text: &str| AttributeValue::S(text.to_owned());
    let update = || scene.embedded.client().update_item().table_name(TABLE).key("pk", key("INVOCATION#talk"));
    let pause = async |value: AttributeValue| {
        let update = update().key("sk", key("PAUSED")).update_expression("SET pause = :pause");
        let before = update.expression_attribute_values(":pause", value).return_values(ReturnValue::UpdatedOld);
        before.send().await.unwrap().attributes.unwrap()["pause"].clone()
    };
    let readable = pause(AttributeValue::B(Blob::new("v9:?"))).await;
    let mut place = None;
    // Rounds are one stretch here; one is made each day.
    for _ in 0..5 {
        scene.stage.clock.advance(DAY);
        let now = scene.harness.engine().ports().clock.now();
        place = store(&scene.embedded.client()).collect_garbage(now, place.as_deref()).await.unwrap().next;
    }
    pause(readable).await;
    assert!(scene.loads("talk").await);
}

/// Another version wrote the phase of somebody who waits for a signal.
#[tokio::test]
async fn who_waits_in_a_phase_of_another_build_keeps_his_signal_and_nothing_of_others() {
    let scene = Scene::new().await;
    scene.sleeps("later", None).await;
    let of_the_sleeper = scene.apart().await;
    let key = |text: &str| AttributeValue::S(text.to_owned());
    let update = scene.embedded.client().update_item().table_name(TABLE).key("pk", key("INVOCATION#later"));
    let update = update.key("sk", key("PAUSED")).update_expression("SET phase = :phase");
    update.expression_attribute_values(":phase", key("dreaming")).send().await.unwrap();
    scene.sleeps("over", None).await;
    scene.completes("over").await;
    scene.expires("over").await;
    scene.stage.clock.advance(2 * DAY);
    let waits = async || {
        let items = raw::items(&scene.embedded.client(), TABLE).await;
        items.iter().filter(|item| item["phase"]["S"] == "waiting").count()
    };
    let before = waits().await;
    assert!(before > 0);
    assert_eq!(scene.collected().await, 4);
    assert_eq!(scene.apart().await, of_the_sleeper);
    assert_eq!(waits().await, before, "he may wait on when he can be read again");
}

#[tokio::test]
async fn what_is_written_again_is_young_again() {
    let scene = Scene::new().await;
    scene.sleeps("again", None).await;
    scene.completes("again").await;
    scene.expires("again").await;
    scene.stage.clock.advance(2 * DAY);
    scene.sleeps("again", None).await;
    scene.collected().await;
    assert!(scene.loads("again").await, "the same bytes, of which some were of no use a moment ago");
}

/// Somebody who writes every blob once more, just before it would be removed.
#[derive(Debug)]
struct WritesAgain(Client);

impl Intercept for WritesAgain {
    fn name(&self) -> &'static str {
        "WritesAgain"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let target = context.request().headers().get("x-amz-target").unwrap_or_default();
        if target.ends_with(".DeleteItem") {
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(self.write_blobs()));
        }
        Ok(())
    }
}

impl WritesAgain {
    async fn write_blobs(&self) {
        let blobs = raw::items(&self.0, TABLE).await;
        for blob in blobs.iter().filter(|item| item["pk"]["S"].as_str().unwrap().starts_with("BLOB#")) {
            let text = |name: &str| AttributeValue::S(blob[name]["S"].as_str().unwrap().to_owned());
            let update = self.0.update_item().table_name(TABLE).key("pk", text("pk")).key("sk", text("sk"));
            let update = update.update_expression("SET written_at = written_at + :later");
            update.expression_attribute_values(":later", AttributeValue::N("1".to_owned())).send().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_again_while_it_is_being_removed_stays() {
    let scene = Scene::new().await;
    scene.sleeps("over", None).await;
    scene.completes("over").await;
    scene.stage.clock.advance(2 * DAY);
    let before = scene.apart().await;
    let writes_again = WritesAgain(scene.embedded.client());
    let client = Client::from_conf(scene.embedded.config().interceptor(writes_again).build());
    assert_eq!(scene.collected_by(&client).await, 1, "nothing refers to the paused state, when it is looked at");
    assert_eq!(scene.apart().await, before);
    assert_eq!(scene.collected().await, 1);
    assert_eq!(scene.apart().await.len(), before.len() - 1);
}
