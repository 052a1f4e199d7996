//! What sleeps: the list, and one of them.

use dormouse_api::{Call, asks_person, queued_behind};
use dormouse_maintenance::doctor::{Diagnosis, Doctor, RulesSeen};
use dormouse_ports::{InvocationId, InvocationStatus, PausedInvocation, PendingRow, StoreError};
use dormouse_protocol::envelope::List;
use dormouse_protocol::operation::Operation;
use dormouse_protocol::request::{Body, Query};
use dormouse_protocol::{ErrorCode, ProtocolError, Scope};
use futures::future::try_join_all;
use jiff::SignedDuration;

use super::told::{Pause, PauseSummary, is_task};
use super::{AdmittedRequest, Extensions};

/// Number of pauses on a page where none is asked for, and the most.
const PAGE: usize = 200;
const MOST: usize = 1000;
/// Rows that one request looks at.
const LOOKED_AT: usize = 2000;
/// Invocations that are loaded at once.
const TOGETHER: usize = 100;
/// Validity of a cursor.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Number of seconds after which a request that found the store busy may come again.
const SOON: u32 = 1;

/// What a list is narrowed to.
struct PauseFilter {
    limit: usize,
    asks_person: bool,
    graph: Option<String>,
}

impl PauseFilter {
    fn read(query: &Query) -> Result<Self, ProtocolError> {
        let limit = match query.get("limit") {
            None => PAGE,
            Some(text) => {
                let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
                number.ok_or_else(|| ProtocolError::invalid("limit", format!("a number from 1 to {MOST}")))?
            }
        };
        let asks_person = match query.get("asks") {
            None => false,
            Some("person") => true,
            Some(_) => return Err(ProtocolError::invalid("asks", "`person`, or leave it out")),
        };
        Ok(Self { limit, asks_person, graph: query.get("graph").map(str::to_owned) })
    }
}

impl Extensions {
    /// The pauses that the caller may see: those that fall due first come first, as far as the index is in order.
    ///
    /// # Errors
    /// For a bad limit or cursor, and when the store does not answer.
    pub(super) async fn list(&self, admitted: &AdmittedRequest<'_>) -> Result<List<PauseSummary>, ProtocolError> {
        let narrowed = PauseFilter::read(&admitted.query)?;
        let scope = scope(admitted, &narrowed);
        let mut cursor = match admitted.query.get("cursor") {
            Some(cursor) => self.cursors.open(&scope, cursor, admitted.now)?.into_iter().next(),
            None => None,
        };
        let (mut data, mut looked_at) = (Vec::new(), 0);
        loop {
            let sleepers = &self.app.maintenance().sleepers;
            let page = sleepers.list_pending(None, cursor.as_deref()).await.map_err(|error| store(&error))?;
            looked_at += page.items.len();
            for rows in page.items.chunks(TOGETHER) {
                data.extend(self.summaries(admitted, &narrowed, rows).await?);
            }
            cursor = page.next;
            if cursor.is_none() || data.len() >= narrowed.limit || looked_at >= LOOKED_AT {
                break;
            }
        }
        let expires = admitted.now.checked_add(GOOD_FOR).unwrap_or(admitted.now);
        let next = cursor.map(|cursor| self.cursors.seal(&scope, &[cursor], expires));
        Ok(List::page(data, next))
    }

    async fn summaries(
        &self,
        admitted: &AdmittedRequest<'_>,
        narrowed: &PauseFilter,
        rows: &[PendingRow],
    ) -> Result<Vec<PauseSummary>, ProtocolError> {
        let sees_all = sees_all(admitted);
        // Of what cannot be the caller's nothing is read, and of what is known to be another tenant's no task is looked up.
        let rows: Vec<&PendingRow> = rows.iter().filter(|row| sees_all || is_task(&row.invocation_id)).collect();
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let is_of_another = |paused: &PausedInvocation| {
            let of = paused.begun_for.as_ref().or(paused.tenant.as_ref());
            !sees_all && of.is_some_and(|tenant| *tenant != admitted.actor.tenant)
        };
        let ids: Vec<InvocationId> = rows.iter().map(|row| row.invocation_id.clone()).collect();
        let invocations = &self.app.engine().ports().store.invocations;
        let loaded = invocations.load_pauses(&ids).await.map_err(|error| store(&error))?;
        let mut found = Vec::new();
        for (row, loaded) in rows.into_iter().zip(loaded) {
            let summary = match loaded {
                Ok(Some(record)) if is_of_another(&record.paused) => continue,
                Ok(Some(record)) if !matches!(record.status, InvocationStatus::Suspended) => continue,
                Ok(Some(record)) if narrowed.asks_person && !asks_person(&record.paused) => continue,
                Ok(Some(record)) => PauseSummary::of(&record),
                Ok(None) => continue,
                Err(_) if narrowed.asks_person => continue,
                Err(_) => {
                    let since = row.since.unwrap_or(admitted.now);
                    PauseSummary::unreadable(&row.invocation_id, row.generation, since)
                }
            };
            if narrowed.graph.as_ref().is_none_or(|graph| *graph == summary.graph) {
                found.push((&row.invocation_id, summary));
            }
        }
        // Side by side: each look-up of a task that may be another tenant's is a round trip.
        let seen = try_join_all(found.iter().map(|(id, _)| self.may_see(admitted, id))).await?;
        Ok(found.into_iter().zip(seen).filter(|(_, seen)| *seen).map(|((_, summary), _)| summary).collect())
    }

    /// True if the caller may know of the invocation `id`: an operator of all, others of tasks that are theirs.
    async fn may_see(&self, admitted: &AdmittedRequest<'_>, id: &InvocationId) -> Result<bool, ProtocolError> {
        if sees_all(admitted) {
            return Ok(true);
        }
        if !is_task(id) {
            return Ok(false);
        }
        let path = format!("/v1/tasks/{}", crate::percent::encode(id.as_str()));
        let found = Operation::find("GET", &path)?;
        let call = Call {
            operation: found.operation,
            params: found.params,
            query: Query::default(),
            body: Body::default(),
            actor: admitted.actor.clone(),
            idempotency_key: None,
            is_placed_for_caller: false,
            target: found.target,
            now: admitted.now,
        };
        match self.operations.serve(call).await {
            Ok(_) => Ok(true),
            Err(error) if error.code() == ErrorCode::ResourceNotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The pause of the invocation `id`, and what the doctor says of it.
    ///
    /// # Errors
    /// 404, also for what belongs to others.
    pub(super) async fn pause(&self, admitted: &AdmittedRequest<'_>, id: &str) -> Result<Pause, ProtocolError> {
        let diagnosis = self.diagnosis(admitted, id).await?;
        Ok(Pause::of(&diagnosis, sees_all(admitted)))
    }

    /// Findings of the doctor about the invocation `id`.
    ///
    /// # Errors
    /// 404, also for what belongs to others.
    pub(super) async fn diagnosis(&self, admitted: &AdmittedRequest<'_>, id: &str) -> Result<Diagnosis, ProtocolError> {
        let not_found = || ProtocolError::not_found("x-pause");
        if !crate::body::is_id(id) {
            return Err(not_found());
        }
        let id = InvocationId::from(id);
        if !self.may_see(admitted, &id).await? {
            return Err(not_found());
        }
        let rules = match self.may_repair {
            true => RulesSeen::look(self.app.harness()).await,
            false => RulesSeen::new(admitted.now, Err("this process does not look at the bus".to_owned())),
        };
        let doctor = Doctor::new(self.app.harness(), self.app.maintenance(), rules);
        let mut diagnosis = doctor.diagnose(&id).await.map_err(|error| super::act::refusal("id", error))?;
        let ahead = queued_behind(&*self.records, &diagnosis.record, admitted.now).await;
        if let Some(ahead) = ahead {
            diagnosis.wait_behind(ahead.as_str());
        }
        Ok(diagnosis)
    }
}

/// True if the caller may know of all that sleeps, whoever began it.
fn sees_all(admitted: &AdmittedRequest<'_>) -> bool {
    admitted.actor.scopes.contains(&Scope::OperationsRead)
}

/// Scope of a cursor: the list, its reader and its filters.
fn scope(admitted: &AdmittedRequest<'_>, narrowed: &PauseFilter) -> String {
    let (actor, graph) = (&admitted.actor, narrowed.graph.as_deref().unwrap_or_default());
    format!("{}/{} x-pauses {} {graph}", actor.tenant, actor.name, narrowed.asks_person)
}

/// The store did not do what it was asked. The reason goes to the log.
fn store(error: &StoreError) -> ProtocolError {
    tracing::warn!(%error, "the store did not give what sleeps");
    match error {
        StoreError::Unavailable(_) | StoreError::LeaseHeld { .. } => {
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the store does not answer").retry_after(SOON)
        }
        StoreError::Denied(_)
        | StoreError::Corrupt(_)
        | StoreError::TooLarge { .. }
        | StoreError::TooComplex { .. }
        | StoreError::Invalid(_) => ProtocolError::new(ErrorCode::InternalError, "the server failed"),
    }
}
