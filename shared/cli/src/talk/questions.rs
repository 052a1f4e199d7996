//! Questions that servers of tools ask in the midst of calls, on their way to the terminal.

use std::io;
use std::ops::ControlFlow;

use async_trait::async_trait;
use dormouse_ports::tool::InputRequest;
use dormouse_ports::{Map, SignalDescriptor};
use dormouse_tools::mcp::Asker;
use tokio::sync::{mpsc, oneshot};

use super::input_lines::{InputLines, Typed};
use super::said::{forms_of, prompt_of, typed_object};
use super::screen::Screen;
use crate::inspect::fields_of;

const TOO_LATE: &str = "  the call waits for it no longer";

/// Puts questions to whoever sits at the terminal.
pub(super) struct TerminalAsker(mpsc::Sender<QuestionInCall>);

/// The questions that were put, in their order.
pub(super) struct Questions(mpsc::Receiver<QuestionInCall>);

/// A question, and the way of its answer. The call waits no longer when that is closed.
pub(super) struct QuestionInCall {
    /// The server that asks.
    server: String,
    asked: InputRequest,
    /// Fields of the answer; `None` is a no.
    answer: oneshot::Sender<Option<Map>>,
}

impl TerminalAsker {
    /// One whose questions come here.
    pub(super) fn new() -> (Self, Questions) {
        let (send, receive) = mpsc::channel(1);
        (Self(send), Questions(receive))
    }
}

impl QuestionInCall {
    /// Puts it to the person at the terminal, for whom the call waits; it breaks where the person stops the task.
    pub(super) async fn answered(mut self, screen: &Screen, lines: &mut InputLines) -> io::Result<ControlFlow<()>> {
        screen.question(&format!("{} asks: {}", self.server, self.asked.message));
        for field in fields_of(&self.asked.schema) {
            screen.line(&format!("  {field}"));
        }
        lines.leave_out_early(screen);
        let mut are_told = false;
        loop {
            let typed = tokio::select! {
                typed = lines.next(screen, |screen| screen.ask(prompt_of(SignalDescriptor::TOOL_INPUT))) => typed?,
                () = self.answer.closed() => {
                    screen.line(TOO_LATE);
                    return Ok(ControlFlow::Continue(()));
                }
            };
            let content = match typed {
                Typed::Line(line) if line.trim().is_empty() => None,
                Typed::Line(line) => match typed_object(&line) {
                    Ok(content) => Some(content),
                    Err(reason) => {
                        screen.line(&reason.told(forms_of(SignalDescriptor::TOOL_INPUT), &mut are_told));
                        continue;
                    }
                },
                // The tool is told no; what comes of the call is shown.
                Typed::End => None,
                Typed::Interrupted => return Ok(ControlFlow::Break(())),
            };
            screen.answered();
            if self.answer.send(content).is_err() {
                screen.line(TOO_LATE);
            }
            return Ok(ControlFlow::Continue(()));
        }
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
