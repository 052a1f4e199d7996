//! Spans and log records of invocations (observability §3 to §7), on exporters in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod export;
mod logs;
mod metadata;
mod parts;
mod trees;
mod world;
