//! What falls due, and what is lost.

use std::time::Duration;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_aws::{DynamoDbStateStore, StoreConfig};
use dormouse_harness::FreshTurn;
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, Commits, GrowingLists, InvocationWrite, Invocations, Journal, Map,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Scene, noise, text, work};

/// What wakeup serves, and what sweeps do.
pub(crate) async fn times(scene: &Scene) {
    // Of the rule for its events nobody knows: this function makes it.
    let table = scene.store.client();
    let rules = table.query().table_name("dormouse").key_condition_expression("pk = :pk");
    let rules = rules.expression_attribute_values(":pk", AttributeValue::S("RULES".to_owned())).send().await.unwrap();
    for mut rule in rules.items.unwrap() {
        rule.retain(|name, _| name == "pk" || name == "sk");
        table.delete_item().table_name("dormouse").set_key(Some(rule)).send().await.unwrap();
    }
    let overdue = [scene.errand("s4", None, "PT0S").await, scene.lone_errand("PT0S").await];
    for asleep in &overdue {
        let due = json!({ "dormouse_wakeup": { "invocation_id": asleep["invocation_id"], "generation": 1 } });
        assert_eq!(scene.wakeup.app.wakeup(due, None).await.unwrap()["status"], "suspended");
    }
    let swept = scene.sweep.app.wakeup(json!({ "dormouse_sweep": "due" }), None).await.unwrap();
    assert_eq!((&swept["called"], &swept["failed"]), (&json!(2), &json!(0)));
    // Where Lambda takes no call, it goes over the bus, which does not take it either.
    scene.sweep.gate.fail(true);
    let swept = scene.sweep.app.wakeup(json!({ "dormouse_sweep": "due" }), None).await.unwrap();
    assert_eq!((&swept["called"], &swept["failed"]), (&json!(0), &json!(2)));
    scene.sweep.gate.fail(false);
    for asleep in &overdue {
        let mut call = work(text(asleep, "invocation_id"));
        (call["detail"]["generation"], call["detail"]["swept"]) = (json!(2), json!(true));
        assert_eq!(scene.wakeup.app.wakeup(call, None).await.unwrap()["status"], "completed");
    }
    // Somebody claimed a pause and died.
    let asleep = scene.errand("s5", None, "PT1H").await;
    let store = DynamoDbStateStore::new(&scene.store.client(), "dormouse", StoreConfig::default());
    let now = Timestamp::now() - Duration::from_secs(60);
    let request = ClaimRequest {
        invocation_id: text(&asleep, "invocation_id").into(),
        generation: Some(1),
        owner: "dead".into(),
        now,
        until: now + Duration::from_secs(30),
        past: None,
        payload: Some(Map::new()),
        answered: None,
    };
    assert!(matches!(store.claim(&request).await.unwrap(), ClaimOutcome::Granted(_)));
    // What crashes, lifetimes and deletions leave behind. The round before this one began yesterday, and the deleted
    // session was noted before that.
    let days_ago = |days: u64| now - Duration::from_secs(days * 86_400);
    let old = json!({ "N": days_ago(3).as_nanosecond().to_string() });
    let place = json!([days_ago(1), null, null]).to_string();
    let chunk = |address: &str, owner: [&str; 2]| {
        let owners = json!([owner]).to_string();
        json!({ "pk": { "S": format!("BLOB#{address}") }, "sk": { "S": "00000" }, "owners": { "S": owners },
            "written_at": old })
    };
    let document = ["DOCUMENT#note#kept", "DOCUMENT"];
    let orphans = [
        chunk("a", ["INVOCATION#gone", "PAUSED"]),
        // Large documents and events are kept apart, too. One document is there and refers to its chunk, which stays.
        chunk("b", ["DOCUMENT#note#gone", "DOCUMENT"]),
        chunk("c", ["STREAM#gone", "00000000000000000001"]),
        chunk("d", document),
        json!({ "pk": { "S": document[0] }, "sk": { "S": document[1] }, "body": { "S": "d:1" } }),
        json!({ "pk": { "S": "INVOCATION#gone" }, "sk": { "S": "SEGMENT#log" }, "written_at": old }),
        json!({ "pk": { "S": "SIGNAL#lost" }, "sk": { "S": "SIGNAL" }, "phase": { "S": "waiting" },
            "invocation_id": { "S": "gone" }, "generation": { "N": "1" } }),
        json!({ "pk": { "S": "SESSION#gone" }, "sk": { "S": "SEGMENT#log" }, "written_at": old }),
        json!({ "pk": { "S": "PENDING#headless" }, "sk": { "S": "gone" }, "written_at": old }),
        json!({ "pk": { "S": "PENDING#position" }, "sk": { "S": "ground" }, "sweep_position": { "S": place } }),
        // Two rules that nobody needs: one is found idle now, the other was yesterday.
        rule('1', None),
        rule('2', Some(&old)),
    ];
    scene.store.import("dormouse", orphans.to_vec()).await.unwrap();
    let swept = scene.sweep.app.wakeup(json!({ "dormouse_sweep": "everything" }), None).await.unwrap();
    assert_eq!((&swept["called"], &swept["failed"], &swept["collected"]), (&json!(1), &json!(0), &json!(7)));
    assert!(swept["registered"].as_u64() >= Some(1), "{swept}");
    let taken_over = scene.wakeup.app.wakeup(work(text(&asleep, "invocation_id")), None).await.unwrap();
    assert_eq!(taken_over["status"], "suspended");
    // Somebody accepted work and calls for a worker.
    let given = json!({ "note": noise(), "within": "PT1H" }).as_object().cloned().unwrap();
    let invocation_id = Some("accepted".into());
    let session_id = Some("s9".into());
    let turn = FreshTurn { invocation_id, session_id, ..FreshTurn::new("errand", given) };
    let paused = Box::new(scene.wakeup.app.harness().accept(turn).await.unwrap());
    let invocation = Some(InvocationWrite::Accept { paused, again_at: None });
    let now = Timestamp::now();
    let journal = Journal::default();
    let growing = GrowingLists::default();
    let commit = Commit { id: "accept".to_owned(), now, session: None, invocation, journal, growing };
    store.commit(&commit).await.unwrap();
    // A signal that comes before its wait: the turn goes on at once, to its next wait.
    let early = scene.signal.post("/signals/ask-accepted", &json!({})).await;
    assert_eq!((early.status, &early.body["status"]), (202, &json!("buffered")), "{}", early.body);
    let went_on = scene.wakeup.app.wakeup(work("accepted"), None).await.unwrap();
    assert_eq!(went_on["status"], "suspended", "{went_on}");
    assert_eq!(store.load_invocation(&"accepted".into()).await.unwrap().unwrap().paused.generation, 2);
    let asleep = scene.errand("s8", None, "PT0S").await;
    let due = json!({ "dormouse_wakeup": { "invocation_id": text(&asleep, "invocation_id"), "generation": 1 } });
    scene.wakeup.gate.fail(true);
    assert!(scene.wakeup.app.wakeup(due, None).await.is_err());
    scene.wakeup.gate.fail(false);
    // What cannot be read any more can be canceled: over HTTP, and by an agent that ends before one that it asked.
    for (session, function) in [("s10", &scene.signal), ("s11", &scene.wakeup)] {
        let asleep = scene.errand(session, None, "PT1H").await;
        let id = text(&asleep, "invocation_id");
        let damaged = table.update_item().table_name("dormouse").update_expression("SET pause = :noise");
        let damaged = damaged.key("pk", AttributeValue::S(format!("INVOCATION#{id}")));
        let damaged = damaged.key("sk", AttributeValue::S("PAUSED".to_owned()));
        let damaged = damaged.expression_attribute_values(":noise", AttributeValue::B(Blob::new("noise")));
        damaged.condition_expression("attribute_exists(pk)").send().await.unwrap();
        let canceled = function.app.harness().cancel(&id.into(), None, None).await;
        assert!(canceled.is_ok(), "{canceled:?} {:?}", function.gate.denied());
    }
}

/// The entry of a rule that nobody needs.
fn rule(digit: char, idle_since: Option<&Value>) -> Value {
    let mut entry = json!({ "pk": { "S": "RULES" }, "sk": { "S": digit.to_string().repeat(40) },
        "rule_edition": { "S": digit.to_string().repeat(12) }, "touches": { "N": "1" }, "made_at": { "N": "1" } });
    if let Some(since) = idle_since {
        entry["idle_since"] = since.clone();
    }
    entry
}
