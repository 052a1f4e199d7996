use std::time::Duration;

use dormouse_ports::tool::{Effect, ToolAnnotations, ToolSpec, is_header_of_http_tool};
use dormouse_ports::{Map, Method, Template};

use crate::names;

/// The time that a call may take where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that may come back where nothing else is said.
const MOST_BYTES: usize = 4 << 20;

/// A tool that is one HTTP request.
///
/// `{name}` in its address stands for the argument of that name. The other arguments are the query of a GET and a
/// DELETE, and the JSON body of everything else. What a person should decide about is told by the
/// [effect](Self::effect): a GET is safe, everything else manual, until it is said otherwise.
#[derive(Clone, Debug)]
pub struct HttpTool {
    pub(super) spec: ToolSpec,
    pub(super) method: Method,
    pub(super) url: Template,
    pub(super) headers: Vec<(String, Template)>,
    pub(super) most_bytes: usize,
}

/// Error of a declaration that makes no tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the HTTP tool `{name}` cannot be used: {message}")]
pub struct HttpToolError {
    /// Name of the tool.
    pub name: String,
    /// Problem, and what to do about it.
    pub message: String,
}

impl HttpTool {
    /// A tool that takes any object and sends it to `url`.
    ///
    /// # Errors
    /// [`HttpToolError`] for a name that no model can call, and for an address of which an argument could choose the
    /// host.
    pub fn new(name: impl Into<String>, method: Method, url: Template) -> Result<Self, HttpToolError> {
        let mut spec = ToolSpec::new(name);
        spec.timeout = Some(TIMEOUT);
        if method == Method::Get {
            spec.annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
            spec.effect = Effect::Safe;
        }
        let tool = Self { spec, method, url, headers: Vec::new(), most_bytes: MOST_BYTES };
        if let Err(message) = names::check(&tool.spec.name) {
            return Err(tool.wrong(message));
        }
        match tool.url.chooses_host() {
            true => Err(tool.wrong("an argument stands in the host of its address; write the host there")),
            false => Ok(tool),
        }
    }

    /// Tells the model what it does and when to call it.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.spec.description = description.into();
        self
    }

    /// JSON Schema of its arguments.
    ///
    /// # Errors
    /// [`HttpToolError`] where its type is not `object`.
    pub fn input_schema(mut self, schema: Map) -> Result<Self, HttpToolError> {
        if schema.get("type").and_then(|kind| kind.as_str()) != Some("object") {
            return Err(self.wrong("the type of its `input_schema` is not `object`; set `type: object`"));
        }
        self.spec.input_schema = schema;
        Ok(self)
    }

    /// Adds a header.
    ///
    /// # Errors
    /// [`HttpToolError`] for a header that is set for each call, or is no header.
    pub fn header(mut self, name: &str, value: Template) -> Result<Self, HttpToolError> {
        let name = name.to_ascii_lowercase();
        if !is_header_of_http_tool(&name) {
            return Err(self.wrong(format!("the header `{name}` cannot be set; remove it")));
        }
        self.headers.push((name, value));
        Ok(self)
    }

    /// Sets the effect of a call, which says if it may run again when it is not known if it ran.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.spec.effect = effect;
        self
    }

    /// The most time that one call may take, from the request to the last byte of the answer: 30 s where nothing is
    /// said.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.spec.timeout = Some(timeout);
        self
    }

    /// The most bytes of an answer: 4 MiB where nothing is said.
    #[must_use]
    pub fn most_bytes(mut self, bytes: usize) -> Self {
        self.most_bytes = bytes;
        self
    }

    fn wrong(&self, message: impl Into<String>) -> HttpToolError {
        HttpToolError { name: self.spec.name.clone(), message: message.into() }
    }
}
