use async_trait::async_trait;
use jiff::Timestamp;

use crate::{InvocationId, StoreError};

/// Beginning of the names of notes of input that did not fit a pause.
const UNFIT: &str = "unfit/";

/// Name of the note that an input for the pause `generation` of the invocation `id` did not fit.
pub fn unfit_note(id: &InvocationId, generation: u64) -> String {
    format!("{UNFIT}{id}/{generation}")
}

/// The invocation of which the note `name` tells, if it is [one of input that did not fit](unfit_note).
pub fn invocation_of_note(name: &str) -> Option<InvocationId> {
    let (id, generation) = name.strip_prefix(UNFIT)?.rsplit_once('/')?;
    generation.parse::<u64>().is_ok().then(|| InvocationId::from(id))
}

/// Short texts under names: the progress of the lanes of a sweep, and messages that one process leaves for another.
#[async_trait]
pub trait Notes: Send + Sync {
    /// The text under `name`.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// Notes `text` under `name` instead of the text that was there, or nothing. It is kept until `until` at least, or
    /// for good.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the text may have been noted then.
    async fn keep_note(&self, name: &str, text: Option<&str>, until: Option<Timestamp>) -> Result<(), StoreError>;
}
