//! Requests that tasks wait for, and their answers.
//!
//! A suspended invocation shows as `AUTH_REQUIRED` when its descriptor is of a `kind` that asks for a permission
//! (`approval`, `authorization`, `auth`, `oauth`), else as `INPUT_REQUIRED`. A client answers with a message:
//!
//! | the message has | the signal carries |
//! |---|---|
//! | an object with `approved` or `outcome`, or a word such as `yes` | the fields of the verdict and of the object |
//! | another JSON object | its fields |
//! | one of the values of the field that `answers` set | that field, with this value |
//! | text | the text, in the field that `answers` name under `text` |
//!
//! `approved` is a boolean, `outcome` a word (`approved`, `denied`, ...); the fields of the verdict are those that the
//! descriptor's `answers` hold under `approved` or `denied`.
//!
//! `answers` is metadata of the descriptor: `{"approved": {fields}, "denied": {fields}, "by": field, "text": field}`.
//! The field under `by` receives the name of the actor that answers, even if the message holds another. A confirmation
//! has to be yes or no. Whether a call happened (`uncertain_effect`) is neither: it is said by the word for it.
//!
//! Where the task waits for several answers, the request in its event has them under `expects.parts`, and under
//! `missing` the parts without an answer. A message then names in its metadata the part that it answers:
//! `{"in_reply_to": name}`, or the part's signal id. The task goes on with the answer that decides; before that one it
//! stays as it is. Where it waits for one answer, a message that names a part was written for something else: it is refused,
//! unless it names the signal, or says which question it answers and names the one call that this is about.

mod verdict;

use dormouse_ports::{
    AnswerRule, ChildLink, FanIn, InvocationId, InvocationStatus, InvocationWrite, Map, PartAnswer, PausedInvocation,
    SignalDescriptor, Until,
};
use dormouse_protocol::event::Draft;
use dormouse_protocol::resource::{
    AppendTaskMessageRequest, Message, MessageInput, Part, Role, Session, Task, TaskMessageKind, TaskStatus,
};
use dormouse_protocol::{Operation, ProtocolError};
use serde_json::{Value, json};

use self::verdict::{DECISION, plain, verdict, words};
pub(crate) use self::verdict::{agreed, said_in};
use crate::Call;
use crate::api::{Api, Change, by};
use crate::change::{NewMessage, SessionChange};
use crate::conversation::{is_confidential, joining, payload_of};
use crate::documents::Stored;
use crate::idempotency::Sighting;
use crate::messages::unplaced;
use crate::receipts::{AnsweredApproval, ApprovalDecision, decision, is_of_another, note_approval};
use crate::refusal::{conflict, internal, store, transition, unanswered};

/// Kinds of waits that ask for a permission.
const PERMISSIONS: &[&str] = &["approval", "auth", "authorization", "oauth"];

/// Key in the metadata of a message for the one of several answers that it is.
pub(crate) const IN_REPLY_TO: &str = "in_reply_to";

/// Key in the metadata of a message for the number of the pause that it answers: one that was written for an earlier pause
/// answers no later one.
pub(crate) const PAUSE: &str = "pause";

/// Key of a request for the instant at which it ends where nobody answers; null where it waits for as long as it takes.
const ENDS_AT: &str = "ends_at";

/// Number of commands that a refusal shows at most: it is cut where it is long.
const COMMANDS: usize = 2;

/// Fields of a `PermissionResponseRequest` that mean yes or no, and those that comment on it.
const VERDICT: &[&str] = &["approved", "outcome"];
const COMMENTS: &[&str] = &["answer", "reviewer", "reason", "metadata"];

/// Characters of a question that a refusal repeats.
const LONGEST_QUESTION: usize = 300;

/// Kinds of waits that no person ends.
const OF_MACHINES: [&str; 8] = ["agents", "event", "job", "model", "reminder", "rest", "timer", "webhook"];
/// Keys of a descriptor that ask for a wake-up of its own.
const WAKES: [&str; 2] = ["wake_after", "wake_at"];
/// Field of a request that says whether a person ends the wait.
pub(crate) const ASKS_PERSON: &str = "asks_person";

/// True if a person ends the wait: it says what is asked or what yes and no mean, and neither event, job, agent, model nor
/// clock do.
pub fn asks_person(paused: &PausedInvocation) -> bool {
    let metadata = paused.descriptor.metadata.as_ref();
    let has = |name: &str| metadata.is_some_and(|metadata| metadata.contains_key(name));
    let asks = has("answers") || has("description") || paused.fan_in.is_some();
    paused.has_paused() && !is_for_nobody(paused) && asks
}

/// True if nothing ends the wait that is said without naming its task: an event does, a time, or what machines do.
pub(crate) fn takes_no_word(paused: &PausedInvocation) -> bool {
    is_for_nobody(paused) && !takes_yes_or_no(paused)
}

/// True if an event ends the wait, a time of its own, or what machines do.
fn is_for_nobody(paused: &PausedInvocation) -> bool {
    let metadata = paused.descriptor.metadata.as_ref();
    let wakes_itself = WAKES.iter().any(|name| metadata.is_some_and(|metadata| metadata.contains_key(*name)));
    paused.wake.event.is_some() || wakes_itself || is_of_machines(&paused.descriptor)
}

/// True if no person ends the wait on `descriptor`.
pub(crate) fn is_of_machines(descriptor: &SignalDescriptor) -> bool {
    OF_MACHINES.contains(&text(descriptor, "kind").unwrap_or_default())
}

/// The status of a task that sleeps on `descriptor`.
pub(crate) fn status_of(descriptor: &SignalDescriptor) -> TaskStatus {
    let kind = text(descriptor, "kind").unwrap_or_default();
    if PERMISSIONS.contains(&kind) { TaskStatus::AuthRequired } else { TaskStatus::InputRequired }
}

/// Description of `paused` in the event of a task that begins to wait.
pub(crate) fn request_of(paused: &PausedInvocation) -> Map {
    let mut request = paused.descriptor.metadata.clone().unwrap_or_default();
    request.retain(|name, _| !SignalDescriptor::FOR_THE_SERVER.contains(&name.as_str()));
    request.insert("signal_id".to_owned(), paused.descriptor.signal_id.as_str().into());
    request.insert("due_at".to_owned(), json!(paused.wake.due.as_ref().map(|due| due.at)));
    // What the author calls so stays.
    request.entry(ENDS_AT).or_insert_with(|| json!(paused.wake.end().map(|end| end.at)));
    request.insert(PAUSE.to_owned(), paused.generation.into());
    request.insert(ASKS_PERSON.to_owned(), asks_person(paused).into());
    if let Some(fan_in) = &paused.fan_in {
        request.insert("missing".to_owned(), fan_in.missing().collect());
    }
    Map::from_iter([("request".to_owned(), Value::Object(request))])
}

/// Text for the person who is asked.
pub(crate) fn question_of(descriptor: &SignalDescriptor) -> Option<&str> {
    text(descriptor, "description").filter(|text| !text.is_empty())
}

fn text<'a>(descriptor: &'a SignalDescriptor, name: &str) -> Option<&'a str> {
    descriptor.metadata.as_ref()?.get(name)?.as_str()
}

/// An answer to a task that was waited for.
pub(crate) struct TakenAnswer {
    /// What is written for it.
    pub(crate) change: Change,
    /// True for what the question calls a yes, false for anything else; `None` where it does not say what a yes is.
    pub(crate) is_yes: Option<bool>,
    /// True if the answer of another part was a no, where those of all parts count.
    pub(crate) is_denied_in_part: bool,
}

/// True if one of the answers that have come to `fan_in` was a no, where those of all parts count.
fn is_denied_in_part(descriptor: &SignalDescriptor, fan_in: &FanIn) -> bool {
    let is_no = |answer: &PartAnswer| {
        decision(descriptor, Some(&answer.part), &answer.payload) == Some(ApprovalDecision::Denied)
    };
    fan_in.until == Until::All && fan_in.answers.iter().any(is_no)
}

impl Api {
    /// A message to a task: the answer that it waits for, or an interruption, which joins the transcript. The run of an agent
    /// hears it at its next step, and where it rests since its model could not be asked, that is at once; what no run hears is
    /// given with the next task. A task that is queued comes first by it.
    pub(crate) async fn append_task_message(&self, call: &Call) -> Result<Change, ProtocolError> {
        let AppendTaskMessageRequest { kind, message } = call.body.clone().decode()?;
        let task = self.reads.named::<Task>(call, "task_id").await?;
        if task.kept.resource.status.is_terminal() {
            return Err(transition("the task has ended"));
        }
        let session = self.reads.session_of(&task, call).await?;
        // It may have ended before the session was read, which is what the change is made upon.
        let task = task.known_to(&session).ok_or_else(|| transition("the task has ended"))?;
        match kind {
            TaskMessageKind::Input | TaskMessageKind::ToolConfirmation => {
                Ok(self.answer(call, session, task, (kind, message)).await?.change)
            }
            TaskMessageKind::Interrupt => self.interrupt(call, session, task, message).await,
        }
    }

    /// What is said to `task`, and is no answer.
    async fn interrupt(
        &self,
        call: &Call,
        session: Stored<Session>,
        mut task: Stored<Task>,
        message: MessageInput,
    ) -> Result<Change, ProtocolError> {
        let keeping = match self.repetitions.sight(call, &session).await? {
            Sighting::Again(status, answer) => return Ok(Change::repeated(status, answer)),
            Sighting::New(keeping) => keeping,
        };
        let mut change = SessionChange::open(session, by(call), call.now).keeping(keeping);
        let id = task.kept.resource.envelope.id.clone();
        change.thread_mut().put_first(&id);
        let position = change.next();
        let said = NewMessage { message: unplaced(message, Some(id.clone()), call.now), heard: false };
        let draft = |message: &Message| Draft::task_message(TaskMessageKind::Interrupt, message);
        let message = change.append_message(said, draft)?;
        // What is no word of a user waits for the next task.
        let is_heard = message.role == Role::User && !joining(std::slice::from_ref(&message), false).is_empty();
        let mut woken = None;
        if task.kept.own.hears && is_heard {
            change.thread_mut().interrupted(&id, position);
            woken = self.end_rest(&mut change, &mut task).await?;
        }
        let work = woken.as_ref().map(|_| id).or_else(|| change.freed());
        let work = work.map(|task| InvocationId::from(task.as_str()));
        let change = Change::new(change.close()?.1, 201, &message)?;
        Ok(Change { invocation: woken, work, ..change })
    }

    /// Answers what `task` waits for, or one part of it: message, events and the accepted payload are one change.
    pub(crate) async fn answer(
        &self,
        call: &Call,
        session: Stored<Session>,
        mut task: Stored<Task>,
        (kind, message): (TaskMessageKind, MessageInput),
    ) -> Result<TakenAnswer, ProtocolError> {
        let keeping = match self.repetitions.sight(call, &session).await? {
            Sighting::Again(status, answer) => {
                let change = Change::repeated(status, answer);
                return Ok(TakenAnswer { change, is_yes: None, is_denied_in_part: false });
            }
            Sighting::New(keeping) => keeping,
        };
        if !task.kept.resource.status.is_suspended() {
            return Err(conflict("the task does not wait for an answer"));
        }
        let id = InvocationId::from(task.kept.resource.envelope.id.as_str());
        let record =
            self.parts().harness.engine().ports().store.invocations.load_invocation(&id).await.map_err(store)?;
        let record = record.ok_or_else(|| internal(&"a task without an invocation"))?;
        if record.status != InvocationStatus::Suspended {
            return Err(conflict("another answer has come already"));
        }
        let paused = record.paused;
        if message.metadata.get(PAUSE).is_some_and(|pause| *pause != paused.generation) {
            return Err(asks_otherwise(&paused, "the task waits for something else by now"));
        }
        let part = paused.fan_in.as_ref().map(|fan_in| part_of(fan_in, &message)).transpose()?;
        if part.is_none() && names_another(call, &paused.descriptor, &message) {
            let words = "the task waits for one answer by now, and asks no part of that name; leave \
                `metadata.in_reply_to` out if you answer this";
            return Err(asks_otherwise(&paused, words));
        }
        let payload = answer_payload(&paused, kind, &message, &call.actor.name)?;
        if is_of_another(&paused.descriptor, part, &payload) {
            let message =
                "`digest` is that of another call than the one that is asked about: look at the question again";
            return Err(ProtocolError::invalid("message.parts", message));
        }
        let is_yes =
            decision(&paused.descriptor, part, &payload).map(|decision| decision == ApprovalDecision::Approved);
        let is_denied_in_part =
            paused.fan_in.as_ref().is_some_and(|fan_in| is_denied_in_part(&paused.descriptor, fan_in));
        let harness = &self.parts().harness;
        let given = payload.clone();
        let write = match part {
            Some(part) => harness.part_input(&paused, part, payload).await,
            None => harness.input(&paused, payload).await.map(|payload| {
                let invocation_id = id.clone();
                let generation = paused.generation;
                InvocationWrite::Deliver { invocation_id, generation, answered: None, payload }
            }),
        };
        let write = write.map_err(|error| unanswered("message.parts", error))?;
        let decides = matches!(write, InvocationWrite::Deliver { .. });
        let confides = is_confidential(&message.parts);
        task.kept.own.is_confidential |= confides;
        // A request that waits for other parts is no document yet.
        let is_of_message = call.operation == Operation::AppendTaskMessage;
        let keeping = if decides || is_of_message { keeping } else { keeping.apart() };
        let change = SessionChange::open(session, by(call), call.now).issuing(self.parts().receipts.clone());
        let mut change = change.keeping(keeping);
        let task_id = Some(task.kept.resource.envelope.id.clone());
        let said = NewMessage { message: unplaced(message, task_id, call.now), heard: true };
        let message = change.append_message(said, |message| Draft::task_message(kind, message))?;
        let answered = AnsweredApproval { paused: &paused, part, payload: &given, actor: Some(&call.actor.name) };
        let approves = note_approval(&mut change, &mut task, answered)?;
        if decides {
            change.advance(&mut task, TaskStatus::Working, None, Map::new());
        }
        if let InvocationWrite::Deliver { payload, .. } = &write {
            change.note_answer(&paused, payload);
        }
        if decides || confides || approves {
            change.put_task(&task)?;
        }
        change.sign_receipts().await?;
        let change = Change::new(change.close()?.1, 201, &message)?;
        let change = Change { invocation: Some(write), work: decides.then_some(id), ..change };
        Ok(TakenAnswer { change, is_yes, is_denied_in_part })
    }
}

/// The refusal of an answer that was written for an earlier pause than `paused`, in these `words`; it says what is asked by
/// now.
fn asks_otherwise(paused: &PausedInvocation, words: &str) -> ProtocolError {
    let question = question_of(&paused.descriptor).map(|text| text.chars().take(LONGEST_QUESTION).collect::<String>());
    let question = question.map(|text| format!(": {text}")).unwrap_or_default();
    conflict(&format!("{words}{question}")).with_detail(PAUSE, paused.generation)
}

/// True if the message of `call` names what it answers, and that is not the one signal of `descriptor`. The calls of each step
/// of an agent have the same names, so that one of an earlier step is no name of what is asked about now; the one call that is
/// asked about may be named by who says which question is meant, by its number or as a request of its own.
fn names_another(call: &Call, descriptor: &SignalDescriptor, message: &MessageInput) -> bool {
    let is_of_this = message.metadata.contains_key(PAUSE) || call.operation == Operation::RespondPermissionRequest;
    let alone = |of: &str| descriptor.metadata.as_ref()?.get(of)?.as_object().filter(|asked| asked.len() == 1);
    let is_asked = |name: &str| ["calls", "questions"].into_iter().filter_map(alone).any(|one| one.contains_key(name));
    let is_meant = |name: &str| descriptor.signal_id.is_called(&name.into()) || (is_of_this && is_asked(name));
    let is_another = |named: &Value| named.as_str().is_none_or(|name| !is_meant(name));
    message.metadata.get(IN_REPLY_TO).is_some_and(|named| !named.is_null() && is_another(named))
}

/// The part of `fan_in` that the message answers.
///
/// # Errors
/// `invalid_request` when it names none of them, `conflict` when the part has answered.
fn part_of<'f>(fan_in: &'f FanIn, message: &MessageInput) -> Result<&'f str, ProtocolError> {
    let named = message.metadata.get(IN_REPLY_TO).and_then(Value::as_str);
    let is_named = |part: &&str| named.is_some_and(|name| name == *part || fan_in.part_of(&name.into()) == Some(*part));
    let Some(part) = fan_in.expected.iter().map(|one| one.part.as_str()).find(is_named) else {
        let message = "the task waits for several answers; name the one that this is";
        let refusal = ProtocolError::invalid(format!("message.metadata.{IN_REPLY_TO}"), message);
        return Err(refusal.with_detail("missing", fan_in.missing().collect::<Vec<_>>()));
    };
    if fan_in.has_answered(part) { Err(conflict("this part has been answered already")) } else { Ok(part) }
}

/// Answer in `message` for the invocation that is `paused`: the payload of the signal. `actor` is the name of the actor
/// that answers.
///
/// # Errors
/// `invalid_request` when it holds nothing that is waited for, and for a yes or no where no person is asked and the pause
/// does not say what these mean: it would be taken for the outcome that is waited for.
pub fn answer_payload(
    paused: &PausedInvocation,
    kind: TaskMessageKind,
    message: &MessageInput,
    actor: &str,
) -> Result<Map, ProtocolError> {
    if kind == TaskMessageKind::ToolConfirmation && !takes_yes_or_no(paused) {
        return Err(asks_nobody(paused));
    }
    payload_for(&paused.descriptor, kind, message, actor)
}

/// True if a plain yes or no may answer `paused`: a person is asked, or the pause says what these mean.
fn takes_yes_or_no(paused: &PausedInvocation) -> bool {
    let kind = text(&paused.descriptor, "kind").unwrap_or_default();
    let answers = paused.descriptor.metadata.as_ref().and_then(|metadata| metadata.get("answers"));
    let is_named = |verdict: &str| answers.is_some_and(|answers| answers.get(verdict).is_some());
    let accepts = AnswerRule::of(&paused.descriptor).is_ok_and(|rule| rule.names("approved"));
    is_named("approved") || is_named("denied") || accepts || PERMISSIONS.contains(&kind) || asks_person(paused)
}

/// The refusal of a yes or no to `paused`, which asks no person; it says what is waited for, and the answer to give.
fn asks_nobody(paused: &PausedInvocation) -> ProtocolError {
    let (awaited, asked) = (awaited(paused), asked_by(paused));
    let message = match asked.is_empty() {
        true => format!(
            "no person is asked here: it waits for {awaited}, and a yes or no is no answer to that. To answer in its place \
             give the outcome as a JSON object, as in `dormouse answer {} '{{...}}'`",
            paused.invocation_id
        ),
        false => {
            let commands =
                asked.iter().take(COMMANDS).map(|child| format!("`dormouse approve {}`", child.invocation_id));
            let commands = commands.collect::<Vec<_>>().join(" or ");
            format!(
                "no person is asked here: it waits for {awaited}. If that asks you, answer it under its own id: {commands}"
            )
        }
    };
    ProtocolError::invalid("message.parts", message)
}

/// The runs of other agents that `paused` waits for.
fn asked_by(paused: &PausedInvocation) -> Vec<ChildLink> {
    let is_of_agents = text(&paused.descriptor, "kind") == Some("agents");
    let is_awaited = |child: &ChildLink| match &paused.fan_in {
        Some(fan_in) => fan_in.part_of(&child.signal_id).is_some_and(|part| !fan_in.has_answered(part)),
        None => is_of_agents || paused.descriptor.signal_id.is_called(&child.signal_id),
    };
    let mut asked = ChildLink::open_of(&paused.state);
    asked.retain(is_awaited);
    asked
}

/// What ends the wait of `paused`, in words.
fn awaited(paused: &PausedInvocation) -> String {
    let metadata = paused.descriptor.metadata.as_ref();
    let calls = metadata.and_then(|metadata| metadata.get("calls")?.as_object());
    let mut tools = calls.into_iter().flat_map(Map::values).filter_map(|call| call.get("tool")?.as_str());
    let first = tools.next();
    match text(&paused.descriptor, "kind").unwrap_or_default() {
        _ if paused.wake.event.is_some() => "an event".to_owned(),
        "job" => match (first, tools.count()) {
            (Some(tool), 0) => format!("the outcome of `{tool}`"),
            (Some(tool), others) => format!("the outcomes of `{tool}` and of {others} more"),
            (None, _) => "the outcome of a job".to_owned(),
        },
        "event" => "an event".to_owned(),
        "agents" => "the agents that it asked".to_owned(),
        "model" => "its model".to_owned(),
        "reminder" | "rest" | "timer" => "a time".to_owned(),
        "webhook" => "the receiver of a webhook".to_owned(),
        _ => format!("the signal `{}`", paused.descriptor.signal_id.origin().1),
    }
}

/// Answer in `message` to what waits for `descriptor`.
fn payload_for(
    descriptor: &SignalDescriptor,
    kind: TaskMessageKind,
    message: &MessageInput,
    actor: &str,
) -> Result<Map, ProtocolError> {
    let answers = descriptor.metadata.as_ref().and_then(|metadata| metadata.get("answers"));
    let field = |name: &str| answers.and_then(|answers| answers.get(name)?.as_str());
    let rule = AnswerRule::of(descriptor).unwrap_or_default();
    let mut given = payload_of(message).unwrap_or_default();
    let is_object = |part: &Part| matches!(part, Part::Json { value: Value::Object(_), .. });
    // What waits for no fields is woken by an object without any.
    let waits_for_none = !rule.accepts_everything() && rule.admit(Map::new()).is_ok();
    let says_enough = !given.is_empty() || (waits_for_none && message.parts.iter().any(is_object));
    let said = message.parts.iter().filter_map(words).collect::<Vec<_>>().join("\n");
    let verdict = verdict(&given, &said, &message.parts)?;
    if let Some(words) = words_of_doubt(descriptor)
        && (kind == TaskMessageKind::ToolConfirmation || verdict.is_some())
    {
        return Err(no_yes_or_no(&words));
    }
    if kind == TaskMessageKind::ToolConfirmation && verdict.is_none() {
        return Err(ProtocolError::invalid("message.parts", "say yes or no: a JSON part with a boolean `approved`"));
    }
    let mapped = verdict.and_then(|yes| {
        let answers = answers?.get(if yes { "approved" } else { "denied" })?;
        answers.as_object().cloned()
    });
    let payload = match (mapped, field("text")) {
        (Some(mapped), _) => {
            // What yes or no means comes last: no other field of the same answer may turn it round.
            given.retain(|name, _| is_for_the_graph(&rule, name));
            given.extend(mapped);
            given
        }
        (None, _) if says_enough => given,
        (None, Some(field)) if !said.trim().is_empty() => Map::from_iter([(field.to_owned(), said.into())]),
        (None, _) => named_value(descriptor, &said).ok_or_else(|| {
            let names =
                accepted(descriptor).map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
            let names = names.map(|names| format!(": {names}")).unwrap_or_default();
            let words = words_that_answer(descriptor).join("`, `");
            let words = if words.is_empty() { words } else { format!("say one of `{words}`, or ") };
            let message = format!(
                "this is no answer to what is waited for: {words}send a JSON object with the fields that it takes{names}"
            );
            ProtocolError::invalid("message.parts", message)
        })?,
    };
    if let Some(field) = descriptor.answered_by()
        && payload.get(field).is_some_and(|named| !named.is_string())
    {
        let message = format!("`{field}` is the name of who answers, a text: leave it out, it is known");
        return Err(ProtocolError::invalid("message.parts", message));
    }
    Ok(descriptor.signed(payload, actor))
}

/// The fields that `descriptor` accepts, where it names them.
fn accepted(descriptor: &SignalDescriptor) -> Option<&Map> {
    descriptor.metadata.as_ref()?.get("accepts")?.get("properties")?.as_object()
}

/// What may be said of a call that is in doubt; `None` where `descriptor` asks of none.
fn words_of_doubt(descriptor: &SignalDescriptor) -> Option<Vec<&str>> {
    let words = accepted(descriptor)?.get(DECISION)?.get("enum")?.as_array()?;
    // Whoever means by a no that the call shall not be made would have it made again.
    (text(descriptor, "kind")? == SignalDescriptor::UNCERTAIN_EFFECT)
        .then(|| words.iter().filter_map(Value::as_str).collect())
}

/// The refusal of a yes or no to the question whether a call happened, to which these `words` are the answers.
fn no_yes_or_no(words: &[&str]) -> ProtocolError {
    let message = format!(
        "whether a call happened is said by no yes or no: say one of `{}`, as in `dormouse answer ID '{{\"{DECISION}\":\"{}\"}}'`",
        words.join("`, `"),
        words.first().copied().unwrap_or_default()
    );
    ProtocolError::invalid("message.parts", message)
}

/// The words that name a value of a field that yes and no set.
fn words_that_answer(descriptor: &SignalDescriptor) -> Vec<&str> {
    let set = |metadata: &Map| metadata.get("answers")?.get("approved")?.as_object().cloned();
    let set = descriptor.metadata.as_ref().and_then(set).unwrap_or_default();
    let fields = accepted(descriptor).into_iter().flatten().filter(|(name, _)| set.contains_key(*name));
    let values = fields.filter_map(|(_, schema)| schema.get("enum")?.as_array()).flatten();
    values.filter_map(Value::as_str).collect()
}

/// The field that yes and no set, where `said` is another of the values that it may have.
fn named_value(descriptor: &SignalDescriptor, said: &str) -> Option<Map> {
    let word = plain(said);
    let fields = descriptor.metadata.as_ref()?.get("answers")?.get("approved")?.as_object()?;
    let may_be = |field: &&String| {
        let values = accepted(descriptor).and_then(|accepted| accepted.get(*field)?.get("enum")?.as_array());
        values.is_some_and(|values| values.iter().any(|value| *value == word))
    };
    let field = fields.keys().find(may_be)?;
    Some(Map::from_iter([(field.clone(), word.into())]))
}

/// True if the field `name` of an answer that means yes or no goes on to the graph. What such an answer has by the
/// protocol is no mistake where the pause does not name it.
fn is_for_the_graph(rule: &AnswerRule, name: &str) -> bool {
    rule.names(name) || !(VERDICT.contains(&name) || (!rule.accepts_everything() && COMMENTS.contains(&name)))
}

#[cfg(test)]
mod tests;
