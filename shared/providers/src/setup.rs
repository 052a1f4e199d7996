use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::{Clock, Fetch, FetchLimits, Secret, SecretError, Secrets};

/// How long a model may be silent: as long as an attempt may take at all. An answer in one piece has its head when it is made, and
/// in streams of models that think nothing comes before they have thought.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Ports that a provider needs from outside.
#[derive(Clone)]
pub struct ProviderPorts {
    /// HTTP out.
    pub fetch: Arc<dyn Fetch>,
    /// Time, for the waits between attempts and for dates in answers.
    pub clock: Arc<dyn Clock>,
}

impl fmt::Debug for ProviderPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderPorts")
    }
}

/// A key, by the name under which it is resolved at each call.
#[derive(Clone)]
pub struct ApiKey {
    secrets: Arc<dyn Secrets>,
    name: String,
}

impl ApiKey {
    /// The secret called `name`.
    pub fn named(secrets: Arc<dyn Secrets>, name: impl Into<String>) -> Self {
        Self { secrets, name: name.into() }
    }

    /// A key that is known already.
    pub fn known(key: Secret) -> Self {
        Self { secrets: Arc::new(key), name: "known".to_owned() }
    }

    pub(crate) async fn resolve(&self) -> Result<Secret, ModelError> {
        let key = self.secrets.resolve(&self.name).await.map_err(|error| {
            let category = match &error {
                SecretError::Missing(_) | SecretError::Unset(_) | SecretError::Denied(_) => {
                    ModelErrorCategory::Authentication
                }
                SecretError::Unavailable(_) => ModelErrorCategory::Unavailable,
            };
            ModelError::new(category, format!("the key of the model cannot be had: {error}"))
        })?;
        let text = key.expose();
        if text.trim() == text && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Ok(key);
        }
        let message = "the key of the model begins or ends with a blank or a line feed, or has a character that no header may \
                       have; store it again without (`printf %s`, where `echo` adds a line feed)";
        Err(ModelError::new(ModelErrorCategory::Authentication, message))
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.name)
    }
}

/// Capabilities of a model and its server. What they cannot is refused, or done another way, before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Images in messages of users.
    pub images: bool,
    /// Output constrained to a schema by the server. Without it the schema is put into the instructions, or into a
    /// tool that must be called, and the output is checked all the same.
    pub structured_output: bool,
    /// Answers piece by piece.
    pub streaming: bool,
}

impl Capabilities {
    /// Everything.
    pub const ALL: Self = Self { images: true, structured_output: true, streaming: true };
    /// Everything but streaming: for wires with streams that the specification leaves to a later version.
    pub const ATOMIC: Self = Self { streaming: false, ..Self::ALL };
}

/// A model, and how to reach it.
#[derive(Clone, Debug)]
pub struct ProviderSetup {
    pub(crate) ports: ProviderPorts,
    pub(crate) model: String,
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<ApiKey>,
    pub(crate) key_header: Option<String>,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) hidden: Vec<Secret>,
    pub(crate) limits: FetchLimits,
    pub(crate) capabilities: Option<Capabilities>,
    pub(crate) system: Option<String>,
    pub(crate) returns_reasoning: bool,
}

impl ProviderSetup {
    /// The model of that name at the vendor's own address, without a key.
    pub fn new(ports: ProviderPorts, model: impl Into<String>) -> Self {
        Self {
            ports,
            model: model.into(),
            base_url: None,
            key: None,
            key_header: None,
            headers: Vec::new(),
            hidden: Vec::new(),
            limits: FetchLimits { idle: SILENCE, ..FetchLimits::default() },
            capabilities: None,
            system: None,
            returns_reasoning: false,
        }
    }

    /// Another server that speaks the wire, up to where the paths of the wire begin: `http://localhost:8000/v1`. A query goes with every
    /// request.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The key that is sent.
    #[must_use]
    pub fn key(mut self, key: ApiKey) -> Self {
        self.key = Some(key);
        self
    }

    /// The header in which the key is sent as it is, in the place of that of the wire: `api-key` for hosts of Azure. `name` is in lower
    /// case.
    #[must_use]
    pub fn key_header(mut self, name: impl Into<String>) -> Self {
        self.key_header = Some(name.into());
        self
    }

    /// A header of every request, beside those of the wire. `name` is in lower case.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Chat completions give an answer that called tools its reasoning back, as `reasoning_content`, or as `reasoning_details` where it
    /// came so. §8.1.1 says that none is sent, and servers of some models that think between calls refuse a conversation without it.
    #[must_use]
    pub fn returning_reasoning(self) -> Self {
        Self { returns_reasoning: true, ..self }
    }

    /// A text that no error tells, beside the key and the values of headers: a secret in the address, for example.
    #[must_use]
    pub fn hiding(mut self, secret: impl Into<Secret>) -> Self {
        self.hidden.push(secret.into());
        self
    }

    /// Limits on time and size of each request. Without them a model may be silent for as long as an attempt may take.
    #[must_use]
    pub fn limits(mut self, limits: FetchLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Capabilities of the model, where they are not those of the wire.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = Some(capabilities);
        self
    }

    /// The name of the provider in telemetry, where another speaks the wire: `vllm`, `lm_studio`.
    #[must_use]
    pub fn system(mut self, name: impl Into<String>) -> Self {
        self.system = Some(name.into());
        self
    }
}
