//! Questions that servers of tools ask in the midst of calls, on their way to the terminal.

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::tool::InputRequest;
use dormouse_tools::mcp::Asker;
use tokio::sync::{mpsc, oneshot};

/// Puts questions to whoever sits at the terminal.
pub(super) struct TerminalAsker(mpsc::Sender<QuestionInCall>);

/// The questions that were put, in their order.
pub(super) struct Questions(mpsc::Receiver<QuestionInCall>);

/// A question, and the way of its answer. The call waits no longer when that is closed.
pub(super) struct QuestionInCall {
    /// The server that asks.
    pub(super) server: String,
    pub(super) asked: InputRequest,
    /// Fields of the answer; `None` is a no.
    pub(super) answer: oneshot::Sender<Option<Map>>,
}

impl TerminalAsker {
    /// One whose questions come here.
    pub(super) fn new() -> (Self, Questions) {
        let (send, receive) = mpsc::channel(1);
        (Self(send), Questions(receive))
    }
}

impl Questions {
    /// The next one whose call waits; `None` when nobody can ask any more.
    pub(super) async fn next(&mut self) -> Option<QuestionInCall> {
        loop {
            let question = self.0.recv().await?;
            if !question.answer.is_closed() {
                return Some(question);
            }
        }
    }
}

#[async_trait]
impl Asker for TerminalAsker {
    async fn ask(&self, server: &str, asked: InputRequest) -> Option<Map> {
        let (answer, answered) = oneshot::channel();
        self.0.send(QuestionInCall { server: server.to_owned(), asked, answer }).await.ok()?;
        answered.await.ok()?
    }
}
