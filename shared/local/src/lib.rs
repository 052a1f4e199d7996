//! The embedded default: everything that Dormouse needs of an account, in one process.

mod store;

pub use store::{EmbeddedDynamoDb, EmbeddedError, Place};
