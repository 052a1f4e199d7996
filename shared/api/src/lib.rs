//! Serves the Harn Agents Protocol: calls in, answers and event streams out, over the harness and its store.
//!
//! A task is an invocation, the input it waits for is a signal, and every event is written in the transaction of the
//! change that it reports: by [`Api`] where a client changes something, by [`RecordingStore`] where a turn does. The
//! crate knows no HTTP: its server makes a [`Call`] of a request, once that is found to be in order, and gives it to
//! [`Operations`] or [`Streams`].
//!
//! # Invariants
//! - What belongs to a session is written together with the session's document, on the condition that no other writer
//!   has written it since it was read. So positions and sequences have no gaps, and a refusal has seen what is true.
//! - What a tenant's key cannot reach is not there: 404.
//! - A request that is refused has written nothing.

#![warn(missing_docs)]

mod agents;
mod answers;
mod api;
mod artifacts;
mod audit;
mod branches;
mod broken_off;
mod call;
mod change;
mod connectors;
mod conversation;
mod delegated;
mod deletion;
mod documents;
mod ending;
mod erasure;
mod events;
mod feed;
mod files;
mod idempotency;
pub mod identity;
mod ids;
mod images;
pub mod keys;
mod lists;
mod memories;
mod messages;
mod operations;
mod outcomes;
mod page;
mod permissions;
mod personas;
mod queue;
mod quotas;
mod race;
mod rates;
mod reads;
mod receipts;
mod recent;
mod recorded_outside;
mod recording;
mod recording_engine;
mod refusal;
mod remembered;
mod replay;
mod rests;
mod runtime;
mod seats;
mod sessions;
mod signature;
mod skills;
mod stored_files;
mod stream;
mod tasks;
mod templates;
mod transcript;
mod vaults;
mod webhooks;
mod workspaces;

pub use agents::{
    Agent, AgentMeans, AgentSource, Agents, AgentsError, CatalogLine, CompiledAgents, NotKept, Outside, OwnAgents,
    WorkspaceAgents,
};
pub use answers::{answer_payload, asks_person};
pub use api::{Api, ApiParts};
pub use audit::{AuditEntry, AuditQuery, BegunEntry, Deed, Principal, Proof, audit_page};
pub use call::{Actor, Call, CallAnswer};
pub use connectors::ReceivedDelivery;
pub use deletion::shutting;
pub use erasure::{Erasure, Forgotten};
pub use events::first_event_since;
pub use images::StoredImages;
pub use keys::{AccessPolicy, HolderError, Keys, Writes};
pub use operations::{Operations, is_offered};
pub use personas::{PersonaSpec, Personas, catalog_of};
pub use queue::queued_behind;
pub use race::Race;
pub use rates::{RateLimits, Standing, Taken};
pub use reads::Reads;
pub use receipts::Receipts;
pub use recording::RecordingStore;
pub use recording_engine::RecordingEngine;
pub use replay::PASSING_FIELDS;
pub use runtime::{Abilities, ToolInfo};
pub use seats::{SeatLimits, Seats};
pub use signature::{SignatureScheme, SignedBody, standard_signature};
pub use stored_files::{FilesOf, WorkspaceFiles};
pub use stream::{
    AppendNotifier, AppendSignal, LiveText, StreamItem, StreamLimits, StreamOptions, StreamSeats, Streams, TextDelta,
};
pub use templates::{TemplateRefusal, WorkspaceTemplates};
pub use webhooks::{DELIVERY_PREFIX, WEBHOOK_GRAPH, WebhookKeys, WebhookParts, a2a_state, a2a_status, webhook_graph};
