//! The routes and triggers that every function serves, on ports in memory: what is answered, and what is written.

mod access;
mod answers;
mod cancellations;
mod document;
mod late;
mod long;
mod parts;
mod refusals;
mod signals;
mod triggers;
mod turns;
mod world;
