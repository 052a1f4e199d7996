//! Agents in memory: their definitions, and their runs with scripted models and tools.

mod agents;
mod agents_crashes;
mod answers;
mod away;
mod background;
mod bundle;
mod cast;
mod context;
mod copies;
mod crashes;
mod guest;
mod hooks;
mod hooks_ends;
mod images;
mod pending;
mod questions;
mod rests;
mod runs;
mod told;
mod workspace;
mod workspace_approvals;
mod workspace_definitions;
mod workspace_files;
mod workspace_tools;
