//! JSON from outside, scanned before anything is made of it.
//!
//! A text of a few bytes can be nested so deeply that no reader can read it again, and one of a megabyte can become
//! hundreds of megabytes of values. So every text that comes from outside is scanned first, byte by byte and without
//! memory of its own, and refused where it is beyond a [`Bounds`]; a value that is a tree already is measured the same
//! way.
//!
//! | bounds | for |
//! |---|---|
//! | [`ENTRY`] | input: bodies, events, payloads of wake-ups, arguments of commands |
//! | [`STATE`] | a state, as nodes leave it: input, within lists and messages, gathered over many turns |
//! | [`STORED`] | output to a store: a state within its record |
//!
//! Each leaves room for the wrapping of the next, and the last for the deepest that can be read: a value that cannot be
//! decoded is not encoded.

mod distinct;
#[cfg(feature = "schema")]
mod form;
mod length;
mod made;
mod measure;
mod part;
mod references;
mod scan;
#[cfg(feature = "schema")]
mod schema;

use serde::de::DeserializeOwned;

pub use distinct::read_distinct;
#[cfg(feature = "schema")]
pub use form::{misfit, optional_defaults};
pub use length::length;
pub use made::Made;
pub use measure::{measure, measure_fields, measure_object, most_bytes};
pub use part::{Items, Part, fields_of};
pub use references::check_references;
pub use scan::scan;
#[cfg(feature = "schema")]
pub use schema::{Schema, Schemas};

/// An object of JSON.
pub type Map = serde_json::Map<String, serde_json::Value>;

/// Limits on the depth of JSON, and on its number of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most arrays and objects within one another.
    pub depth: usize,
    /// The most values, each array, object and scalar being one; names of fields are not counted.
    pub values: usize,
}

/// Bounds of input.
pub const ENTRY: Bounds = Bounds { depth: 64, values: 50_000 };
/// Bounds of the state of a graph.
pub const STATE: Bounds = Bounds { depth: 80, values: 500_000 };
/// Bounds of stored values. Readers give up behind 127 levels; a value that was read is wrapped again before it is
/// sent.
pub const STORED: Bounds = Bounds { depth: 100, values: usize::MAX };

/// What the names begin with that `serde_json` gives a meaning of its own. An object with one of them is another value once it was
/// kept and is read again, or cannot be read at all.
pub(crate) const TAKEN: &str = "$serde_json::private::";

/// Reason for which JSON is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// It is nested too deeply.
    #[error("the JSON is nested deeper than {0} levels; flatten it, or send the inner part as a string")]
    Depth(usize),
    /// It has too many values.
    #[error("the JSON has more than {0} values; send less at once, or a reference to the data")]
    Values(usize),
    /// An object has a name that could not be read again.
    #[error("names of JSON must not begin with `{taken}`: what is kept could not be read again", taken = TAKEN)]
    Name,
}

/// Error of reading a text.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is beyond the bounds.
    #[error(transparent)]
    Excess(#[from] Excess),
    /// It is no JSON, or not of the expected form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads `text`, unless it is beyond `bounds`: then nothing of it is made.
///
/// # Errors
/// [`ReadError`] for the violation.
pub fn read<T: DeserializeOwned>(text: &[u8], bounds: Bounds) -> Result<T, ReadError> {
    scan(text, bounds)?;
    Ok(serde_json::from_slice(text)?)
}
