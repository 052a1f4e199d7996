//! Middleware, cause chains, events and metadata: what application authors build on (pipeline-utilities §2 to §6,
//! graph-engine §6, observability §3.4).

mod calls;
mod cast;
mod cause;
mod drain;
mod events;
mod isolation;
mod metadata;
mod parts;
mod retry;
mod timing;
