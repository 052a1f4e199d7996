//! The operations of the protocol, through `Api::serve`: on memory, with time by hand and the graphs that ship. Every
//! answer is validated against the schema of its operation.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

#[path = "../../../shared/agent/tests/all/cast/mod.rs"]
mod cast;

mod accepts;
mod agent_quotas;
mod connectors;
mod deletion;
mod durable;
mod events;
mod extended;
mod followers;
mod forks;
mod growth;
mod idempotency;
mod identity;
mod images;
mod interruptions;
mod late;
mod noted_keys;
mod open;
mod overlaps;
mod parts;
mod queues;
mod quotas;
mod receipts;
mod receipts_kms;
mod recorded;
mod refusals;
mod replayed_agents;
mod replayed_doubts;
mod replayed_graphs;
mod replayed_summaries;
mod replayed_times;
mod replays;
mod reported;
mod resources;
mod sessions;
mod shared_streams;
mod tasks;
mod webhooks;
mod world;
