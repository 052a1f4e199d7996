//! The operations of the protocol: one table of everything that is known about them, and the way from a method and a
//! path to one of them.

mod route;
mod scope;
mod table;

use schemars::{JsonSchema, Schema, SchemaGenerator};

pub use route::{FoundOperation, Params};
pub use scope::Scope;
pub use table::Operation;

/// An HTTP method that an operation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates, or does something.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

impl Method {
    /// The method of this name, in capital letters.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete].into_iter().find(|method| method.as_str() == name)
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// True if it changes something, and so takes an `Idempotency-Key`.
    pub fn is_write(self) -> bool {
        match self {
            Self::Get => false,
            Self::Post | Self::Put | Self::Patch | Self::Delete => true,
        }
    }
}

/// Level of a server of which an operation is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Every server. More than the narrative asks of this level: also what clients of it cannot do without, such as
    /// workspaces, branches and the input that a task waits for.
    Core,
    /// One with the full set of resources.
    Extended,
    /// One that issues receipts.
    Receipts,
    /// One that replays.
    Replay,
    /// No level of the narrative: facts about one process.
    Host,
    /// None: an operation of ours that the contract does not have.
    Extension,
}

impl Level {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Extended => "extended",
            Self::Receipts => "receipts",
            Self::Replay => "replay",
            Self::Host => "host",
            Self::Extension => "extension",
        }
    }
}

/// Callers that may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// All callers; no key and no version header is needed.
    Public,
    /// Callers that sign what they send with a secret of what they send it to; no key and no version header is needed.
    Signed,
    /// Callers with a key.
    AnyKey,
    /// Callers with a key of this scope.
    Needs(Scope),
}

/// Amount that an operation gives at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Paging {
    /// All of it.
    Whole,
    /// A page: `limit`, `cursor`.
    Page,
    /// A range of events: `limit`, `after_event_id`.
    Range,
    /// Events as they come: `Last-Event-ID`, `after_event_id`.
    Stream,
}

impl Paging {
    /// The parameters of the query that it has.
    pub fn query(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Page => &["limit", "cursor"],
            Self::Range => &["after_event_id", "limit"],
            Self::Stream => &["after_event_id"],
        }
    }
}

/// Makes the schema of a type.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Body that an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// Nothing.
    None,
    /// Nothing or an object.
    Optional,
    /// An object.
    Required,
}

/// Output of an operation that succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// JSON, with this status.
    Json(u16),
    /// A stream of events.
    Stream,
    /// Bytes.
    Bytes,
    /// Nothing (204).
    Empty,
}

impl Output {
    /// The status of a success.
    pub fn status(self) -> u16 {
        match self {
            Self::Json(status) => status,
            Self::Stream | Self::Bytes => 200,
            Self::Empty => 204,
        }
    }
}

/// The schemas of what an operation takes and answers, where that is JSON. They are apart from its [`Spec`]: a program that
/// describes nothing has none of what makes them, which is much.
pub(crate) struct Schemas {
    /// Its body.
    pub(crate) input: Option<SchemaOf>,
    /// Its answer.
    pub(crate) output: Option<SchemaOf>,
}

/// Everything that is known about an operation but the schemas of its body and answer.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The name that clients generate code by.
    pub id: &'static str,
    /// Summary, in one sentence.
    pub summary: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path; `{name}` stands for one segment.
    pub path: &'static str,
    /// The group that it belongs to.
    pub tag: &'static str,
    /// Level of the servers that have to offer it.
    pub level: Level,
    /// Callers that may call it.
    pub access: Access,
    /// Amount that it gives at a time.
    pub paging: Paging,
    /// Further parameters of its query.
    pub query: &'static [&'static str],
    /// Its body.
    pub input: Input,
    /// Its answer.
    pub output: Output,
}

impl Spec {
    /// The parameters of its query.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.query.iter().chain(self.paging.query()).copied()
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}
