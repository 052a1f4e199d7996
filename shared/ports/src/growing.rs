use std::sync::Arc;

/// The lists of a state that only grow at their end, for a store that keeps such lists in pieces and writes only the
/// new items.
///
/// A hint and nothing more: without it, or when it does not fit the saved state, a store writes the whole state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowingLists {
    /// The fields of the outermost state to which the graph appends and does nothing else.
    pub fields: Vec<Arc<str>>,
    /// The lists that the store returned when it loaded states from which the saved one may have grown.
    pub stored: Vec<StoredList>,
}

/// A list that a store keeps in pieces. Made and read by that store alone; a caller that loads a state gives it back
/// with the next commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredList {
    /// Place of the pieces.
    pub home: String,
    /// The field that they belong to.
    pub field: String,
    /// Number of items that the list had.
    pub count: usize,
    /// Number of its first items that are in large pieces.
    pub merged: usize,
    /// Distinguishes lists of other content.
    pub digest: String,
}
