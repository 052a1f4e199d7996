//! A run of the conversation: sent, followed until it has ended, and stopped.

use std::pin::pin;
use std::time::Duration;

use dormouse_protocol::resource::{SubmitInput, SubmitTaskRequest, Task};
use dormouse_protocol::{EventKind, Map};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::answer::Answered;
use super::elsewhere::{asks_nobody, needs_mending};
use super::resume::LeftOff;
use super::{ChatSession, Person, Sent};
use crate::talk::show::ends_its_task;
use crate::talk::{TalkError, TalkOutcome, follow, persona};
use crate::terminal::plain;

/// Time after which agents that were asked are looked at again: what they ask is told in no stream that is followed.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Result of a task that was followed.
enum FollowedTask {
    Ended(TalkOutcome),
    /// It asks something.
    Asks(Map),
    /// The person stops it.
    Stopped,
    /// The person leaves while it sleeps.
    Left,
    /// The person leaves while an agent that it has asked asks something.
    Unanswered,
}

impl ChatSession {
    /// Sends `input`, shows what comes of it, and answers what is asked meanwhile.
    pub(super) async fn send(&mut self, input: SubmitInput, person: &mut Person) -> Result<Sent, TalkError> {
        let body = json!(SubmitTaskRequest {
            session_id: None,
            workspace_id: None,
            persona_id: Some(persona(&self.agent).into()),
            branch_id: None,
            parent_task_id: None,
            input,
            metadata: Map::new(),
        });
        let task: Task = match self.client.write(&format!("/v1/sessions/{}/tasks", self.session), &body).await {
            // One that is too long, for example: a person says it otherwise, and a script has to know.
            Err(error) if error.is_misfit() && person.lines.are_typed() => {
                self.screen.line(&format!("this was not taken: {}", plain(&error.to_string())));
                return Ok(Sent::Ended(TalkOutcome::Fine));
            }
            sent => sent?,
        };
        self.attend(task.envelope.id.as_str(), LeftOff::default(), person).await
    }

    /// Sees `task` through, and notes for the next terminal that this one does.
    pub(super) async fn attend(&self, task: &str, left: LeftOff, person: &mut Person) -> Result<Sent, TalkError> {
        let sent = self.see_through(task, left, person).await?;
        if let Sent::Ended(_) = sent {
            self.followed.end()?;
        }
        Ok(sent)
    }

    /// Shows what comes of `task` behind where it was `left`, answers what it asked there and what it asks meanwhile.
    async fn see_through(&self, task: &str, left: LeftOff, person: &mut Person) -> Result<Sent, TalkError> {
        let LeftOff { mut after, mut asked, told, agents, has_ended: _ } = left;
        self.screen.follow(task, told);
        *self.agents.borrow_mut() = agents;
        loop {
            self.followed.begin(task, after.as_deref())?;
            let request = match asked.take() {
                Some(request) => request,
                None => match self.watch(task, &mut after, person).await? {
                    FollowedTask::Asks(request) => request,
                    FollowedTask::Ended(outcome) => {
                        self.elsewhere.borrow_mut().end();
                        return Ok(Sent::Ended(outcome));
                    }
                    FollowedTask::Stopped => return self.stop(task).await,
                    FollowedTask::Left => return Ok(Sent::Asleep),
                    FollowedTask::Unanswered => return Ok(Sent::Left),
                },
            };
            match self.answer(task, &request, person).await? {
                Answered::Done => {}
                Answered::Left => return Ok(Sent::Left),
                Answered::Stopped => return self.stop(task).await,
                Answered::Unmended => return Ok(Sent::Ended(TalkOutcome::Failed)),
            }
        }
    }

    /// Follows `task` until it ends or asks; what its tools ask in the midst of calls is answered on the way.
    async fn watch(
        &self,
        task: &str,
        after: &mut Option<String>,
        person: &mut Person,
    ) -> Result<FollowedTask, TalkError> {
        let mut sleeps = self.elsewhere.borrow().sleeps;
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut followed = pin!(self.follow(task, after));
        loop {
            tokio::select! {
                followed = &mut followed => return followed,
                () = person.lines.ended(), if sleeps => {
                    // It may work by now, and would be cut in the midst of that: an outcome that has come is told later.
                    let slept = self.elsewhere.borrow().sleeps;
                    sleeps = slept && self.is_asleep(task).await?;
                    if sleeps {
                        return Ok(FollowedTask::Left);
                    }
                }
                Some(()) = interrupts.recv() => return Ok(FollowedTask::Stopped),
                () = tokio::time::sleep(LOOKS_EVERY), if !self.agents.borrow().is_empty() => {
                    match Box::pin(self.answer_agents(person)).await? {
                        Answered::Done => {}
                        Answered::Left => return Ok(FollowedTask::Unanswered),
                        Answered::Stopped => return Ok(FollowedTask::Stopped),
                        Answered::Unmended => return Ok(FollowedTask::Ended(TalkOutcome::Failed)),
                    }
                }
                // What comes of the task is shown behind the answer.
                Some(question) = person.questions.next() => {
                    if question.answered(&self.screen, &mut person.lines).await?.is_break() {
                        return Ok(FollowedTask::Stopped);
                    }
                }
            }
        }
    }

    /// True if nothing works on `task` now.
    async fn is_asleep(&self, task: &str) -> Result<bool, TalkError> {
        let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
        Ok(now["status"] == "asleep")
    }

    /// Asks the person what agents ask that the run has asked, and those that they have asked.
    async fn answer_agents(&self, person: &mut Person) -> Result<Answered, TalkError> {
        let agents: Vec<String> = self.agents.borrow().iter().cloned().collect();
        for id in agents {
            // It may not have begun yet.
            let Ok(task) = self.client.read::<Task>(&format!("/v1/tasks/{id}")).await else { continue };
            if task.status.is_terminal() {
                self.agents.borrow_mut().remove(&id);
                continue;
            }
            if !task.status.is_suspended() {
                continue;
            }
            let left = self.left_off(&id).await?;
            self.agents.borrow_mut().extend(left.agents);
            let is_for_person = |request: &Map| !asks_nobody(request) || needs_mending(request);
            let Some(request) = left.asked.filter(is_for_person) else { continue };
            // The run that is followed sleeps as before.
            let waits = self.elsewhere.take();
            let answered = self.answer(&id, &request, person).await?;
            *self.elsewhere.borrow_mut() = waits;
            match answered {
                Answered::Done => {}
                Answered::Left | Answered::Stopped | Answered::Unmended => return Ok(answered),
            }
        }
        Ok(Answered::Done)
    }

    async fn stop(&self, task: &str) -> Result<Sent, TalkError> {
        let path = format!("/v1/tasks/{task}/cancel");
        let stopped: Result<Value, _> = self.client.write(&path, &json!({ "reason": "stopped in the terminal" })).await;
        match stopped {
            Ok(_) => {}
            // It ended at the same instant.
            Err(TalkError::Refused { status: 409, message, .. }) => self.screen.line(&plain(&message)),
            Err(error) => return Err(error),
        }
        self.elsewhere.borrow_mut().end();
        self.screen.stop();
        Ok(Sent::Ended(TalkOutcome::Fine))
    }

    async fn follow(&self, task: &str, after: &mut Option<String>) -> Result<FollowedTask, TalkError> {
        let mut asks = None;
        let mut outcome = TalkOutcome::Failed;
        let mut seen = after.clone();
        follow::follow(&self.client, &format!("/v1/tasks/{task}/stream"), after.clone(), |event| {
            seen = Some(event.envelope.id.as_str().to_owned());
            self.elsewhere.borrow_mut().moved();
            asks = self.show(event);
            if event.event == EventKind::TaskCompleted {
                outcome = TalkOutcome::Fine;
            }
            Ok(asks.is_some() || ends_its_task(event))
        })
        .await?;
        *after = seen;
        Ok(asks.map_or(FollowedTask::Ended(outcome), FollowedTask::Asks))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_protocol::resource::MessageInput;
    use dormouse_protocol::{ErrorCode, ProtocolError};

    use super::*;
    use crate::talk::chat::stub::{client_of, person_who_types, person_who_writes, session_with};

    #[tokio::test]
    async fn a_message_that_is_refused_ends_no_conversation_and_a_script() {
        let refusing = || {
            session_with(client_of(|_| {
                let refused = ProtocolError::new(ErrorCode::PayloadTooLarge, "at most 262144 bytes are taken");
                ("413 Payload Too Large", json!(refused.into_response("req_1")).to_string())
            }))
        };
        let message = || SubmitInput::Message(MessageInput::user("hello"));
        let sent = refusing().send(message(), &mut person_who_types()).await;
        assert!(matches!(sent, Ok(Sent::Ended(TalkOutcome::Fine))));
        let sent = refusing().send(message(), &mut person_who_writes(&["more"])).await;
        assert!(sent.is_err_and(|error| error.is_misfit()));
    }
}
