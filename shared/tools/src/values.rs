use std::fmt;
use std::sync::Arc;

use dormouse_ports::{Lookup, Secret, SecretError, Secrets, Template};

use crate::mask::{Mask, Watched};
use crate::text::secret_in_address;

/// Places where the references `${env.NAME}` and `${secrets.NAME}` of a configuration are looked up at each use.
#[derive(Clone)]
pub struct Values {
    env: Arc<dyn Secrets>,
    secrets: Arc<dyn Secrets>,
    /// What learns of the secrets that are looked up here.
    #[cfg(feature = "mcp")]
    mask: Option<Mask>,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Values")
    }
}

impl Values {
    /// Values from the variables `env` and the store `secrets`.
    pub fn new(env: Arc<dyn Secrets>, secrets: Arc<dyn Secrets>) -> Self {
        Self {
            env,
            secrets,
            #[cfg(feature = "mcp")]
            mask: None,
        }
    }

    /// Nothing can be looked up: for configurations without references.
    pub fn none() -> Self {
        Self::new(Arc::new(Nothing), Arc::new(Nothing))
    }

    /// `template` with what it refers to.
    ///
    /// # Errors
    /// As [`Template::resolve`].
    pub async fn resolve(&self, template: &Template) -> Result<Secret, SecretError> {
        template.resolve(&self.lookup()).await
    }

    /// The address `template` with what it refers to. A secret that is the value of a parameter of its query is encoded, unless
    /// it is already.
    ///
    /// # Errors
    /// As [`Template::resolve`].
    pub async fn address(&self, template: &Template) -> Result<Secret, SecretError> {
        template.resolve_around(&self.lookup(), &|plain: &str| plain.to_owned(), &secret_in_address).await
    }

    /// The same values, and what takes out of a text the secrets that are looked up in them.
    pub(crate) fn watched(&self) -> (Self, Mask) {
        let mask = Mask::default();
        let watched = Watched { secrets: self.secrets.clone(), mask: mask.clone() };
        let values = Self {
            env: self.env.clone(),
            secrets: Arc::new(watched),
            #[cfg(feature = "mcp")]
            mask: Some(mask.clone()),
        };
        (values, mask)
    }

    /// Has what [watches](Self::watched) these values take out `token` as well, which was granted for a secret of them.
    #[cfg(feature = "mcp")]
    pub(crate) fn learn(&self, token: &Secret) {
        if let Some(mask) = &self.mask {
            mask.learn(token.expose());
        }
    }

    pub(crate) fn lookup(&self) -> Lookup<'_> {
        Lookup { env: &*self.env, secrets: &*self.secrets }
    }
}

/// A store of no secrets.
struct Nothing;

#[async_trait::async_trait]
impl Secrets for Nothing {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(name.to_owned()))
    }
}
