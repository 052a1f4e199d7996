//! Values that are used and never shown.

use std::fmt;

use async_trait::async_trait;

/// A secret text. It has no form to be printed or stored in.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, to be sent to the one who asks for it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Error of resolving the name of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is no secret of that name.
    #[error(
        "there is no secret `{0}`: on a machine of yours it is a variable of the environment (`export {0}=…` before the start), on AWS a parameter of the deployment"
    )]
    Missing(String),
    /// There is no variable of that name in the environment that a definition may read.
    #[error(
        "the variable `{0}` is not set in the environment: `export {0}=…` before the start; on AWS there is none, and `${{secrets.{0}}}` is a parameter of the deployment"
    )]
    Unset(String),
    /// The secret exists and this process may not read it.
    #[error("the secret `{0}` may not be read; allow it in the role of this process")]
    Denied(String),
    /// The store of secrets does not answer; a later attempt may succeed.
    #[error("the store of secrets is unavailable: {0}")]
    Unavailable(String),
}

/// Port that resolves names of secrets when they are used.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// The value of the secret called `name`.
    ///
    /// # Errors
    /// [`SecretError`] when there is none to be had.
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError>;
}

/// One secret stands for itself under each name: for a key that is known already.
#[async_trait]
impl Secrets for Secret {
    async fn resolve(&self, _: &str) -> Result<Secret, SecretError> {
        Ok(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(…)");
    }
}
