//! The engine on ports in memory: what authors of graphs rely on.

mod checkpoints;
mod concurrent;
mod contention;
mod hearing;
mod invocations;
mod middleware;
mod mistakes;
mod noted;
mod properties;
mod recorded;
mod stage;
mod waits;
