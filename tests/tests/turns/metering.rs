//! The embedded store charges by the documented rules, and the meter reads what it charges: the benchmark rests on it.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use std::sync::Arc;

use dormouse_aws::{DynamoDbStateStore, Meter, StoreConfig, ensure_table};
use dormouse_harness::{FreshTurn, Mode, TurnOutcome};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_maintenance::SweepScope;
use dormouse_maintenance::doctor::{Doctor, RulesSeen};
use dormouse_ports::{InvocationId, StateStore};
use dormouse_tests::{Stage, map};
use serde_json::json;

const TABLE: &str = "dormouse";

/// An item of exactly `bytes`: names and values count.
fn item(key: &str, bytes: usize) -> HashMap<String, AttributeValue> {
    let rest = bytes - ("pk".len() + key.len() + "sk".len() + 1 + "filler".len());
    HashMap::from([
        ("pk".to_owned(), AttributeValue::S(key.to_owned())),
        ("sk".to_owned(), AttributeValue::S("1".to_owned())),
        ("filler".to_owned(), AttributeValue::S("x".repeat(rest))),
    ])
}

async fn put(client: &Client, key: &str, bytes: usize) {
    let request = client.put_item().table_name(TABLE).set_item(Some(item(key, bytes)));
    request.send().await.expect("it is written");
}

fn units(meter: &Meter, operation: &str) -> f64 {
    let units = meter.snapshot()[operation].units;
    meter.reset();
    units
}

#[tokio::test]
async fn units_follow_the_size_of_items() {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let meter = Meter::with_units();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());

    for (bytes, expected) in [(100, 1.0), (1024, 1.0), (1025, 2.0), (5000, 5.0)] {
        put(&client, "a", bytes).await;
        assert_eq!((bytes, units(&meter, "PutItem")), (bytes, expected));
    }

    let parts = [("b", 100), ("c", 1500)].map(|(key, bytes)| {
        let put = Put::builder().table_name(TABLE).set_item(Some(item(key, bytes))).build().expect("a put");
        TransactWriteItem::builder().put(put).build()
    });
    client.transact_write_items().set_transact_items(Some(parts.to_vec())).send().await.expect("it is written");
    assert_eq!(units(&meter, "TransactWriteItems"), 2.0 + 4.0);

    let update = client.update_item().table_name(TABLE);
    let update = update.key("pk", AttributeValue::S("a".to_owned())).key("sk", AttributeValue::S("1".to_owned()));
    let update = update.update_expression("SET small = :s");
    update.expression_attribute_values(":s", AttributeValue::S("s".to_owned())).send().await.expect("an update");
    assert_eq!(units(&meter, "UpdateItem"), 5.0, "an update costs the whole item");

    let get = client.get_item().table_name(TABLE).consistent_read(true);
    let get = get.key("pk", AttributeValue::S("a".to_owned())).key("sk", AttributeValue::S("1".to_owned()));
    get.send().await.expect("a read");
    assert_eq!(units(&meter, "GetItem"), 2.0, "strongly consistent: one for each 4 KB");
}

/// A worker that wakes by the index, and so many who sleep. Sweeps and looks take requests for hundreds of them.
#[tokio::test]
async fn looking_at_many_takes_few_requests() {
    const SLEEPERS: usize = 150;
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    ensure_table(&embedded.client(), TABLE).await.expect("the table is made");
    let meter = Meter::requests_only();
    let client = Client::from_conf(embedded.config().interceptor(meter.clone()).build());
    let config = StoreConfig { wakes_by_index: true, ..StoreConfig::default() };
    let store: Arc<dyn StateStore> = Arc::new(DynamoDbStateStore::new(&client, TABLE, config));
    let stage = Stage::default();
    let harness = stage.shipped_on(store.clone(), Mode::Sessioned).expect("graphs");
    let mut ids: Vec<InvocationId> = Vec::new();
    for number in 0..SLEEPERS {
        let state = json!({ "employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard" });
        let id = InvocationId::from(format!("sleeper-{number}"));
        let start = FreshTurn::new("expense-approval", map(state));
        let start = FreshTurn {
            invocation_id: Some(id.clone()),
            session_id: Some(format!("session-{number}").into()),
            ..start
        };
        let outcome = harness.turn(start).await.outcome;
        assert!(matches!(outcome, TurnOutcome::Suspended(_)), "{outcome:?}");
        ids.push(id);
    }
    let maintenance = store.clone().into();
    let doctor = Doctor::new(&harness, &maintenance, RulesSeen::look(&harness).await);
    let asked = |operation: &str| meter.snapshot().get(operation).map_or(0, |usage| usage.requests);

    meter.reset();
    let diagnoses = doctor.diagnose_all(&ids).await.expect("the store answers");
    assert!(diagnoses.iter().all(|diagnosis| diagnosis.as_ref().is_ok_and(|it| !it.is_trouble())));
    // For each hundred: themselves, their rows, their signals and their sessions.
    assert_eq!((asked("BatchGetItem"), asked("GetItem")), (8, 0));

    meter.reset();
    let mut examined = 0;
    let mut cursor = None;
    loop {
        let page = dormouse_maintenance::migration_report(&harness, &maintenance, cursor.as_deref())
            .await
            .expect("the store answers");
        examined += page.pauses.len();
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((examined, asked("GetItem")), (SLEEPERS, 0));
    assert!(asked("BatchGetItem") <= asked("Query"), "one for each page");

    meter.reset();
    let swept =
        dormouse_maintenance::sweep(&harness, &maintenance, SweepScope::Everything).await.expect("the store answers");
    assert_eq!((swept.examined, swept.registered), (SLEEPERS, 0), "the index is what wakes");
    assert!(asked("GetItem") < 8 && asked("UpdateItem") < 8, "{:?}", meter.snapshot());
}
