//! What the table must hold at rest: nothing that no record refers to, and everything that one does.

use std::collections::BTreeSet;

use dormouse_ports::Garbage;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::dynamodb::{Engine, TABLE};
use super::outside::{Outside, at_once};

/// By then everything is old enough to be looked at.
const OLD: SignedDuration = SignedDuration::from_hours(48);
/// By then the record of whatever has ended has expired.
const EXPIRED: SignedDuration = SignedDuration::from_hours(60 * 24);
/// How many stretches a round may have.
const MOST_STRETCHES: usize = 50;

/// Collects what nothing refers to; lets expire what has a lifetime, as DynamoDB does; and collects again. After each
/// round no orphan is left.
///
/// # Errors
/// What is left, or is broken.
pub(crate) fn holds_no_orphans(outside: &mut Outside, now: Timestamp) -> Result<(), String> {
    let Some(engine) = outside.database.clone() else { return Ok(()) };
    for (age, expires) in [(OLD, false), (EXPIRED, true), (EXPIRED + OLD, false)] {
        let now = now + age;
        if expires {
            expire(&engine, now);
        }
        collect(&engine, now)?;
        let items = items(&engine);
        match orphans(&items).next() {
            Some(orphan) => return Err(format!("{orphan} is in the table, and nothing refers to it")),
            None => outside.history.look_at_all(&*outside.truth, age >= EXPIRED)?,
        }
    }
    Ok(())
}

/// A whole round, and another one for what the first had only noted.
fn collect(engine: &Engine, now: Timestamp) -> Result<(), String> {
    let store = engine.truth();
    let mut cursor = None;
    let mut rounds = 0;
    for _ in 0..MOST_STRETCHES {
        let collected = at_once(store.collect_garbage(now, cursor.as_deref())).map_err(|error| error.to_string())?;
        cursor = collected.next;
        rounds += u32::from(collected.done);
        if rounds == 2 {
            return Ok(());
        }
    }
    Err(format!("{MOST_STRETCHES} stretches are not two rounds"))
}

/// What lies apart from every record: chunks to which no attribute refers, and pieces without an owner.
fn orphans(items: &[Value]) -> impl Iterator<Item = &str> {
    let keys: BTreeSet<(&str, &str)> = items.iter().map(|item| (text(item, "pk"), text(item, "sk"))).collect();
    let attributes = items.iter().filter_map(Value::as_object).flat_map(|item| item.values());
    let references: BTreeSet<String> = attributes.filter_map(|value| address(value["S"].as_str()?)).collect();
    items.iter().filter_map(move |item| {
        let pk = text(item, "pk");
        let sk = text(item, "sk");
        let is_used = match pk.strip_prefix("BLOB#") {
            Some(address) => references.contains(address),
            None => !sk.starts_with("SEGMENT#") || keys.contains(&(pk, "HEAD")) || keys.contains(&(pk, "PAUSED")),
        };
        (!is_used).then_some(pk)
    })
}

/// The address of a blob, from what refers to it: digest, size and place.
fn address(reference: &str) -> Option<String> {
    let (digest, rest) = reference.split_once(':')?;
    let (size, place) = rest.split_once(':')?;
    let is_one = digest.len() == 64 && size.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| format!("{digest}{place}"))
}

/// Removes what has outlived its time to live.
fn expire(engine: &Engine, now: Timestamp) {
    let is_over = |item: &Value| item["ttl"]["N"].as_str().and_then(|at| at.parse().ok()) < Some(now.as_second());
    for item in items(engine).iter().filter(|item| item["ttl"].is_object() && is_over(item)) {
        let request = json!({ "TableName": TABLE, "Key": { "pk": item["pk"], "sk": item["sk"] } });
        ask(engine, "DeleteItem", &request);
    }
}

/// Everything that is in the table.
fn items(engine: &Engine) -> Vec<Value> {
    let mut items = Vec::new();
    let mut request = json!({ "TableName": TABLE });
    loop {
        let answer = ask(engine, "Scan", &request);
        items.extend(answer["Items"].as_array().cloned().unwrap_or_default());
        match answer.get("LastEvaluatedKey") {
            Some(last) if last.is_object() => request["ExclusiveStartKey"] = last.clone(),
            _ => return items,
        }
    }
}

fn ask(engine: &Engine, operation: &'static str, request: &Value) -> Value {
    let (status, body) = engine.obey(operation, request.to_string().as_bytes());
    assert_eq!(status, 200, "{operation}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).expect("the database speaks JSON")
}

fn text<'i>(item: &'i Value, name: &str) -> &'i str {
    item[name]["S"].as_str().unwrap_or_default()
}
