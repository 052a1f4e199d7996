//! Access to AWS: one HTTP client for all services, and service clients that are made when they are first used.

mod address;
mod agent;
mod trust;

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

use crate::parameters::Parameters;

/// Region, credentials and addresses of AWS. The secret is not shown when it is printed.
#[derive(Clone, Debug)]
pub struct AwsAccess {
    /// The region of all services.
    pub region: String,
    /// Credentials of all calls. A sandbox does not outlive the credentials that it is born with.
    pub credentials: Credentials,
    /// Addresses of the services, if they are not where the region has them.
    pub endpoints: Endpoints,
}

/// Addresses of services, for example of an emulator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Of all that have none of their own.
    pub all: Option<String>,
    /// Of DynamoDB.
    pub dynamodb: Option<String>,
    /// Of EventBridge.
    pub eventbridge: Option<String>,
    /// Of EventBridge Scheduler.
    pub scheduler: Option<String>,
    /// Of Parameter Store.
    pub ssm: Option<String>,
    /// Of S3.
    pub s3: Option<String>,
    /// Of Lambda.
    pub lambda: Option<String>,
    /// Of KMS.
    pub kms: Option<String>,
}

impl Endpoints {
    fn given(&self) -> impl Iterator<Item = &str> {
        let each = [&self.all, &self.dynamodb, &self.eventbridge, &self.scheduler, &self.ssm];
        each.into_iter().flatten().map(String::as_str)
    }
}

/// The clients of a process, with one pool of connections. None of them connects before it is used.
#[derive(Debug)]
pub struct Clients {
    /// Of DynamoDB, which every turn needs.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// Of EventBridge.
    pub eventbridge: Lazy<aws_sdk_eventbridge::Client>,
    /// Of EventBridge Scheduler.
    pub scheduler: Lazy<aws_sdk_scheduler::Client>,
    /// Of Parameter Store.
    pub parameters: Parameters,
}

/// The address of S3 for `access`, without a slash at its end. Buckets are named in the path.
pub(crate) fn s3_address(access: &AwsAccess) -> String {
    address_of("s3", access.endpoints.s3.as_ref(), access)
}

/// The address of Lambda for `access`, without a slash at its end.
pub(crate) fn lambda_address(access: &AwsAccess) -> String {
    address_of("lambda", access.endpoints.lambda.as_ref(), access)
}

/// The address of KMS for `access`, without a slash at its end.
pub(crate) fn kms_address(access: &AwsAccess) -> String {
    address_of("kms", access.endpoints.kms.as_ref(), access)
}

/// The address of Amazon SES for `access`, without a slash at its end.
pub fn email_address(access: &AwsAccess) -> String {
    address_of("email", None, access)
}

fn address_of(host: &str, own: Option<&String>, access: &AwsAccess) -> String {
    let given = own.or(access.endpoints.all.as_ref());
    let address = given.cloned().unwrap_or_else(|| address::of(host, &access.region));
    address.trim_end_matches('/').to_owned()
}

/// Time that one attempt may take before it counts as lost.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Time that it may take until secrets are there: Lambda gives a function ten seconds to begin.
const TO_BEGIN: Duration = Duration::from_secs(8);

macro_rules! client {
    ($sdk:ident, $host:literal, $access:expr, $endpoint:expr, $http:expr, $retry:expr, $timeouts:expr) => {{
        let mut config = $sdk::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new($access.region.clone()))
            .credentials_provider($access.credentials.clone())
            .http_client($http)
            .interceptor(agent::OneUserAgent)
            .retry_config($retry)
            .timeout_config($timeouts);
        let endpoint = $endpoint.clone().or_else(|| $access.endpoints.all.clone());
        config.set_endpoint_resolver(address::resolver($host, &$access.region, endpoint.as_deref()));
        config.set_endpoint_url(endpoint);
        $sdk::Client::from_conf(config.build())
    }};
}

impl AwsAccess {
    /// The clients for it.
    ///
    /// They trust the roots of Amazon, which are compiled in: reading the system's folder of certificates would take
    /// longer than everything else that happens before the first answer. Where another server may answer, at another
    /// `https` endpoint or in the partition of China, they trust the roots that the system trusts.
    pub fn clients(self) -> Clients {
        let http = self.http();
        let attempt = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT);
        let timeouts = attempt.clone().build();
        let dynamodb = self.dynamodb_over(http.clone());
        let access = self.clone();
        let shared = http.clone();
        let within = timeouts.clone();
        let eventbridge = Lazy::new(move || {
            client!(aws_sdk_eventbridge, "events", access, access.endpoints.eventbridge, shared, retry(), within)
        });
        let access = self.clone();
        let shared = http.clone();
        let scheduler = Lazy::new(move || {
            client!(aws_sdk_scheduler, "scheduler", access, access.endpoints.scheduler, shared, retry(), timeouts)
        });
        let within = attempt.operation_timeout(TO_BEGIN).build();
        let ssm = Lazy::new(move || {
            client!(aws_sdk_ssm, "ssm", self, self.endpoints.ssm, http, retry().with_max_attempts(10), within)
        });
        Clients { dynamodb, eventbridge, scheduler, parameters: Parameters::new(ssm) }
    }

    /// The client of DynamoDB alone, for a program that speaks with no other service: it holds no code of theirs.
    pub fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        self.dynamodb_over(self.http())
    }

    fn http(&self) -> SharedHttpClient {
        trust::client(trust::Roots::of(&self.region, self.endpoints.given()))
    }

    fn dynamodb_over(&self, http: SharedHttpClient) -> aws_sdk_dynamodb::Client {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).build();
        client!(aws_sdk_dynamodb, "dynamodb", self, self.endpoints.dynamodb, http, retry(), timeouts)
    }
}

/// For services with requests that are safe to repeat as the SDK does: named by what they stand for, or at least once
/// by contract. The deadline of the turn bounds it.
fn retry() -> RetryConfig {
    let config = RetryConfig::standard().with_max_attempts(6).with_initial_backoff(Duration::from_millis(50));
    config.with_max_backoff(Duration::from_secs(1))
}

/// A value that is made when it is first used. Cheap to clone; the clones share it.
#[derive(Clone)]
pub struct Lazy<T>(Arc<LazyLock<T, Make<T>>>);

type Make<T> = Box<dyn FnOnce() -> T + Send>;

impl<T> Lazy<T> {
    /// The value that `make` will make, once.
    pub fn new(make: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(make))))
    }
}

impl<T: Send + 'static> From<T> for Lazy<T> {
    fn from(made: T) -> Self {
        Self::new(move || made)
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Lazy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lazy")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_is_lazy_is_made_once_and_only_when_used() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let lazy = Lazy::new(move || counter.fetch_add(1, Ordering::SeqCst) + 7);
        let clone = lazy.clone();
        assert_eq!(made.load(Ordering::SeqCst), 0);
        assert_eq!((*lazy, *clone), (7, 7));
        assert_eq!(made.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn the_secret_is_not_shown() {
        let credentials = Credentials::new("AKIDEXAMPLE", "hush-hush", Some("token-hush".to_owned()), None, "test");
        let access = AwsAccess { region: "eu-central-1".to_owned(), credentials, endpoints: Endpoints::default() };
        let shown = format!("{access:?} {:?}", access.clone().clients());
        assert!(!shown.contains("hush"), "{shown}");
    }
}
