//! Answers from a terminal to what sleeps: to a task through its server, to any other invocation in the store.

use dormouse_api::{Agents, answer_payload};
use dormouse_harness::{Callback, Transmission};
use dormouse_local::keys::DEVELOPER;
use dormouse_ports::{BEFORE_FIRST_PAUSE, InvocationRecord, Map, PausedInvocation};
use dormouse_protocol::resource::{
    AppendTaskMessageRequest, MessageInput, Part, Role, SubmitInput, Task, TaskMessageKind,
};
use serde_json::{Value, json};

use crate::inspect::hint::{AskedQuestion, of_pause};
use crate::inspect::{InspectError, InspectOutcome, Printer, named, not_found, on, signal};
use crate::talk::{AnswerArgs, Client, ServerArgs, Show, TalkError, TalkOutcome, follow_task, input, read};
use crate::target::{OpenedStore, Purpose, StoreTarget};
use crate::terminal::{json as json_text, plain, tool_of};

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
    if is_whole_task(&asked.id) || asked.server.url.is_some() {
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
    let taken: Map = client.write(&format!("/v1/x-pauses/{id}/answer"), &body).await?;
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
        Some(text) => dormouse_json::read::<Map>(text.as_bytes(), dormouse_json::ENTRY)
            .map_err(|error| TalkError::Payload(error.to_string()))?,
        None => Map::new(),
    };
    fields.insert("approved".to_owned(), approved.into());
    Ok((TaskMessageKind::ToolConfirmation, message(SubmitInput::Payload(fields))))
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
    let path = format!("/v1/tasks/{id}");
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
        Err(error) if error.is_late() => return Err(late(&client, id, pause, &asked.server, error).await),
        Err(error) => return Err(error),
    };
    let show = Show::new(asked.json, &asked.server);
    if asked.follow {
        return follow_task(&client, id, taken["id"].as_str().map(str::to_owned), &show).await;
    }
    show.task(&client.read(&path).await?)?;
    Ok(TalkOutcome::Fine)
}

/// What to say of an answer to the pause `answered` of the task `id`, which the server has `refused` since it came late:
/// what is asked by now, where that is something else.
async fn late(client: &Client, id: &str, answered: u64, server: &ServerArgs, refused: TalkError) -> TalkError {
    match OpenQuestion::of(client, id).await {
        Ok(now) if now.is_asked && now.generation != answered => {
            let asks = AskedQuestion {
                id,
                part: now.missing.as_deref(),
                metadata: now.pause["request"].as_object(),
                takes_yes_or_no: now.takes_yes_or_no,
            };
            let options = format!("{}{}", server.options(), of_pause(Some(now.generation)));
            let command = asks.commands(&options).into_iter().next().unwrap_or_default();
            TalkError::AnotherQuestion { question: now.lines().join("\n"), command }
        }
        Ok(_) | Err(_) => refused,
    }
}

/// What a task asks now.
struct OpenQuestion {
    generation: u64,
    is_asked: bool,
    takes_yes_or_no: bool,
    /// The first part without an answer, where it asks several.
    missing: Option<String>,
    pause: Value,
}

impl OpenQuestion {
    async fn of(client: &Client, id: &str) -> Result<Self, TalkError> {
        let pause: Value = client.read(&format!("/v1/x-pauses/{id}")).await?;
        let mut missing = pause["missing"].as_array().into_iter().flatten();
        Ok(Self {
            generation: pause["generation"].as_u64().unwrap_or_default(),
            is_asked: pause["status"] == "asleep",
            takes_yes_or_no: pause["answers"].get("approved").is_some(),
            missing: missing.next().and_then(Value::as_str).map(str::to_owned),
            pause,
        })
    }

    /// The question and the calls that it is about, with all of their arguments.
    fn lines(&self) -> Vec<String> {
        let request = &self.pause["request"];
        let question = request["description"].as_str().unwrap_or("it waits for an answer");
        let calls = request["calls"].as_object().into_iter().flatten().map(|(part, call)| {
            let whole = &self.pause["arguments"][part];
            let arguments = if whole.is_null() { &call["arguments"] } else { whole };
            format!("  {} {} {}", plain(part), tool_of(call), json_text(arguments, false))
        });
        std::iter::once(plain(question)).chain(calls).collect()
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
    signal(opened, transmission, asked.json).await
}
