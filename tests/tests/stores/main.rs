//! The store on an embedded database: what it writes and reads, what it costs, and what a fault leaves behind.

mod checkpoint_store;
mod embedded_store;
mod faults;
mod noted;
mod noted_apart;
mod noted_ends;
mod noted_steps;
mod partitions;
mod segments;
mod steps_under_faults;
mod store_agreement;
mod store_faults;
