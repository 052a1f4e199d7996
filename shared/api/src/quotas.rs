//! Quotas: ceilings of what personas, workspaces and keys use, counted in the transaction that uses it.
//!
//! A quota is a document, and beside it are counters that say what is left. A task takes from the counters of each quota
//! that it counts against in the transaction that accepts it, without reading them; where too little is left, nothing is
//! written and the client is told which quota it was, and when to come again. What a task uses while it runs is taken in
//! the transactions of its steps. A step behind which nothing is left is kept, since it is paid for, and may be the last;
//! the next one ends the task with `limit_exceeded`.
//!
//! | limit | counts | is given back |
//! |---|---|---|
//! | `tasks` | tasks that were accepted; with a short period a rate | with the next period |
//! | `concurrent_tasks` | tasks that have not ended | when a task ends |
//! | `tokens` | tokens that the models of its tasks used, as they are recorded | with the next period |
//! | `cost_micros` | what these cost, in millionths of the currency of the models' prices | with the next period |
//! | `active_ms` | milliseconds that models and tools worked, as they are recorded | with the next period |
//!
//! The task of an agent that another one asked is a part of that one's: it counts against the same quotas what it uses, and
//! is no further task.
//!
//! A task counts against the quota of its persona, those of its workspace and tenant, and that of the key or issuer of who
//! submitted it. A key that is bound to workspaces sees those of these workspaces and its own: what others use is not told.
//! The quotas of workspace and tenant are the ones that they had when the session was made. Each quota makes a
//! transaction larger by one item, 2 write units, and no request more.

mod counting;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{CommitError, CounterChange, CounterWrite, Document, DocumentKey, DocumentWrite, Journal};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::{PersonaId, QuotaId, WorkspaceId};
use dormouse_protocol::request::ListQuery;
use dormouse_protocol::resource::{CreateQuotaRequest, Persona, Quota, QuotaScope, UpdateQuotaRequest, Workspace};
use dormouse_protocol::{Envelope, ErrorCode, Map, ProtocolError, Scope};
use futures::future::{try_join, try_join_all};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

pub(crate) use counting::{KIND as COUNTERS, Verdict, WHILE_RUNNING, accepted, ended, judged, stepped, used};

use crate::api::{Api, Change, found};
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::Narrowed;
use crate::reads::Reads;
use crate::refusal::{internal, store};
use crate::{Call, CallAnswer};
use counting::{NAMES, UNLIMITED, at_first, key, period_end};

/// Kind of the documents that name the quotas of tenants.
pub(crate) const OF_TENANT: &str = "tenant_quota";

/// The shortest and the longest period, in seconds.
const PERIODS: std::ops::RangeInclusive<u64> = 1..=366 * 24 * 3600;

/// Bookkeeping of the server about a quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuotaIndex {
    /// Seconds after which its usage starts again; never without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) period: Option<u64>,
}

impl Lists {
    pub(crate) async fn list_quotas(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        // The usage is read beside: pages are read whole first.
        ListQuery::read(&call.query)?;
        let shown = self.reads.quotas_shown(call).await?;
        let is_shown = |quota: &Quota| shown.as_ref().is_none_or(|shown| shown.contains(&quota.envelope.id));
        let answer = self.page::<Quota>(call, Narrowed::Nothing, is_shown).await?;
        let CallAnswer::Json(status, mut page) = answer else { return Ok(answer) };
        let quotas: Vec<Quota> = serde_json::from_value(page["data"].take()).map_err(|error| internal(&error))?;
        let quotas = try_join_all(quotas.into_iter().map(|quota| self.reads.with_usage(quota))).await?;
        page["data"] = serde_json::to_value(quotas).map_err(|error| internal(&error))?;
        Ok(CallAnswer::Json(status, page))
    }
}

impl Reads {
    pub(crate) async fn get_quota(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let (quota, shown) = try_join(self.named::<Quota>(call, "quota_id"), self.quotas_shown(call)).await?;
        let quota = quota.kept.resource;
        if shown.is_some_and(|shown| !shown.contains(&quota.envelope.id)) {
            return Err(ProtocolError::not_found(QuotaId::OBJECT));
        }
        found(&self.with_usage(quota).await?)
    }

    /// The quotas that the caller sees, where it does not see all of its tenant: the usage of the others tells of work in
    /// workspaces that it does not reach.
    async fn quotas_shown(&self, call: &Call) -> Result<Option<BTreeSet<QuotaId>>, ProtocolError> {
        let Some(workspaces) = &call.actor.workspaces else { return Ok(None) };
        let workspaces = try_join_all(workspaces.iter().map(|id| self.find::<Workspace>(id, call.now))).await?;
        let seen = workspaces.into_iter().flatten().filter(|workspace| workspace.is_seen_by(&call.actor));
        let of_workspaces = seen.filter_map(|workspace| workspace.kept.resource.quota_id);
        Ok(Some(of_workspaces.chain(call.actor.quota_id.clone()).collect()))
    }

    /// `quota` with what of it is used.
    async fn with_usage(&self, mut quota: Quota) -> Result<Quota, ProtocolError> {
        let counters = self.records().counters(&key(&quota.envelope.id)).await.map_err(store)?.unwrap_or_default();
        let used = |name: &&str| {
            let left = counters.left.get(*name).copied().unwrap_or_else(|| at_first(&quota, name));
            ((*name).to_owned(), Number::from(at_first(&quota, name).saturating_sub(left)))
        };
        quota.usage = NAMES.iter().map(used).collect();
        quota.reset_at = counters.ends_at;
        quota.exhaustion_reason = reason_of(&quota);
        Ok(quota)
    }

    /// Quotas that tasks of a session in `workspace` count against.
    pub(crate) async fn quotas_of(
        &self,
        call: &Call,
        workspace: &WorkspaceId,
    ) -> Result<BTreeSet<QuotaId>, ProtocolError> {
        let (workspace, of_tenant) =
            try_join(self.see::<Workspace>(call, workspace), self.quota_of_tenant(call)).await?;
        let of_tenant = of_tenant.and_then(|document| quota_in(&document));
        Ok([workspace.kept.resource.quota_id, of_tenant].into_iter().flatten().collect())
    }

    async fn quota_of_tenant(&self, call: &Call) -> Result<Option<Document>, ProtocolError> {
        self.records().document(&of_tenant(&call.actor.tenant), call.now).await.map_err(store)
    }

    /// Checks that the caller may have something count against `quota`, or against none, where a request says which: whoever
    /// may take a quota away, or use up another's, could as well change it.
    ///
    /// # Errors
    /// `permission_denied` for a key that may not change quotas, `resource_not_found` for a quota that it does not see.
    pub(crate) async fn check_counting(
        &self,
        call: &Call,
        quota: Option<&Option<QuotaId>>,
    ) -> Result<(), ProtocolError> {
        let Some(quota) = quota else { return Ok(()) };
        if call.actor.workspaces.is_some() || !call.actor.scopes.contains(&Scope::QuotasWrite) {
            let message =
                "what counts against a quota is said with the scope `quotas:write` and a key for all workspaces";
            return Err(ProtocolError::new(ErrorCode::PermissionDenied, message));
        }
        match quota {
            Some(quota) => self.see::<Quota>(call, quota).await.map(|_| ()),
            None => Ok(()),
        }
    }
}

impl Api {
    pub(crate) async fn create_quota(&self, call: &Call) -> Result<Change, ProtocolError> {
        self.reads.check_place(call, None).await?;
        let request: CreateQuotaRequest = call.body.clone().decode()?;
        check_limits(&request.limits)?;
        if request.period_seconds.is_some_and(|seconds| !PERIODS.contains(&seconds)) {
            return Err(ProtocolError::invalid("period_seconds", "expected 1 second to 366 days"));
        }
        let id: QuotaId = self.fresh(call.now);
        let quota = Quota {
            envelope: Envelope::new(id.clone(), call.now).with_metadata(redact::object(request.metadata)),
            scope: request.scope,
            limits: request.limits,
            usage: NAMES.iter().map(|name| ((*name).to_owned(), Number::from(0))).collect(),
            reset_at: request.period_seconds.and_then(|seconds| period_end(call.now, seconds)),
            hard_limit: request.hard_limit,
            soft_limit: !request.hard_limit,
            exhaustion_reason: None,
            last_receipt_id: None,
        };
        let left = NAMES.iter().map(|name| ((*name).to_owned(), at_first(&quota, name))).collect();
        let begin = CounterChange::Begin { ending: None, left, ends_at: quota.reset_at, forget_at: None };
        let mut documents = vec![self.owned_quota(call, &request.owner_id, request.scope, &id).await?];
        let stored = Stored::new(&call.actor.tenant, None, quota, QuotaIndex { period: request.period_seconds });
        documents.push(Some(stored.write()?));
        let counters = vec![CounterWrite { key: key(&id), change: begin }];
        let journal = Journal { counters, ..Journal::new(documents.into_iter().flatten().collect(), Vec::new()) };
        Change::new(journal, 201, &stored.kept.resource)
    }

    /// The write by which the persona, the workspace or the tenant `owner` counts against the quota `id`.
    async fn owned_quota(
        &self,
        call: &Call,
        owner: &Option<String>,
        scope: QuotaScope,
        id: &QuotaId,
    ) -> Result<Option<DocumentWrite>, ProtocolError> {
        let Some(owner) = owner else { return Ok(None) };
        match scope {
            QuotaScope::Persona => {
                let mut persona = self.reads.see::<Persona>(call, &PersonaId::from(owner.as_str())).await?;
                has_none(persona.kept.resource.quota_id.as_ref())?;
                persona.kept.resource.quota_id = Some(id.clone());
                persona.write().map(Some)
            }
            QuotaScope::Workspace => {
                let mut workspace = self.reads.see::<Workspace>(call, &WorkspaceId::from(owner.as_str())).await?;
                has_none(workspace.kept.resource.quota_id.as_ref())?;
                workspace.kept.resource.quota_id = Some(id.clone());
                workspace.write().map(Some)
            }
            QuotaScope::Tenant if *owner == call.actor.tenant => {
                // Nothing else takes one away from a tenant: the newer one counts.
                let before = self.reads.quota_of_tenant(call).await?.map_or(0, |document| document.version);
                let body = Map::from_iter([("quota_id".to_owned(), id.as_str().into())]);
                let key = of_tenant(owner);
                let write =
                    DocumentWrite { key, expect: before, body: Some(body), listed: Vec::new(), expires_at: None };
                Ok(Some(write))
            }
            QuotaScope::Tenant => Err(ProtocolError::not_found("tenant")),
            QuotaScope::Organization => Err(ProtocolError::invalid("owner_id", "there are no organizations here")),
        }
    }

    /// Changes limits. What was used stays used, and counts against the new ones at once.
    pub(crate) async fn update_quota(&self, call: &Call) -> Result<Change, ProtocolError> {
        self.reads.check_place(call, None).await?;
        let request: UpdateQuotaRequest = call.body.clone().decode()?;
        let mut stored = self.reads.named::<Quota>(call, "quota_id").await?;
        let before = stored.kept.resource.clone();
        let quota = &mut stored.kept.resource;
        if let Some(limits) = request.limits {
            check_limits(&limits)?;
            quota.limits = limits;
        }
        quota.hard_limit = request.hard_limit.unwrap_or(quota.hard_limit);
        quota.soft_limit = !quota.hard_limit;
        let metadata = request.metadata.map(redact::object);
        quota.envelope.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut quota.envelope.metadata));
        quota.envelope.updated_at = call.now;
        let more = |name: &&str| ((*name).to_owned(), at_first(quota, name) - at_first(&before, name));
        let amounts = NAMES.iter().map(more).filter(|(_, more)| *more != 0).collect::<BTreeMap<_, _>>();
        let change = CounterChange::Add { amounts };
        let counters = vec![CounterWrite { key: key(&quota.envelope.id), change }];
        // What was used is what the counters say by the limits before.
        let before = self.reads.with_usage(before).await?;
        let mut shown = Quota { usage: before.usage, reset_at: before.reset_at, ..quota.clone() };
        shown.exhaustion_reason = reason_of(&shown);
        let journal = Journal { counters, ..Journal::new(vec![stored.write()?], Vec::new()) };
        Change::new(journal, 200, &shown)
    }

    /// What came of a take from the counters of `key` that did not happen: nothing where it may be tried again.
    ///
    /// # Errors
    /// `rate_limited`, with the quota and when it may work.
    pub(crate) async fn counters_refused(&self, call: &Call, key: &DocumentKey) -> Result<(), ProtocolError> {
        let ports = self.parts().harness.engine().ports();
        let (commits, id) = (&*ports.store.commits, ports.ids.fresh());
        let judged = judged(self.reads.records(), commits, (key, call.now), &NAMES, id).await;
        match judged {
            Ok(Verdict::TryAgain) => Ok(()),
            Ok(Verdict::UsedUp { id, limit, seconds }) => Err(refusal(&id, limit, seconds)),
            Ok(Verdict::Unknown { id }) => Err(unknown_quota(&id)),
            Err(CommitError::Store(error)) => Err(store(error)),
            Err(error) => Err(internal(&error)),
        }
    }
}

/// Checks that what a quota is made for counts against none: which of two counts would be for nobody to see.
fn has_none(quota: Option<&QuotaId>) -> Result<(), ProtocolError> {
    let Some(id) = quota else { return Ok(()) };
    let message = format!("it has the quota {id} already: change that one, or take it away first");
    Err(ProtocolError::new(ErrorCode::Conflict, message).with_detail("quota_id", id.as_str()))
}

fn of_tenant(tenant: &str) -> DocumentKey {
    DocumentKey::new(OF_TENANT, tenant)
}

fn quota_in(document: &Document) -> Option<QuotaId> {
    document.body.get("quota_id").and_then(Value::as_str).map(QuotaId::from)
}

/// Reason for which `quota` refuses work, by its usage.
fn reason_of(quota: &Quota) -> Option<String> {
    let used = |name: &str| quota.usage.get(name).and_then(Number::as_i64).unwrap_or_default();
    let is_gone = |name: &&&str| at_first(quota, name).saturating_sub(used(name)) < 1;
    NAMES.iter().find(is_gone).map(|name| format!("nothing is left of {name}"))
}

fn check_limits(limits: &BTreeMap<String, Number>) -> Result<(), ProtocolError> {
    for (name, limit) in limits {
        let is_count = limit.as_i64().is_some_and(|limit| (0..UNLIMITED).contains(&limit));
        if !NAMES.contains(&name.as_str()) || !is_count {
            let message = format!("expected whole numbers for some of {}", NAMES.join(", "));
            return Err(ProtocolError::invalid("limits", message));
        }
    }
    Ok(())
}

/// Refusal of a task of a key or issuer that names a quota which does not exist.
fn unknown_quota(id: &QuotaId) -> ProtocolError {
    let message = "your tasks count against a quota that is not there: whoever made your key or trusts your issuer has to \
        name one that is";
    ProtocolError::new(ErrorCode::PolicyViolation, message).with_detail("quota_id", id.as_str())
}

fn refusal(id: &QuotaId, limit: &str, seconds: Option<u32>) -> ProtocolError {
    let message = format!("nothing is left of {limit} in the quota {id}");
    let refusal = ProtocolError::new(ErrorCode::RateLimited, message);
    let refusal = match seconds {
        Some(seconds) => refusal.retry_after(seconds),
        None => refusal,
    };
    refusal.with_detail("quota_id", id.as_str()).with_detail("limit", limit)
}
