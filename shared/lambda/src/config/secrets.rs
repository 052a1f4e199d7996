use dormouse_aws::{ParameterError, Parameters, SecretText};
use dormouse_http::{BearerKey, CallbackSecret};

use super::VariableReader;
use crate::Function;

/// The path of the parameters.
const PATH: &str = "DORMOUSE_SECRETS";
/// Fewest bytes of a secret that signs.
const SECRET: usize = 32;
/// Fewest bytes of a key that a sender presents.
const KEY: usize = 16;

/// A secret: what it is called, and who cannot do without it.
struct NamedSecret {
    variable: &'static str,
    parameter: &'static str,
    /// Fewest bytes.
    least: usize,
    needed_by: &'static [Function],
}

/// Needed by functions that give out addresses or read them, or cursors of lists.
const CALLBACK_SECRET: NamedSecret = NamedSecret {
    variable: "DORMOUSE_CALLBACK_SECRET",
    parameter: "callback-secret",
    least: SECRET,
    needed_by: &[Function::Inbound, Function::Signal, Function::Stream],
};
/// The function to which the gateway hands signals.
const SIGNAL_KEY: NamedSecret = NamedSecret {
    variable: "DORMOUSE_SIGNAL_KEY",
    parameter: "signal-key",
    least: KEY,
    needed_by: &[Function::Signal],
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
}

/// Places of the secrets of a function: each in a variable, or else in a parameter below the path `DORMOUSE_SECRETS`.
///
/// | parameter | instead of | at least | needed by |
/// |---|---|---|---|
/// | `callback-secret` | `DORMOUSE_CALLBACK_SECRET` | 32 bytes | `inbound`, `signal`, `stream` |
/// | `signal-key` | `DORMOUSE_SIGNAL_KEY` | 16 bytes | `signal` |
///
/// Where both are set the variable counts, and the log reports that at the start. A function loads what it needs, and
/// nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSources {
    callback_secret: SecretSource,
    signal_key: SecretSource,
    /// Variables that count although there is a path.
    overruling: Vec<&'static str>,
}

/// The secrets of a function. They are not shown when they are printed.
#[derive(Clone, Debug)]
pub struct Secrets {
    /// Signs addresses and cursors. A function that needs none has one of its own, which opens nothing.
    pub callback_secret: CallbackSecret,
    /// Key that senders of signals present. A function that takes no signals has a key that no caller has.
    pub signal_key: BearerKey,
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
            ParameterError::Missing(names) => Self::Missing(names),
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
        let sources = [(&self.callback_secret, &CALLBACK_SECRET), (&self.signal_key, &SIGNAL_KEY)];
        let names: Vec<&str> = sources.iter().filter_map(|(source, _)| source.parameter()).collect();
        let mut kept = if names.is_empty() { Vec::new() } else { parameters.secure(&names).await? }.into_iter();
        let mut found = Vec::new();
        for (source, named) in sources {
            found.push(match source {
                SecretSource::Given(text) => Some(text.clone()),
                SecretSource::Nowhere => None,
                SecretSource::Kept(name) => {
                    let text = kept.next().filter(|text| text.reveal().len() >= named.least);
                    Some(text.ok_or_else(|| SecretsError::Short { name: name.clone(), least: named.least })?)
                }
            });
        }
        let [callback_secret, signal_key] = &found[..] else { unreachable!("as many as there are sources") };
        Ok(Secrets {
            callback_secret: callback_secret.as_ref().map_or_else(
                || CallbackSecret::new(dormouse_system::random_secret()),
                |text| CallbackSecret::new(text.reveal()),
            ),
            signal_key: signal_key.as_ref().map_or_else(BearerKey::of_nobody, |text| BearerKey::new(text.reveal())),
        })
    }
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    /// Sources of the secrets that `function` needs.
    pub(super) fn secrets(&mut self, function: Function) -> SecretSources {
        let path = self.parameter_path(PATH);
        let mut overruling = Vec::new();
        let mut source = |named: &NamedSecret| {
            let needed = named.needed_by.contains(&function);
            match (self.0.optional(named.variable), &path) {
                (Some(text), path) => {
                    if text.len() < named.least {
                        self.0.fault(format!("{} needs at least {} bytes", named.variable, named.least));
                    }
                    overruling.extend(path.as_ref().filter(|_| needed).map(|_| named.variable));
                    SecretSource::Given(SecretText::new(text))
                }
                (None, Some(path)) if needed => SecretSource::Kept(format!("{path}/{}", named.parameter)),
                (None, None) if needed => {
                    let NamedSecret { variable, parameter, .. } = named;
                    self.0
                        .fault(format!("{variable} is missing, or {PATH} with the path of the parameter {parameter}"));
                    SecretSource::Nowhere
                }
                (None, _) => SecretSource::Nowhere,
            }
        };
        let (callback_secret, signal_key) = (source(&CALLBACK_SECRET), source(&SIGNAL_KEY));
        SecretSources { callback_secret, signal_key, overruling }
    }

    fn parameter_path(&mut self, name: &str) -> Option<String> {
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

    const ALL: [Function; 4] = [Function::Inbound, Function::Signal, Function::Stream, Function::Wakeup];

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
            let names = [&sources.callback_secret, &sources.signal_key].map(SecretSource::parameter);
            names.map(|name| name.map(str::to_owned))
        });
        let (secret, key) =
            (Some("/dormouse/dev/callback-secret".to_owned()), Some("/dormouse/dev/signal-key".to_owned()));
        assert_eq!(names, [[secret.clone(), None], [secret.clone(), key], [secret, None], [None, None]]);
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
        let (key, path) = (("DORMOUSE_SIGNAL_KEY", "open-sesame-open-sesame"), (PATH, "/dormouse"));
        let (found, faults) = sources(Function::Signal, &[key, path]);
        assert_eq!((found.signal_key, faults), (SecretSource::Given(SecretText::new(key.1)), Vec::new()));
        assert_eq!(found.callback_secret, SecretSource::Kept("/dormouse/callback-secret".to_owned()));
        assert_eq!(found.overruling, ["DORMOUSE_SIGNAL_KEY"]);
        let (alone, _) = sources(Function::Inbound, &[key]);
        assert_eq!((alone.signal_key, alone.overruling), (SecretSource::Given(SecretText::new(key.1)), Vec::new()));
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
