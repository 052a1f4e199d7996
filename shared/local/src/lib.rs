//! The embedded default: everything that Dormouse needs of an account, in one process.
//!
//! The routes, the harness, the graphs and the store's adapter are those that run on AWS. What AWS itself does there is
//! done here: an HTTP gateway in place of API Gateway, a DynamoDB-compatible store asked by the real SDK without a
//! socket, and a bus and a scheduler behind the same ports as EventBridge and its Scheduler.
//!
//! This crate is a composition root: it may import everything of ours except the functions.
//!
//! # Invariants
//! - What was acknowledged survives `kill -9`: state by the store's commit; events and timers by a file that is on the
//!   disk before the answer and is removed after the delivery.
//! - Delivery is at least once, in any order, with retries, as on AWS. Nothing here deduplicates: that is the store's.
//! - One data folder belongs to one process at a time.
//! - The gateway listens on 127.0.0.1 only, and serves requests for names of this machine only.

#![warn(missing_docs)]

mod bus;
mod dev;
mod dispatcher;
mod end;
mod folder;
mod folder_objects;
mod functions;
mod gate;
mod gateway;
mod hosts;
mod inherited;
pub mod keys;
mod lane;
mod leases;
mod listen;
mod locks;
mod machine;
mod opened;
mod patient;
mod pattern;
mod program;
mod receipts;
mod rules;
mod scheduler;
mod scripted_model;
mod seat;
mod served;
mod shutdown;
mod sign_in;
mod socket;
mod spool;
mod store;
mod subscriptions;
mod sweeper;
mod tour;
mod under_way;
mod vault;
mod workspace_folder;

pub use dev::{DevError, DevOptions, FOLDER, ServedAt, TABLE, dev, engine, serve};
pub use end::left;
pub use folder::FolderError;
pub use folder_objects::FolderObjects;
pub use hosts::is_loopback;
pub use locks::{LockError, hold_lock, lock_of};
pub use machine::{MachineError, MachineOptions, MachineRole, serve_machine};
pub use opened::{OpenError, OpenedFolder, Purpose, address_of, development_key, follower_key, own_address};
pub use program::program;
pub use receipts::{RECEIPT_RING, change_receipt_ring, receipt_ring, seed};
pub use scripted_model::{Respond, ScriptedFault, ScriptedJob, ScriptedModel, ScriptedReply, ScriptedTurn};
pub use served::ServedBus;
pub use store::{Door, EmbeddedDynamoDb, EmbeddedError, StoreLocation, through_door};
pub use vault::{SealedVault, VaultError};
pub use workspace_folder::WorkspaceFolder;
