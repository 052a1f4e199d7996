//! Agents that are declared in files, think with models, act with tools, and sleep while nothing is to be done.
//!
//! A [`workspace`] is a folder of Markdown and YAML. [`load`](workspace::load) makes definitions of it, and a list of
//! everything that is wrong; [`catalog`] says what can be used. A [`bundle`] is a workspace as it is published.
//!
//! The crate imports the engine and the ports, and must not know AWS, HTTP, files, processes, any async runtime, the
//! clock, the environment or randomness; a clippy ban and a test keep it so.
//!
//! # Invariants
//! - Loading is total: one bad definition disables that definition, never the workspace.
//! - What cannot be read never widens what an agent may do.
//! - A reference to the environment or a secret is looked up when it is used; no value of one is kept or shown.

#![warn(missing_docs)]

pub mod bundle;
mod catalog;
pub mod graph;
mod memory;
mod names;
mod skills;
mod template;
pub mod workspace;

pub use catalog::{Catalog, CatalogEntry, catalog};
pub use memory::SessionMemory;
pub use skills::SkillTools;
pub use template::{TemplateError, TemplateFiles, Templates};
