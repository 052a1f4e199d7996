use dormouse_harness::TurnError;

/// Why an event shall be delivered again or put aside by the service that sent it.
#[derive(Debug, thiserror::Error)]
pub enum TriggerError {
    /// Nobody can make sense of the event.
    #[error("{0}")]
    Unreadable(String),
    /// The turn failed in a way that a later delivery, or a person, has to deal with.
    #[error("{}: {}", .0.category, .0.message)]
    Turn(Box<TurnError>),
}
