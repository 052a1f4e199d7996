use async_trait::async_trait;

/// Reason for which nothing was sent over a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// There is no such connection: it was closed, or is not open yet.
    #[error("there is no such connection")]
    Gone,
    /// The gateway did not take it now; it may have been sent all the same.
    #[error("the gateway does not answer: {0}")]
    Unavailable(String),
    /// The gateway will never take it.
    #[error("the gateway refuses: {0}")]
    Refused(String),
}

/// Port to WebSockets that a gateway holds: the process that sends is not the one that the client is connected to.
#[async_trait]
pub trait Connections: Send + Sync {
    /// Sends `frame` over the connection `id`.
    ///
    /// # Errors
    /// [`ConnectionError`], after which it was not sent, or it is not known.
    async fn send(&self, id: &str, frame: &str) -> Result<(), ConnectionError>;

    /// Closes the connection `id`. One that is closed already stays so.
    ///
    /// # Errors
    /// [`ConnectionError`], never [`Gone`](ConnectionError::Gone).
    async fn close(&self, id: &str) -> Result<(), ConnectionError>;
}
