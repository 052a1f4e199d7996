//! The ports on AWS: DynamoDB, EventBridge, EventBridge Scheduler; secrets from Parameter Store; objects of S3; functions of Lambda;
//! keys of KMS; WebSockets of API Gateway; signatures for requests to other services.
//!
//! Imports `dormouse-ports` and the AWS SDKs. Must not know engine, harness, Lambda or HTTP routes, and reads no
//! environment: clients, names and secrets are given by the code that composes the process.
//!
//! # Invariants
//! - No type of a vendor crosses a port: every SDK error becomes one of the port's own variants.
//! - A request that is retried here is safe to repeat: conditional, idempotent by key, or carrying a request token.

#![warn(missing_docs)]

mod connect;
mod connections;
mod dynamodb;
mod eventbridge;
mod function;
mod kms;
mod metering;
mod naming;
mod parameters;
mod refusal;
mod s3;
mod scheduler;
mod sign;
mod subscriptions;
mod tools;

pub use connect::{AwsAccess, Clients, Endpoints, Lazy, email_address};
pub use connections::ApiGatewayConnections;
pub use dynamodb::{
    Belongings, DynamoDbCheckpointer, DynamoDbStateStore, EraseSearch, Erased, Eraser, RetryPolicy, StoreConfig,
    TABLE_RESOURCE_NAME, ensure_table, table_resource,
};
pub use eventbridge::{EventBridgeBus, RuleConfig};
pub use function::{Function, FunctionError};
pub use kms::{KmsKey, KmsSigner};
pub use metering::{Meter, RequestUsage};
pub use parameters::{ParameterError, ParameterSecrets, Parameters, SecretText};
pub use refusal::with_remedy;
pub use s3::S3Objects;
pub use scheduler::SchedulerConfig;
pub use sign::RequestSigner;
pub use subscriptions::AwsSubscriptions;
pub use tools::{FunctionBackend, ToolsFunction};
