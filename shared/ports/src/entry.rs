//! Entries that nodes record of their work, for the clients that follow a task.

use std::fmt;

use serde_json::Value;

use crate::{InvocationId, Map, limits};

/// Prefix of every kind of an author's own.
const VENDOR: &str = "vendor.";

/// A step of a node's work, as the clients of its task receive it: an event of the task, under its kind, with its
/// payload. Secrets and hidden reasoning are taken out of the payload before any client sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    /// Kind of the step.
    pub kind: EntryKind,
    /// Data of the step, as clients receive it.
    pub payload: Map,
    /// What a replay of the run needs to know beside that. It is stored with the entry, as it is, and no client receives
    /// it: only what is nowhere else belongs here.
    pub material: Map,
    /// What the step leaves that clients may fetch by itself.
    pub artifacts: Vec<StateArtifact>,
}

/// What a run leaves as an artifact of its task: too long to be told, or an image.
#[derive(Clone, Debug, PartialEq)]
pub struct StateArtifact {
    /// Where its content is.
    pub place: ArtifactPlace,
    /// Its media type.
    pub mime_type: String,
    /// Metadata of the artifact.
    pub metadata: Map,
}

/// Place of the content of a [`StateArtifact`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactPlace {
    /// A text in the outermost state, by its JSON pointer (RFC 6901). It stays there for the rest of the run.
    State(String),
    /// One of the [`Images`](crate::Images) of the run, by its id.
    Image(String),
}

impl JournalEntry {
    /// An entry of `kind` without a payload.
    pub fn new(kind: EntryKind) -> Self {
        Self { kind, payload: Map::new(), material: Map::new(), artifacts: Vec::new() }
    }

    /// The same, which leaves `artifacts`.
    #[must_use]
    pub fn leaving(mut self, artifacts: impl IntoIterator<Item = StateArtifact>) -> Self {
        self.artifacts.extend(artifacts);
        self
    }

    /// The same with `value` under `name` in its payload.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.payload.insert(name.into(), value.into());
        self
    }

    /// The same with `value` under `name` in its material.
    #[must_use]
    pub fn with_material(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.material.insert(name.into(), value.into());
        self
    }

    /// Number of bytes of JSON of its payload and its material.
    pub fn size(&self) -> usize {
        // JSON that was made of values always has a form.
        let length = |map: &Map| dormouse_json::length(map).unwrap_or(usize::MAX);
        let material = if self.material.is_empty() { 0 } else { length(&self.material) };
        length(&self.payload).saturating_add(material)
    }
}

/// Kind of a [`JournalEntry`]: the kinds of the public protocol that are an agent's to emit. All others (of tasks,
/// sessions, messages, artifacts, receipts) are emitted by the server itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A redacted summary of reasoning.
    ReasoningSummary,
    /// A model asked for a tool.
    ToolUse,
    /// The agent got a tool's result.
    ToolResult,
    /// The agent called a tool over MCP.
    McpToolUse,
    /// Work was handed on.
    Handoff,
    /// The run read a memory.
    MemoryRead,
    /// The run wrote a memory.
    MemoryWrite,
    /// A span began.
    SpanStarted,
    /// A span went on.
    SpanUpdated,
    /// A span ended well.
    SpanCompleted,
    /// A span ended badly.
    SpanFailed,
    /// A tool was asked for.
    ToolRequested,
    /// A tool needs an approval.
    ToolApprovalRequired,
    /// The approval was given.
    ToolApproved,
    /// The approval was not given.
    ToolDenied,
    /// A tool ended well.
    ToolCompleted,
    /// A tool ended badly.
    ToolFailed,
    /// A kind of the author's own.
    Vendor(VendorKind),
}

impl EntryKind {
    /// All kinds that the protocol names.
    pub const NAMED: [Self; 17] = [
        Self::ReasoningSummary,
        Self::ToolUse,
        Self::ToolResult,
        Self::McpToolUse,
        Self::Handoff,
        Self::MemoryRead,
        Self::MemoryWrite,
        Self::SpanStarted,
        Self::SpanUpdated,
        Self::SpanCompleted,
        Self::SpanFailed,
        Self::ToolRequested,
        Self::ToolApprovalRequired,
        Self::ToolApproved,
        Self::ToolDenied,
        Self::ToolCompleted,
        Self::ToolFailed,
    ];

    /// The kind `vendor.{name}`. The name is words of lower-case letters, digits and `_`, with dots between them:
    /// `acme.invoice_checked`.
    ///
    /// # Errors
    /// When the name has another form, or the kind is longer than [`limits::ENTRY_KIND`] bytes.
    pub fn vendor(name: &str) -> Result<Self, InvalidEntry> {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
        };
        let kind = format!("{VENDOR}{name}");
        match kind.len() <= limits::ENTRY_KIND && name.split('.').all(is_word) {
            true => Ok(Self::Vendor(VendorKind(kind))),
            false => Err(InvalidEntry::Kind(name.to_owned())),
        }
    }

    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ReasoningSummary => "agent.reasoning_summary",
            Self::ToolUse => "agent.tool_use",
            Self::ToolResult => "agent.tool_result",
            Self::McpToolUse => "agent.mcp_tool_use",
            Self::Handoff => "agent.handoff",
            Self::MemoryRead => "agent.memory_read",
            Self::MemoryWrite => "agent.memory_write",
            Self::SpanStarted => "span.started",
            Self::SpanUpdated => "span.updated",
            Self::SpanCompleted => "span.completed",
            Self::SpanFailed => "span.failed",
            Self::ToolRequested => "tool.requested",
            Self::ToolApprovalRequired => "tool.approval_required",
            Self::ToolApproved => "tool.approved",
            Self::ToolDenied => "tool.denied",
            Self::ToolCompleted => "tool.completed",
            Self::ToolFailed => "tool.failed",
            Self::Vendor(VendorKind(kind)) => kind,
        }
    }
}

impl fmt::Display for EntryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A kind of an author's own; made by [`EntryKind::vendor`] only, so that it always has the right form.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VendorKind(String);

/// Reason for which an entry cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    /// The name of a kind has the wrong form.
    #[error(
        "`{0}` cannot be a kind of entry: a name is words of a-z, 0-9 and _ with dots between them, of {most} bytes at \
         most",
        most = limits::ENTRY_KIND - VENDOR.len()
    )]
    Kind(String),
    /// Its payload is nested too deeply, or has too many values.
    #[error("the payload of the entry `{kind}` cannot be kept: {excess}")]
    TooComplex {
        /// The kind of the entry.
        kind: String,
        /// The exceeded limit.
        excess: dormouse_json::Excess,
    },
    /// Its payload is too large.
    #[error(
        "the payload of the entry `{kind}` has {size} bytes of JSON; the limit is {most}: record a reference to the data",
        most = limits::ENTRY
    )]
    TooLarge {
        /// The kind of the entry.
        kind: String,
        /// Its number of bytes.
        size: usize,
    },
    /// There would be too many in one commit.
    #[error(
        "{0} entries would be committed at once; the limit is {most}: record fewer, or save the session in between",
        most = limits::ENTRIES
    )]
    TooMany(usize),
    /// Together they would be too large for one commit.
    #[error(
        "entries of {0} bytes of JSON would be committed at once; the limit is {most}: record less, or save the session \
         in between",
        most = limits::ENTRIES_BYTES
    )]
    TooMuch(usize),
}

/// The entries that the nodes of one invocation have recorded since its last commit, in order. They have no place in a
/// stream yet: a store that publishes tasks gives them one, in the same transaction, behind everything that others have
/// published of the task meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEntries {
    /// Invocation of the nodes.
    pub invocation_id: InvocationId,
    /// One or more.
    pub entries: Vec<JournalEntry>,
}

impl JournalEntry {
    /// Checks that `entry` may be recorded where those of `before` have been.
    ///
    /// # Errors
    /// [`InvalidEntry`] for the limit that it exceeds.
    pub fn admit<'e>(before: impl IntoIterator<Item = &'e Self>, entry: &'e Self) -> Result<(), InvalidEntry> {
        let kind = entry.kind.to_string();
        let size = entry.size();
        if size > limits::ENTRY {
            return Err(InvalidEntry::TooLarge { kind, size });
        }
        for part in [&entry.payload, &entry.material] {
            dormouse_json::measure_object(part, dormouse_json::ENTRY)
                .map_err(|excess| InvalidEntry::TooComplex { kind: kind.clone(), excess })?;
        }
        Self::check(before.into_iter().chain([entry]))
    }

    /// Checks that `entries` may be committed at once.
    ///
    /// # Errors
    /// [`InvalidEntry`] for the limit that they exceed.
    pub fn check<'e>(entries: impl IntoIterator<Item = &'e Self>) -> Result<(), InvalidEntry> {
        let mut count = 0;
        let mut bytes = 0_usize;
        for entry in entries {
            count += 1;
            bytes = bytes.saturating_add(entry.size());
        }
        if count > limits::ENTRIES {
            return Err(InvalidEntry::TooMany(count));
        }
        if bytes > limits::ENTRIES_BYTES {
            return Err(InvalidEntry::TooMuch(bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted() -> JournalEntry {
        JournalEntry::new(EntryKind::vendor("acme.noted").expect("a kind"))
    }

    #[test]
    fn kinds_of_authors_have_names_of_one_form() {
        for name in ["noted", "acme.invoice_checked", "a1.b2"] {
            assert_eq!(EntryKind::vendor(name).expect("a kind").as_str(), format!("vendor.{name}"));
        }
        let longest = "x".repeat(limits::ENTRY_KIND - VENDOR.len());
        assert!(EntryKind::vendor(&longest).is_ok());
        for name in ["", ".", "a.", ".a", "a..b", "A", "a b", "ä", "a-b", &format!("{longest}x")] {
            assert_eq!(EntryKind::vendor(name), Err(InvalidEntry::Kind(name.to_owned())));
        }
    }

    #[test]
    fn an_entry_is_refused_that_alone_is_too_large() {
        let fits = noted().with("text", "x".repeat(limits::ENTRY - 11));
        assert_eq!(fits.size(), limits::ENTRY);
        assert_eq!(JournalEntry::admit([], &fits), Ok(()));
        let large = noted().with("text", "x".repeat(limits::ENTRY - 10));
        let refused = JournalEntry::admit([], &large);
        assert_eq!(
            refused,
            Err(InvalidEntry::TooLarge { kind: "vendor.acme.noted".to_owned(), size: limits::ENTRY + 1 })
        );
        let deep = (0..70).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let deep = noted().with("deep", deep);
        let refused = JournalEntry::admit([], &deep);
        assert!(matches!(refused, Err(InvalidEntry::TooComplex { .. })), "{refused:?}");
    }

    #[test]
    fn entries_are_refused_that_are_too_many_or_too_large_together() {
        let before = vec![noted(); limits::ENTRIES];
        let small = noted();
        assert_eq!(JournalEntry::admit(&before[1..], &small), Ok(()));
        assert_eq!(JournalEntry::admit(&before, &small), Err(InvalidEntry::TooMany(limits::ENTRIES + 1)));
        let large = noted().with("text", "x".repeat(limits::ENTRY - 11));
        let most = limits::ENTRIES_BYTES / limits::ENTRY;
        assert_eq!(JournalEntry::check(&vec![large.clone(); most]), Ok(()));
        let before = vec![large; most];
        let refused = JournalEntry::admit(&before, &small);
        assert_eq!(refused, Err(InvalidEntry::TooMuch(limits::ENTRIES_BYTES + 2)));
    }
}
