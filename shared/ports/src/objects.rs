//! A store of whole objects, for what is written once and read often.

use std::fmt;

use async_trait::async_trait;

/// Version of an object, as the store names it: it changes with the content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectVersion(String);

impl ObjectVersion {
    /// The version that the store calls `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name that the store gives it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its content.
    pub bytes: Vec<u8>,
    /// The version that was read.
    pub version: ObjectVersion,
}

/// Condition for an object to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectCondition {
    /// There is none of that key.
    Absent,
    /// It has this version still.
    Unchanged(ObjectVersion),
}

/// Error of reading or writing an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// The condition of a write does not hold: nothing was written.
    #[error("{0} was changed by somebody else, or is there already")]
    Conflict(String),
    /// The object is above the limit of the request, and was not read whole.
    #[error("{key} is larger than {limit} bytes")]
    TooLarge {
        /// Its key.
        key: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A later attempt may succeed. A write may have happened all the same.
    #[error("the object store does not answer: {0}")]
    Transient(String),
    /// An operator has to grant access, or to make the place, first.
    #[error("the object store refuses access: {0}")]
    Denied(String),
    /// The store will never do what it was asked.
    #[error("the object store refuses the request: {0}")]
    Rejected(String),
}

/// Port to a store of objects by keys. Reads see what was written before them.
///
/// A key has parts of letters, digits, `-`, `_` and `.` with `/` between them.
#[async_trait]
pub trait Objects: fmt::Debug + Send + Sync {
    /// The object at `key`, of at most `limit` bytes; `None` where there is none.
    ///
    /// # Errors
    /// [`ObjectError`], but never a conflict.
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError>;

    /// Writes `bytes` to `key` if `condition` holds. Of several writers at the same time one succeeds.
    ///
    /// # Errors
    /// [`ObjectError`]; a conflict where the condition does not hold.
    async fn put(&self, key: &str, bytes: Vec<u8>, condition: ObjectCondition) -> Result<(), ObjectError>;
}
