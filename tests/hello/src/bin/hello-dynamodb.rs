//! What everybody writes: a function with a client of DynamoDB as the SDK configures it, and one consistent read.

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::new(&aws_config::load_defaults(BehaviorVersion::latest()).await);
    let table = std::env::var("DORMOUSE_TABLE")?;
    let client = &client;
    let table = table.as_str();
    let handler = async |_: LambdaEvent<Value>| {
        let key = |value: &str| AttributeValue::S(value.to_owned());
        let read = client.get_item().table_name(table).key("pk", key("hello")).key("sk", key("world"));
        let answer = read.consistent_read(true).send().await?;
        Ok::<_, Error>(json!({ "found": answer.item.is_some() }))
    };
    lambda_runtime::run(service_fn(handler)).await
}
