use async_trait::async_trait;
use dormouse_ports::{Secret, SecretError, Secrets};

/// Secrets in the environment of the process: the name of a secret is that of its variable. For the machine of a
/// developer; what is deployed takes its secrets from a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct EnvironmentSecrets;

#[async_trait]
impl Secrets for EnvironmentSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        // The environment panics over names that no variable can have.
        let is_possible = !name.is_empty() && !name.contains(['=', '\0']);
        let value = is_possible.then(|| std::env::var(name).ok()).flatten();
        value.filter(|value| !value.is_empty()).map(Secret::new).ok_or_else(|| SecretError::Missing(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_variable_is_a_secret_and_no_variable_is_none() {
        assert!(EnvironmentSecrets.resolve("PATH").await.is_ok());
        for name in ["DORMOUSE_NO_SUCH_VARIABLE", "", "A=B", "A\0"] {
            assert_eq!(EnvironmentSecrets.resolve(name).await, Err(SecretError::Missing(name.to_owned())));
        }
    }
}
