//! Answers from a terminal to what sleeps: to a task through its server, to any other invocation in the store.

use dormouse_api::{Agents, answer_payload};
use dormouse_harness::{Callback, Transmission};
use dormouse_http::percent::encode;
use dormouse_local::keys::DEVELOPER;
use dormouse_ports::{BEFORE_FIRST_PAUSE, InvocationRecord, Map, PausedInvocation};
use dormouse_protocol::resource::{
    AppendTaskMessageRequest, MessageInput, Part, Role, SubmitInput, Task, TaskMessageKind,
};
use serde_json::{Value, json};

use crate::inspect::hint::{AnswerCommands, AskedQuestion, of_pause};
use crate::inspect::{InspectError, InspectOutcome, Printer, answered, asked_of, named, not_found, on};
use crate::talk::{AnswerArgs, Client, ServerArgs, Show, TalkError, TalkOutcome, follow_task, input, read};
use crate::target::{OpenedStore, Purpose, StoreTarget};
use crate::terminal::object_of;

/// Verdict of an answer, besides the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum YesOrNo {
    Yes,
    No,
    Neither,
}

/// Answers what a task waits for through its server, and what any other invocation waits for in the store.
pub(crate) async fn answer(asked: AnswerArgs, verdict: YesOrNo, agents: &Agents) -> Result<TalkOutcome, TalkError> {
    let said = said(asked.payload.as_deref(), verdict)?;
    // A whole id of a task identifies it as one; other servers know no other ids.
    if is_whole_task(&asked.id) || asked.server.url().is_some() {
        return answer_task(&asked, &asked.id, said).await;
    }
    let opened = StoreTarget::folder(asked.server.data.clone()).open(agents, Purpose::Change).await;
    let opened = opened.map_err(InspectError::from)?;
    let ended = on(opened, async |opened| {
        let id = named(opened, &asked.id).await?;
        if is_task(id.as_str()) {
            return Ok(Err((id, None, said)));
        }
        let Some(InvocationRecord { paused, .. }) = opened.store().load_invocation(&id).await? else {
            return not_found(&Printer::new(asked.json), &id).map(Ok);
        };
        // A graph that this program was not given is one that a server adds, as those of webhooks and of agents in files.
        if opened.harness.graphs().get(&paused.graph).is_err() {
            return Ok(Err((id, Some(asked.pause.unwrap_or(paused.generation)), said)));
        }
        say(opened, &paused, said, &asked).await.map(Ok)
    });
    match ended.await? {
        Ok(InspectOutcome::Fine) => Ok(TalkOutcome::Fine),
        Ok(InspectOutcome::NotFound | InspectOutcome::Trouble) => Ok(TalkOutcome::NotFound),
        Err((id, None, said)) => answer_task(&asked, id.as_str(), said).await,
        Err((id, Some(generation), said)) => answer_pause(&asked, id.as_str(), generation, said).await,
    }
}

/// Has the server answer the pause `generation` of the invocation `id`, which goes on there.
async fn answer_pause(
    asked: &AnswerArgs,
    id: &str,
    generation: u64,
    (_, message): (TaskMessageKind, MessageInput),
) -> Result<TalkOutcome, TalkError> {
    if asked.by.is_some() {
        return Err(TalkError::ByItsKey);
    }
    let fields = message
        .parts
        .into_iter()
        .find_map(|part| if let Part::Json { value: Value::Object(fields), .. } = part { Some(fields) } else { None });
    let mut payload = fields.ok_or_else(|| TalkError::Payload("these are words".to_owned()))?;
    let approved = payload.remove("approved");
    let mut body = json!({ "generation": generation, "payload": payload });
    for (name, value) in [("approved", approved), ("part", asked.part.as_deref().map(Value::from))] {
        if let (Some(value), Some(body)) = (value, body.as_object_mut()) {
            body.insert(name.to_owned(), value);
        }
    }
    let client = Client::open(&asked.server)?;
    let taken: Map = client.write(&format!("/v1/x-pauses/{}/answer", encode(id)), &body).await?;
    Printer::new(asked.json).fields(&Value::Object(taken))?;
    Ok(TalkOutcome::Fine)
}

/// True if the invocation `id` is a task, which has clients that are notified of its answer.
pub(crate) fn is_task(id: &str) -> bool {
    id.starts_with("task_")
}

/// `task_` and a ULID.
fn is_whole_task(id: &str) -> bool {
    is_task(id) && id.len() == "task_".len() + 26
}

/// The message with `verdict` and the payload.
fn said(payload: Option<&str>, verdict: YesOrNo) -> Result<(TaskMessageKind, MessageInput), TalkError> {
    let payload = payload.map(read).transpose()?;
    let approved = match verdict {
        YesOrNo::Yes => true,
        YesOrNo::No => false,
        YesOrNo::Neither => {
            let Some(text) = payload else { return Err(TalkError::NoAnswer) };
            return Ok((TaskMessageKind::Input, message(input(text)?)));
        }
    };
    let mut fields = match payload {
        // Words behind a no are its reason, as in a chat; a yes has none that anybody would hear of.
        Some(text) if !approved && is_words(&text) => Map::from_iter([("reason".to_owned(), text.trim().into())]),
        Some(text) => object_of(&text).map_err(TalkError::Payload)?,
        None => Map::new(),
    };
    fields.insert("approved".to_owned(), approved.into());
    Ok((TaskMessageKind::ToolConfirmation, message(SubmitInput::Payload(fields))))
}

/// True for what a person wrote that is neither JSON nor was to be an object of it.
fn is_words(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.starts_with('{') && serde_json::from_str::<Value>(text).is_err()
}

fn message(input: SubmitInput) -> MessageInput {
    match input {
        SubmitInput::Message(message) => message,
        SubmitInput::Payload(fields) => {
            MessageInput { role: Role::User, parts: vec![Part::json(Value::Object(fields))], metadata: Map::new() }
        }
    }
}

async fn answer_task(
    asked: &AnswerArgs,
    id: &str,
    said: (TaskMessageKind, MessageInput),
) -> Result<TalkOutcome, TalkError> {
    if asked.by.is_some() {
        return Err(TalkError::ByItsKey);
    }
    let client = Client::open(&asked.server)?;
    let path = format!("/v1/tasks/{}", encode(id));
    let task: Task = client.read(&path).await?;
    if !task.status.is_suspended() {
        // What was put aside and tried again has failed for the clients of its task, and may ask all the same.
        return match OpenQuestion::of(&client, id).await {
            Ok(question) if question.is_asked => {
                answer_pause(asked, id, asked.pause.unwrap_or(question.generation), said).await
            }
            Ok(_) | Err(_) => Err(TalkError::WaitsForNothing { task: id.to_owned(), status: task.status.as_str() }),
        };
    }
    let (kind, mut message) = said;
    let pause = match asked.pause {
        Some(pause) => pause,
        None => {
            let question = OpenQuestion::of(&client, id).await?;
            if !asked.json {
                let printer = Printer::new(false);
                question.lines().iter().try_for_each(|line| printer.line(line))?;
            }
            question.generation
        }
    };
    message.metadata.insert("pause".to_owned(), pause.into());
    message.metadata.extend(asked.part.as_deref().map(|part| ("in_reply_to".to_owned(), part.into())));
    let body = json!(AppendTaskMessageRequest { kind, message });
    let taken: Result<Value, TalkError> = client.write(&format!("{path}/messages"), &body).await;
    let taken = match taken {
        Ok(taken) => taken,
        Err(error) if error.is_late() => {
            return Err(match late(&client, (id, pause), &asked.server).await {
                true => TalkError::AnotherQuestion,
                false => error,
            });
        }
        Err(error) => return Err(error),
    };
    let show = Show::new(asked.json, &asked.server);
    if asked.follow {
        return follow_task(&client, id, taken["id"].as_str().map(str::to_owned), &show).await;
    }
    show_task(&client, &client.read(&path).await?, &show, &asked.server).await?;
    Ok(TalkOutcome::Fine)
}

/// Shows `task`, and to people what it asks, with the commands that answer that.
pub(crate) async fn show_task(client: &Client, task: &Task, show: &Show, server: &ServerArgs) -> Result<(), TalkError> {
    show.task(task)?;
    let id = task.envelope.id.as_str();
    if show.is_for_scripts() || !task.status.is_suspended() {
        return Ok(());
    }
    match OpenQuestion::of(client, id).await {
        Ok(question) if question.is_asked => {
            show.lines(&question.lines())?;
            show.lines(&question.commands(id, server).lines())?;
        }
        // It goes on already, or a key may not read what it asks.
        Ok(_) | Err(_) => {}
    }
    Ok(())
}

/// Tells what the task `id` asks by now, and how that is answered, where that is something else than its pause `answered`;
/// true if it is.
async fn late(client: &Client, (id, answered): (&str, u64), server: &ServerArgs) -> bool {
    match OpenQuestion::of(client, id).await {
        Ok(now) if now.is_asked && now.generation != answered => {
            let printer = Printer::new(false);
            let lines = now.lines().into_iter().chain(now.commands(id, server).lines());
            for line in lines {
                // Without an error stream there is no reader.
                let _ = printer.aside(&line);
            }
            true
        }
        Ok(_) | Err(_) => false,
    }
}

/// What a task asks now.
struct OpenQuestion {
    generation: u64,
    is_asked: bool,
    takes_yes_or_no: bool,
    /// The first part without an answer, where it asks several.
    missing: Option<String>,
    /// What its author says of it, with all arguments of its calls, and what an answer may have.
    metadata: Map,
}

impl OpenQuestion {
    async fn of(client: &Client, id: &str) -> Result<Self, TalkError> {
        Ok(Self::read(&client.read(&format!("/v1/x-pauses/{}", encode(id))).await?))
    }

    /// That of `pause`, as its server tells it.
    fn read(pause: &Value) -> Self {
        let mut missing = pause["missing"].as_array().into_iter().flatten();
        let mut metadata = pause["request"].as_object().cloned().unwrap_or_default();
        // They are told beside the request.
        for name in ["accepts", "answers"] {
            metadata.extend(pause.get(name).filter(|told| !told.is_null()).map(|told| (name.to_owned(), told.clone())));
        }
        let calls = metadata.get_mut("calls").and_then(Value::as_object_mut);
        for (part, call) in calls.into_iter().flatten() {
            if let (Some(whole), Some(call)) = (pause["arguments"].get(part), call.as_object_mut()) {
                call.insert("arguments".to_owned(), whole.clone());
            }
        }
        Self {
            generation: pause["generation"].as_u64().unwrap_or_default(),
            is_asked: pause["status"] == "asleep",
            takes_yes_or_no: pause["answers"].get("approved").is_some(),
            missing: missing.next().and_then(Value::as_str).map(str::to_owned),
            metadata,
        }
    }

    /// The question and what it is about, with all arguments and fields.
    fn lines(&self) -> Vec<String> {
        let question = self.metadata.get("description").and_then(Value::as_str).unwrap_or("it waits for an answer");
        let about = asked_of(&self.metadata, None).into_iter().map(|line| format!("  {line}"));
        question.lines().map(str::to_owned).chain(about).collect()
    }

    /// The commands that answer it, as what the task `id` asks.
    fn commands(&self, id: &str, server: &ServerArgs) -> AnswerCommands {
        let (part, takes_yes_or_no) = (self.missing.as_deref(), self.takes_yes_or_no);
        let asked = AskedQuestion { id, part, metadata: Some(&self.metadata), takes_yes_or_no };
        asked.commands(&format!("{}{}", server.options(), of_pause(Some(self.generation))))
    }
}

/// Sends `message` to the invocation that is `paused`, or to a part of it, and goes on with it in this process.
async fn say(
    opened: &OpenedStore,
    paused: &PausedInvocation,
    (kind, message): (TaskMessageKind, MessageInput),
    asked: &AnswerArgs,
) -> Result<InspectOutcome, InspectError> {
    let id = &paused.invocation_id;
    let generation = asked.pause.unwrap_or(paused.generation);
    if asked.pause.is_some_and(|pause| pause == BEFORE_FIRST_PAUSE || pause > paused.generation) {
        let last = paused.generation;
        let message = format!(
            "{id} was in no pause {generation}, and nothing is changed: its last one is {last}; look at what it asks (`show {id}`)"
        );
        return Err(InspectError::Answer(message));
    }
    let part = asked.part.as_deref();
    let by = asked.by.as_deref().unwrap_or(DEVELOPER);
    let payload = answer_payload(paused, kind, &message, by);
    let payload = payload.map_err(|error| InspectError::Answer(error.to_string()))?;
    let transmission = match (&paused.fan_in, part) {
        (None, None) => Transmission::callback(id.clone(), Some(generation), payload),
        (None, Some(_)) => {
            let message = format!(
                "{id} waits for one answer by now; look at what it asks (`show {id}`), and leave --part out if you mean that"
            );
            return Err(InspectError::Answer(message));
        }
        (Some(fan_in), part) => {
            let Some(part) = part.filter(|part| fan_in.expects(part)) else {
                let missing: Vec<_> = fan_in.missing().collect();
                let missing = missing.join(", ");
                let message = match part {
                    Some(unknown) => format!("{id} asks no part `{unknown}`; --part is one of: {missing}"),
                    None => format!("{id} waits for several answers; say whose it is with --part: {missing}"),
                };
                return Err(InspectError::Answer(message));
            };
            let callback = Callback::new(id.clone(), Some(generation), payload);
            Callback { part: Some(part.to_owned()), ..callback }.into()
        }
    };
    answered(opened, transmission, asked.json).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_behind_a_no_are_its_reason_and_behind_a_yes_no_answer() {
        let (kind, message) = said(Some(" no money "), YesOrNo::No).expect("an answer");
        assert_eq!(kind, TaskMessageKind::ToolConfirmation);
        assert_eq!(message.parts, [Part::json(json!({ "approved": false, "reason": "no money" }))]);
        for (text, verdict) in [("no money", YesOrNo::Yes), ("{reason: x}", YesOrNo::No), ("[1]", YesOrNo::No)] {
            assert!(matches!(said(Some(text), verdict), Err(TalkError::Payload(_))), "{text}");
        }
    }

    #[test]
    fn what_is_asked_by_now_is_told_with_all_that_answers_it() {
        let pause = json!({ "generation": 2, "status": "asleep", "missing": [],
            "request": { "kind": "uncertain_effect", "description": "Did `book` happen?\nNobody knows.",
                "calls": { "call-1": { "tool": "book", "arguments": { "cut": true, "bytes": 9000 } } } },
            "arguments": { "call-1": { "room": "blue" } },
            "accepts": { "properties": { "decision": { "enum": ["happened", "repeat", "skip"] } } },
            "answers": { "approved": { "decision": "happened" }, "denied": { "decision": "repeat" } } });
        let question = OpenQuestion::read(&pause);
        assert_eq!(question.lines(), ["Did `book` happen?", "Nobody knows.", r#"  book {"room":"blue"}"#]);
        let server = ServerArgs { url: Some("http://here".to_owned()), key: None, data: ".dormouse".into() };
        let commands = question.commands("task_1", &server);
        assert_eq!(commands.ready.len(), 3, "{commands:?}");
        for (command, word) in commands.ready.iter().zip(["happened", "repeat", "skip"]) {
            let rest = format!(r#" answer task_1 --url http://here --pause 2 '{{"decision":"{word}"}}'"#);
            assert!(command.ends_with(&rest), "{command}");
        }
    }

    #[test]
    fn the_part_that_is_missing_is_asked_for() {
        let pause = json!({ "generation": 3, "status": "asleep", "missing": ["call-2"], "request": {},
            "accepts": null, "answers": { "approved": {}, "denied": {} } });
        let server = ServerArgs { url: Some("http://here".to_owned()), key: None, data: ".dormouse".into() };
        let commands = OpenQuestion::read(&pause).commands("task_1", &server);
        assert!(
            commands.ready[0].ends_with(" approve task_1 --part call-2 --url http://here --pause 3"),
            "{commands:?}"
        );
        assert_eq!((commands.ready.len(), commands.template), (2, None));
    }
}
