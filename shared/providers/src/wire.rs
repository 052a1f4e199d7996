//! What a wire is: a translation, both ways, and nothing else.

use dormouse_ports::model::{Block, CompletionRequest, DeltaKind, FinishReason, ModelError, ModelErrorCategory, Usage};
use dormouse_ports::{FetchRequest, Map, Method, Secret};
use serde_json::Value;

use crate::frames::Framing;
use crate::ids::IdRule;
use crate::setup::Capabilities;

/// A request in the words of a wire.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// Appended to the base address.
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// An answer, as far as it can be read, before it is judged.
#[derive(Debug)]
pub(crate) struct ReadAnswer {
    /// Text and reasoning in order.
    pub(crate) blocks: Vec<Block>,
    pub(crate) calls: Vec<Called>,
    pub(crate) finish: FinishReason,
    pub(crate) usage: Usage,
}

impl ReadAnswer {
    /// True if it ended in an error before anything came of it that somebody would pay for.
    pub(crate) fn is_nothing(&self) -> bool {
        let is_counted =
            [self.usage.prompt_tokens, self.usage.completion_tokens].iter().flatten().any(|count| *count > 0);
        self.finish == FinishReason::Error && self.blocks.is_empty() && self.calls.is_empty() && !is_counted
    }
}

/// A call of a tool as the provider wrote it.
#[derive(Debug)]
pub(crate) struct Called {
    /// Empty where it has none.
    pub(crate) id: String,
    pub(crate) name: String,
    /// Or why they cannot be read.
    pub(crate) arguments: Result<Map, String>,
    pub(crate) signature: Option<String>,
}

/// An answer that has not the form of its wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl Malformed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Meaning of an answer with an error status, as a wire reads it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) category: ModelErrorCategory,
    /// The provider's own words, if it has any.
    pub(crate) message: Option<String>,
}

/// An answer with an error status, as a wire looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorAnswer<'a> {
    pub(crate) status: u16,
    /// `Null` if it is no JSON.
    pub(crate) body: &'a Value,
    /// Kind of error in a header, as AWS has it; empty without one.
    pub(crate) kind: &'a str,
    /// The request had images.
    pub(crate) has_images: bool,
}

/// Puts an answer together that comes in pieces.
pub(crate) trait Assembler: Send {
    /// Takes the next piece and passes on what of it is for people.
    fn take(&mut self, name: &str, data: Value, emit: &mut Emit<'_>) -> Result<StreamProgress, StreamFault>;

    /// The answer in the form that it has in one piece. `failed`: the provider reported that error on the way.
    fn whole(self: Box<Self>, failed: Option<Value>) -> Value;

    /// True once something of the answer has arrived.
    fn has_begun(&self) -> bool;

    /// True once the provider has said why the answer ended.
    fn is_complete(&self) -> bool;
}

pub(crate) type Emit<'a> = dyn FnMut(DeltaKind, &str) + Send + 'a;

/// Tells whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    More,
    Done,
}

/// Reason why a stream ends early.
#[derive(Debug)]
pub(crate) enum StreamFault {
    /// The provider reports an error.
    Reported(Value),
    /// A piece makes no sense.
    Malformed(Malformed),
}

/// A translation between the values of the port and the words of a vendor.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Name of the vendor in telemetry.
    fn system(&self) -> &'static str;

    /// Name of the origin of its reasoning.
    fn origin(&self) -> &'static str {
        self.system()
    }

    /// Capabilities of the wire.
    fn capabilities(&self) -> Capabilities;

    /// The vendor's address.
    fn base(&self) -> String;

    /// Makes the address usable that a caller has set.
    fn adjust_base(&self, base: String) -> String {
        base
    }

    /// True if a tool can stand in for a schema.
    fn coerces(&self) -> bool {
        false
    }

    /// Ids of calls that it takes.
    fn ids(&self) -> IdRule {
        IdRule::ANY
    }

    /// Adds the key, and what else each request needs.
    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest;

    /// Translates `request`, which has been checked, for `model`.
    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError>;

    /// Translates an answer in one piece.
    fn decode(&self, body: &Value) -> Result<ReadAnswer, Malformed>;

    /// Names an error.
    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal;

    /// Division of an answer into pieces.
    fn framing(&self) -> Framing {
        Framing::Events
    }

    /// Puts the pieces of an answer together.
    fn assembler(&self) -> Box<dyn Assembler>;

    /// The request that finds out whether `model` is there: method and path, or a whole address.
    fn probe(&self, model: &str) -> (Method, String);

    /// What its answer, of status 200, says about `model`.
    fn judge_probe(&self, model: &str, body: &Value) -> Result<(), ModelError>;
}

/// True for an error that does not say what event it is, as gateways write it into the stream of any wire.
pub(crate) fn is_bare_error(data: &Value) -> bool {
    data.get("type").is_none() && data.get("error").is_some_and(|error| !error.is_null())
}

/// `name` as one segment of a path.
pub(crate) fn segment(name: &str) -> String {
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    percent_encoding::utf8_percent_encode(name, PLAIN).to_string()
}
