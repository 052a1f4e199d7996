//! Items of the table as they are stored, in the JSON of DynamoDB's own requests.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::base64;
use serde_json::{Map, Value, json};

/// Every item of `table`, in the order of their keys; attributes in the order of their names.
///
/// # Panics
/// When the table cannot be read, or an item holds what the store never writes.
pub async fn items(client: &Client, table: &str) -> Vec<Value> {
    let pages = client.scan().table_name(table).consistent_read(true).into_paginator().items();
    let items: Vec<_> = pages.send().collect::<Result<_, _>>().await.expect("the table is read");
    let mut items: Vec<Value> = items.iter().map(item).collect();
    items.sort_by_key(|item| (item["pk"].to_string(), item["sk"].to_string()));
    items
}

fn item(item: &HashMap<String, AttributeValue>) -> Value {
    let mut attributes: Vec<_> = item.iter().collect();
    attributes.sort_by_key(|(name, _)| *name);
    Value::Object(attributes.into_iter().map(|(name, value)| (name.clone(), attribute(value))).collect::<Map<_, _>>())
}

fn attribute(value: &AttributeValue) -> Value {
    let text = || value.as_s().map(|text| json!({ "S": text }));
    let number = || value.as_n().map(|digits| json!({ "N": digits }));
    let truth = || value.as_bool().map(|is| json!({ "BOOL": is }));
    let bytes = || value.as_b().map(|bytes| json!({ "B": base64::encode(bytes) }));
    let known = text().or_else(|_| number()).or_else(|_| truth()).or_else(|_| bytes());
    known.unwrap_or_else(|other| panic!("the store never writes {other:?}"))
}
