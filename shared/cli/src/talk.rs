//! The commands that speak the protocol with a server: send work, watch it. What answers is in [`crate::answer`].

mod ask;
mod chat;
mod client;
mod edited_line;
mod follow;
mod followed;
mod input_lines;
mod keys;
mod questions;
mod raw_terminal;
mod said;
mod screen;
mod show;
mod typed_area;

use std::io::{self, Read};
use std::process::ExitCode;

use dormouse_api::Agents;
use dormouse_http::percent::encode;
use dormouse_protocol::resource::{
    CreateSessionRequest, CreateWorkspaceRequest, MessageInput, SubmitInput, SubmitTaskRequest, Task, TaskStatus,
    Workspace,
};
use dormouse_protocol::{ErrorCode, List, Map};
use serde_json::{Value, json};

pub(crate) use ask::{AnswerArgs, ClientCommand, ServerArgs};
use ask::{SendTask, Tail, WatchedPlace};
pub(crate) use chat::Chat;
pub(crate) use client::{Client, TalkError};
pub(crate) use show::Show;

use crate::answer::{YesOrNo, answer, show_task};

/// The most personas that are named to whoever asked for one that is not there.
const MOST_NAMED: usize = 20;

/// Outcome of a command that did what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TalkOutcome {
    /// As one hopes.
    Fine,
    /// The task that was watched failed or was canceled.
    Failed,
    /// There is no such invocation.
    NotFound,
}

impl From<TalkOutcome> for ExitCode {
    fn from(ending: TalkOutcome) -> Self {
        match ending {
            TalkOutcome::Fine => Self::SUCCESS,
            TalkOutcome::Failed => Self::from(5),
            TalkOutcome::NotFound => Self::from(4),
        }
    }
}

/// Executes `talk`.
pub(crate) async fn talk(talk: ClientCommand, agents: &Agents) -> Result<TalkOutcome, TalkError> {
    match talk {
        ClientCommand::Chat(asked) => chat::chat(&asked, agents).await,
        ClientCommand::SendTask(asked) => send(asked).await,
        ClientCommand::Tail(asked) => tail(asked).await,
        ClientCommand::Approve(asked) => answer(asked, YesOrNo::Yes, agents).await,
        ClientCommand::Deny(asked) => answer(asked.into_answer(), YesOrNo::No, agents).await,
        ClientCommand::Answer(asked) => answer(asked, YesOrNo::Neither, agents).await,
    }
}

async fn send(asked: SendTask) -> Result<TalkOutcome, TalkError> {
    let client = Client::open(&asked.server)?;
    let input = input(read(&asked.input)?)?;
    let task = match submit(&client, &asked, input).await {
        Ok(task) => task,
        Err(refused) => return Err(with_names(&client, &asked, refused).await),
    };
    let show = Show::new(asked.json, &asked.server);
    if !asked.follow {
        show_task(&client, &task, &show, &asked.server).await?;
        return Ok(TalkOutcome::Fine);
    }
    if !asked.json {
        show.task(&task)?;
    }
    follow_task(&client, task.envelope.id.as_str(), None, &show).await
}

async fn submit(client: &Client, asked: &SendTask, input: SubmitInput) -> Result<Task, TalkError> {
    let session_id = match &asked.session {
        Some(session_id) => session_id.clone(),
        None => open_session(client, asked.workspace.clone(), asked.persona.as_deref()).await?,
    };
    let body = json!(SubmitTaskRequest {
        session_id: None,
        workspace_id: None,
        persona_id: asked.persona.as_deref().map(|name| persona(name).into()),
        branch_id: None,
        parent_task_id: None,
        input,
        metadata: Map::new(),
    });
    client.write(&format!("/v1/sessions/{}/tasks", encode(&session_id)), &body).await
}

/// `refused`, with the personas that there are where the one that was asked for is none of them.
async fn with_names(client: &Client, asked: &SendTask, refused: TalkError) -> TalkError {
    let (TalkError::Refused { status, code: ErrorCode::ResourceNotFound, message, request_id }, Some(name)) =
        (&refused, &asked.persona)
    else {
        return refused;
    };
    // What is not there may as well be the session or the workspace.
    if !message.contains("persona") {
        return refused;
    }
    let workspace = asked.workspace.as_ref().map(|id| format!("?workspace_id={}", encode(id))).unwrap_or_default();
    let mut pages = client.pages(&format!("/v1/personas{workspace}"), "cursor");
    let mut names: Vec<String> = Vec::new();
    loop {
        match pages.next().await {
            Ok(Some(page)) => names.extend(page.iter().filter_map(|one| one["name"].as_str().map(str::to_owned))),
            Ok(None) => break,
            Err(_) => return refused,
        }
    }
    let is_there = names.iter().any(|there| persona(there) == persona(name));
    if is_there || names.is_empty() {
        return refused;
    }
    let shown = names.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let message = format!("there is no persona `{name}`; there are {shown}{more}");
    TalkError::Refused { status: *status, code: ErrorCode::ResourceNotFound, message, request_id: request_id.clone() }
}

/// An object is a structured payload; everything else is a user's message. What begins like an object and is none is
/// a slip of the hand.
pub(crate) fn input(text: String) -> Result<SubmitInput, TalkError> {
    match dormouse_json::read_distinct(text.as_bytes(), dormouse_json::ENTRY) {
        Ok(Value::Object(payload)) => Ok(SubmitInput::Payload(payload)),
        Err(error) if text.trim_start().starts_with('{') => Err(TalkError::Payload(error.to_string())),
        Ok(_) | Err(_) => Ok(SubmitInput::Message(MessageInput::user(text))),
    }
}

fn persona(name: &str) -> String {
    if name.starts_with("persona_") { name.to_owned() } else { format!("persona_{name}") }
}

async fn open_session(
    client: &Client,
    workspace: Option<String>,
    persona_name: Option<&str>,
) -> Result<String, TalkError> {
    let workspace_id = match workspace {
        Some(workspace) => workspace,
        None => any_workspace(client).await?,
    };
    let body = json!(CreateSessionRequest {
        workspace_id: workspace_id.into(),
        persona_id: persona_name.map(|name| persona(name).into()),
        vault_ids: Vec::new(),
        memory_ids: Vec::new(),
        skill_ids: Vec::new(),
        initial_messages: Vec::new(),
        metadata: Map::new(),
    });
    let session: Value = client.write("/v1/sessions", &body).await?;
    Ok(session["id"].as_str().unwrap_or_default().to_owned())
}

/// The first workspace that there is; a new one where there is none.
async fn any_workspace(client: &Client) -> Result<String, TalkError> {
    let first: List<Workspace> = client.read("/v1/workspaces?limit=1").await?;
    if let Some(workspace) = first.data.into_iter().next() {
        return Ok(workspace.envelope.id.as_str().to_owned());
    }
    let body = json!(CreateWorkspaceRequest {
        name: "default".to_owned(),
        root: "/".to_owned(),
        image: None,
        packages: Vec::new(),
        network_policy: Map::new(),
        sandbox_backend: None,
        metadata: Map::new(),
        template: None,
        files: None,
    });
    let workspace: Workspace = client.write("/v1/workspaces", &body).await?;
    Ok(workspace.envelope.id.as_str().to_owned())
}

async fn tail(asked: Tail) -> Result<TalkOutcome, TalkError> {
    let client = Client::open(&asked.server)?;
    let show = Show::new(asked.json, &asked.server);
    match asked.place {
        WatchedPlace { task: Some(task), .. } => watch(&client, &task, asked.after, &show).await,
        WatchedPlace { session: Some(session), .. } => {
            let path = format!("/v1/sessions/{}/events/stream", encode(&session));
            follow_all(&client, &path, asked.after, &show).await
        }
        WatchedPlace { task: None, session: None } => {
            follow_all(&client, "/v1/events/stream", asked.after, &show).await
        }
    }
}

/// Shows events until the command is stopped.
async fn follow_all(client: &Client, path: &str, after: Option<String>, show: &Show) -> Result<TalkOutcome, TalkError> {
    follow::follow(client, path, after, |event| show.event(event).map(|()| false)).await?;
    Ok(TalkOutcome::Fine)
}

/// Shows what happens to a task until it has ended: to people what they wait for, from behind the message `behind` on; to
/// scripts every event.
pub(crate) async fn follow_task(
    client: &Client,
    task_id: &str,
    behind: Option<String>,
    show: &Show,
) -> Result<TalkOutcome, TalkError> {
    if show.is_for_scripts() {
        return watch(client, task_id, None, show).await;
    }
    let mut story = show::Story::behind(show, behind);
    follow::follow(client, &format!("/v1/tasks/{}/stream", encode(task_id)), None, |event| {
        story.event(event)?;
        Ok(show::ends_its_task(event))
    })
    .await?;
    ended(client, task_id, show).await
}

/// Shows every event of a task until it has ended.
async fn watch(client: &Client, task_id: &str, after: Option<String>, show: &Show) -> Result<TalkOutcome, TalkError> {
    let path = format!("/v1/tasks/{}/stream", encode(task_id));
    follow::follow(client, &path, after, |event| {
        show.event(event)?;
        Ok(show::ends_its_task(event))
    })
    .await?;
    ended(client, task_id, show).await
}

/// Shows how a task has ended.
async fn ended(client: &Client, task_id: &str, show: &Show) -> Result<TalkOutcome, TalkError> {
    let task: Task = client.read(&format!("/v1/tasks/{}", encode(task_id))).await?;
    show.task(&task)?;
    Ok(if task.status == TaskStatus::Completed { TalkOutcome::Fine } else { TalkOutcome::Failed })
}

/// The text itself, or what the standard input holds for `-`.
pub(crate) fn read(text: &str) -> Result<String, io::Error> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut read = String::new();
    io::stdin().read_to_string(&mut read)?;
    Ok(read)
}
