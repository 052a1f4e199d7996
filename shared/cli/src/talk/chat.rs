//! `dormouse chat`: a conversation with an agent of a folder, in the terminal.

mod answer;
mod elsewhere;
mod events;
mod resume;
mod run;
#[cfg(test)]
mod stub;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dormouse_api::Agents;
use dormouse_http::Authorization;
use dormouse_local::{DevError, DevOptions, FolderError, ServedAt, left, serve};
use dormouse_protocol::Map;
use dormouse_protocol::resource::{MessageInput, SubmitInput};
use dormouse_tools::mcp::NoticeListener;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use self::elsewhere::WaitElsewhere;
use self::events::{ToldMissing, progress_of};
use self::resume::last_session;
use super::ask::ServerArgs;
use super::client::Client;
use super::followed::FollowedFile;
use super::input_lines::{InputLines, Typed};
use super::questions::{Questions, TerminalAsker};
use super::screen::{BOLD, DIM, PLAIN, Screen};
use super::typed_area::COMMAND_WORDS;
use super::{TalkError, TalkOutcome, open_session};
use crate::declared::{AtTerminal, data_of, declared};
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
pub(crate) async fn chat(asked: &Chat, agents: &Agents) -> Result<TalkOutcome, TalkError> {
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
    let found = declared(&asked.folder, &data, Some(terminal), agents.crate_tools()).await;
    let found = found.map_err(|error| TalkError::Declared(Box::new(error)))?;
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
        workspace: Some(asked.folder.clone()),
    };
    let (ready, at) = oneshot::channel();
    let (end, ends) = oneshot::channel();
    let agents = found.agents;
    let mut serving = tokio::spawn(async move { serve(&agents, options, ready, ends).await });
    let outcome = match at.await {
        Ok(at) => tokio::select! {
            outcome = converse(asked, &agent, (&data, &at), &screen, questions) => outcome,
            // What runs is given the time that it has when a server ends.
            left = left() => left.map(|()| TalkOutcome::Fine).map_err(TalkError::from),
            // Nobody has asked it to end: its folder is gone.
            served = &mut serving => return ended(served, &agent).map(|()| TalkOutcome::Fine),
        },
        // It did not start: why is told by what served.
        Err(_) => Ok(TalkOutcome::Fine),
    };
    // Where it has ended by itself there is nothing to end.
    let _ = end.send(());
    ended(serving.await, &agent)?;
    outcome
}

/// How that ended which served the conversation with `agent`.
fn ended(served: Result<Result<(), DevError>, JoinError>, agent: &str) -> Result<(), TalkError> {
    match served {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(not_served(&error, agent)),
        Err(error) => Err(TalkError::NotServed(error.to_string())),
    }
}

/// Why there is no conversation with `agent`.
fn not_served(error: &DevError, agent: &str) -> TalkError {
    if let DevError::Folder(FolderError::Io { path, error }) = error {
        let path = path.display();
        let message = format!("what is said is kept in {path}, which cannot be used: {error}; make it writable");
        return TalkError::NotServed(message);
    }
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
    screen.converse(&session);
    let mut person = Person { lines: InputLines::start(screen), questions };
    screen.line(&format!("{BOLD}{agent}{PLAIN}  {DIM}{COMMANDS}{PLAIN}"));
    let (failed, missing) = (RefCell::default(), RefCell::default());
    let (elsewhere, agents) = (RefCell::default(), RefCell::default());
    let (name, shown) = (agent.to_owned(), screen.clone());
    let followed = FollowedFile::of(data, agent);
    let mut talk =
        ChatSession { client, session, agent: name, screen: shown, followed, failed, missing, elsewhere, agents };
    let mut sent = talk.resume(&mut person).await?;
    let mut outcome = TalkOutcome::Fine;
    while let Sent::Ended(ended) = sent {
        // A script has to know; a person has seen it.
        if ended == TalkOutcome::Failed && !io::stdin().is_terminal() {
            outcome = ended;
        }
        sent = Sent::Ended(TalkOutcome::Fine);
        let Typed::Line(line) = person.lines.message(screen, is_known_command).await? else { break };
        match line.trim() {
            "" => {}
            "/help" => {
                screen.line(COMMANDS);
                if person.lines.are_edited() {
                    screen.line(KEYS);
                }
            }
            "/new" => {
                talk.session = open_session(&talk.client, None, Some(agent)).await?;
                std::fs::write(&kept, &talk.session)?;
                screen.converse(&talk.session);
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
    person.lines.tell_unsent(screen);
    match sent {
        Sent::Ended(_) => {}
        Sent::Left => screen.line("it sleeps, and asks again when this conversation is taken up"),
        Sent::Asleep => screen.line("it sleeps, and goes on in time while this folder is served"),
    }
    Ok(outcome)
}

/// True if `line` is meant for the terminal: a slash and a word of letters, at its very beginning.
fn is_command(line: &str) -> bool {
    let word = line.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
    line.starts_with('/') && word.is_some_and(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphabetic()))
}

/// True if `line` is a command that there is, and nothing else.
fn is_known_command(line: &str) -> bool {
    COMMAND_WORDS.contains(&line.trim_end())
}

/// What a person may do besides talking.
const COMMANDS: &str =
    "Ctrl-C stops an answer, Ctrl-D ends; /new begins a new conversation, /compact makes it shorter, /help tells this";

/// What the keys do to a line that is edited.
const KEYS: &str = "the arrows, Home, End and Ctrl-A, E, U, K, W, Y edit the line as in a shell; Up and Down bring what was said before, \
                    Ctrl-R searches it, Ctrl-G ends that, Tab ends a command, Alt-Enter begins another line of the message";

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
    followed: FollowedFile,
    /// The tools of calls that have failed and whose results were not told, by the ids of the calls.
    failed: RefCell<BTreeMap<String, String>>,
    /// The tools that were told to be missing.
    missing: RefCell<ToldMissing>,
    /// What the task that is followed waits for elsewhere.
    elsewhere: RefCell<WaitElsewhere>,
    /// The tasks of agents that the task that is followed has asked, and in turn these, as far as they may ask a person.
    agents: RefCell<BTreeSet<String>>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_write_is_told_of_no_option_that_there_is_not() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = DevError::Folder(FolderError::Io { path: "helper/data".into(), error });
        let told = not_served(&error, "helper").to_string();
        assert!(
            told.contains("helper/data, which cannot be used: permission denied") && !told.contains("--data"),
            "{told}"
        );
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
}
