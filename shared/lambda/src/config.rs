use std::fmt;

use dormouse_aws::{BearerKey, CallbackSecret};

/// Fewest bytes of a secret that signs.
const SECRET: usize = 32;
/// Fewest bytes of a key that a sender presents.
const KEY: usize = 16;

/// What a function is told by its environment.
///
/// | variable | meaning |
/// |---|---|
/// | `DORMOUSE_TABLE` | the table that holds all state |
/// | `DORMOUSE_CALLBACK_SECRET` | signs callback addresses; at least 32 bytes |
/// | `DORMOUSE_SIGNAL_KEY` | what senders of signals present; at least 16 bytes |
/// | `DORMOUSE_BASE_URL` | what callback addresses begin with; optional |
/// | `DORMOUSE_BUS` | the event bus, by name or ARN |
/// | `DORMOUSE_SCHEDULER_GROUP` | the group of all schedules |
/// | `DORMOUSE_SCHEDULER_ROLE_ARN` | the role as which the scheduler calls |
/// | `DORMOUSE_WAKEUP_ARN` | the function that the scheduler calls |
/// | `DORMOUSE_SIGNAL_ARN` | the function that takes events |
/// | `DORMOUSE_DEAD_LETTER_ARN` | the queue for what could not be delivered; optional |
///
/// Region, credentials and `AWS_ENDPOINT_URL` are read by the SDK; `DORMOUSE_LOG` or `RUST_LOG`, and the collector of
/// spans, by [`telemetry`](crate::telemetry). Secrets are not shown when a configuration is printed.
#[derive(Clone, Debug)]
pub struct Config {
    /// The table that holds all state.
    pub table: String,
    /// Signs callback addresses.
    pub callback_secret: CallbackSecret,
    /// What senders of signals present.
    pub signal_key: BearerKey,
    /// What callback addresses begin with.
    pub base_url: Option<String>,
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
    /// The queue for what could not be delivered.
    pub dead_letter_arn: Option<String>,
}

/// Everything that is wrong with the environment, in one line and without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the environment is not complete: {}", self.0.join("; "))
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads variables through `look_up`. An empty variable is a missing one.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut reader = Reader { look_up, faults: Vec::new() };
        let config = Self {
            table: reader.needed("DORMOUSE_TABLE"),
            callback_secret: CallbackSecret::new(reader.secret("DORMOUSE_CALLBACK_SECRET", SECRET)),
            signal_key: BearerKey::new(&reader.secret("DORMOUSE_SIGNAL_KEY", KEY)),
            base_url: reader.url("DORMOUSE_BASE_URL"),
            bus: reader.needed("DORMOUSE_BUS"),
            scheduler_group: reader.needed("DORMOUSE_SCHEDULER_GROUP"),
            scheduler_role_arn: reader.arn("DORMOUSE_SCHEDULER_ROLE_ARN"),
            wakeup_arn: reader.arn("DORMOUSE_WAKEUP_ARN"),
            signal_arn: reader.arn("DORMOUSE_SIGNAL_ARN"),
            dead_letter_arn: reader.optional_arn("DORMOUSE_DEAD_LETTER_ARN"),
        };
        if reader.faults.is_empty() { Ok(config) } else { Err(ConfigError(reader.faults)) }
    }
}

/// Goes on after a fault, so that all of them are reported at once.
struct Reader<F> {
    look_up: F,
    faults: Vec<String>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    fn optional(&self, name: &str) -> Option<String> {
        (self.look_up)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    fn needed(&mut self, name: &str) -> String {
        self.optional(name).unwrap_or_else(|| {
            self.faults.push(format!("{name} is missing"));
            String::new()
        })
    }

    fn secret(&mut self, name: &str, least: usize) -> String {
        let secret = self.needed(name);
        if !secret.is_empty() && secret.len() < least {
            self.faults.push(format!("{name} needs at least {least} bytes"));
        }
        secret
    }

    fn arn(&mut self, name: &str) -> String {
        let arn = self.needed(name);
        if !arn.is_empty() {
            self.check_arn(name, &arn);
        }
        arn
    }

    fn optional_arn(&mut self, name: &str) -> Option<String> {
        self.optional(name).inspect(|arn| self.check_arn(name, arn))
    }

    fn check_arn(&mut self, name: &str, arn: &str) {
        if !arn.starts_with("arn:") {
            self.faults.push(format!("{name} must be an ARN"));
        }
    }

    fn url(&mut self, name: &str) -> Option<String> {
        let url = self.optional(name)?;
        if !(url.starts_with("https://") || url.starts_with("http://")) {
            self.faults.push(format!("{name} must begin with https://"));
        }
        Some(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        let value = match name {
            "DORMOUSE_TABLE" => "dormouse",
            "DORMOUSE_CALLBACK_SECRET" => "hush-hush-hush-hush-hush-hush-hush-hush",
            "DORMOUSE_SIGNAL_KEY" => "open-sesame-open-sesame",
            "DORMOUSE_BUS" | "DORMOUSE_SCHEDULER_GROUP" => "dormouse",
            "DORMOUSE_SCHEDULER_ROLE_ARN" => "arn:aws:iam::123456789012:role/scheduler",
            "DORMOUSE_WAKEUP_ARN" | "DORMOUSE_SIGNAL_ARN" => "arn:aws:lambda:eu-central-1:123456789012:function:f",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn what_is_optional_may_be_missing() {
        let config = Config::from_variables(variables).expect("a configuration");
        assert_eq!((config.table.as_str(), config.base_url, config.dead_letter_arn), ("dormouse", None, None));
    }

    #[test]
    fn all_faults_are_told_in_one_line() {
        let error = Config::from_variables(|name| match name {
            "DORMOUSE_CALLBACK_SECRET" => Some("short".to_owned()),
            "DORMOUSE_BASE_URL" => Some("agents.example.com".to_owned()),
            "DORMOUSE_BUS" | "DORMOUSE_TABLE" => Some(" ".to_owned()),
            "DORMOUSE_WAKEUP_ARN" | "DORMOUSE_DEAD_LETTER_ARN" => Some("wakeup".to_owned()),
            _ => variables(name),
        });
        let line = error.expect_err("faults").to_string();
        assert_eq!(
            line,
            "the environment is not complete: DORMOUSE_TABLE is missing; DORMOUSE_CALLBACK_SECRET needs at least 32 \
             bytes; DORMOUSE_BASE_URL must begin with https://; DORMOUSE_BUS is missing; DORMOUSE_WAKEUP_ARN must be \
             an ARN; DORMOUSE_DEAD_LETTER_ARN must be an ARN"
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", Config::from_variables(variables).expect("a configuration"));
        assert!(!shown.contains("hush") && !shown.contains("sesame"), "{shown}");
    }
}
