//! `dormouse chat`: a conversation with an agent of a folder, in the terminal.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse_http::Authorization;
use dormouse_local::{DevError, DevOptions, FolderError, ServedAt, left, serve};
use dormouse_protocol::resource::{
    AppendTaskMessageRequest, MessageInput, Part, Role, SubmitInput, SubmitTaskRequest, Task, TaskMessageKind,
};
use dormouse_protocol::{Event, EventKind, Map};
use dormouse_tools::mcp::{McpNotice, NoticeListener};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::ask::ServerArgs;
use super::client::Client;
use super::questions::{Questions, TerminalAsker};
use super::said::{fields_of, forms_of, prompt_of};
use super::screen::{BOLD, DIM, InputLines, PLAIN, Screen, ToldStep, ToldSteps, Typed};
use super::show::{TOOLS_MISSING, missing_in};
use super::{TalkError, TalkOutcome, follow, open_session, persona};
use crate::declared::{AtTerminal, data_of, declared};
use crate::inspect::{asked_of, moment};
use crate::terminal::{plain, quoted};

/// Talk with an agent of a folder: its text as it comes, its calls of tools in a line each, its questions in place.
#[derive(Debug, clap::Args)]
pub(crate) struct Chat {
    /// The folder.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// Agent to talk with; the default one without it.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Begin a new conversation. Without it the last one goes on.
    #[arg(long)]
    new: bool,
    /// Seconds after which the work of a killed process is free again.
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(6..=900))]
    lease: u64,
}

/// Executes `asked`.
pub(crate) async fn chat(asked: &Chat) -> Result<TalkOutcome, TalkError> {
    let screen = Arc::new(Screen::default());
    let (asker, questions) = TerminalAsker::new();
    let shown = screen.clone();
    let notices = NoticeListener::new(move |server, notice| {
        if let Some(told) = progress_of(&notice) {
            shown.progress(&format!("{DIM}· {}: {told}{PLAIN}", plain(server)));
        }
    });
    let terminal = AtTerminal { deltas: screen.clone(), asker: Arc::new(asker), notices };
    let data = data_of(&asked.folder);
    let found =
        declared(&asked.folder, &data, Some(terminal)).await.map_err(|error| TalkError::Declared(Box::new(error)))?;
    let agent = asked.agent.clone().unwrap_or(found.default);
    if !found.names.contains(&agent) {
        return Err(TalkError::NoAgent { name: agent, names: found.names.join("`, `") });
    }
    let options = DevOptions {
        port: 0,
        data: data.clone(),
        lease: Duration::from_secs(asked.lease),
        tour: false,
        hosts: Vec::new(),
        store_port: None,
        authorization: Authorization::Keys,
        follower: false,
    };
    let (ready, at) = oneshot::channel();
    let (end, ends) = oneshot::channel();
    let agents = found.agents;
    let serving = tokio::spawn(async move { serve(&agents, options, ready, ends).await });
    let outcome = match at.await {
        Ok(at) => tokio::select! {
            outcome = converse(asked, &agent, (&data, &at), &screen, questions) => outcome,
            // What runs is given the time that it has when a server ends.
            left = left() => left.map(|()| TalkOutcome::Fine).map_err(TalkError::from),
        },
        // It did not start: why is told by what served.
        Err(_) => Ok(TalkOutcome::Fine),
    };
    // Where it has ended by itself there is nothing to end.
    let _ = end.send(());
    match serving.await {
        Ok(Ok(())) => outcome,
        Ok(Err(error)) => Err(not_served(&error, &agent)),
        Err(error) => Err(TalkError::NotServed(error.to_string())),
    }
}

/// Why there is no conversation with `agent`.
fn not_served(error: &DevError, agent: &str) -> TalkError {
    let DevError::Folder(FolderError::Taken { path, pid }) = error else {
        return TalkError::NotServed(error.to_string());
    };
    TalkError::NotServed(format!(
        "process {pid} has this workspace already: end that `dormouse chat` or `dormouse dev`, or talk with the agents that a \
         `dormouse dev` serves: dormouse send --data {} --persona {agent} --follow 'Hello'",
        quoted(&path.to_string_lossy())
    ))
}

async fn converse(
    asked: &Chat,
    agent: &str,
    (data, at): (&Path, &ServedAt),
    screen: &Arc<Screen>,
    questions: Questions,
) -> Result<TalkOutcome, TalkError> {
    let server = ServerArgs { url: Some(at.address.clone()), key: Some(at.api_key.clone()), data: data.to_owned() };
    let client = Client::open(&server)?;
    let kept = data.join(format!("chat-{agent}"));
    let last = if asked.new { None } else { last_session(&client, &kept).await? };
    let session = match last {
        Some(session) => session,
        None => {
            let session = open_session(&client, None, Some(agent)).await?;
            std::fs::write(&kept, &session)?;
            session
        }
    };
    let mut person = Person { lines: InputLines::start(), questions };
    screen.line(&format!("{BOLD}{agent}{PLAIN}  {DIM}{COMMANDS}{PLAIN}"));
    let (failed, elsewhere, agents) = (RefCell::default(), RefCell::default(), RefCell::default());
    let (name, shown) = (agent.to_owned(), screen.clone());
    let mut talk = ChatSession { client, session, agent: name, screen: shown, failed, elsewhere, agents };
    let mut sent = talk.resume(&mut person).await?;
    let mut outcome = TalkOutcome::Fine;
    while let Sent::Ended(ended) = sent {
        // A script has to know; a person has seen it.
        if ended == TalkOutcome::Failed && !io::stdin().is_terminal() {
            outcome = ended;
        }
        sent = Sent::Ended(TalkOutcome::Fine);
        screen.prompt("> ");
        let Typed::Line(line) = person.lines.message(screen, is_known_command).await? else { break };
        match line.trim() {
            "" => {}
            "/help" => screen.line(COMMANDS),
            "/new" => {
                talk.session = open_session(&talk.client, None, Some(agent)).await?;
                std::fs::write(&kept, &talk.session)?;
                screen.line("a new conversation");
            }
            "/exit" | "/quit" => break,
            "/compact" => {
                let compact = Map::from_iter([("compact".to_owned(), true.into())]);
                sent = talk.send(SubmitInput::Payload(compact), &mut person).await?;
            }
            word if is_command(&line) => {
                screen.line(&format!("there is no {}; with a blank before it, it is said to {agent}", plain(word)));
                screen.line(COMMANDS);
            }
            text => sent = talk.send(SubmitInput::Message(MessageInput::user(text)), &mut person).await?,
        }
    }
    screen.line("");
    match sent {
        Sent::Ended(_) => {}
        Sent::Left => screen.line("it sleeps, and asks again when this conversation is taken up"),
        Sent::Asleep => screen.line("it sleeps, and goes on in time while this folder is served"),
    }
    Ok(outcome)
}

/// The conversation that the file `kept` leads back to, unless it is not there any more. Where that cannot be known, the file
/// has to stay: nothing else leads back.
async fn last_session(client: &Client, kept: &Path) -> Result<Option<String>, TalkError> {
    let Ok(session) = std::fs::read_to_string(kept) else { return Ok(None) };
    let session = session.trim();
    if session.is_empty() {
        return Ok(None);
    }
    match client.read::<Value>(&format!("/v1/sessions/{session}")).await {
        Ok(_) => Ok(Some(session.to_owned())),
        Err(error) if error.is_nowhere() => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if `line` is meant for the terminal: a slash and a word of letters, at its very beginning.
fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
    line.starts_with('/') && word.is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()))
}

/// True if `line` is a command that there is, and nothing else.
fn is_known_command(line: &str) -> bool {
    ["/help", "/new", "/exit", "/quit", "/compact"].contains(&line.trim_end())
}

/// What a person may do besides talking.
const COMMANDS: &str =
    "Ctrl-C stops an answer, Ctrl-D ends; /new begins a new conversation, /compact makes it shorter, /help tells this";

/// The most events of a task that are read at once.
const PAGE: usize = 200;

/// Characters of the reason for which a call failed.
const LONGEST_REASON: usize = 300;

/// The event about a conversation of which the model is shown a summary, and about one that stays as it is.
const COMPACTED: &str = "vendor.dormouse.context_compacted";
const KEPT: &str = "vendor.dormouse.context_kept";

/// The event about an agent that another one has asked, and the tool with which that is done.
const AGENT_ASKED: &str = "vendor.dormouse.agent_asked";
const SUB_AGENT: &str = "SubAgent";

/// Time after which agents that were asked are looked at again: what they ask is told in no stream that is followed.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Field value of the events about summaries, where somebody asked for one.
const ASKED: &str = "asked";

/// The person at the terminal: what they type, and what tools ask them in the midst of calls.
struct Person {
    lines: InputLines,
    questions: Questions,
}

/// One conversation.
struct ChatSession {
    client: Client,
    session: String,
    agent: String,
    screen: Arc<Screen>,
    /// The tools of calls that have failed and whose results were not told, by the ids of the calls.
    failed: RefCell<BTreeMap<String, String>>,
    /// What the task that is followed waits for elsewhere.
    elsewhere: RefCell<WaitElsewhere>,
    /// The tasks of agents that the task that is followed has asked, and in turn these, as far as they may ask a person.
    agents: RefCell<BTreeSet<String>>,
}

/// The wait of a task for tools that work elsewhere.
#[derive(Default)]
struct WaitElsewhere {
    /// The task and what it waits for, as that was told last.
    told: Option<(String, String)>,
    /// True while it sleeps: nothing has come of it since.
    sleeps: bool,
}

impl WaitElsewhere {
    /// The task sleeps until `waits` is over; true if that is to be told.
    fn begin(&mut self, task: &str, waits: &str) -> bool {
        self.sleeps = true;
        let is_told = self.told.as_ref().is_some_and(|(of, told)| of == task && told == waits);
        if !is_told {
            self.told = Some((task.to_owned(), waits.to_owned()));
        }
        !is_told
    }

    /// Something came of the task: it works.
    fn moved(&mut self) {
        self.sleeps = false;
    }

    /// The wait is over.
    fn end(&mut self) {
        *self = Self::default();
    }
}

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

/// Where a task was left.
#[derive(Default)]
struct LeftOff {
    /// Its last event.
    after: Option<String>,
    /// What it asks, unless it works.
    asked: Option<Map>,
    /// Its steps until then.
    told: ToldSteps,
    /// The tasks of agents that it has asked.
    agents: BTreeSet<String>,
    has_ended: bool,
}

impl LeftOff {
    /// Takes in the next of its events.
    fn take(&mut self, event: &Value) {
        if let Some(step) = Event::deserialize(event).ok().as_ref().and_then(told) {
            self.told.take(step);
        }
        self.after = event["id"].as_str().map(str::to_owned).or(self.after.take());
        let payload = &event["payload"];
        if event["event"] == AGENT_ASKED {
            self.agents.extend(payload["invocation_id"].as_str().map(str::to_owned));
        }
        let is_moved = event["event"].as_str().is_some_and(|event| event.starts_with("task."));
        let status = payload["status"].as_str().filter(|_| is_moved).unwrap_or_default();
        let stays = self.asked.take().filter(|_| status != "WORKING");
        self.asked = payload["request"].as_object().cloned().or(stays);
        self.has_ended |= matches!(status, "COMPLETED" | "FAILED" | "CANCELED");
    }
}

/// How a message was seen through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Its task has ended so, or there was none.
    Ended(TalkOutcome),
    /// The person left while its task asked; it sleeps.
    Left,
    /// The person left while its task slept until tools that work elsewhere are done.
    Asleep,
}

/// What became of a question.
enum Answered {
    /// It was answered, or time answers it.
    Done,
    /// The input ended.
    Left,
    /// The person stopped the task.
    Stopped,
}

/// What a person says to a question.
enum Said {
    Fields(Map),
    Left,
    Stopped,
}

impl ChatSession {
    /// Sends `input`, shows what comes of it, and answers what is asked meanwhile.
    async fn send(&mut self, input: SubmitInput, person: &mut Person) -> Result<Sent, TalkError> {
        let body = json!(SubmitTaskRequest {
            session_id: None,
            workspace_id: None,
            persona_id: Some(persona(&self.agent).into()),
            branch_id: None,
            parent_task_id: None,
            input,
            metadata: Map::new(),
        });
        let task: Task = self.client.write(&format!("/v1/sessions/{}/tasks", self.session), &body).await?;
        self.attend(task.envelope.id.as_str(), LeftOff::default(), person).await
    }

    /// Asks again what the conversation was left with, and sees it through.
    async fn resume(&mut self, person: &mut Person) -> Result<Sent, TalkError> {
        let tasks: Value = self.client.read(&format!("/v1/tasks?session_id={}", self.session)).await?;
        let mut outcome = TalkOutcome::Fine;
        for task in tasks["data"].as_array().into_iter().flatten() {
            let Ok(task) = Task::deserialize(task) else { continue };
            if task.status.is_terminal() {
                continue;
            }
            let id = task.envelope.id.as_str();
            let left = self.left_off(id).await?;
            let is_elsewhere = |request: &&Map| asks_nobody(request) && !waits_for_agents(request);
            if let Some(request) = left.asked.as_ref().filter(is_elsewhere) {
                if let Some(waits) = waits_elsewhere(request) {
                    // It is not followed: what is typed here is for the conversation.
                    self.show_elsewhere(request, &waits);
                }
                continue;
            }
            // What asks nothing works: a process that was killed had begun it, and it goes on in this one.
            if left.has_ended || (left.asked.is_none() && task.status.is_suspended()) {
                continue;
            }
            match self.attend(id, left, person).await? {
                sent @ (Sent::Left | Sent::Asleep) => return Ok(sent),
                Sent::Ended(TalkOutcome::Fine) => {}
                Sent::Ended(failed) => outcome = failed,
            }
        }
        Ok(Sent::Ended(outcome))
    }

    /// Where the task `id` is, as its events tell.
    async fn left_off(&self, id: &str) -> Result<LeftOff, TalkError> {
        let mut left = LeftOff::default();
        loop {
            let cursor = left.after.as_ref().map(|after| format!("&after_event_id={after}")).unwrap_or_default();
            let page: Value = self.client.read(&format!("/v1/tasks/{id}/events?limit={PAGE}{cursor}")).await?;
            page["data"].as_array().into_iter().flatten().for_each(|event| left.take(event));
            if page["page"]["has_more"] != true {
                return Ok(left);
            }
        }
    }

    /// Shows what comes of `task` behind where it was `left`, answers what it asked there and what it asks meanwhile.
    async fn attend(&self, task: &str, left: LeftOff, person: &mut Person) -> Result<Sent, TalkError> {
        let LeftOff { mut after, mut asked, told, agents, has_ended: _ } = left;
        self.screen.follow(task, told);
        *self.agents.borrow_mut() = agents;
        loop {
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
                interrupted = tokio::signal::ctrl_c() => {
                    interrupted?;
                    return Ok(FollowedTask::Stopped);
                }
                () = tokio::time::sleep(LOOKS_EVERY), if !self.agents.borrow().is_empty() => {
                    match Box::pin(self.answer_agents(person)).await? {
                        Answered::Done => {}
                        Answered::Left => return Ok(FollowedTask::Unanswered),
                        Answered::Stopped => return Ok(FollowedTask::Stopped),
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
            let Some(request) = left.asked.filter(|request| !asks_nobody(request)) else { continue };
            // The run that is followed sleeps as before.
            let waits = self.elsewhere.take();
            let answered = self.answer(&id, &request, person).await?;
            *self.elsewhere.borrow_mut() = waits;
            match answered {
                Answered::Done => {}
                Answered::Left | Answered::Stopped => return Ok(answered),
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
            Ok(asks.is_some() || super::show::ends_its_task(event))
        })
        .await?;
        *after = seen;
        Ok(asks.map_or(FollowedTask::Ended(outcome), FollowedTask::Asks))
    }

    /// Shows `event`; returns what it asks.
    fn show(&self, event: &Event) -> Option<Map> {
        let payload = &event.payload;
        let text = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
        if matches!(event.event, EventKind::TaskInputRequired | EventKind::TaskAuthRequired) {
            return payload.get("request").and_then(Value::as_object).cloned();
        }
        if event.event.as_str() == AGENT_ASKED {
            self.agents.borrow_mut().insert(text("invocation_id").to_owned());
        }
        if event.event == EventKind::TaskFailed {
            self.screen.line(&format!("failed: {}", failure(payload)));
        } else if matches!(event.event, EventKind::ToolCompleted | EventKind::ToolFailed | EventKind::ToolDenied) {
            let tool = plain(text("tool"));
            let outcome = event.event.as_str().trim_start_matches("tool.");
            let time = payload.get("duration_ms").and_then(Value::as_u64);
            let time = time.map(|time| format!(", {time} ms")).unwrap_or_default();
            let reason = Some(text("message")).filter(|reason| !reason.is_empty());
            if event.event == EventKind::ToolFailed && reason.is_none() {
                self.failed.borrow_mut().insert(text("tool_call_id").to_owned(), tool.clone());
            }
            let reason = reason.map(|reason| format!(": {}", short(reason))).unwrap_or_default();
            self.screen.line(&format!("{DIM}· {tool} {outcome}{time}{reason}{PLAIN}"));
        } else if event.event.as_str() == COMPACTED && text("trigger") == ASKED {
            self.screen.line("the model is shown a summary of what was said before");
        } else if event.event.as_str() == KEPT && text("trigger") == ASKED {
            self.screen.line(&format!("the conversation stays as it is: {}", short(text("message"))));
        } else if event.event.as_str() == TOOLS_MISSING {
            missing_in(payload).for_each(|line| self.screen.line(&line));
        } else if event.event == EventKind::TaskCompleted {
            self.screen.end_of_answer();
        } else {
            self.show_failures(payload);
            self.show_message(event);
        }
        if let Some(step) = told(event) {
            self.screen.told(step);
        }
        None
    }

    /// Why calls have failed, as their results in a message say.
    fn show_failures(&self, payload: &Map) {
        for part in payload.get("parts").and_then(Value::as_array).into_iter().flatten() {
            let id = part["tool_call_id"].as_str().filter(|_| part["type"] == "tool_result").unwrap_or_default();
            if let (Some(tool), Some(said)) = (self.failed.borrow_mut().remove(id), part["output"].as_str()) {
                let reason = short(said.strip_prefix("error: ").unwrap_or(said));
                self.screen.line(&format!("{DIM}  {tool}: {reason}{PLAIN}"));
            }
        }
    }

    /// A message of the agent that was not shown while it came.
    fn show_message(&self, event: &Event) {
        let is_agents = event
            .payload
            .get("role")
            .and_then(Value::as_str)
            .is_some_and(|role| role == "assistant" || role == "agent");
        let parts = event.payload.get("parts").and_then(Value::as_array).into_iter().flatten();
        let said: String = parts.filter_map(|part| part.get("text")?.as_str()).collect();
        if is_agents && !said.is_empty() {
            self.screen.whole(&said);
        }
    }

    /// Asks the person at the terminal, and sends what they say.
    async fn answer(&self, task: &str, request: &Map, person: &mut Person) -> Result<Answered, TalkError> {
        if request.get("kind").and_then(Value::as_str) == Some("rest") {
            // Time answers this, and no person.
            let reason = request.get("reason").and_then(Value::as_str).unwrap_or("no reason was given");
            self.screen.question("The model cannot be asked now");
            self.screen.line(&format!("  {}; it is tried again by itself, Ctrl-C ends the task", plain(reason)));
            return Ok(Answered::Done);
        }
        if asks_nobody(request) {
            // A job, an event or other agents answer this.
            self.tell_elsewhere(task, request);
            return Ok(Answered::Done);
        }
        self.elsewhere.borrow_mut().end();
        let parts = self.open_parts(task, request).await?;
        let request = &self.whole(task, request).await?;
        for part in parts {
            loop {
                let fields = match self.ask(request, part.as_deref(), person).await? {
                    Said::Fields(fields) => fields,
                    Said::Left => return Ok(Answered::Left),
                    Said::Stopped => return Ok(Answered::Stopped),
                };
                match self.give(task, request, part.as_deref(), fields).await {
                    Ok(()) => break,
                    Err(TalkError::Refused { status: 409, message, .. }) => {
                        self.screen.line(&format!("  {}", plain(&message)));
                        if !self.still_asks(task, request).await? {
                            // What it asks by now comes with its events.
                            return Ok(Answered::Done);
                        }
                        break;
                    }
                    // It is asked again: a slip at the keyboard ends no conversation.
                    Err(error) if error.is_misfit() => self.screen.line(&format!("  {}", plain(&error.to_string()))),
                    Err(error) => return Err(error),
                }
            }
        }
        self.screen.answered();
        Ok(Answered::Done)
    }

    /// Tells once which tools work elsewhere where the `request` of `task` waits for some, and what a person can do meanwhile.
    fn tell_elsewhere(&self, task: &str, request: &Map) {
        let Some(waits) = waits_elsewhere(request) else { return };
        if !self.elsewhere.borrow_mut().begin(task, &waits) {
            return;
        }
        self.show_elsewhere(request, &waits);
        if io::stdin().is_terminal() {
            self.screen.line(&format!("{DIM}  Ctrl-D leaves it asleep, Ctrl-C ends the run{PLAIN}"));
        }
    }

    /// What `request` `waits` for elsewhere, until when, and where its outcome is told.
    fn show_elsewhere(&self, request: &Map, waits: &str) {
        if waits_for_agents(request) {
            self.screen.line(&format!("{DIM}· {waits}{PLAIN}"));
            return;
        }
        let due = request.get("due_at").and_then(Value::as_str).and_then(|due| due.parse::<Timestamp>().ok());
        let due = due.map(|due| format!(", and goes on at {} at the latest", moment(due))).unwrap_or_default();
        self.screen.line(&format!("{DIM}· {waits}{due}{PLAIN}"));
        let address = self.client.address();
        self.screen.line(&format!(
            "{DIM}  its callback address is at {address}, as long as this conversation is open; \
             `dormouse dev --workspace` has one that stays{PLAIN}"
        ));
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

    /// True if nothing works on `task` now.
    async fn is_asleep(&self, task: &str) -> Result<bool, TalkError> {
        let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
        Ok(now["status"] == "asleep")
    }

    /// True if `task` waits for an answer to `request` still, or to other parts of it.
    async fn still_asks(&self, task: &str, request: &Map) -> Result<bool, TalkError> {
        let now: Value = self.client.read(&format!("/v1/x-pauses/{task}")).await?;
        Ok(now["status"] == "asleep" && request.get("pause") == Some(&now["generation"]))
    }

    async fn ask(&self, request: &Map, part: Option<&str>, person: &mut Person) -> Result<Said, TalkError> {
        let kind = request.get("kind").and_then(Value::as_str).unwrap_or_default();
        let question = request.get("description").and_then(Value::as_str).unwrap_or("It waits for an answer.");
        self.screen.question(question);
        for line in asked_of(request, part) {
            self.screen.line(&format!("  {line}"));
        }
        person.lines.leave_out_early(&self.screen);
        let mut are_told = false;
        loop {
            self.screen.prompt(prompt_of(kind));
            let line = match person.lines.next().await? {
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

/// What `event` tells of the steps of its task.
fn told(event: &Event) -> Option<ToldStep> {
    let payload = &event.payload;
    if event.event == EventKind::SpanCompleted {
        payload.get("step").and_then(Value::as_u64).map(ToldStep::Answered)
    } else if event.event == EventKind::ToolRequested {
        Some(ToldStep::Called)
    } else if payload.get("role").is_some_and(|role| role == "tool") {
        Some(ToldStep::Returned)
    } else {
        payload.contains_key("parts").then_some(ToldStep::Said)
    }
}

/// The beginning of a reason, in a line.
fn short(reason: &str) -> String {
    let mut said: String = reason.trim().chars().take(LONGEST_REASON).collect();
    if said.len() < reason.trim().len() {
        said.push('…');
    }
    plain(&said)
}

/// What `notice` tells of how far a call is.
fn progress_of(notice: &McpNotice) -> Option<String> {
    let McpNotice::Progress { progress, total, message, .. } = notice else { return None };
    let far = match total {
        Some(total) => format!("{progress} of {total}"),
        None => progress.to_string(),
    };
    Some(message.iter().fold(far, |far, message| format!("{far}, {}", short(message))))
}

/// True if a job, an event, a time or other agents answer `request`.
fn asks_nobody(request: &Map) -> bool {
    request.get("asks_person").is_some_and(|asks| asks == false)
}

/// True if other agents are waited for, which may ask a person, and nothing else is.
fn waits_for_agents(request: &Map) -> bool {
    let of_agents = |calls: &Map| !calls.is_empty() && calls.values().all(|call| call["tool"] == SUB_AGENT);
    match request.get("kind").and_then(Value::as_str) {
        Some("agents") => true,
        Some("job") => request.get("calls").and_then(Value::as_object).is_some_and(of_agents),
        Some(_) | None => false,
    }
}

/// What `request` waits for where tools, or other agents, work elsewhere.
fn waits_elsewhere(request: &Map) -> Option<String> {
    if waits_for_agents(request) {
        return Some("the run sleeps until the agents that it has asked have answered".to_owned());
    }
    let calls = request.get("calls").filter(|_| request.get("kind").is_some_and(|kind| kind == "job"))?.as_object()?;
    let tools: BTreeSet<String> = calls.values().filter_map(|call| call["tool"].as_str()).map(plain).collect();
    let tools: Vec<String> = tools.into_iter().map(|tool| format!("`{tool}`")).collect();
    (!tools.is_empty()).then(|| format!("the run sleeps until the outcome of {} is told", tools.join(", ")))
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

fn failure(payload: &Map) -> String {
    let message = payload.get("failure").and_then(|failure| failure.get("message")?.as_str());
    plain(message.unwrap_or("why is in the task"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

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

    #[test]
    fn a_task_is_left_with_what_it_asks_by_now() {
        let event = |id: &str, kind: &str, payload: Value| json!({ "id": id, "event": kind, "payload": payload });
        let asked = json!({ "status": "AUTH_REQUIRED", "request": { "pause": 1 } });
        let steps = [
            (event("1", "task.started", json!({ "status": "WORKING" })), false, false),
            (event("2", "task.auth_required", asked), true, false),
            (event("3", "user.tool_confirmation", json!({ "parts": [] })), true, false),
            (event("4", "task.status_changed", json!({ "status": "WORKING" })), false, false),
            (event("5", "task.completed", json!({ "status": "COMPLETED" })), false, true),
        ];
        let mut left = LeftOff::default();
        for (event, asks, has_ended) in steps {
            left.take(&event);
            assert_eq!((left.asked.is_some(), left.has_ended), (asks, has_ended), "{event}");
            assert_eq!(left.after.as_deref(), event["id"].as_str());
        }
    }

    #[test]
    fn tools_that_work_elsewhere_are_named() {
        let waits = |request: Value| waits_elsewhere(request.as_object().expect("an object"));
        let calls =
            json!({ "call-1": { "tool": "sign" }, "call-2": { "tool": "print" }, "call-3": { "tool": "sign" } });
        let told = "the run sleeps until the outcome of `print`, `sign` is told";
        assert_eq!(waits(json!({ "kind": "job", "calls": calls })).as_deref(), Some(told));
        assert_eq!(waits(json!({ "kind": "model", "job": "j" })), None);
        let told = "the run sleeps until the agents that it has asked have answered";
        for calls in
            [json!({ "kind": "job", "calls": { "call-1": { "tool": "SubAgent" } } }), json!({ "kind": "agents" })]
        {
            assert_eq!(waits(calls).as_deref(), Some(told));
        }
        assert_eq!(waits(json!({ "kind": "approval", "calls": calls })), None);
    }

    #[test]
    fn a_task_that_works_again_sleeps_no_more_and_is_told_of_once() {
        let mut wait = WaitElsewhere::default();
        assert!(wait.begin("task_1", "`sign`") && wait.sleeps);
        wait.moved();
        assert!(!wait.sleeps);
        assert!(!wait.begin("task_1", "`sign`") && wait.sleeps, "it was asked, and is waited for again");
        assert!(wait.begin("task_1", "`print`"));
        assert!(wait.begin("task_2", "`print`"));
        wait.end();
        assert!(!wait.sleeps && wait.begin("task_2", "`print`"));
    }

    #[test]
    fn a_slash_and_a_word_are_for_the_terminal_and_paths_are_not() {
        for command in ["/help", "/nwe", "/compact now"] {
            assert!(is_command(command), "{command}");
        }
        for text in ["/etc/hosts is wrong", " /nwe", "/", "/ 2", "/2", "a /help"] {
            assert!(!is_command(text), "{text}");
        }
    }

    #[test]
    fn how_far_a_call_is_fits_into_a_line() {
        let told = |progress, total, message: Option<&str>| {
            let (call, message) = ("c1".to_owned(), message.map(str::to_owned));
            progress_of(&McpNotice::Progress { call, progress, total, message })
        };
        assert_eq!(told(3.0, Some(10.0), Some("mixing\nit")).as_deref(), Some("3 of 10, mixing\\nit"));
        assert_eq!(told(0.5, None, None).as_deref(), Some("0.5"));
        assert_eq!(progress_of(&McpNotice::ListChanged), None);
    }

    /// A client of a server that answers each request with `status`.
    fn answered_with(status: &'static str) -> Client {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}");
                if stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {
                    stream.write_all(answer.as_bytes()).expect("it is read");
                }
            }
        });
        Client::open(&ServerArgs { url: Some(url), key: Some("dm_x".to_owned()), data: PathBuf::new() })
            .expect("a client")
    }

    #[tokio::test]
    async fn a_conversation_is_left_behind_only_where_it_is_not_there_any_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = folder.path().join("chat-clerk");
        assert_eq!(last_session(&answered_with("200 OK"), &kept).await.expect("none was kept"), None);
        std::fs::write(&kept, "sesn_1\n").expect("it is written");
        let last = last_session(&answered_with("200 OK"), &kept).await.expect("it is there");
        assert_eq!(last.as_deref(), Some("sesn_1"));
        assert_eq!(last_session(&answered_with("404 Not Found"), &kept).await.expect("it is gone"), None);
        for away in ["503 Service Unavailable", "401 Unauthorized"] {
            last_session(&answered_with(away), &kept).await.expect_err("nobody knows");
        }
        std::fs::write(&kept, "").expect("it is written");
        let none = last_session(&answered_with("503 Service Unavailable"), &kept).await;
        assert_eq!(none.expect("an empty file leads nowhere"), None);
    }

    #[test]
    fn a_reason_is_a_short_line() {
        assert_eq!(short(" no room\nleft "), "no room\\nleft");
        assert_eq!(short(&"ü".repeat(400)), format!("{}…", "ü".repeat(300)));
    }
}
