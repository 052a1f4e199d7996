use std::collections::BTreeMap;
use std::fmt;
use std::future;
use std::sync::Arc;
use std::time::Duration;

use dormouse_harness::Harness;
use dormouse_harness::chat::MESSAGES;
use dormouse_ports::{
    Commit, CommitError, GrowingLists, InvocationId, InvocationWrite, Journal, JournalConflict, Records, Secrets,
    SessionWrite, Subscription,
};
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::{ErrorCode, Identifier, Operation, ProtocolError};
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::artifacts::ArtifactContents;
use crate::change::By;
use crate::connectors::Proofs;
use crate::idempotency::{Repetitions, notes_key};
use crate::lists::Lists;
use crate::permissions::PermissionRequests;
use crate::reads::Reads;
use crate::receipts::IssuedReceipts;
use crate::refusal::{busy, internal, store, unknown};
use crate::replay::Replays;
use crate::runtime::Abilities;
use crate::{Call, CallAnswer, Personas, Receipts, WebhookKeys, WorkspaceTemplates};

/// Number of attempts at a change that others were faster than.
pub(crate) const ATTEMPTS: u32 = 64;

/// The status of an answer without a body.
pub(crate) const NO_CONTENT: u16 = 204;

/// After how many attempts there is a pause before each one.
const HASTY_ATTEMPTS: u32 = 6;

/// Duration of that pause.
const PAUSE: Duration = Duration::from_millis(20);

/// Constituents of an [`Api`].
#[derive(Clone)]
pub struct ApiParts {
    /// Runs the graphs; its store holds everything.
    pub harness: Harness,
    /// Reads the documents and streams of the same store.
    pub records: Arc<dyn Records>,
    /// Makes the cursors of lists.
    pub cursors: Cursors,
    /// Personas on offer; the first is the one that works where a request names none.
    pub personas: Personas,
    /// Issues receipts, where the recording store of the harness does too; without it there are none.
    pub receipts: Option<Receipts>,
    /// Keys of webhooks, where the workers have the graph that delivers them; without them there are none.
    pub webhooks: Option<WebhookKeys>,
    /// Providers of the secrets of vaults, by the names that vaults call them. A secret is asked for as `TENANT.NAME`.
    pub secrets: BTreeMap<String, Arc<dyn Secrets>>,
    /// What new workspaces may begin with; without it there are no templates.
    pub templates: Option<Arc<dyn WorkspaceTemplates>>,
    /// What the server around it can do, to tell who asks.
    pub abilities: Abilities,
}

/// Serves the operations of the protocol. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    parts: Arc<ApiParts>,
    pub(crate) reads: Reads,
    pub(crate) lists: Lists,
    pub(crate) repetitions: Repetitions,
    pub(crate) requests: PermissionRequests,
    pub(crate) proofs: Arc<Proofs>,
    contents: ArtifactContents,
    issued: IssuedReceipts,
    replays: Arc<Replays>,
}

/// Writes of an operation, all of them or none, and the answer after them.
#[derive(Default)]
pub(crate) struct Change {
    pub(crate) journal: Journal,
    pub(crate) invocation: Option<InvocationWrite>,
    pub(crate) session: Option<SessionWrite>,
    /// The status and the body of the answer.
    pub(crate) answer: (u16, Value),
    /// Invocation that has to be worked on from now on.
    pub(crate) work: Option<InvocationId>,
    /// Subscription that wakes no invocation from now on.
    pub(crate) ended: Option<Subscription>,
    /// True if the answer is that of the first request with the same key, and nothing is written.
    pub(crate) is_repeated: bool,
}

impl Change {
    /// Writes `journal` and answers with `resource`.
    ///
    /// # Errors
    /// `internal_error` when the resource cannot be written.
    pub(crate) fn new(journal: Journal, status: u16, resource: &impl Serialize) -> Result<Self, ProtocolError> {
        Ok(Self { journal, answer: (status, json(resource)?), ..Self::default() })
    }

    /// Writes nothing: the request was done before, and was answered so.
    pub(crate) fn repeated(status: u16, body: Value) -> Self {
        Self { answer: (status, body), is_repeated: true, ..Self::default() }
    }

    /// Writes nothing: everything is as it was asked to be.
    ///
    /// # Errors
    /// `internal_error` when the resource cannot be written.
    pub(crate) fn nothing(status: u16, resource: &impl Serialize) -> Result<Self, ProtocolError> {
        Self::new(Journal::default(), status, resource)
    }
}

pub(crate) fn json(resource: &impl Serialize) -> Result<Value, ProtocolError> {
    serde_json::to_value(resource).map_err(|error| internal(&error))
}

impl fmt::Debug for ApiParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("personas", &self.personas).finish_non_exhaustive()
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Api {
    /// An api on `parts`.
    pub fn new(parts: ApiParts) -> Self {
        let (clock, cursors) = (parts.harness.engine().ports().clock.clone(), parts.cursors.clone());
        let reads = Reads::new(parts.records.clone(), clock, cursors.clone());
        let lists = Lists { reads: reads.clone(), cursors };
        let invocations = &parts.harness.engine().ports().store.invocations;
        let receipts = &parts.receipts;
        let replays = Replays { harness: parts.harness.clone(), reads: reads.clone(), receipts: receipts.clone() };
        Self {
            repetitions: Repetitions { reads: reads.clone() },
            requests: PermissionRequests { lists: lists.clone(), invocations: invocations.clone() },
            proofs: Arc::new(Proofs { reads: reads.clone(), secrets: parts.secrets.clone() }),
            contents: ArtifactContents { reads: reads.clone(), invocations: invocations.clone() },
            issued: IssuedReceipts { lists: lists.clone(), receipts: receipts.clone() },
            replays: Arc::new(replays),
            parts: Arc::new(parts),
            reads,
            lists,
        }
    }

    pub(crate) fn parts(&self) -> &ApiParts {
        &self.parts
    }

    /// Serves one call. Of the streams, which the HTTP application serves as it does the public operations, it serves
    /// each look at all events. What is [not offered](crate::is_offered) it refuses.
    ///
    /// # Errors
    /// Error that the caller receives instead of an answer. Nothing was written then.
    pub async fn serve(&self, call: Call) -> Result<CallAnswer, ProtocolError> {
        self.operation(&call).await
    }

    /// What answers the call. Boxed, so that the stack of a call holds its own operation and no other one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed is not offered, or a write")]
    fn operation<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<CallAnswer, ProtocolError>> {
        if let Some(answer) = self.reads.answer(call).or_else(|| self.lists.answer(call)) {
            return answer;
        }
        match call.operation {
            Operation::ListPersonas => Box::pin(self.list_personas(call)),
            Operation::GetPersona => Box::pin(self.get_persona(call)),
            Operation::EmptySessionQueue => Box::pin(self.empty_queue(call)),
            Operation::DeleteWorkspace => Box::pin(self.delete_workspace(call)),
            Operation::DownloadArtifactContent => Box::pin(self.contents.download(call)),
            Operation::ListPermissionRequests | Operation::ListTaskPermissionRequests => {
                Box::pin(self.requests.list(call))
            }
            Operation::ListSkills => Box::pin(self.list_skills(call)),
            Operation::GetSkill => Box::pin(self.get_skill(call)),
            Operation::GetRuntime => Box::pin(future::ready(self.runtime())),
            Operation::ListCapabilities => Box::pin(future::ready(self.list_capabilities())),
            Operation::ListTools => Box::pin(self.list_tools(call)),
            Operation::GetTool => Box::pin(self.get_tool(call)),
            Operation::ListTaskReceipts => Box::pin(self.issued.list(call)),
            Operation::GetReceipt => Box::pin(self.issued.get(call)),
            Operation::CreateSessionWebhook => Box::pin(async move { self.with_secret(self.write(call).await?) }),
            _ => Box::pin(self.write(call)),
        }
    }

    /// Change that a call makes, as things are now.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed is not offered")]
    pub(crate) fn change<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Change, ProtocolError>> {
        match call.operation {
            Operation::CreateWorkspace => Box::pin(self.create_workspace(call)),
            Operation::UpdateWorkspace => Box::pin(self.update_workspace(call)),
            Operation::CreateSession => Box::pin(self.create_session(call)),
            Operation::UpdateSession => Box::pin(self.update_session(call)),
            Operation::CloseSession => Box::pin(self.close_session(call)),
            Operation::ForkSession => Box::pin(self.fork_session(call)),
            Operation::TruncateSession => Box::pin(self.truncate_session(call)),
            Operation::AppendSessionMessage => Box::pin(self.append_message(call)),
            Operation::SubmitSessionTask | Operation::SubmitTask => Box::pin(self.submit(call)),
            Operation::CancelTask => Box::pin(self.cancel(call)),
            Operation::ReorderSessionQueue => Box::pin(self.reorder_queue(call)),
            Operation::ReplayTask => Box::pin(self.replays.replay(call)),
            Operation::AppendTaskMessage => Box::pin(self.append_task_message(call)),
            Operation::CreateSessionBranch => Box::pin(self.create_branch(call)),
            Operation::RegisterArtifact => Box::pin(self.register_artifact(call)),
            Operation::CreatePersona => Box::pin(self.create_persona(call)),
            Operation::UpdatePersona => Box::pin(self.update_persona(call)),
            Operation::RespondPermissionRequest => Box::pin(self.respond(call)),
            Operation::CreateMemory => Box::pin(self.create_memory(call)),
            Operation::DeleteMemory => Box::pin(self.delete_memory(call)),
            Operation::CreateVault => Box::pin(self.create_vault(call)),
            Operation::CreateQuota => Box::pin(self.create_quota(call)),
            Operation::UpdateQuota => Box::pin(self.update_quota(call)),
            Operation::CreateSessionWebhook => Box::pin(self.create_webhook(call)),
            Operation::DeleteSessionWebhook => Box::pin(self.delete_webhook(call)),
            Operation::CreateConnector => Box::pin(self.create_connector(call)),
            Operation::UpdateConnector => Box::pin(self.update_connector(call)),
            Operation::WriteWorkspaceFile => Box::pin(self.write_file(call)),
            Operation::DeleteWorkspaceFile => Box::pin(self.delete_file(call)),
            Operation::VerifyReceipt => Box::pin(self.issued.verify(call)),
            other => Box::pin(future::ready(Err(ProtocolError::not_implemented(other)))),
        }
    }

    /// Writes what the call changes. Where others were faster, it looks again at what there is now; a refusal counts
    /// only when the request was not accepted before.
    async fn write(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        for attempt in 0..ATTEMPTS {
            if attempt >= HASTY_ATTEMPTS {
                self.parts.harness.engine().ports().clock.sleep(PAUSE).await;
            }
            let refusal = match self.change(call).await {
                Ok(change) => match self.commit(call, change).await {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => None,
                    // What was accepted before is answered the same when nothing is left of a quota.
                    Err(refusal) if refusal.code() == ErrorCode::RateLimited => Some(refusal),
                    Err(error) => return Err(error),
                },
                Err(refusal) => Some(refusal),
            };
            if let Some(answer) = self.repetitions.repeated(call).await? {
                return Ok(answer);
            }
            if let Some(refusal) = refusal {
                return Err(refusal);
            }
            self.check_not_overtaken(call).await?;
        }
        Err(busy())
    }

    /// Commits `change`; `None` when another writer was faster.
    pub(crate) async fn commit(&self, call: &Call, change: Change) -> Result<Option<CallAnswer>, ProtocolError> {
        let Change { mut journal, invocation, session, answer: (status, body), work, ended, is_repeated } = change;
        if is_repeated {
            return Ok(Some(CallAnswer::Repeated(status, body)));
        }
        if !notes_key(&journal) {
            // Also a call that changes nothing is answered the same when its key comes again.
            journal.documents.extend(self.repetitions.record(call, status, &body).await?);
        }
        if journal.is_empty() && invocation.is_none() {
            return Ok(Some(answered(status, body)));
        }
        let ports = self.parts.harness.engine().ports();
        let id = ports.ids.fresh();
        let now = call.now;
        let accepted = journal.accepts.iter().map(|paused| paused.invocation_id.clone());
        let called: Vec<InvocationId> = work.into_iter().chain(accepted).collect();
        let fields = session.iter().map(|_| MESSAGES.into()).collect();
        let growing = GrowingLists { fields, ..GrowingLists::default() };
        let canceled = match &invocation {
            Some(InvocationWrite::Cancel { paused, .. }) => Some(paused.clone()),
            Some(_) | None => None,
        };
        match ports.store.commits.commit(&Commit { id, now, session, invocation, journal, growing }).await {
            Ok(()) => {}
            Err(CommitError::Journal(JournalConflict::Counters(key))) => {
                self.counters_refused(call, &key).await?;
                return Ok(None);
            }
            Err(CommitError::Store(error)) => return Err(store(error)),
            Err(CommitError::Unknown(reason)) => return Err(unknown(&reason, call.idempotency_key.is_some())),
            Err(
                CommitError::Journal(_)
                | CommitError::InvocationConflict
                | CommitError::SessionConflict
                | CommitError::LeaseLost
                | CommitError::SignalBuffered(_)
                | CommitError::SignalTaken { .. }
                | CommitError::Said(_),
            ) => return Ok(None),
        }
        for invocation_id in called {
            if let Err(error) = self.parts.harness.call_for_work(&invocation_id).await {
                tracing::warn!(
                    %error, %invocation_id,
                    "no worker could be called for the new work; the next sweep calls one"
                );
            }
        }
        if let Some(subscription) = ended
            && let Err(error) = self.parts.harness.wakes().cancel(&subscription).await
        {
            tracing::warn!(%error, "a wake-up could not be removed after a cancellation; it will find nothing to do");
        }
        if let Some(paused) = canceled {
            self.parts.harness.withdraw(&paused).await;
        }
        Ok(Some(answered(status, body)))
    }

    /// A new id.
    pub(crate) fn fresh<I: Identifier>(&self, now: Timestamp) -> I {
        crate::ids::fresh(&*self.parts.harness.engine().ports().ids, now)
    }
}

/// The answer with `status` and `body`.
fn answered(status: u16, body: Value) -> CallAnswer {
    if status == NO_CONTENT { CallAnswer::Empty } else { CallAnswer::Json(status, body) }
}

/// Author of the changes of `call`.
pub(crate) fn by(call: &Call) -> By {
    By { actor: call.actor.name.clone(), key: call.idempotency_key.as_ref().map(|key| key.as_str().to_owned()) }
}

/// The answer of a read.
pub(crate) fn found(resource: &impl Serialize) -> Result<CallAnswer, ProtocolError> {
    Ok(CallAnswer::Json(200, json(resource)?))
}
