//! Identifiers: opaque strings of one kind each, sortable by the time of their making and safe in a URL.

use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::envelope::{Named, ResourcePointer};

/// The longest id that can name anything, in bytes. Longer ones name nothing.
pub const MAX_ID_BYTES: usize = 200;

/// Common operations of all kinds of ids.
pub trait Identifier: Named + From<String> + AsRef<str> {
    /// A new id: the word of the resource, an underscore, and a version 7 UUID of `at` and `random` in 26 characters
    /// of Crockford's base 32. Ids made later, by at least a millisecond, sort behind.
    fn generate(at: Timestamp, random: [u8; 10]) -> Self {
        Self::from(format!("{}_{}", Self::OBJECT, sortable(at, random)))
    }

    /// True if the id can name anything at all: 1 to [`MAX_ID_BYTES`] bytes that need no escape in a URL. Ids come from
    /// clients; one that is not well formed should be answered like one that is not there, without asking a store.
    fn is_well_formed(&self) -> bool {
        let text = self.as_ref();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
        (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(plain)
    }

    /// A pointer to the resource of this id.
    fn pointer(&self) -> ResourcePointer {
        ResourcePointer { object: Self::OBJECT.to_owned(), id: self.as_ref().to_owned() }
    }
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident $object:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps `value` verbatim.
            pub fn new(value: impl Into<String>) -> Self {
                Self(value.into())
            }

            /// The id as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Named for $name {
            const OBJECT: &'static str = $object;
        }

        impl Identifier for $name {}

        impl From<String> for $name {
            fn from(value: String) -> Self {
                Self(value)
            }
        }

        impl From<&str> for $name {
            fn from(value: &str) -> Self {
                Self(value.to_owned())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:?})", stringify!($name), self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string" })
            }
        }
    )*};
}

identifiers! {
    /// Names the agent card of a server.
    AgentCardId "agent_card";
    /// Names an artifact.
    ArtifactId "artifact";
    /// Names a branch.
    BranchId "branch";
    /// Names a connector.
    ConnectorId "connector";
    /// Names an event; see [`EventId::at`].
    EventId "event";
    /// Names a memory.
    MemoryId "memory";
    /// Names a message.
    MessageId "message";
    /// Names an outcome.
    OutcomeId "outcome";
    /// Names a request for a permission.
    PermissionRequestId "permission_request";
    /// Names a persona.
    PersonaId "persona";
    /// Names a quota.
    QuotaId "quota";
    /// Names a receipt.
    ReceiptId "receipt";
    /// Names a session.
    SessionId "session";
    /// Names a skill.
    SkillId "skill";
    /// Names a task.
    TaskId "task";
    /// Names a tool.
    ToolId "tool";
    /// Names a vault.
    VaultId "vault";
    /// Names a webhook of a session.
    WebhookId "webhook";
    /// Names a workspace.
    WorkspaceId "workspace";
}

impl EventId {
    /// The id of the event at `position` of the stream called `stream`. It holds both, so one event can be read by its
    /// id alone, and ids of one stream sort as their positions do.
    pub fn at(stream: &str, position: u64) -> Self {
        Self(placed(Self::OBJECT, stream, position))
    }

    /// The stream and the position that [`EventId::at`] put in. `None`: it is the id of no event.
    pub fn place(&self) -> Option<(&str, u64)> {
        place(Self::OBJECT, &self.0)
    }
}

impl MessageId {
    /// The id of the message that the event at `position` of the stream called `stream` holds.
    pub fn at(stream: &str, position: u64) -> Self {
        Self(placed(Self::OBJECT, stream, position))
    }

    /// The stream and the position of the event that holds the message. `None`: it is the id of no message.
    pub fn place(&self) -> Option<(&str, u64)> {
        place(Self::OBJECT, &self.0)
    }
}

impl ReceiptId {
    /// The id of the receipt that the event at `position` of the stream called `stream` issues.
    pub fn at(stream: &str, position: u64) -> Self {
        Self(placed(Self::OBJECT, stream, position))
    }

    /// The stream and the position of the event that issues the receipt. `None`: it is the id of no receipt of ours.
    pub fn place(&self) -> Option<(&str, u64)> {
        place(Self::OBJECT, &self.0)
    }
}

fn placed(word: &str, stream: &str, position: u64) -> String {
    format!("{word}_{stream}_{position:016x}")
}

/// Place that [`placed`] put into `id`.
fn place<'a>(word: &str, id: &'a str) -> Option<(&'a str, u64)> {
    let (stream, position) = id.strip_prefix(word)?.strip_prefix('_')?.rsplit_once('_')?;
    let written = position.len() == 16 && position.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    Some((stream, u64::from_str_radix(position, 16).ok().filter(|_| written && !stream.is_empty())?))
}

/// A version 7 UUID (RFC 9562) in Crockford's base 32: 26 characters that sort as the UUID does.
fn sortable(at: Timestamp, random: [u8; 10]) -> String {
    let [a, b, c @ ..] = random;
    let milliseconds = u64::try_from(at.as_millisecond()).unwrap_or_default();
    let high = (milliseconds << 16) | 0x7000 | u64::from(u16::from_be_bytes([a, b]) & 0x0fff);
    let low = (u64::from_be_bytes(c) >> 2) | (1 << 63);
    let uuid = (u128::from(high) << 64) | u128::from(low);
    let digit = |place: u32| char::from(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"[(uuid >> (place * 5)) as usize & 31]);
    (0..26).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(milliseconds).expect("a time")
    }

    #[test]
    fn ids_sort_by_time_and_differ_by_chance() {
        let early = TaskId::generate(at(1_777_000_000_000), [0xff; 10]);
        let late = TaskId::generate(at(1_777_000_000_001), [0; 10]);
        assert!(early < late, "{early} < {late}");
        assert_ne!(late, TaskId::generate(at(1_777_000_000_001), [1; 10]));
        assert_eq!(late.as_str().len(), "task_".len() + 26);
        assert!(late.is_well_formed());
    }

    #[test]
    fn the_characters_hold_a_version_7_uuid() {
        // The example of RFC 9562, A.6: 017F22E2-79B0-7CC3-98C4-DC0C0C07398F.
        let random = (0x98c4_dc0c_0c07_398f_u64 << 2).to_be_bytes();
        let mut all = [0x0c, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0];
        all[2..].copy_from_slice(&random);
        let text = sortable(at(0x017f_22e2_79b0), all);
        let value = text.chars().fold(0_u128, |value, digit| {
            value * 32 + "0123456789ABCDEFGHJKMNPQRSTVWXYZ".find(digit).expect("a digit") as u128
        });
        assert_eq!(format!("{value:032X}"), "017F22E279B07CC398C4DC0C0C07398F");
    }

    #[test]
    fn an_event_id_says_where_the_event_is() {
        let id = EventId::at("session_01J_x", 171);
        assert_eq!(id.place(), Some(("session_01J_x", 171)));
        assert!(id < EventId::at("session_01J_x", 4_096));
        assert!(id.is_well_formed());
        for foreign in ["", "event_", "event_s_1", "event__00000000000000ab", "event_s_00000000000000AB", "task_x"] {
            assert_eq!(EventId::new(foreign).place(), None, "{foreign}");
        }
        assert_eq!(MessageId::at("s", 3).place(), Some(("s", 3)));
        assert_eq!(MessageId::new(EventId::at("s", 3).as_str()).place(), None);
    }

    #[test]
    fn what_a_url_would_have_to_escape_names_nothing() {
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for odd in ["", "a b", "a/b", "a%2Fb", "\u{e9}", "a\nb", long.as_str()] {
            assert!(!SessionId::new(odd).is_well_formed(), "{odd:?}");
        }
    }
}
