//! State, its schema, and the reducers that merge updates into it (graph-engine §2).

mod declare;
mod memo;
mod reducer;
mod schema;
pub(crate) mod typed;
mod update;
mod value;

pub(crate) use reducer::shape;
pub(crate) use schema::MergeFailure;

pub use reducer::{KeyFn, ReduceFn, Reducer};
pub use schema::{Field, FieldType, StateSchema};
pub use typed::{FieldKey, FieldKeys, GraphState, IntoField, List, Record, View};
pub use update::{Untyped, Update};
pub use value::State;
