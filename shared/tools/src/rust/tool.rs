use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::Map;
use dormouse_ports::tool::{ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::schema;

type RunTool = dyn Fn(&ToolCall) -> BoxFuture<'static, Result<ToolReply, ToolError>> + Send + Sync;

/// A tool that is declared in Rust.
///
/// ```
/// use dormouse_tools::schemars::JsonSchema;
/// use dormouse_tools::{RustTool, RustTools};
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     /// What is added up.
///     numbers: Vec<f64>,
/// }
///
/// let sum = RustTool::new("sum")
///     .describe("Adds numbers")
///     .read_only()
///     .run(async |input: Sum| Ok::<_, String>(input.numbers.iter().sum::<f64>()));
/// let tools = RustTools::new([sum])?;
/// # Ok::<(), dormouse_tools::RustToolsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RustTool(ToolSpec);

/// A tool with the function that it runs.
#[derive(Clone)]
pub struct RunnableTool {
    spec: ToolSpec,
    run: Arc<RunTool>,
}

impl RustTool {
    /// A tool called `name`. Until more is said of it a call must not run twice.
    pub fn new(name: impl Into<String>) -> Self {
        Self(ToolSpec::new(name))
    }

    /// Tells the model what it does and when to call it.
    #[must_use]
    pub fn describe(mut self, description: impl Into<String>) -> Self {
        self.0.description = description.into();
        self
    }

    /// Its name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.0.title = Some(title.into());
        self
    }

    /// It changes nothing: a call may run again.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.0.annotations.read_only = Some(true);
        self.judged()
    }

    /// A second call with the same arguments changes nothing more: a call may run again.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.0.annotations.idempotent = Some(true);
        self.judged()
    }

    /// It may delete or overwrite.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.0.annotations.destructive = Some(true);
        self
    }

    /// The most time that one call may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout);
        self
    }

    /// Promises that every success is a `T`.
    #[must_use]
    pub fn returns<T: JsonSchema>(mut self) -> Self {
        self.0.output_schema = Some(schema::of::<T>());
        self
    }

    /// The tool that runs `function`. Its input is what the model gives; the schema is made from the type. What it
    /// returns is shown to the model, text as it stands and everything else as JSON; an error is shown as a failure.
    pub fn run<I, T, E, F, Fut>(self, function: F) -> RunnableTool
    where
        I: DeserializeOwned + JsonSchema,
        T: Serialize + 'static,
        E: Display + 'static,
        F: Fn(I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        self.reply(move |input: I, _| function(input).map(outcome))
    }

    /// The tool that runs `function` with the call itself in hand, and may answer later or ask a person: with
    /// [`ToolCall::idempotency_key`] and [`ToolCall::callback`] a job is begun once, and says itself when it is done.
    pub fn reply<I, F, Fut>(mut self, function: F) -> RunnableTool
    where
        I: DeserializeOwned + JsonSchema,
        F: Fn(I, ToolCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolReply, ToolError>> + Send + 'static,
    {
        self.0.input_schema = schema::of::<I>();
        let run = move |call: &ToolCall| match input(&call.arguments) {
            Ok(input) => function(input, call.clone()).boxed(),
            Err(error) => futures::future::ready(Err(error)).boxed(),
        };
        RunnableTool { spec: self.0, run: Arc::new(run) }
    }

    fn judged(mut self) -> Self {
        self.0.effect = self.0.annotations.effect();
        self
    }
}

impl RunnableTool {
    /// Specification of the tool that is offered.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    pub(super) async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        (self.run)(call).await
    }
}

impl fmt::Debug for RunnableTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnableTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

fn input<I: DeserializeOwned>(arguments: &Map) -> Result<I, ToolError> {
    serde_path_to_error::deserialize(Value::Object(arguments.clone())).map_err(|error| {
        let message = match error.path().to_string() {
            path if path == "." => error.inner().to_string(),
            path => format!("{path}: {}", error.inner()),
        };
        ToolError::new(ToolErrorKind::InvalidArguments, message)
    })
}

fn outcome<T: Serialize, E: Display>(result: Result<T, E>) -> Result<ToolReply, ToolError> {
    let output = match result {
        Ok(value) => match serde_json::to_value(value) {
            Ok(Value::String(text)) => ToolOutput::text(text),
            Ok(value) => ToolOutput::value(value),
            Err(error) => {
                return Err(ToolError::permanent(format!("what the tool returned is no JSON: {error}")).maybe_done());
            }
        },
        Err(error) => ToolOutput::error(error.to_string()),
    };
    Ok(ToolReply::Done(output))
}
