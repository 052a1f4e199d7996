/// Relation of turns to sessions; fixed when the harness is made (harness §2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every turn has a session (dispatch paths 3.1 to 3.3).
    Sessioned,
    /// No turn has one (dispatch path 3.0).
    Stateless,
}
