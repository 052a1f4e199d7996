//! The agents of published workspaces, as a function serves them.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_agent::bundle::BundleStore;
use dormouse_agent::workspace::Platform;
use dormouse_api::Outside;
use dormouse_aws::{AwsAccess, ParameterSecrets, Parameters, RequestSigner, S3Objects};
use dormouse_declared::{BedrockAccess, DeclaredPorts, PublishedAgents, PublishedFrom};
use dormouse_fetch::NetworkFetch;
use dormouse_ports::{Fetch, Secret, SecretError, Secrets};
use dormouse_system::RandomIds;
use dormouse_tools::{DeclaredTools, Values};

use crate::config::WorkspaceConfig;

/// The agents of the workspaces of `config`. Nothing is asked before one of them is.
pub(crate) fn published(
    config: WorkspaceConfig,
    access: &AwsAccess,
    parameters: &Parameters,
    outside: Outside,
) -> PublishedAgents {
    let clock = outside.clock.clone();
    let fetch: Arc<dyn Fetch> = Arc::new(NetworkFetch::new());
    let objects = S3Objects::new(access, &config.bucket, fetch.clone(), clock.clone());
    let env: Arc<dyn Secrets> = Arc::new(NoVariables);
    let secrets: Arc<dyn Secrets> = match config.secrets {
        Some(path) => Arc::new(ParameterSecrets::new(parameters.clone(), path, clock.clone())),
        None => Arc::new(NoSecrets),
    };
    let values = Values::new(env.clone(), secrets.clone());
    // By the role of the function, which has to allow it.
    let sign = Arc::new(RequestSigner::new(access, "bedrock", clock.clone()));
    let ports = DeclaredPorts {
        tools: Arc::new(DeclaredTools::new(fetch.clone(), values)),
        fetch,
        clock,
        ids: Arc::new(RandomIds),
        env,
        secrets,
        deltas: None,
        bedrock: Some(BedrockAccess { region: access.region.clone(), sign }),
    };
    PublishedAgents::new(PublishedFrom {
        store: BundleStore::new(Arc::new(objects), config.prefix),
        workspaces: config.names,
        platform: Platform { models: Some(Vec::new()), native_tools: Vec::new(), processes: false },
        ports,
        outside,
        refresh: None,
    })
}

/// The environment of a function holds the credentials of its role: no workspace reads it.
struct NoVariables;

#[async_trait]
impl Secrets for NoVariables {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(format!("env.{name} (on AWS there is no `${{env.…}}`: use `${{secrets.{name}}}`)")))
    }
}

/// Where the deployment names no path of parameters.
struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        Err(SecretError::Missing(format!("{name} (DORMOUSE_AGENT_SECRETS names no path of parameters)")))
    }
}
