//! Graphs: built by name, compiled once, immutable and shared afterwards (graph-engine §2).

mod builder;
mod compile;
mod compiled;
mod migrations;
mod session;
mod subgraph;
mod typed;

pub use builder::GraphBuilder;
pub use compiled::CompiledGraph;
pub(crate) use compiled::{CompiledNode, Edge, Work};
pub(crate) use migrations::Migrated;
pub use migrations::{Migrate, Migrations};
pub use session::{SessionConcurrency, SessionPolicy};
pub use subgraph::Projection;
pub use typed::TypedGraph;
