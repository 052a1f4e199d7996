mod secrets;
mod sockets;
mod streams;
mod workspaces;

use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Duration;

use aws_sdk_dynamodb::config::Credentials;
use dormouse_api::identity::IssuerConfig;
use dormouse_aws::{AwsAccess, Endpoints};
use dormouse_http::{Authorization, ConfigError, Origins, Quotas, Variables};

pub use secrets::{SecretSources, Secrets, SecretsError};
pub use sockets::SocketConfig;
pub use streams::StreamConfig;
pub use workspaces::WorkspaceConfig;

use crate::Function;

/// Number of seconds that EventBridge is given until a new rule takes effect.
const RULE_SETTLING: u64 = 5;
/// Number of seconds that Lambda lets a function run at most.
const LONGEST: u64 = 900;
/// Number of seconds that a turn may compute on a machine of one's own, where nothing is said.
const ON_MACHINE: u64 = 60;

/// Configuration of a function, from its environment.
///
/// | variable | meaning |
/// |---|---|
/// | `DORMOUSE_TABLE` | the table that holds all state |
/// | `DORMOUSE_SECRETS` | the path of the secrets in Parameter Store, like `/dormouse/dev`; see [`SecretSources`] |
/// | `DORMOUSE_SECRETS_CHANGED` | instant of their change; not read, but a new value makes Lambda begin new processes |
/// | `DORMOUSE_CALLBACK_SECRET` | signs callback addresses; at least 32 bytes. Counts before the parameter |
/// | `DORMOUSE_SIGNAL_KEY` | key that senders of signals present; at least 16 bytes. Counts before the parameter |
/// | the same two with `_SECOND` behind them | accepted beside the first one while that is replaced; optional |
/// | `DORMOUSE_RECEIPT_KEYS` | signs receipts: the name of the parameter that holds the keys (`/dormouse/dev/receipt-keys`), or the keys themselves, 64 hexadecimal digits or what the rotation of keys wrote; optional, no receipts without it |
/// | `DORMOUSE_AUTHORIZATION` | proof of callers of `/graphs`, `/chat`: `KEYS`, `AWS_IAM` or `NONE`; optional, `KEYS` |
/// | `DORMOUSE_BASE_URL` | prefix of callback addresses; optional |
/// | `DORMOUSE_STREAM_URL` | prefix of addresses of streams; optional |
/// | `DORMOUSE_SOCKET_URL` | where sockets are opened, `wss://` and a stage of a WebSocket API; optional, needed by `socket` |
/// | `DORMOUSE_API_URL` | prefix of the addresses to which `socket` sends commands: those of the HTTP API |
/// | `DORMOUSE_ALLOWED_ORIGINS` | origins of pages that may ask, separated by commas; optional, none without it |
/// | `DORMOUSE_ISSUERS` | issuers of accepted tokens, a JSON array of [`IssuerConfig`]; optional, none without it |
/// | `DORMOUSE_NOTIFICATIONS` | channels of notifications: the name of the parameter that holds them (`/dormouse/dev/notifications`), or a JSON object ([`Notifications`](dormouse_http::Notifications)); optional, none without it; for `wakeup` |
/// | `DORMOUSE_WEBHOOKS` | `enabled`: events are sent to the webhooks of sessions; the same for all functions that work, and `wakeup` needs the callback secret with it; optional, `disabled` |
/// | `DORMOUSE_VAULT_SECRETS` | path of the parameters of vaults whose provider is `ssm`: `/dormouse/dev/vaults` for `/dormouse/dev/vaults/TENANT.NAME`; optional, none without it |
/// | `DORMOUSE_BUS` | the event bus, by name or ARN |
/// | `DORMOUSE_SCHEDULER_GROUP` | the group of all schedules |
/// | `DORMOUSE_SCHEDULER_ROLE_ARN` | the role as which the scheduler calls |
/// | `DORMOUSE_WAKEUP_ARN` | the function that the scheduler calls |
/// | `DORMOUSE_SIGNAL_ARN` | the function that takes events |
/// | `DORMOUSE_TURN` | seconds that a turn may compute at most; optional, else as long as the function may run |
/// | `DORMOUSE_RELEASE` | the deployment; not read, but a new value makes Lambda publish a new version |
/// | `DORMOUSE_RULE_SETTLING` | seconds until a new rule of the bus takes effect; optional, 5 |
/// | `DORMOUSE_WORKSPACES` | names of published workspaces with agents to serve, separated by commas; optional |
/// | `DORMOUSE_WORKSPACES_BUCKET` | the bucket of their bundles; needed with them |
/// | `DORMOUSE_WORKSPACES_PREFIX` | beginning of the keys of their bundles; optional, `workspaces/` |
/// | `DORMOUSE_AGENT_SECRETS` | path of the parameters for `${secrets.NAME}` of them; optional, none without it |
/// | `DORMOUSE_TOOLS_FUNCTION` | name of the function in which their native tools and actions work; optional, without it there are `WebFetch` and `TodoWrite` |
/// | `DORMOUSE_DEAD_LETTER_ARN` | the queue for what could not be delivered; optional |
/// | `AWS_REGION`, or else `AWS_DEFAULT_REGION` | the region; Lambda sets it |
/// | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | the function's role; Lambda sets them |
/// | `AWS_ENDPOINT_URL` | address of the services instead; optional, also with a suffix (see below) |
/// | `AWS_LAMBDA_RUNTIME_API`, `AWS_LAMBDA_FUNCTION_NAME` | read by the runtime, checked here; Lambda sets them |
/// | `AWS_LAMBDA_FUNCTION_VERSION`, `AWS_LAMBDA_FUNCTION_MEMORY_SIZE` | the same |
///
/// The variables of the role hold for the life of the sandbox. `AWS_ENDPOINT_URL` is also read with `_DYNAMODB`,
/// `_EVENTBRIDGE`, `_SCHEDULER`, `_SSM`, `_S3`, `_LAMBDA` or `_KMS` behind it.
///
/// [`Quotas`] has the variables that change limits, those of rates and of the audit log among them. Nothing else is looked at: no profile, no metadata service.
/// `DORMOUSE_LOG` or `RUST_LOG`, and the collector of spans, are read by [`telemetry`](crate::telemetry). Secrets are
/// not shown when a configuration is printed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The table that holds all state.
    pub table: String,
    /// Sources of the secrets that sign and of the keys that senders present.
    pub secrets: SecretSources,
    /// Proof of identity that callers who begin turns and send messages have to give.
    pub authorization: Authorization,
    /// Prefix of callback addresses.
    pub base_url: Option<String>,
    /// Prefix of the addresses of streams.
    pub stream_url: Option<String>,
    /// Where sockets are opened.
    pub socket_url: Option<String>,
    /// What the function needs that holds sockets.
    pub sockets: Option<SocketConfig>,
    /// Origins of the pages that may ask from a browser.
    pub origins: Origins,
    /// Issuers of accepted tokens.
    pub issuers: Vec<IssuerConfig>,
    /// True if sessions may have webhooks, to which their events are sent.
    pub webhooks: bool,
    /// Path of the parameters of vaults.
    pub vaults: Option<String>,
    /// The event bus.
    pub bus: String,
    /// The group of all schedules.
    pub scheduler_group: String,
    /// The role as which the scheduler calls.
    pub scheduler_role_arn: String,
    /// The function that the scheduler calls.
    pub wakeup_arn: String,
    /// The function that takes events.
    pub signal_arn: String,
    /// True if wake-ups and rules are registered with the services of AWS; otherwise workers look for what falls due.
    pub registers: bool,
    /// The queue for what could not be delivered.
    pub dead_letter_arn: Option<String>,
    /// Published workspaces with agents to serve.
    pub workspaces: Option<WorkspaceConfig>,
    /// Endpoints and credentials with which AWS is called.
    pub access: AwsAccess,
    /// Limits that are not the usual ones.
    pub quotas: Quotas,
    /// For how long a new rule may not take effect yet.
    pub rule_settling: Duration,
    /// The longest that a turn may compute. It never outlives the time that Lambda gives to its function.
    pub turn: Duration,
}

impl Config {
    /// Reads the environment of the process that runs `function`.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_env(function: Function) -> Result<Self, ConfigError> {
        Self::from_variables(function, of_process())
    }

    /// Reads variables of `function` through `look_up`. An empty variable is a missing one.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_variables(function: Function, look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut reader = VariableReader(Variables::new(look_up));
        let config = reader.config(function, true);
        reader.runtime();
        reader.0.complete(config)
    }

    /// Reads the variables of a process on a machine of one's own. The bus, the scheduler and the functions are optional
    /// there: without `DORMOUSE_SCHEDULER_GROUP` nothing is registered elsewhere, and workers look at the table for what
    /// falls due. `DORMOUSE_TURN` is 60 where nothing is said.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn of_machine(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut reader = VariableReader(Variables::new(look_up));
        let config = reader.config(Function::Signal, false);
        reader.0.complete(config)
    }
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    fn config(&mut self, function: Function, on_lambda: bool) -> Config {
        let reader = self;
        let registers = on_lambda || reader.0.optional("DORMOUSE_SCHEDULER_GROUP").is_some();
        let usual_turn = if on_lambda { LONGEST } else { ON_MACHINE };
        Config {
            table: reader.0.needed("DORMOUSE_TABLE"),
            secrets: reader.secrets(function),
            authorization: reader.authorization("DORMOUSE_AUTHORIZATION"),
            base_url: reader.url("DORMOUSE_BASE_URL"),
            stream_url: reader.url("DORMOUSE_STREAM_URL"),
            socket_url: reader.socket_url(),
            sockets: reader.sockets(function),
            origins: reader.origins("DORMOUSE_ALLOWED_ORIGINS"),
            issuers: reader.issuers("DORMOUSE_ISSUERS"),
            webhooks: reader.0.is_enabled("DORMOUSE_WEBHOOKS"),
            vaults: reader.parameter_path("DORMOUSE_VAULT_SECRETS"),
            bus: reader.text("DORMOUSE_BUS", registers),
            scheduler_group: reader.text("DORMOUSE_SCHEDULER_GROUP", registers),
            scheduler_role_arn: reader.arn_where("DORMOUSE_SCHEDULER_ROLE_ARN", registers),
            wakeup_arn: reader.arn_where("DORMOUSE_WAKEUP_ARN", registers),
            signal_arn: reader.arn_where("DORMOUSE_SIGNAL_ARN", registers),
            registers,
            dead_letter_arn: reader.optional_arn("DORMOUSE_DEAD_LETTER_ARN"),
            workspaces: reader.workspaces(),
            access: reader.access(),
            quotas: Quotas::read(&mut reader.0),
            rule_settling: Duration::from_secs(reader.0.number("DORMOUSE_RULE_SETTLING", RULE_SETTLING, 0..=20)),
            turn: Duration::from_secs(reader.0.number("DORMOUSE_TURN", usual_turn, 1..=LONGEST)),
        }
    }

    /// A text that is needed only where wake-ups are registered.
    fn text(&mut self, name: &str, needed: bool) -> String {
        if needed { self.0.needed(name) } else { self.0.optional(name).unwrap_or_default() }
    }

    fn arn_where(&mut self, name: &str, needed: bool) -> String {
        if needed { self.arn(name) } else { self.optional_arn(name).unwrap_or_default() }
    }
}

/// The variables of this process, read once: a look-up in the environment itself goes through all of it.
fn of_process() -> impl Fn(&str) -> Option<String> {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let variables: HashMap<String, String> = std::env::vars_os().filter_map(text).collect();
    move |name| variables.get(name).cloned()
}

/// Reads the variables that only a function on Lambda has.
struct VariableReader<F>(Variables<F>);

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    fn authorization(&mut self, name: &str) -> Authorization {
        let Some(word) = self.0.optional(name) else { return Authorization::default() };
        Authorization::parse(&word).unwrap_or_else(|| {
            self.0.fault(format!("{name} must be KEYS, AWS_IAM or NONE"));
            Authorization::default()
        })
    }

    fn origins(&mut self, name: &str) -> Origins {
        let read = self.0.optional(name).map_or_else(|| Ok(Origins::default()), |list| Origins::parse(&list));
        read.unwrap_or_else(|reason| {
            self.0.fault(format!("{name}: {reason}"));
            Origins::default()
        })
    }

    fn issuers(&mut self, name: &str) -> Vec<IssuerConfig> {
        let read = self.0.optional(name).map_or_else(|| Ok(Vec::new()), |text| IssuerConfig::read(&text));
        read.unwrap_or_else(|reason| {
            self.0.fault(format!("{name}: {reason}"));
            Vec::new()
        })
    }

    /// Whether it says `enabled`; without a word it is not.
    fn arn(&mut self, name: &str) -> String {
        let arn = self.0.needed(name);
        if !arn.is_empty() {
            self.check_arn(name, &arn);
        }
        arn
    }

    fn optional_arn(&mut self, name: &str) -> Option<String> {
        self.0.optional(name).inspect(|arn| self.check_arn(name, arn))
    }

    fn check_arn(&mut self, name: &str, arn: &str) {
        // arn:partition:service:region:account:resource; region and account may be empty.
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let whole = parts.len() == 6 && parts[0] == "arn" && [1, 2, 5].iter().all(|&part| !parts[part].is_empty());
        if !whole {
            self.0.fault(format!("{name} must be an ARN"));
        }
    }

    fn url(&mut self, name: &str) -> Option<String> {
        let url = self.0.optional(name)?;
        let behind = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if behind.is_none_or(|host| host.is_empty() || host.starts_with(['/', ':']) || host.contains(' ')) {
            self.0.fault(format!("{name} must begin with https:// and a host"));
        }
        Some(url)
    }

    fn access(&mut self) -> AwsAccess {
        let region = match self.0.optional("AWS_REGION").or_else(|| self.0.optional("AWS_DEFAULT_REGION")) {
            Some(region) => region,
            None => self.0.needed("AWS_REGION"),
        };
        let key = self.0.needed("AWS_ACCESS_KEY_ID");
        let secret = self.0.needed("AWS_SECRET_ACCESS_KEY");
        let token = self.0.optional("AWS_SESSION_TOKEN");
        let endpoints = Endpoints {
            all: self.url("AWS_ENDPOINT_URL"),
            dynamodb: self.url("AWS_ENDPOINT_URL_DYNAMODB"),
            eventbridge: self.url("AWS_ENDPOINT_URL_EVENTBRIDGE"),
            scheduler: self.url("AWS_ENDPOINT_URL_SCHEDULER"),
            ssm: self.url("AWS_ENDPOINT_URL_SSM"),
            s3: self.url("AWS_ENDPOINT_URL_S3"),
            lambda: self.url("AWS_ENDPOINT_URL_LAMBDA"),
            kms: self.url("AWS_ENDPOINT_URL_KMS"),
        };
        AwsAccess { region, credentials: Credentials::new(key, secret, token, None, "environment"), endpoints }
    }

    /// Checks what the runtime reads by itself: it panics over the first variable that it misses.
    fn runtime(&mut self) {
        for name in ["AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION"] {
            self.0.needed(name);
        }
        let memory = self.0.needed("AWS_LAMBDA_FUNCTION_MEMORY_SIZE");
        if !memory.is_empty() && memory.parse::<i32>().is_err() {
            self.0.fault("AWS_LAMBDA_FUNCTION_MEMORY_SIZE must be a number".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_http::Limits;
    use dormouse_ports::InvocationLimits;

    use super::*;

    fn variables(name: &str) -> Option<String> {
        let value = match name {
            "DORMOUSE_TABLE" => "dormouse",
            "DORMOUSE_CALLBACK_SECRET" => "hush-hush-hush-hush-hush-hush-hush-hush",
            "DORMOUSE_SIGNAL_KEY" => "open-sesame-open-sesame",
            "DORMOUSE_BUS" | "DORMOUSE_SCHEDULER_GROUP" => "dormouse",
            "DORMOUSE_SCHEDULER_ROLE_ARN" => "arn:aws:iam::123456789012:role/scheduler",
            "DORMOUSE_WAKEUP_ARN" | "DORMOUSE_SIGNAL_ARN" => "arn:aws:lambda:eu-central-1:123456789012:function:f",
            "AWS_REGION" => "eu-central-1",
            "AWS_ACCESS_KEY_ID" => "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY" => "hush-too",
            "AWS_LAMBDA_RUNTIME_API" => "127.0.0.1:9001",
            "AWS_LAMBDA_FUNCTION_NAME" => "inbound",
            "AWS_LAMBDA_FUNCTION_VERSION" => "1",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE" => "256",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn a_machine_needs_a_table_secrets_and_access_and_all_of_the_scheduler_or_nothing() {
        let only = |names: &'static [&'static str]| {
            Config::of_machine(move |name| names.contains(&name).then(|| variables(name))?)
        };
        const LEAST: &[&str] = &[
            "DORMOUSE_TABLE",
            "DORMOUSE_CALLBACK_SECRET",
            "DORMOUSE_SIGNAL_KEY",
            "AWS_REGION",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
        ];
        let config = only(LEAST).expect("a configuration");
        assert_eq!((config.registers, config.bus.as_str(), config.turn.as_secs()), (false, "", 60));
        assert!(Config::of_machine(variables).expect("a configuration").registers);
        let refused = only(&["DORMOUSE_SCHEDULER_GROUP"]).expect_err("the rest is missing").to_string();
        assert!(refused.contains("DORMOUSE_WAKEUP_ARN is missing") && !refused.contains("LAMBDA"), "{refused}");
    }

    #[test]
    fn what_is_optional_may_be_missing() {
        let config = Config::from_variables(Function::Signal, variables).expect("a configuration");
        assert_eq!((config.table.as_str(), config.base_url, config.dead_letter_arn), ("dormouse", None, None));
        assert_eq!(config.authorization, Authorization::Keys, "what nobody has opened is locked");
    }

    #[test]
    fn all_faults_are_told_in_one_line() {
        let error = Config::from_variables(Function::Signal, |name| match name {
            "DORMOUSE_CALLBACK_SECRET" => Some("short".to_owned()),
            "DORMOUSE_AUTHORIZATION" => Some("none".to_owned()),
            "DORMOUSE_BASE_URL" => Some("agents.example.com".to_owned()),
            "DORMOUSE_BUS" | "DORMOUSE_TABLE" | "AWS_REGION" => Some(" ".to_owned()),
            "DORMOUSE_WAKEUP_ARN" => Some("wakeup".to_owned()),
            "DORMOUSE_DEAD_LETTER_ARN" => Some("arn:aws:sqs:eu-central-1:letters".to_owned()),
            "AWS_SECRET_ACCESS_KEY" | "AWS_LAMBDA_RUNTIME_API" => None,
            "AWS_ENDPOINT_URL_DYNAMODB" => Some("http://:8000".to_owned()),
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE" => Some("256 MB".to_owned()),
            "DORMOUSE_LIMIT_STATE" => Some("1 MB".to_owned()),
            "DORMOUSE_LIMIT_PAUSES" => Some("0".to_owned()),
            _ => variables(name),
        });
        let line = error.expect_err("faults").to_string();
        assert_eq!(
            line,
            "the environment is not complete: DORMOUSE_TABLE is missing; DORMOUSE_CALLBACK_SECRET needs at least 32 \
             bytes; DORMOUSE_AUTHORIZATION must be KEYS, AWS_IAM or NONE; DORMOUSE_BASE_URL must begin with https:// and a host; DORMOUSE_BUS is missing; DORMOUSE_WAKEUP_ARN \
             must be an ARN; DORMOUSE_DEAD_LETTER_ARN must be an ARN; AWS_REGION is missing; AWS_SECRET_ACCESS_KEY is \
             missing; AWS_ENDPOINT_URL_DYNAMODB must begin with https:// and a host; DORMOUSE_LIMIT_STATE must be \
             a number from 1 to 67108864; DORMOUSE_LIMIT_PAUSES must be a number from 1 to 1000000; \
             AWS_LAMBDA_RUNTIME_API is missing; AWS_LAMBDA_FUNCTION_MEMORY_SIZE must be a number"
        );
    }

    #[test]
    fn limits_may_be_others_than_the_usual_ones() {
        let quotas = |name: &'static str, value: &'static str| {
            let given = move |asked: &str| if asked == name { Some(value.to_owned()) } else { variables(asked) };
            Config::from_variables(Function::Signal, given).expect("a configuration").quotas
        };
        let usual = quotas("", "");
        assert_eq!(usual.limits, Limits::default());
        assert_eq!(quotas("DORMOUSE_LIMIT_EARLY_SIGNALS", "0").limits.early_signals, None);
        assert_eq!(
            quotas("DORMOUSE_LIMIT_STATE", "1000").invocation,
            InvocationLimits { state: 1000, ..usual.invocation }
        );
        assert_eq!(quotas("DORMOUSE_LIMIT_BODY", " 7 ").limits.body, 7);
        assert_eq!(quotas("DORMOUSE_LIMIT_PATTERN_RULES", "2000").limits.rules.most, 2000);
    }

    #[test]
    fn a_turn_may_take_as_long_as_its_function_unless_it_is_told_otherwise() {
        let turn = |value: Option<&'static str>| {
            Config::from_variables(Function::Wakeup, move |name| match name {
                "DORMOUSE_TURN" => value.map(str::to_owned),
                _ => variables(name),
            })
            .map(|config| config.turn.as_secs())
        };
        assert_eq!((turn(None), turn(Some("150"))), (Ok(900), Ok(150)));
        let refused = turn(Some("901")).expect_err("longer than any function runs").to_string();
        assert!(refused.ends_with("DORMOUSE_TURN must be a number from 1 to 900"), "{refused}");
    }

    #[test]
    fn a_service_may_be_elsewhere() {
        let config = Config::from_variables(Function::Signal, |name| match name {
            "AWS_REGION" => None,
            "AWS_DEFAULT_REGION" => Some("us-east-2".to_owned()),
            "AWS_ENDPOINT_URL_SCHEDULER" => Some("http://127.0.0.1:4566".to_owned()),
            _ => variables(name),
        });
        let access = config.expect("a configuration").access;
        assert_eq!(access.region, "us-east-2");
        assert_eq!(access.endpoints.scheduler.as_deref(), Some("http://127.0.0.1:4566"));
        assert_eq!((access.endpoints.all, access.endpoints.dynamodb), (None, None));
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", Config::from_variables(Function::Signal, variables).expect("a configuration"));
        assert!(!shown.contains("hush") && !shown.contains("sesame"), "{shown}");
    }
}
