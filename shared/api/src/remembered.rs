//! What the agent of a session knows of its conversation: a fork begins with it, and a truncation cuts it.
//!
//! The state that an agent keeps of a session has the conversation as models know it, with calls, results, and reasoning; a
//! transcript has what clients were told of that. Both are cut at the same place by the messages that are in both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    InvocationId, InvocationRecord, Map, SessionExpectation, SessionId, SessionRecord, SessionWrite, StoreError,
};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{MessageId, TaskId};
use dormouse_protocol::resource::{Message, Part, Role, Session};
use serde_json::Value;

use crate::api::Api;
use crate::conversation::{joining, said_of, shown};
use crate::documents::{SessionIndex, Stored};
use crate::refusal::store;
use crate::transcript::{self, Spot};

/// Field of an agent's state with what it knows of the open calls of its session's runs.
const WAITING: &str = "waiting";

/// Characters of a message that tell it from others. What clients are told of a long one is cut.
const TELLING: usize = 200;

/// What tells a message from others of its conversation. Of its text empty lines do not count: empty parts have no place in a
/// conversation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sign {
    role: &'static str,
    /// Ids of the calls that it makes, or of the one whose result it is.
    calls: Vec<String>,
    /// The beginning of its text; of a result none.
    text: String,
}

impl Sign {
    /// Those of a message that clients were told, which has public parts alone, as it may stand in a conversation: with its
    /// images or words about them.
    fn all(message: &Message) -> BTreeSet<Self> {
        [true, false].map(|shows| Self::of(message.role, &message.parts, shows)).into()
    }

    /// That of a message of `parts`, whose images it `shows`, or tells in words.
    fn of(role: Role, parts: &[Part], shows: bool) -> Self {
        let is_result = parts.iter().any(|part| matches!(part, Part::ToolResult { .. }));
        let role = match role {
            Role::Tool if is_result => "tool",
            Role::User | Role::Tool => "user",
            Role::Assistant | Role::Agent => "assistant",
            Role::System => "system",
        };
        let call = |part: &Part| match part {
            Part::ToolCall { tool_call_id, .. } | Part::ToolResult { tool_call_id, .. } => Some(tool_call_id.clone()),
            Part::Text { .. }
            | Part::Json { .. }
            | Part::ArtifactRef { .. }
            | Part::FileRef { .. }
            | Part::ImageRef { .. } => None,
        };
        let calls: Vec<String> = parts.iter().filter_map(call).collect();
        let parts = parts.iter().filter(|part| call(part).is_none());
        // What is known of an image besides its id differs.
        let named = |part: &Part| match (part, shows) {
            (Part::ImageRef { artifact_id, .. }, true) => Part::text(format!("[image {artifact_id}]")),
            (_, _) => part.clone(),
        };
        let named: Vec<Part> = parts.map(named).collect();
        let text = if is_result { String::new() } else { said_of(&named.iter().collect::<Vec<_>>()) };
        let text = redact::text(&text).unwrap_or(text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        Self { role, calls, text: lines.join("\n").chars().take(TELLING).collect() }
    }
}

/// A message of a transcript, as far as a cut needs it: the words of a long transcript are not held.
pub(crate) struct Told {
    pub(crate) spot: Spot,
    pub(crate) id: MessageId,
    signs: BTreeSet<Sign>,
    task_id: Option<TaskId>,
    /// True if it was given to no run yet.
    is_undelivered: bool,
    /// The message itself, where it may have to be given to one.
    whole: Option<Message>,
}

impl Told {
    /// `message` at `spot` in the transcript of the session of `thread`, whose stream is called `own`.
    fn of(spot: Spot, message: Message, (thread, own): (&SessionIndex, &str)) -> Self {
        let (stream, position) = &spot;
        let is_undelivered = match thread.undelivered_from {
            Some(0) => true,
            Some(first) => stream == own && *position >= first,
            None => stream == own && thread.undelivered.contains(position),
        };
        let is_open = message.task_id.as_ref().is_some_and(|task| thread.open.contains_key(task));
        let (id, task_id) = (message.envelope.id.clone(), message.task_id.clone());
        let signs = Sign::all(&message);
        // What its run has begun with is in the state once that run has come to rest.
        let whole = (is_undelivered || (is_open && message.role == Role::User)).then_some(message);
        Self { spot, id, signs, task_id, is_undelivered, whole }
    }
}

/// The messages of a transcript and the number of those that stay.
pub(crate) struct Past<'t> {
    pub(crate) told: &'t [Told],
    pub(crate) stay: usize,
}

impl Past<'_> {
    /// `conversation` as far as it is in what stays, and behind that what stays and was given to no run yet. What clients were not
    /// told stays with the message before it.
    fn kept(&self, (conversation, shows): (Vec<Value>, bool)) -> Vec<Value> {
        let mut places: BTreeMap<&Sign, VecDeque<usize>> = BTreeMap::new();
        for (at, told) in self.told.iter().enumerate() {
            for sign in &told.signs {
                places.entry(sign).or_default().push_back(at);
            }
        }
        let mut stays = self.stay > 0;
        let mut known = BTreeSet::new();
        let mut kept = conversation;
        kept.retain(|message| {
            let sign = shown(message).map(|(role, parts)| Sign::of(role, &parts, true));
            let places = sign.and_then(|sign| places.get_mut(&sign)).into_iter();
            let mut found = places.flat_map(|places| std::iter::from_fn(move || places.pop_front()));
            if let Some(at) = found.find(|at| known.insert(*at)) {
                stays = at < self.stay;
            }
            stays
        });
        let mut tasks = BTreeSet::new();
        for (at, told) in self.told.iter().enumerate().take(self.stay) {
            let is_first = told.task_id.as_ref().is_some_and(|task| tasks.insert(task));
            let Some(message) = told.whole.as_ref().filter(|_| !known.contains(&at)) else { continue };
            if told.is_undelivered || is_first {
                kept.extend(joining(std::slice::from_ref(message), shows));
            }
        }
        kept
    }
}

/// The state that an agent keeps of a session, and its version.
pub(crate) struct Remembered {
    state: Map,
    schema_version: String,
    version: u64,
}

impl Api {
    /// The state that the agent of `session` keeps, behind the last step of the task that works there; `None` where it keeps
    /// none, or no conversation.
    pub(crate) async fn remembered_of(&self, session: &Stored<Session>) -> Result<Option<Remembered>, ProtocolError> {
        let ports = self.parts().harness.engine().ports();
        let id = SessionId::from(session.kept.resource.envelope.id.as_str());
        let record = ports.store.sessions.load_session(&id, None).await.map_err(store)?.record;
        let record = record.filter(|record| record.state.get(MESSAGES).is_some_and(Value::is_array));
        let Some(mut record) = record else { return Ok(None) };
        for task in session.kept.own.working() {
            match ports.store.invocations.load_invocation(&InvocationId::from(task.as_str())).await {
                // The session is known as it was saved last.
                Err(StoreError::Corrupt(_)) => {}
                run => take_noted(&mut record, run.map_err(store)?),
            }
        }
        let SessionRecord { state, schema_version, version, .. } = record;
        Ok(Some(Remembered { state, schema_version, version }))
    }

    /// The messages of the transcript of `session`; with their words where those may have to be given to a run, and its agent
    /// keeps a conversation (`is_kept`).
    pub(crate) async fn told(&self, session: &Stored<Session>, is_kept: bool) -> Result<Vec<Told>, ProtocolError> {
        let thread = &session.kept.own;
        let own = session.kept.resource.envelope.id.as_str();
        let mut told = Vec::new();
        transcript::walk(self.reads.records(), &thread.transcript, &mut |spot, message| {
            let one = Told::of(spot, message, (thread, own));
            told.push(Told { whole: one.whole.filter(|_| is_kept), ..one });
            true
        })
        .await?;
        Ok(told)
    }
}

/// Takes into `record` what the steps of `run` have brought to it that were only noted.
fn take_noted(record: &mut SessionRecord, run: Option<InvocationRecord>) {
    let Some(InvocationRecord { paused, saved: Some(_), .. }) = run else { return };
    if paused.session_id.as_ref() != Some(&record.session_id) || paused.session_version != Some(record.version) {
        return;
    }
    for (name, value) in &mut record.state {
        if let Some(newest) = paused.outermost_state().get(name) {
            value.clone_from(newest);
        }
    }
}

impl Remembered {
    /// The same of what stays of `past`.
    pub(crate) fn cut(mut self, past: &Past<'_>) -> Self {
        // Agents note calls that wait, and are shown images.
        let shows = self.state.contains_key(WAITING);
        if let Some(Value::Array(conversation)) = self.state.get_mut(MESSAGES) {
            *conversation = past.kept((std::mem::take(conversation), shows));
        }
        self
    }

    /// The write of it for the session that it is of.
    pub(crate) fn again(self, id: &str) -> SessionWrite {
        let expect = SessionExpectation::Version(self.version);
        self.write(id, expect)
    }

    /// The write of it for the new session `id`, in which no run of the other goes on.
    pub(crate) fn anew(mut self, id: &str) -> SessionWrite {
        self.state.shift_remove(WAITING);
        self.write(id, SessionExpectation::Version(0))
    }

    fn write(self, id: &str, expect: SessionExpectation) -> SessionWrite {
        let save = Some((self.state.into(), self.schema_version));
        SessionWrite { session_id: id.into(), save, expect, lease: None, release: false }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::{InvocationStatus, PausedInvocation};
    use dormouse_protocol::Envelope;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_noted_of_a_run_is_remembered_where_it_goes_on_from_the_record() {
        let words = |words: &[&str]| Map::from_iter([(MESSAGES.to_owned(), json!(words))]);
        let record = SessionRecord {
            session_id: "session_1".into(),
            state: words(&["a"]),
            schema_version: "1".to_owned(),
            version: 3,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
        };
        let mut state = words(&["a", "b"]);
        state.insert("plan".to_owned(), json!("which the session does not keep"));
        let run = |version: u64, session: &str, saved: bool| {
            let begun = PausedInvocation::before_first_pause("task_1".into(), "agent", Timestamp::UNIX_EPOCH);
            let paused = PausedInvocation {
                session_id: Some(session.into()),
                session_version: Some(version),
                state: state.clone().into(),
                ..begun
            };
            let status = InvocationStatus::Accepted { payload: Map::new() };
            let saved = saved.then(|| words(&["a"]).into());
            Some(InvocationRecord { status, paused, stored: Vec::new(), saved })
        };
        let known = |run: Option<InvocationRecord>| {
            let mut record = record.clone();
            take_noted(&mut record, run);
            record.state
        };
        assert_eq!(known(run(3, "session_1", true)), words(&["a", "b"]));
        for run in [run(2, "session_1", true), run(3, "session_2", true), run(3, "session_1", false), None] {
            assert_eq!(known(run.clone()), words(&["a"]), "{run:?}");
        }
    }

    #[test]
    fn of_a_long_transcript_the_words_are_not_held() {
        let message = |task: Option<&str>| Message {
            envelope: Envelope::new(MessageId::new("m"), Timestamp::UNIX_EPOCH),
            session_id: None,
            task_id: task.map(TaskId::from),
            role: Role::User,
            parts: vec![Part::text("x".repeat(100_000))],
        };
        let thread = SessionIndex { undelivered: vec![7], ..SessionIndex::new() };
        let told = |position: u64| Told::of(("s".to_owned(), position), message(Some("task_1")), (&thread, "s"));
        assert!(told(6).whole.is_none(), "a run was given it");
        assert!(told(7).whole.is_some(), "no run was given it yet");
        let longest = told(6).signs.iter().map(|sign| sign.text.len()).max();
        assert_eq!(longest, Some(TELLING));
    }
}
