//! What answers of the protocol mean.

use std::collections::BTreeMap;

use dormouse_ports::InvocationStatus;
use dormouse_protocol::id::{EventId, MessageId};
use dormouse_protocol::resource::{SessionState, Task, TaskStatus};
use dormouse_protocol::{Event, sse};
use serde_json::{Value, json};

use super::{Oracle, Verdict};
use crate::HttpAnswer;
use crate::simulation::clients::text;
use crate::simulation::history::has_ended;
use crate::simulation::invariants::published::parts;
use crate::simulation::requests::ProtocolRequest;

/// The server cannot say now whether it was done, or will do it later.
const LATER: [u16; 3] = [429, 503, 504];

impl Oracle<'_> {
    /// Judges what was answered to a client of the protocol.
    ///
    /// # Errors
    /// Why that may not be.
    pub(crate) fn judge_ask(&mut self, ask: &ProtocolRequest, answer: &HttpAnswer) -> Result<Verdict, String> {
        let code = text(&answer.body["error"], "code");
        let busy = code == "resource_locked" && !matches!(ask, ProtocolRequest::Truncate { .. });
        if LATER.contains(&answer.status) || busy {
            return Ok(Verdict::Again);
        }
        let fitting = match answer.status {
            200..=299 => self.granted(ask, &answer.body)?,
            _ => self.refused(ask, code),
        };
        if fitting { Ok(Verdict::Done) } else { Err(format!("{ask} was answered {} {}", answer.status, answer.body)) }
    }

    fn granted(&mut self, ask: &ProtocolRequest, body: &Value) -> Result<bool, String> {
        let mut first = true;
        if let Some(key) = ask.key() {
            let known = self.clients.answers.entry(key.to_owned()).or_insert_with(|| body.clone());
            if known != body {
                return Err(format!("{ask} was answered {known} and is answered {body}"));
            }
            first = self.clients.heard.insert(key.to_owned());
        }
        let id = text(body, "id");
        let published = &self.history.published;
        let clients = &mut *self.clients;
        let now = self.now;
        Ok(match ask {
            ProtocolRequest::Workspace { .. } => {
                if first {
                    clients.settle_in(id, now, self.chance);
                }
                id.starts_with("workspace_")
            }
            ProtocolRequest::Quota { workspace, .. } => {
                if first {
                    clients.move_in(workspace, now, self.chance);
                }
                id.starts_with("quota_")
            }
            ProtocolRequest::Session { chats, .. } | ProtocolRequest::Fork { chats, .. } => {
                if first {
                    clients.live_in(id, *chats, now, self.chance);
                }
                published.session(id).is_some()
            }
            ProtocolRequest::Submit { key, graph, words, .. } => {
                let said = clients.submitted.entry(key.clone()).or_insert_with(|| words.clone());
                if *said != *words {
                    return Err(format!("{ask} says {words:?}, and was done for who said {said:?} by that key"));
                }
                if first {
                    clients.watch(id, graph, now, self.chance);
                }
                // It stands behind another task of its session, or is worked on.
                published.task(id).is_some() && (body["status"] == "SUBMITTED" || body["status"] == "WORKING")
            }
            ProtocolRequest::Say { key, .. }
            | ProtocolRequest::Interrupt { key, .. }
            | ProtocolRequest::Answer { key, .. } => {
                if let (ProtocolRequest::Say { .. }, Some(task)) = (ask, body["task_id"].as_str()) {
                    // The message was taken as the answer that a task of the session waits for.
                    clients.sent_to_task(task, &crate::map(json!({ "allowed": true })));
                }
                self.is_told(key, body)
            }
            ProtocolRequest::Cancel { task, .. } => {
                body["status"] == "CANCELED"
                    && published.task(task).is_some_and(|task| task.status == TaskStatus::Canceled)
            }
            ProtocolRequest::Respond { task, .. } => body["task_id"] == task.as_str() && self.has_moved(task),
            ProtocolRequest::Queue { session } => {
                let is_queued = |task: &Value| {
                    let known = published.task(text(task, "id"));
                    let is_here = known.is_some_and(|task| task.session_id.as_str() == session.as_str());
                    is_here && task["status"] == "SUBMITTED"
                };
                let fits = body["session_id"] == session.as_str() && listed(body).all(is_queued);
                clients.put_in_order(session, ids(body), now);
                fits
            }
            ProtocolRequest::Reorder { session, tasks, .. } => {
                // What has begun meanwhile is not there any more.
                let mut wanted = tasks.iter();
                let is_next = |id: String| wanted.any(|task| *task == id);
                body["session_id"] == session.as_str() && ids(body).into_iter().all(is_next)
            }
            ProtocolRequest::Empty { .. } => listed(body).all(|task| {
                let known = published.task(text(task, "id"));
                task["status"] == "CANCELED" && known.is_some_and(|task| task.status == TaskStatus::Canceled)
            }),
            ProtocolRequest::Look { task } => return self.was_so(task, body),
            ProtocolRequest::Trespass { .. } => false,
            ProtocolRequest::Close { session, .. } => published.session(session).is_some_and(is_closed),
            ProtocolRequest::Truncate { session, .. } => body["session_id"] == session.as_str(),
            ProtocolRequest::Read { session, behind, times } => {
                let times = times - 1;
                let events = events_of(&body["data"])?;
                let behind = self.is_stretch(session, *behind, &events)?;
                let next = ProtocolRequest::Read { session: session.clone(), behind, times };
                self.clients.read_on(next, times, now, self.chance);
                true
            }
            ProtocolRequest::Follow { session, behind, times } => {
                let times = times - 1;
                let blocks = sse::Reader::new().push(body.as_str().unwrap_or_default().as_bytes());
                let told = blocks.iter().filter(|block| block.event != sse::ERROR);
                let told = told.map(|block| serde_json::from_str::<Value>(&block.data).map_err(|e| e.to_string()));
                let events = events_of(&told.collect::<Result<Vec<_>, _>>()?.into())?;
                let behind = self.is_stretch(session, *behind, &events)?;
                let next = ProtocolRequest::Follow { session: session.clone(), behind, times };
                self.clients.read_on(next, times, now, self.chance);
                blocks.iter().all(|block| block.event != sse::ERROR || self.may_fail(&block.data))
            }
            ProtocolRequest::ReadAll { behind, times } => {
                let times = times - 1;
                let events = events_of(&body["data"])?;
                let last = self.are_in_order(behind.as_ref(), &events)?;
                let next = ProtocolRequest::ReadAll { behind: last, times };
                self.clients.read_on(next, times, now, self.chance);
                true
            }
        })
    }

    /// Whether things are, or were when it was asked, so that this had to be refused.
    fn refused(&self, ask: &ProtocolRequest, code: &str) -> bool {
        let published = &self.history.published;
        let has_ended = |task: &str| published.task(task).is_some_and(|task| task.status.is_terminal());
        match (ask, code) {
            (ProtocolRequest::Trespass { .. }, _) => code == "resource_not_found",
            (ProtocolRequest::Submit { key, words, .. }, "idempotency_key_reused") => {
                // Whoever was accepted by that key is answered the same again, and never refused.
                let was_accepted = self.clients.submitted.get(key).is_some_and(|said| said == words);
                !was_accepted && self.clients.says_otherwise(key, words.as_deref())
            }
            (
                ProtocolRequest::Submit { session, .. }
                | ProtocolRequest::Say { session, .. }
                | ProtocolRequest::Truncate { session, .. },
                "conflict",
            ) => published.session(session).is_some_and(is_closed),
            // A task was open then.
            (ProtocolRequest::Truncate { session, .. }, "resource_locked") => {
                published.tasks.values().flatten().any(|task| task.session_id.as_str() == session)
            }
            (
                ProtocolRequest::Interrupt { task, .. } | ProtocolRequest::Answer { task, .. },
                "invalid_state_transition",
            ) => has_ended(task),
            (ProtocolRequest::Answer { early: true, .. }, "conflict") => true,
            (ProtocolRequest::Answer { task, part, .. }, "conflict") => {
                self.has_moved(task) || part.is_some_and(|part| self.has_answered(task, part))
            }
            (ProtocolRequest::Answer { fits, .. }, "invalid_request") => !fits,
            (ProtocolRequest::Respond { task, .. }, "conflict") => self.has_moved(task) || has_ended(task),
            (ProtocolRequest::Reorder { session, tasks, .. }, "conflict") => {
                let is_over = |id: &String| published.task(id).is_none_or(|task| task.status != TaskStatus::Submitted);
                let mut here = published.tasks.values().flatten().filter(|task| task.session_id.as_str() == session);
                tasks.iter().any(is_over) || here.any(|task| !tasks.iter().any(|id| id == task.envelope.id.as_str()))
            }
            (ProtocolRequest::Cancel { task, .. }, "conflict") => published
                .task(task)
                .is_some_and(|task| task.status.is_terminal() && task.status != TaskStatus::Canceled),
            _ => false,
        }
    }

    /// Whether the task has ever gone on from a pause, so that somebody may have found it working.
    fn has_moved(&self, task: &str) -> bool {
        let record = self.history.invocations.get(&task.into());
        let moved = record.is_some_and(|record| {
            has_ended(record)
                || record.paused.generation > 1
                || matches!(record.status, InvocationStatus::Accepted { .. } | InvocationStatus::Resuming(_))
        });
        let versions = self.history.published.tasks.get(task).into_iter().flatten();
        let mut behind = versions.skip_while(|task| !task.status.is_suspended());
        moved || behind.any(|task| task.status == TaskStatus::Working) || self.history.was_claimed(task)
    }

    /// Whether the answer of `part` is there, on which the task waits on.
    fn has_answered(&self, task: &str, part: &str) -> bool {
        let record = self.history.invocations.get(&task.into());
        let fan_in = record.and_then(|record| record.paused.fan_in.as_ref());
        fan_in.is_some_and(|fan_in| fan_in.has_answered(part))
    }

    /// The message stands where its id says, and its event names the key of the request.
    fn is_told(&self, key: &str, message: &Value) -> bool {
        let id = MessageId::from(text(message, "id"));
        let Some((stream, position)) = id.place() else { return false };
        let event = self.event(stream, position);
        event.is_some_and(|event| parts(event) == &message["parts"] && event.idempotency_key.as_deref() == Some(key))
    }

    /// The task was so at some time; one that has ended is so.
    fn was_so(&mut self, id: &str, body: &Value) -> Result<bool, String> {
        let task: Task = serde_json::from_value(body.clone()).map_err(|error| format!("task {id}: {error}"))?;
        let versions = self.history.published.tasks.get(id).map_or(&[][..], Vec::as_slice);
        if task.status.is_suspended() {
            self.clients.attend(&task, self.now, self.chance);
        }
        Ok(match task.status.is_terminal() {
            true => versions.last() == Some(&task),
            false => versions.contains(&task),
        })
    }

    /// `events` are what stands in the stream behind that position; the last position.
    fn is_stretch(&self, stream: &str, behind: u64, events: &[Event]) -> Result<u64, String> {
        let mut last = behind;
        for event in events {
            last += 1;
            if self.event(stream, last) != Some(event) {
                return Err(format!("a reader of {stream} behind {behind} was told {event:?} as event {last}"));
            }
        }
        Ok(last)
    }

    /// `events` stand in their streams, those of a stream one behind the other, and behind the event that was known. That
    /// nothing of another stream was fed behind it is looked at where the feeds are.
    fn are_in_order(&self, behind: Option<&EventId>, events: &[Event]) -> Result<Option<EventId>, String> {
        let mut last: BTreeMap<&str, u64> = behind.and_then(EventId::place).into_iter().collect();
        for event in events {
            let place = event.envelope.id.place();
            let stored = place.and_then(|(stream, position)| self.event(stream, position));
            let before = place.and_then(|(stream, position)| last.insert(stream, position));
            if stored != Some(event) || before >= place.map(|(_, position)| position) {
                return Err(format!("a reader of all events was told {event:?} behind event {before:?} of its stream"));
            }
        }
        Ok(events.last().map(|event| &event.envelope.id).or(behind).cloned())
    }

    fn event(&self, stream: &str, position: u64) -> Option<&Event> {
        let index = usize::try_from(position).ok()?.checked_sub(1)?;
        self.history.published.streams.get(stream)?.get(index)
    }

    /// A stream may end because the store did not answer.
    fn may_fail(&self, data: &str) -> bool {
        data.contains("service_unavailable")
    }
}

/// The elements of a list.
fn listed(body: &Value) -> impl Iterator<Item = &Value> {
    body["data"].as_array().into_iter().flatten()
}

/// Their ids.
fn ids(body: &Value) -> Vec<String> {
    listed(body).map(|one| text(one, "id").to_owned()).collect()
}

fn is_closed(thread: &crate::simulation::history::Thread) -> bool {
    thread.session.state == SessionState::Closed
}

fn events_of(data: &Value) -> Result<Vec<Event>, String> {
    serde_json::from_value(data.clone()).map_err(|error| format!("{data} are no events: {error}"))
}
