use std::sync::Arc;
use std::time::Duration;

use dormouse_agent::graph::ModelPart;
use dormouse_agent::workspace::{AgentDefinition, Lookup, ModelDefinition, Workspace};
use dormouse_ports::model::{BackgroundProvider, ModelProvider};
use dormouse_ports::{PayloadLimit, SecretError};
use dormouse_providers::telemetry::TelemetryOptions;
use dormouse_providers::{
    ApiKey, Capabilities, ProviderPorts, ProviderSetup, Reported, anthropic, bedrock, gemini, openai, responses,
};

use crate::DeclaredPorts;
use crate::keys::Templated;

/// Time for one attempt at a model.
const ATTEMPT: Duration = Duration::from_secs(300);

/// The variable by which OpenTelemetry is told that spans show content.
const CAPTURE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// How much of messages, arguments and results spans show; `None`, unless the environment says so, for nothing of them.
pub(crate) async fn shown_in_spans(ports: &DeclaredPorts) -> Option<PayloadLimit> {
    let asked = ports.env.resolve(CAPTURE).await.ok()?;
    asked.expose().eq_ignore_ascii_case("true").then(PayloadLimit::default)
}

/// Why there is no model.
pub(crate) struct NoModel {
    /// The same in a sentence.
    pub(crate) reason: String,
    /// True if there may be one when it is looked up again.
    pub(crate) may_pass: bool,
}

impl From<String> for NoModel {
    fn from(reason: String) -> Self {
        Self { reason, may_pass: false }
    }
}

/// The model of `agent`.
///
/// # Errors
/// Why there is none.
pub(crate) async fn part(
    workspace: &Workspace,
    agent: &AgentDefinition,
    ports: &DeclaredPorts,
) -> Result<ModelPart, NoModel> {
    let resolved = workspace.model_of(agent)?;
    let Some(definition) = workspace.model(&resolved.reference) else {
        return Err(format!("there is no model `{}` here", resolved.reference).into());
    };
    // A model of whoever runs the server is asked as that asks it, also by agents that are given nothing else.
    let ports = match &ports.lender {
        Some(lender) if resolved.reference.starts_with("platform/") => lender,
        Some(_) | None => ports,
    };
    let setup = setup(definition, ports).await?;
    let telemetry = TelemetryOptions { payload: shown_in_spans(ports).await, ..TelemetryOptions::default() };
    let works_in_background = definition.background.then(|| Arc::new(responses(setup.clone())));
    let provider = provider(definition, setup, ports)?;
    let (identity, clock) = (provider.identity(), ports.clock.clone());
    let background = works_in_background.map(|background| {
        let reported = Reported::new(background, identity.clone(), clock.clone(), telemetry);
        Arc::new(reported) as Arc<dyn BackgroundProvider>
    });
    let provider = Arc::new(Reported::new(provider, identity, clock, telemetry));
    let mut config = resolved.config;
    config.max_tokens = config.max_tokens.or_else(|| definition.most_tokens());
    Ok(ModelPart {
        reference: resolved.reference,
        provider,
        background,
        config,
        prices: definition.prices,
        takes_images: definition.takes_images,
        context_window: definition.context_window,
        timeout: ATTEMPT,
    })
}

/// What every wire needs to know of the model.
async fn setup(definition: &ModelDefinition, ports: &DeclaredPorts) -> Result<ProviderSetup, NoModel> {
    let outside = ProviderPorts { fetch: ports.fetch.clone(), clock: ports.clock.clone() };
    let mut setup = ProviderSetup::new(outside, &definition.model).capabilities(Capabilities::ALL);
    if definition.returns_reasoning() {
        setup = setup.returning_reasoning();
    }
    if let Some(url) = &definition.url {
        let lookup = Lookup { env: &*ports.env, secrets: &*ports.secrets };
        let unknown = |error: SecretError| NoModel {
            reason: format!("the address of model `{}`: {error}", definition.name),
            may_pass: matches!(error, SecretError::Unavailable(_)),
        };
        let address = url.resolve(&lookup).await.map_err(unknown)?;
        setup = setup.base_url(address.expose());
        setup = url.secrets(&lookup).await.map_err(unknown)?.into_iter().fold(setup, ProviderSetup::hiding);
    }
    if let Some(key) = &definition.key {
        let templated = Templated { template: key.clone(), env: ports.env.clone(), secrets: ports.secrets.clone() };
        setup = setup.key(ApiKey::named(Arc::new(templated), key.written()));
    }
    if let Some(header) = &definition.key_header {
        setup = setup.key_header(header);
    }
    Ok(setup)
}

fn provider(
    definition: &ModelDefinition,
    setup: ProviderSetup,
    ports: &DeclaredPorts,
) -> Result<Arc<dyn ModelProvider>, String> {
    match definition.provider.as_str() {
        "openai" | "openai-compatible" if definition.background => Ok(Arc::new(responses(setup))),
        "openai" | "openai-compatible" => Ok(Arc::new(openai(setup))),
        "anthropic" => Ok(Arc::new(anthropic(setup))),
        "gemini" => Ok(Arc::new(gemini(setup))),
        "bedrock" => match &ports.bedrock {
            Some(access) => Ok(Arc::new(bedrock(setup, &access.region, access.sign.clone()))),
            None => Err(format!(
                "model `{}` is asked with credentials of AWS, and there are none: set AWS_REGION, AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY",
                definition.name
            )),
        },
        other => Err(format!("models of `{other}` cannot be asked from here yet")),
    }
}
