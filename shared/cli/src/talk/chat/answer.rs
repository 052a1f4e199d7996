//! The answer of the person at the terminal to what a run asks.

use std::time::Duration;

use dormouse_protocol::Map;
use dormouse_protocol::resource::{AppendTaskMessageRequest, MessageInput, Part, Role, TaskMessageKind};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::elsewhere::{asks_nobody, needs_mending};
use super::{ChatSession, Person};
use crate::inspect::asked_of;
use crate::talk::TalkError;
use crate::talk::input_lines::Typed;
use crate::talk::said::{fields_of, forms_of, prompt_of};
use crate::terminal::plain;

/// Time after which it is looked again whether what is asked still waits for an answer.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// What became of a question.
pub(super) enum Answered {
    /// It was answered, or time answers it.
    Done,
    /// The input ended.
    Left,
    /// The person stopped the task.
    Stopped,
    /// It sleeps until somebody has mended what it says, and no person is here to do that.
    Unmended,
}

/// What became of fields that were sent.
enum Given {
    /// They are the answer. Where they end the run, they are so of its other calls too.
    Taken { ends: Option<Map> },
    /// Somebody else has answered, or time has.
    TooLate,
    /// They do not fit: a slip at the keyboard.
    Misfit,
}

/// What a person says to a question.
enum Said {
    Fields(Map),
    /// Somebody else has answered, or time has.
    Elsewhere,
    Left,
    Stopped,
}

impl ChatSession {
    /// Asks the person at the terminal, and sends what they say.
    pub(super) async fn answer(&self, task: &str, request: &Map, person: &mut Person) -> Result<Answered, TalkError> {
        if needs_mending(request) {
            if !person.lines.are_typed() {
                // The lines of a script are for the agent, and nothing here would come to an end.
                let reason = request.get("description").and_then(Value::as_str).unwrap_or_default();
                self.screen.question(reason);
                self.screen.line("  it sleeps until then; the next `dormouse chat` has it go on");
                return Ok(Answered::Unmended);
            }
        } else if request.get("kind").and_then(Value::as_str) == Some("rest") {
            // Time answers this, and no person.
            let reason = request.get("reason").and_then(Value::as_str).unwrap_or("no reason was given");
            self.screen.question("The model cannot be asked now");
            self.screen.line(&format!("  {}; it is tried again by itself, Ctrl-C ends the task", plain(reason)));
            return Ok(Answered::Done);
        }
        if asks_nobody(request) && !needs_mending(request) {
            // A job, an event or other agents answer this.
            self.tell_elsewhere(task, request);
            return Ok(Answered::Done);
        }
        self.elsewhere.borrow_mut().end();
        let parts = self.open_parts(task, request).await?;
        let request = &self.whole(task, request).await?;
        // Who ends the run is not asked about its other calls: a pause of an earlier version waits for answers to them, too.
        let mut end = None::<Map>;
        for part in parts {
            if end.is_some() && !self.still_asks(task, request).await? {
                break;
            }
            loop {
                let fields = match &end {
                    Some(fields) => Some(fields.clone()),
                    None => match self.ask(task, (request, part.as_deref()), person).await? {
                        Said::Fields(fields) => Some(fields),
                        Said::Elsewhere => {
                            self.screen.end_prompt();
                            self.screen.line("  it is answered already: by somebody else, or by time");
                            None
                        }
                        Said::Left => return Ok(Answered::Left),
                        Said::Stopped => return Ok(Answered::Stopped),
                    },
                };
                let given = match fields {
                    Some(fields) => self.given(task, (request, part.as_deref()), fields).await?,
                    None => Given::TooLate,
                };
                if let Given::Taken { ends } = given {
                    end = ends;
                    break;
                }
                if !self.still_asks(task, request).await? {
                    // What it asks by now comes with its events, and so does its end.
                    self.screen.answered();
                    return Ok(Answered::Done);
                }
                // After a slip at the keyboard it is asked again: that ends no conversation.
                if matches!(given, Given::TooLate) {
                    break;
                }
                end = None;
            }
        }
        self.screen.answered();
        Ok(Answered::Done)
    }

    /// Has `task` ask its model at once, which refused what `request` says. False where it cannot go on now, and why is told.
    pub(super) async fn go_on(&self, task: &str, request: &Map) -> Result<bool, TalkError> {
        match self.give(task, request, None, Map::new()).await {
            // Time was faster.
            Ok(()) | Err(TalkError::Refused { status: 409, .. }) => Ok(true),
            Err(TalkError::Refused { message, .. }) => {
                self.screen.line(&format!("  {}", plain(&message)));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends what the person says, and shows why it is not taken.
    async fn given(&self, task: &str, (request, part): (&Map, Option<&str>), fields: Map) -> Result<Given, TalkError> {
        let ends = fields.get("decision").and_then(Value::as_str) == Some("stop");
        let ends = ends.then(|| fields.clone());
        let (message, given) = match self.give(task, request, part, fields).await {
            Ok(()) => return Ok(Given::Taken { ends }),
            Err(TalkError::Refused { status: 409, message, .. }) => (message, Given::TooLate),
            Err(error) if error.is_misfit() => (error.to_string(), Given::Misfit),
            Err(error) => return Err(error),
        };
        self.screen.line(&format!("  {}", plain(&message)));
        Ok(given)
    }

    /// Sends what the person says to the `part` of what was shown of `request`, and to nothing that is asked later.
    async fn give(&self, task: &str, request: &Map, part: Option<&str>, mut fields: Map) -> Result<(), TalkError> {
        let mut metadata = Map::new();
        metadata.extend(request.get("pause").map(|pause| ("pause".to_owned(), pause.clone())));
        metadata.extend(part.map(|part| ("in_reply_to".to_owned(), part.into())));
        if let Some(digest) = digest_of(request, part, &fields) {
            fields.insert("digest".to_owned(), digest);
        }
        let message = MessageInput { role: Role::User, parts: vec![Part::json(Value::Object(fields))], metadata };
        let body = json!(AppendTaskMessageRequest { kind: TaskMessageKind::Input, message });
        let _: Value = self.client.write(&format!("/v1/tasks/{task}/messages"), &body).await?;
        Ok(())
    }

    /// The parts of `request` that nobody has answered, as far as is known now; one that has no name where it has none.
    async fn open_parts(&self, task: &str, request: &Map) -> Result<Vec<Option<String>>, TalkError> {
        let named = |parts: &Value| -> Vec<String> {
            parts.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut missing = request.get("missing").map(named).unwrap_or_default();
        if missing.is_empty() {
            return Ok(vec![None]);
        }
        // The event tells of them as they were when it was asked.
        let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
        if now["status"] == "asleep" && request.get("pause") == Some(&now["generation"]) {
            let open = named(&now["missing"]);
            missing.retain(|part| open.contains(part));
        }
        Ok(missing.into_iter().map(Some).collect())
    }

    /// `request` with the arguments that it does not show, where the server has them.
    async fn whole(&self, task: &str, request: &Map) -> Result<Map, TalkError> {
        let mut whole = request.clone();
        let calls = whole.get_mut("calls").and_then(Value::as_object_mut).into_iter().flatten();
        let mut cut = calls.filter(|(_, call)| call["arguments"]["cut"] == true).peekable();
        if cut.peek().is_some() {
            let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
            for (part, call) in cut.filter(|_| request.get("pause") == Some(&now["generation"])) {
                if let Some(arguments) = now["arguments"].get(part) {
                    call["arguments"] = arguments.clone();
                }
            }
        }
        Ok(whole)
    }

    /// True if `task` waits for an answer to `request` still, or to other parts of it.
    async fn still_asks(&self, task: &str, request: &Map) -> Result<bool, TalkError> {
        let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
        Ok(is_open(&now, request, None))
    }

    /// Waits until `task` waits for no answer to this `part` of the request any more.
    async fn answered_elsewhere(&self, task: &str, (request, part): (&Map, Option<&str>)) {
        let mut closed = 0;
        // A reminder may be under way at one of the looks.
        while closed < 2 {
            sleep(LOOKS_EVERY).await;
            let now: Result<Value, _> = self.client.read(&format!("/v1/x-pauses/{task}")).await;
            // Where nobody knows, it is asked as before.
            closed = if now.is_ok_and(|now| !is_open(&now, request, part)) { closed + 1 } else { 0 };
        }
    }

    async fn ask(
        &self,
        task: &str,
        (request, part): (&Map, Option<&str>),
        person: &mut Person,
    ) -> Result<Said, TalkError> {
        let kind = request.get("kind").and_then(Value::as_str).unwrap_or_default();
        let question = request.get("description").and_then(Value::as_str).unwrap_or("It waits for an answer.");
        self.screen.question(question);
        for line in asked_of(request, part) {
            self.screen.line(&format!("  {line}"));
        }
        person.lines.leave_out_early(&self.screen);
        let mut are_told = false;
        loop {
            let typed = tokio::select! {
                typed = person.lines.next(&self.screen, |screen| screen.ask(prompt_of(kind))) => typed?,
                // The lines of a script are answers in their order, also one that comes too late.
                () = Box::pin(self.answered_elsewhere(task, (request, part))), if person.lines.are_typed() => {
                    return Ok(Said::Elsewhere);
                }
            };
            let line = match typed {
                Typed::Line(line) => line,
                Typed::End => return Ok(Said::Left),
                Typed::Interrupted => return Ok(Said::Stopped),
            };
            match fields_of(kind, line.trim()) {
                Ok(fields) => return Ok(Said::Fields(fields)),
                Err(reason) => self.screen.line(&reason.told(forms_of(kind), &mut are_told)),
            }
        }
    }
}

/// True if what is known `now` of a pause still waits for an answer to `request`: to this `part` of it, or to any without one.
fn is_open(now: &Value, request: &Map, part: Option<&str>) -> bool {
    let is_missing = |part: &str| now["missing"].as_array().is_none_or(|open| open.iter().any(|open| open == part));
    let is_it = request.get("pause").is_none_or(|pause| *pause == now["generation"]);
    now["status"] == "asleep" && is_it && part.is_none_or(is_missing)
}

/// The digest of the call that was shown, where `fields` approve of it as it is and the pause takes one.
fn digest_of(request: &Map, part: Option<&str>, fields: &Map) -> Option<Value> {
    let takes = request.get("accepts").or_else(|| request.get("expects")?.get("accepts"));
    takes?.get("properties")?.get("digest")?;
    if fields.get("decision")? != "approve" || fields.contains_key("arguments") {
        return None;
    }
    let calls = request.get("calls")?.as_object()?;
    let call = match part {
        Some(part) => calls.get(part),
        None => calls.values().next().filter(|_| calls.len() == 1),
    };
    call?.get("digest").cloned()
}

#[cfg(test)]
mod tests {
    use dormouse_protocol::{ErrorCode, ProtocolError};

    use super::*;
    use crate::talk::chat::stub::{client_of, person_who_types, person_who_writes, session_with};

    #[tokio::test]
    async fn a_question_that_ended_with_its_task_holds_nobody() {
        let client = client_of(|line| match line.starts_with("POST") {
            true => {
                let refused = ProtocolError::new(ErrorCode::InvalidStateTransition, "the task has ended");
                ("400 Bad Request", json!(refused.into_response("req_1")).to_string())
            }
            false => ("200 OK", json!({ "status": "completed", "generation": 1, "missing": [] }).to_string()),
        });
        let request = json!({ "kind": "approval", "description": "May it?", "pause": 1 });
        let mut person = person_who_writes(&["y", "y"]);
        let answered = session_with(client).answer("task_1", request.as_object().unwrap(), &mut person).await;
        assert!(matches!(answered.unwrap(), Answered::Done), "it is asked again for ever, and the input ends");
    }

    #[tokio::test]
    async fn a_script_does_not_wait_until_somebody_has_mended_a_key() {
        let client = client_of(|_| ("500 Internal Server Error", "{}".to_owned()));
        let request = json!({ "kind": "rest", "needs_mending": true, "asks_person": false, "pause": 1 });
        let mut person = person_who_writes(&["and now?"]);
        let answered = session_with(client).answer("task_1", request.as_object().unwrap(), &mut person).await;
        assert!(matches!(answered.unwrap(), Answered::Unmended));
    }

    #[tokio::test]
    async fn who_is_at_the_terminal_is_asked_whether_what_a_model_refused_is_mended_and_may_leave() {
        let client = client_of(|_| ("500 Internal Server Error", "{}".to_owned()));
        let request = json!({ "kind": "rest", "needs_mending": true, "asks_person": false, "pause": 1 });
        let answered =
            session_with(client).answer("task_1", request.as_object().unwrap(), &mut person_who_types()).await;
        assert!(matches!(answered.unwrap(), Answered::Left));
    }

    #[test]
    fn a_question_waits_until_it_or_its_part_is_answered() {
        let request = json!({ "pause": 2, "missing": ["a", "b"] });
        let open = |status: &str, generation: u64, part: Option<&str>| {
            let now = json!({ "status": status, "generation": generation, "missing": ["b"] });
            is_open(&now, request.as_object().unwrap(), part)
        };
        assert!(open("asleep", 2, None) && open("asleep", 2, Some("b")));
        assert!(!open("asleep", 2, Some("a")), "somebody has answered this part");
        assert!(!open("asleep", 3, None), "it asks something else by now");
        assert!(!open("working", 2, None) && !open("completed", 2, Some("b")));
    }

    #[test]
    fn what_was_shown_is_what_is_approved() {
        let digest = |accepts: Value, calls: Value, part: Option<&str>, fields: Value| {
            let request = json!({ "accepts": { "properties": accepts }, "calls": calls });
            digest_of(request.as_object().unwrap(), part, fields.as_object().unwrap())
        };
        let (takes, yes) = (json!({ "digest": {} }), json!({ "decision": "approve" }));
        let one = json!({ "call-1": { "digest": "a" } });
        let two = json!({ "call-1": { "digest": "a" }, "call-2": { "digest": "b" } });
        assert_eq!(digest(takes.clone(), one.clone(), None, yes.clone()), Some("a".into()));
        assert_eq!(digest(takes.clone(), two.clone(), Some("call-2"), yes.clone()), Some("b".into()));
        assert_eq!(digest(takes.clone(), two, None, yes.clone()), None);
        assert_eq!(digest(json!({ "ok": {} }), one.clone(), None, yes), None, "a pause that takes none");
        let edited = json!({ "decision": "approve", "arguments": {} });
        assert_eq!(digest(takes.clone(), one.clone(), None, edited), None);
        assert_eq!(digest(takes, one, None, json!({ "decision": "deny" })), None);
    }
}
