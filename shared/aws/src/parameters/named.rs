//! Secrets by their names, each a parameter below one path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Clock, Secret, SecretError, Secrets};
use jiff::Timestamp;

use super::{ParameterError, Parameters};

/// Time for which a value that was read counts, so that a new one does without new processes.
const KEPT: Duration = Duration::from_secs(300);

/// Encrypted parameters below a path as [`Secrets`]: the secret `NAME` is the parameter `PATH/NAME`. It is read when it is
/// used for the first time, and again when five minutes have passed.
#[derive(Clone)]
pub struct ParameterSecrets {
    parameters: Parameters,
    path: String,
    clock: Arc<dyn Clock>,
    kept: Arc<Mutex<BTreeMap<String, KeptSecret>>>,
}

#[derive(Clone)]
struct KeptSecret {
    secret: Secret,
    read_at: Timestamp,
}

impl ParameterSecrets {
    /// The secrets below `path`, which has no slash at its end.
    pub fn new(parameters: Parameters, path: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self { parameters, path: path.into(), clock, kept: Arc::default() }
    }

    fn kept(&self, name: &str) -> Option<Secret> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get(name)?;
        let age = self.clock.now().duration_since(found.read_at).unsigned_abs();
        (age < KEPT).then(|| found.secret.clone())
    }

    fn keep(&self, name: &str, secret: Secret) {
        let kept = KeptSecret { secret, read_at: self.clock.now() };
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), kept);
    }
}

impl fmt::Debug for ParameterSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterSecrets").field("path", &self.path).finish_non_exhaustive()
    }
}

/// True for a name that leads to no other path.
fn is_plain(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[async_trait]
impl Secrets for ParameterSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        if !is_plain(name) {
            return Err(SecretError::Missing(name.to_owned()));
        }
        if let Some(secret) = self.kept(name) {
            return Ok(secret);
        }
        let parameter = format!("{}/{name}", self.path);
        let found = self.parameters.secure(&[&parameter]).await.map_err(|error| refused(parameter.clone(), error))?;
        let text = found.into_iter().next().flatten().ok_or(SecretError::Missing(parameter))?;
        let secret = Secret::new(text.reveal());
        self.keep(name, secret.clone());
        Ok(secret)
    }
}

fn refused(parameter: String, error: ParameterError) -> SecretError {
    match error {
        ParameterError::Plain(name) => {
            tracing::warn!(name, "the parameter is not encrypted and is not used: make it a SecureString");
            SecretError::Denied(parameter)
        }
        ParameterError::Denied(reason) => {
            tracing::warn!(reason, "a secret of a workspace may not be read");
            SecretError::Denied(parameter)
        }
        ParameterError::Unavailable(reason) | ParameterError::Refused(reason) => SecretError::Unavailable(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_no_other_path() {
        for name in ["OPENAI_KEY", "a.b-c_9"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "../callback-secret", "a/b", "a b", "a:1", "ä", &"x".repeat(129)] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
