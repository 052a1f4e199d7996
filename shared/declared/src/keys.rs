use std::sync::Arc;

use async_trait::async_trait;
use dormouse_agent::workspace::{Lookup, Template};
use dormouse_ports::{Secret, SecretError, Secrets};

/// A store of no secrets.
pub(crate) struct NothingLent;

#[async_trait]
impl Secrets for NothingLent {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Denied(name.to_owned()))
    }
}

/// A text of a definition as a secret: what it refers to is looked up at each use.
pub(crate) struct Templated {
    pub(crate) template: Template,
    pub(crate) env: Arc<dyn Secrets>,
    pub(crate) secrets: Arc<dyn Secrets>,
}

#[async_trait]
impl Secrets for Templated {
    async fn resolve(&self, _: &str) -> Result<Secret, SecretError> {
        self.template.resolve(&Lookup { env: &*self.env, secrets: &*self.secrets }).await
    }
}
