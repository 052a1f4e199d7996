//! State, its schema, and the reducers that merge updates into it (graph-engine §2).

mod reducer;
mod schema;
mod value;

pub(crate) use schema::{MergeFailure, decode};

pub use reducer::{KeyFn, ReduceFn, Reducer};
pub use schema::{Field, FieldType, Openness, StateSchema};
pub use value::{State, Update};
