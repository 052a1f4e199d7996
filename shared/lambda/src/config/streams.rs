use dormouse_api::identity::IssuerConfig;
use dormouse_aws::AwsAccess;
use dormouse_http::{ConfigError, Origins, Quotas, Variables};

use super::VariableReader;

/// Configuration of the function that streams, from its environment: those variables of [`Config`](super::Config) that are
/// named here. It needs no secrets.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// The table that holds all state: `DORMOUSE_TABLE`.
    pub table: String,
    /// Prefix of the addresses of the API: `DORMOUSE_BASE_URL`.
    pub base_url: Option<String>,
    /// Origins of the pages that may ask from a browser: `DORMOUSE_ALLOWED_ORIGINS`.
    pub origins: Origins,
    /// Issuers of accepted tokens: `DORMOUSE_ISSUERS`.
    pub issuers: Vec<IssuerConfig>,
    /// Endpoints and credentials with which AWS is called.
    pub access: AwsAccess,
    /// Rates, and how many streams a tenant may have open.
    pub quotas: Quotas,
}

impl StreamConfig {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(super::of_process())
    }

    /// Reads variables through `look_up`. An empty variable is a missing one.
    ///
    /// # Errors
    /// [`ConfigError`] names all variables that are missing or malformed.
    pub fn from_variables(look_up: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let mut reader = VariableReader(Variables::new(look_up));
        let config = Self {
            table: reader.0.needed("DORMOUSE_TABLE"),
            base_url: reader.url("DORMOUSE_BASE_URL"),
            origins: reader.origins("DORMOUSE_ALLOWED_ORIGINS"),
            issuers: reader.issuers("DORMOUSE_ISSUERS"),
            access: reader.access(),
            quotas: Quotas::read(&mut reader.0),
        };
        reader.runtime();
        reader.0.complete(config)
    }
}
