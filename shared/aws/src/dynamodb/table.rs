//! The one table.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndexUpdate, IndexStatus,
    KeySchemaElement, KeyType, Projection, ProjectionType, ScalarAttributeType, TableDescription, TableStatus,
    TimeToLiveSpecification,
};
use dormouse_ports::StoreError;
use serde_json::{Value, json};

use super::fault::{RequestFault, fault};
use super::keys::{CLAIM_LANE, CLAIM_SINCE, CLAIMS_INDEX, PK, SK, TTL};

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
                {"AttributeName": CLAIM_LANE, "AttributeType": "S"},
                {"AttributeName": CLAIM_SINCE, "AttributeType": "N"},
            ],
            "KeySchema": [
                {"AttributeName": PK, "KeyType": "HASH"},
                {"AttributeName": SK, "KeyType": "RANGE"},
            ],
            "GlobalSecondaryIndexes": [{
                "IndexName": CLAIMS_INDEX,
                "KeySchema": [
                    {"AttributeName": CLAIM_LANE, "KeyType": "HASH"},
                    {"AttributeName": CLAIM_SINCE, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }],
            "TimeToLiveSpecification": {"AttributeName": TTL, "Enabled": true},
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": true},
            "DeletionProtectionEnabled": true,
            "SSESpecification": {"SSEEnabled": true},
        },
    })
}

/// Makes sure that the table `name` exists, takes writes and forgets expired items. For local work and tests; in an
/// account the template makes the table.
///
/// # Errors
/// [`StoreError`] when the table cannot be made.
pub async fn ensure_table(client: &Client, name: &str) -> Result<(), StoreError> {
    create(client, name).await?;
    until_active(client, name).await?;
    add_index(client, name).await?;
    let lifetime = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build().map_err(malformed)?;
    match client.update_time_to_live().table_name(name).time_to_live_specification(lifetime).send().await {
        Ok(_) => Ok(()),
        // It was switched on before.
        Err(error) if error.code() == Some("ValidationException") => Ok(()),
        Err(error) => Err(reason(fault("UpdateTimeToLive", name, &error))),
    }
}

async fn create(client: &Client, name: &str) -> Result<(), StoreError> {
    let request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let request = request.set_key_schema(Some(key_schema(PK, SK)?));
    let request = request.attribute_definitions(attribute(PK, ScalarAttributeType::S)?);
    match request.attribute_definitions(attribute(SK, ScalarAttributeType::S)?).send().await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
        Err(error) => Err(reason(fault("CreateTable", name, &error))),
    }
}

/// The index of claims, which tables of the first versions do not have.
async fn add_index(client: &Client, name: &str) -> Result<(), StoreError> {
    let described = client.describe_table().table_name(name).send().await;
    let described = described.map_err(|error| reason(fault("DescribeTable", name, &error)))?;
    if described.table.is_some_and(|table| !table.global_secondary_indexes().is_empty()) {
        return Ok(());
    }
    let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let index = CreateGlobalSecondaryIndexAction::builder().index_name(CLAIMS_INDEX).projection(projection);
    let index = index.set_key_schema(Some(key_schema(CLAIM_LANE, CLAIM_SINCE)?)).build().map_err(malformed)?;
    let request = client.update_table().table_name(name);
    let request = request.attribute_definitions(attribute(CLAIM_LANE, ScalarAttributeType::S)?);
    let request = request.attribute_definitions(attribute(CLAIM_SINCE, ScalarAttributeType::N)?);
    let update = GlobalSecondaryIndexUpdate::builder().create(index).build();
    let answer = request.global_secondary_index_updates(update).send().await;
    answer.map_err(|error| reason(fault("UpdateTable", name, &error)))?;
    until_active(client, name).await
}

fn attribute(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition, StoreError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().map_err(malformed)
}

fn key_schema(partition: &str, sort: &str) -> Result<Vec<KeySchemaElement>, StoreError> {
    let key = |(name, role)| KeySchemaElement::builder().attribute_name(name).key_type(role).build();
    [(partition, KeyType::Hash), (sort, KeyType::Range)]
        .map(key)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(malformed)
}

async fn until_active(client: &Client, name: &str) -> Result<(), StoreError> {
    for _ in 0..300 {
        let answer = client.describe_table().table_name(name).send().await;
        let answer = answer.map_err(|error| reason(fault("DescribeTable", name, &error)))?;
        let table = answer.table.unwrap_or_else(|| TableDescription::builder().build());
        let indexes = table.global_secondary_indexes();
        if table.table_status == Some(TableStatus::Active)
            && indexes.iter().all(|index| index.index_status == Some(IndexStatus::Active))
        {
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

fn reason(fault: RequestFault) -> StoreError {
    match fault {
        RequestFault::Transient(error) | RequestFault::Busy(error) | RequestFault::Permanent(error) => error,
    }
}
