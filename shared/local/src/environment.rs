use async_trait::async_trait;
use dormouse_ports::{Secret, SecretError, Secrets};

/// The variables of this process, as secrets: read when they are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment;

#[async_trait]
impl Secrets for Environment {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        match std::env::var(name) {
            Ok(value) if !value.is_empty() => Ok(Secret::new(value)),
            Ok(_) | Err(_) => Err(SecretError::Missing(name.to_owned())),
        }
    }
}
