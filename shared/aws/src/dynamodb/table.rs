//! The one table.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableStatus,
    TimeToLiveSpecification,
};
use dormouse_ports::StoreError;
use serde_json::{Value, json};

use super::fault::{Fault, fault};
use super::keys::{PK, SK, TTL};

/// The logical name of the table in the template.
pub const TABLE_RESOURCE_NAME: &str = "StateTable";

/// The table as a resource of a CloudFormation template.
pub fn table_resource() -> Value {
    json!({
        "Type": "AWS::DynamoDB::Table",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": {
            "BillingMode": BillingMode::PayPerRequest.as_str(),
            "AttributeDefinitions": [
                {"AttributeName": PK, "AttributeType": "S"},
                {"AttributeName": SK, "AttributeType": "S"},
            ],
            "KeySchema": [
                {"AttributeName": PK, "KeyType": "HASH"},
                {"AttributeName": SK, "KeyType": "RANGE"},
            ],
            "TimeToLiveSpecification": {"AttributeName": TTL, "Enabled": true},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true},
            "SSESpecification": {"SSEEnabled": true},
        },
    })
}

/// Makes sure that the table `name` exists, takes writes and forgets what has expired. For local work and tests; in an
/// account the template makes the table.
///
/// # Errors
/// [`StoreError`] when the table cannot be made.
pub async fn ensure_table(client: &Client, name: &str) -> Result<(), StoreError> {
    create(client, name).await?;
    until_active(client, name).await?;
    let lifetime = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build().map_err(malformed)?;
    match client.update_time_to_live().table_name(name).time_to_live_specification(lifetime).send().await {
        Ok(_) => Ok(()),
        // It was switched on before.
        Err(error) if error.code() == Some("ValidationException") => Ok(()),
        Err(error) => Err(reason(fault("UpdateTimeToLive", name, &error))),
    }
}

async fn create(client: &Client, name: &str) -> Result<(), StoreError> {
    let mut request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    for (attribute, role) in [(PK, KeyType::Hash), (SK, KeyType::Range)] {
        let definition = AttributeDefinition::builder().attribute_name(attribute);
        let definition = definition.attribute_type(ScalarAttributeType::S).build().map_err(malformed)?;
        let key = KeySchemaElement::builder().attribute_name(attribute).key_type(role).build().map_err(malformed)?;
        request = request.attribute_definitions(definition).key_schema(key);
    }
    match request.send().await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
        Err(error) => Err(reason(fault("CreateTable", name, &error))),
    }
}

async fn until_active(client: &Client, name: &str) -> Result<(), StoreError> {
    for _ in 0..300 {
        let answer = client.describe_table().table_name(name).send().await;
        let answer = answer.map_err(|error| reason(fault("DescribeTable", name, &error)))?;
        if answer.table.and_then(|table| table.table_status) == Some(TableStatus::Active) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(StoreError::Unavailable(format!("table {name} does not become active")))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn malformed(error: BuildError) -> StoreError {
    StoreError::Invalid(error.to_string())
}

fn reason(fault: Fault) -> StoreError {
    match fault {
        Fault::Passing(error) | Fault::Lasting(error) => error,
    }
}
