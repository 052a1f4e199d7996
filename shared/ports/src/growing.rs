use std::sync::Arc;

/// The lists of a state that only grow at their end, for a store that keeps such lists in pieces and writes only what
/// is new.
///
/// A hint and nothing more: without it, or when it does not fit what is saved, a store writes the whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowingLists {
    /// The fields of the outermost state to which the graph appends and does nothing else.
    pub fields: Vec<Arc<str>>,
    /// What the store told when it loaded states from which the saved one may have grown.
    pub stored: Vec<StoredList>,
}

/// A list that a store keeps in pieces. Made and read by that store alone; whoever loads a state gives it back with
/// the next commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredList {
    /// Where the pieces are.
    pub home: String,
    /// The field that they belong to.
    pub field: String,
    /// How many items the list had.
    pub count: usize,
    /// How many of its first items are in large pieces.
    pub merged: usize,
    /// Tells lists of other content apart.
    pub digest: String,
}
