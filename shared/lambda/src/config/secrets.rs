use std::collections::BTreeMap;

use dormouse_aws::{ParameterError, Parameters, SecretText};
use dormouse_http::{BearerKey, CallbackSecret, Notifications};
use dormouse_receipts::Ring;

use super::VariableReader;
use crate::Function;

/// The path of the parameters.
const PATH: &str = "DORMOUSE_SECRETS";
/// The keys that receipts are signed with, or the parameter that holds them.
const RECEIPT_KEYS: &str = "DORMOUSE_RECEIPT_KEYS";
/// The channels of notifications, or the parameter that holds them.
const NOTIFICATIONS: &str = "DORMOUSE_NOTIFICATIONS";
/// Fewest bytes of a secret that signs.
const SECRET: usize = 32;
/// Fewest bytes of a key that a sender presents.
const KEY: usize = 16;

/// A secret: what it is called, and who cannot do without it.
struct NamedSecret {
    variable: &'static str,
    parameter: &'static str,
    /// Names of the second one, which is accepted beside it.
    second_variable: &'static str,
    second_parameter: &'static str,
    /// Fewest bytes.
    least: usize,
    needed_by: &'static [Function],
    /// Those that can do without, and use it where they are told a path.
    wanted_by: &'static [Function],
}

/// Needed by functions that give out addresses or read them, or cursors of lists.
const CALLBACK_SECRET: NamedSecret = NamedSecret {
    variable: "DORMOUSE_CALLBACK_SECRET",
    parameter: "callback-secret",
    second_variable: "DORMOUSE_CALLBACK_SECRET_SECOND",
    second_parameter: "callback-secret-second",
    least: SECRET,
    needed_by: &[Function::Inbound, Function::Signal, Function::Socket],
    // A run of a workspace that goes on there may give a tool an address at which to report.
    wanted_by: &[Function::Wakeup],
};
/// The function to which the gateway hands signals.
const SIGNAL_KEY: NamedSecret = NamedSecret {
    variable: "DORMOUSE_SIGNAL_KEY",
    parameter: "signal-key",
    second_variable: "DORMOUSE_SIGNAL_KEY_SECOND",
    second_parameter: "signal-key-second",
    least: KEY,
    needed_by: &[Function::Signal],
    wanted_by: &[],
};

/// Place of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SecretSource {
    /// In the environment.
    Given(SecretText),
    /// In the parameter of this name.
    Kept(String),
    /// Nowhere: the function does without.
    Nowhere,
}

impl SecretSource {
    fn parameter(&self) -> Option<&str> {
        match self {
            Self::Kept(name) => Some(name),
            Self::Given(_) | Self::Nowhere => None,
        }
    }

    /// The secret, of at least `least` bytes, where `kept` holds what the parameters hold.
    fn found(&self, kept: &KeptSecrets<'_>, least: usize) -> Result<Option<SecretText>, SecretsError> {
        match self {
            Self::Given(text) => Ok(Some(text.clone())),
            Self::Nowhere => Ok(None),
            Self::Kept(name) => match kept.get(name.as_str()) {
                Some(text) if text.reveal().len() < least => Err(SecretsError::Short { name: name.clone(), least }),
                found => Ok(found.cloned()),
            },
        }
    }
}

/// Content of the parameters that exist, by their names.
type KeptSecrets<'n> = BTreeMap<&'n str, SecretText>;

/// Places of a secret, and of the second one that is accepted beside it, which may be missing in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourcePair {
    first: SecretSource,
    second: SecretSource,
}

/// A secret, and the second one that is accepted beside it.
struct SecretPair {
    first: Option<SecretText>,
    second: Option<SecretText>,
}

impl SourcePair {
    fn parameters(&self) -> impl Iterator<Item = &str> {
        [self.first.parameter(), self.second.parameter()].into_iter().flatten()
    }

    fn found(&self, kept: &KeptSecrets<'_>, named: &NamedSecret) -> Result<SecretPair, SecretsError> {
        let first = self.first.found(kept, named.least)?;
        Ok(SecretPair { first, second: self.second.found(kept, named.least)? })
    }
}

/// Places of the secrets of a function: each in a variable, or else in a parameter below the path `DORMOUSE_SECRETS`.
///
/// | parameter | instead of | at least | needed by |
/// |---|---|---|---|
/// | `callback-secret` | `DORMOUSE_CALLBACK_SECRET` | 32 bytes | `inbound`, `signal`, `socket`; `wakeup` where it serves workspaces |
/// | `signal-key` | `DORMOUSE_SIGNAL_KEY` | 16 bytes | `signal` |
///
/// Each may have a second one, `callback-secret-second` (`DORMOUSE_CALLBACK_SECRET_SECOND`) and `signal-key-second`
/// (`DORMOUSE_SIGNAL_KEY_SECOND`): it is accepted as the first one is, and nothing is signed with it. With it a secret is
/// replaced while processes run that do not know the new one yet.
///
/// The keys of receipts are where `DORMOUSE_RECEIPT_KEYS` says: it holds them, or the name of the parameter that does, which
/// begins with `/`. Without it there are no receipts. The channels of notifications are in the same way where
/// `DORMOUSE_NOTIFICATIONS` says, because addresses of webhooks are secrets.
///
/// Where both are set the variable counts, and the log reports that at the start. A function loads what it needs, and
/// nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSources {
    callback_secret: SourcePair,
    signal_key: SourcePair,
    receipt_keys: SecretSource,
    notifications: SecretSource,
    /// Variables that count although there is a path.
    overruling: Vec<&'static str>,
}

/// The secrets of a function. They are not shown when they are printed.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Signs addresses and cursors. A function that needs none has one of its own, which opens nothing.
    pub callback_secret: CallbackSecret,
    /// False where it is one of the function's own: addresses that it signs open nothing.
    pub signs: bool,
    /// What it signed is accepted too.
    pub second_callback_secret: Option<CallbackSecret>,
    /// Key that senders of signals present, or either of two. A function that takes no signals has a key that no caller
    /// has.
    pub signal_key: BearerKey,
    /// Keys that receipts are signed with; without them there are none.
    pub receipt_keys: Option<Ring>,
    /// Where notifications go.
    pub notifications: Notifications,
}

/// Reason for which a function cannot have its secrets. Names the parameters, and the remedy; never what they hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// The parameters do not exist.
    #[error("there is no parameter {}: infra/deploy.sh makes what is missing of a new stack", .0.join(", "))]
    Missing(Vec<String>),
    /// A parameter is not encrypted.
    #[error("the parameter {0} is not encrypted: make it a SecureString, with a new value")]
    Plain(String),
    /// A parameter is too short.
    #[error("the parameter {name} needs at least {least} bytes")]
    Short {
        /// Name of the secret.
        name: String,
        /// Number of bytes that it needs.
        least: usize,
    },
    /// The keys of receipts are none.
    #[error("DORMOUSE_RECEIPT_KEYS, or the parameter that it names: {0}")]
    ReceiptKeys(String),
    /// The channels of notifications are none.
    #[error("DORMOUSE_NOTIFICATIONS, or the parameter that it names: {0}")]
    Notifications(String),
    /// The role may not do it.
    #[error("the role of the function must be allowed to read its parameters: {0}")]
    Denied(String),
    /// Parameter Store is busy or away.
    #[error(
        "Parameter Store does not answer in time, the next start asks again; where it is throttled often, \
         /ssm/parameter-store/high-throughput-enabled makes room: {0}"
    )]
    Unavailable(String),
    /// Parameter Store will never do what it was asked.
    #[error("Parameter Store refuses to tell secrets: {0}")]
    Refused(String),
}

impl From<ParameterError> for SecretsError {
    fn from(error: ParameterError) -> Self {
        match error {
            ParameterError::Plain(name) => Self::Plain(name),
            ParameterError::Denied(sentence) => Self::Denied(sentence),
            ParameterError::Unavailable(sentence) => Self::Unavailable(sentence),
            ParameterError::Refused(sentence) => Self::Refused(sentence),
        }
    }
}

impl SecretSources {
    /// Loads what is kept in parameters: with one request for all of them, or none where nothing is kept there.
    ///
    /// # Errors
    /// If a secret cannot be had or is too short.
    pub(crate) async fn load(&self, parameters: &Parameters) -> Result<Secrets, SecretsError> {
        for variable in &self.overruling {
            tracing::warn!(variable, "it is set beside {PATH}, and counts: the parameter is not read");
        }
        let kept = self.kept(parameters).await?;
        let callback_secret = self.callback_secret.found(&kept, &CALLBACK_SECRET)?;
        let signal_key = self.signal_key.found(&kept, &SIGNAL_KEY)?;
        let receipt_keys = self.receipt_keys.found(&kept, 1)?.map(|text| Ring::parse(text.reveal().trim()));
        let receipt_keys = receipt_keys.transpose().map_err(|error| SecretsError::ReceiptKeys(error.to_string()))?;
        let notifications = self.notifications.found(&kept, 1)?;
        let notifications = notifications.map(|text| Notifications::read(text.reveal(), false)).transpose();
        let notifications = notifications.map_err(|error| SecretsError::Notifications(error.to_string()))?;
        let secret = |text: &SecretText| CallbackSecret::new(text.reveal());
        let own = || CallbackSecret::new(dormouse_system::random_secret());
        Ok(Secrets {
            signs: callback_secret.first.is_some(),
            callback_secret: callback_secret.first.as_ref().map_or_else(own, secret),
            second_callback_secret: callback_secret.second.as_ref().map(secret),
            signal_key: bearer_key(&signal_key),
            receipt_keys,
            notifications: notifications.unwrap_or_default(),
        })
    }

    /// Values of the parameters; those of first secrets have to exist.
    async fn kept(&self, parameters: &Parameters) -> Result<KeptSecrets<'_>, SecretsError> {
        let pairs = [&self.callback_secret, &self.signal_key];
        let named = || [&self.receipt_keys, &self.notifications].into_iter().filter_map(SecretSource::parameter);
        let names: Vec<&str> = pairs.into_iter().flat_map(SourcePair::parameters).chain(named()).collect();
        if names.is_empty() {
            return Ok(KeptSecrets::new());
        }
        let found = parameters.secure(&names).await?;
        let kept: KeptSecrets<'_> =
            names.into_iter().zip(found).filter_map(|(name, text)| Some((name, text?))).collect();
        let needed = pairs.into_iter().filter_map(|pair| pair.first.parameter()).chain(named());
        let missing: Vec<String> = needed.filter(|name| !kept.contains_key(name)).map(str::to_owned).collect();
        if missing.is_empty() { Ok(kept) } else { Err(SecretsError::Missing(missing)) }
    }
}

fn bearer_key(pair: &SecretPair) -> BearerKey {
    let key = pair.first.as_ref().map_or_else(BearerKey::of_nobody, |text| BearerKey::new(text.reveal()));
    match &pair.second {
        Some(second) => key.accepting(second.reveal()),
        None => key,
    }
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    /// Sources of the secrets that `function` needs.
    pub(super) fn secrets(&mut self, function: Function) -> SecretSources {
        let path = self.parameter_path(PATH);
        let mut overruling = Vec::new();
        let mut pair = |named: &NamedSecret| {
            let needed = named.needed_by.contains(&function);
            let wanted = needed || named.wanted_by.contains(&function);
            let first = self.first_secret(named, (needed, wanted), path.as_deref());
            let is_given = matches!(first, SecretSource::Given(_));
            overruling.extend(path.as_ref().filter(|_| needed && is_given).map(|_| named.variable));
            let second = self.second_secret(named, &first, path.as_deref());
            SourcePair { first, second }
        };
        let callback_secret = pair(&CALLBACK_SECRET);
        let signal_key = pair(&SIGNAL_KEY);
        let receipt_keys = self.named_secret(RECEIPT_KEYS, |text| Ring::parse(text).map_err(|error| error.to_string()));
        let notifications = self
            .named_secret(NOTIFICATIONS, |text| Notifications::read(text, false).map_err(|error| error.to_string()));
        SecretSources { callback_secret, signal_key, receipt_keys, notifications, overruling }
    }

    /// What the variable `name` holds, or the parameter that it names. What is given is read at once; what a parameter holds,
    /// when it is there.
    fn named_secret<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> SecretSource {
        let Some(text) = self.0.optional(name) else { return SecretSource::Nowhere };
        if text.starts_with('/') {
            return self.parameter_path(name).map_or(SecretSource::Nowhere, SecretSource::Kept);
        }
        if let Err(error) = read(&text) {
            self.0.fault(format!("{name}: {error}"));
        }
        SecretSource::Given(SecretText::new(text))
    }

    fn first_secret(
        &mut self,
        named: &NamedSecret,
        (needed, wanted): (bool, bool),
        path: Option<&str>,
    ) -> SecretSource {
        if let Some(given) = self.given_secret(named.variable, named.least) {
            return given;
        }
        match path {
            Some(path) if wanted => SecretSource::Kept(format!("{path}/{}", named.parameter)),
            None if needed => {
                let NamedSecret { variable, parameter, .. } = named;
                self.0.fault(format!("{variable} is missing, or {PATH} with the path of the parameter {parameter}"));
                SecretSource::Nowhere
            }
            Some(_) | None => SecretSource::Nowhere,
        }
    }

    /// Beside a secret of the environment there is a second one of the environment only, and likewise of the path.
    fn second_secret(&mut self, named: &NamedSecret, first: &SecretSource, path: Option<&str>) -> SecretSource {
        let given = self.given_secret(named.second_variable, named.least);
        match (first, given, path) {
            (SecretSource::Nowhere, _, _) => SecretSource::Nowhere,
            (SecretSource::Given(_) | SecretSource::Kept(_), Some(given), _) => given,
            (SecretSource::Kept(_), None, Some(path)) => {
                SecretSource::Kept(format!("{path}/{}", named.second_parameter))
            }
            (SecretSource::Given(_) | SecretSource::Kept(_), None, _) => SecretSource::Nowhere,
        }
    }

    fn given_secret(&mut self, variable: &str, least: usize) -> Option<SecretSource> {
        let text = self.0.optional(variable)?;
        if text.len() < least {
            self.0.fault(format!("{variable} needs at least {least} bytes"));
        }
        Some(SecretSource::Given(SecretText::new(text)))
    }

    pub(super) fn parameter_path(&mut self, name: &str) -> Option<String> {
        let path = self.0.optional(name)?;
        let is_part =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !path.strip_prefix('/').is_some_and(|parts| parts.split('/').all(is_part)) {
            self.0.fault(format!("{name} must be a path of parameters, like /dormouse/dev"));
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use dormouse_http::Variables;

    use super::*;

    const ALL: [Function; 4] = [Function::Inbound, Function::Signal, Function::Socket, Function::Wakeup];

    /// Sources that `function` makes of these variables, and the faults that it finds in them.
    fn sources(function: Function, variables: &[(&str, &str)]) -> (SecretSources, Vec<String>) {
        let given = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let mut reader = VariableReader(Variables::new(given));
        (reader.secrets(function), reader.0.faults().to_vec())
    }

    #[test]
    fn a_function_looks_for_what_it_needs_below_the_path() {
        let names = ALL.map(|function| {
            let (sources, faults) = sources(function, &[(PATH, "/dormouse/dev")]);
            assert_eq!((faults, &sources.overruling), (Vec::new(), &Vec::new()));
            let names = [&sources.callback_secret, &sources.signal_key].into_iter().flat_map(SourcePair::parameters);
            names.map(|name| name.trim_start_matches("/dormouse/dev/").to_owned()).collect::<Vec<_>>()
        });
        let secret = ["callback-secret", "callback-secret-second"];
        let both = ["callback-secret", "callback-secret-second", "signal-key", "signal-key-second"];
        assert_eq!(names, [&secret[..], &both, &secret, &secret]);
    }

    #[test]
    fn who_is_told_nothing_names_both_ways() {
        let missing = |variable, parameter| {
            format!("{variable} is missing, or DORMOUSE_SECRETS with the path of the parameter {parameter}")
        };
        let secret = missing("DORMOUSE_CALLBACK_SECRET", "callback-secret");
        let key = missing("DORMOUSE_SIGNAL_KEY", "signal-key");
        let faults = ALL.map(|function| sources(function, &[]).1);
        assert_eq!(faults, [vec![secret.clone()], vec![secret.clone(), key], vec![secret], Vec::new()]);
    }

    #[test]
    fn a_variable_counts_and_is_named_where_it_stands_beside_a_path() {
        let key = ("DORMOUSE_SIGNAL_KEY", "open-sesame-open-sesame");
        let path = (PATH, "/dormouse");
        let (found, faults) = sources(Function::Signal, &[key, path]);
        let given = SecretSource::Given(SecretText::new(key.1));
        assert_eq!((&found.signal_key.first, faults), (&given, Vec::new()));
        assert_eq!(found.signal_key.second, SecretSource::Nowhere, "nothing is mixed of both places");
        assert_eq!(found.callback_secret.first, SecretSource::Kept("/dormouse/callback-secret".to_owned()));
        assert_eq!(found.overruling, ["DORMOUSE_SIGNAL_KEY"]);
        let (alone, _) = sources(Function::Inbound, &[key]);
        assert_eq!((alone.signal_key.first, alone.overruling), (given, Vec::new()));
    }

    #[test]
    fn a_second_secret_stands_beside_a_first_one() {
        let first = ("DORMOUSE_SIGNAL_KEY", "open-sesame-open-sesame");
        let second = ("DORMOUSE_SIGNAL_KEY_SECOND", "open-barley-open-barley");
        let secret = ("DORMOUSE_CALLBACK_SECRET", "hush-hush-hush-hush-hush-hush-hush-hush");
        let (found, faults) = sources(Function::Signal, &[first, second, secret]);
        assert_eq!((found.signal_key.second, faults), (SecretSource::Given(SecretText::new(second.1)), Vec::new()));
        assert_eq!(found.callback_secret.second, SecretSource::Nowhere);
        let (found, _) = sources(Function::Signal, &[second, (PATH, "/dormouse")]);
        assert_eq!(found.signal_key.second, SecretSource::Given(SecretText::new(second.1)));
        let (found, _) = sources(Function::Wakeup, &[second, (PATH, "/dormouse")]);
        assert_eq!(found.signal_key.second, SecretSource::Nowhere, "it needs none");
        let (_, faults) = sources(Function::Signal, &[first, secret, ("DORMOUSE_SIGNAL_KEY_SECOND", "short")]);
        assert_eq!(faults, ["DORMOUSE_SIGNAL_KEY_SECOND needs at least 16 bytes"]);
    }

    #[test]
    fn the_keys_of_receipts_are_given_or_in_the_parameter_that_is_named() {
        let found = |value: &str| {
            let (sources, faults) = sources(Function::Wakeup, &[(RECEIPT_KEYS, value)]);
            (sources.receipt_keys, faults)
        };
        let seed = "7".repeat(64);
        assert_eq!(found(&seed), (SecretSource::Given(SecretText::new(seed.clone())), Vec::new()));
        for name in ["/dormouse/dev/receipt-keys", "/aws/reference/secretsmanager/dormouse/dev/receipt-keys"] {
            assert_eq!(found(name), (SecretSource::Kept(name.to_owned()), Vec::new()));
        }
        assert_eq!(found("").0, SecretSource::Nowhere);
        for wrong in ["77", "dormouse/dev/receipt-keys", "/dormouse//keys"] {
            assert_eq!(found(wrong).1.len(), 1, "{wrong}");
        }
    }

    #[test]
    fn the_channels_of_notifications_are_given_or_in_the_parameter_that_is_named() {
        let found = |value: &str| {
            let (sources, faults) = sources(Function::Wakeup, &[(NOTIFICATIONS, value)]);
            (sources.notifications, faults)
        };
        let channels = r#"{"ops": {"slack": "https://hooks.slack.com/services/T0/B0/hush"}}"#;
        assert_eq!(found(channels), (SecretSource::Given(SecretText::new(channels)), Vec::new()));
        let name = "/dormouse/dev/notifications";
        assert_eq!(found(name), (SecretSource::Kept(name.to_owned()), Vec::new()));
        assert_eq!(found(""), (SecretSource::Nowhere, Vec::new()));
        let (_, faults) = found(r#"{"ops": {"slack": "http://hush.example"}}"#);
        assert!(faults.len() == 1 && faults[0].starts_with("DORMOUSE_NOTIFICATIONS: channel `ops`"), "{faults:?}");
        assert!(!faults[0].contains("hush"));
    }

    #[test]
    fn a_path_is_a_path() {
        for wrong in ["dormouse/dev", "/", "/dormouse/", "/dormouse//dev", "/dormouse/dev:1", "/dör", "arn:aws:ssm:x"]
        {
            let (_, faults) = sources(Function::Wakeup, &[(PATH, wrong)]);
            assert_eq!(faults, ["DORMOUSE_SECRETS must be a path of parameters, like /dormouse/dev"], "{wrong}");
        }
        assert_eq!(sources(Function::Wakeup, &[(PATH, "/a/B-2/c_d.e")]).1, Vec::<String>::new());
    }
}
