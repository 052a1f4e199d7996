//! Connectors: webhooks of other services, in.
//!
//! A delivery is believed by its signature alone, over the bytes that came. Its secret is in a vault whose capabilities
//! allow `webhooks:verify`, in the workspace of the connector or in none; several secrets may be good while one is
//! replaced. What it becomes is declared: a task or a message in the session that the connector names, or the answer of a task
//! that waits in its workspace. Or it tells that a model call which is worked on in the background has
//! ended: the run that waits for it looks, and believes nothing of the delivery but that.
//!
//! # Invariants
//! - A delivery and what it becomes are one transaction: it is known by its id for longer than its sender repeats it,
//!   and the same one again is answered 200 and changes nothing.
//! - One that is not believed is answered 401, and counted where it bears a signature; nothing else of it is kept.

mod mapping;
mod proof;

use std::collections::BTreeMap;

use dormouse_json::ENTRY;
use dormouse_ports::model::BackgroundJob;
use dormouse_ports::{Commit, CounterChange, CounterWrite, DocumentKey, DocumentWrite, Journal};
use dormouse_protocol::event::redact;
use dormouse_protocol::id::ConnectorId;
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{
    Connector, ConnectorStatus, CreateConnectorRequest, Session, UpdateConnectorRequest,
};
use dormouse_protocol::{Envelope, ErrorCode, Map, Operation, ProtocolError};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::{ATTEMPTS, Api, Change, found};
use crate::change::object;
use crate::deletion::place_write;
use crate::documents::{Kept, Stored};
use crate::lists::Lists;
use crate::page::Narrowed;
use crate::reads::Reads;
use crate::refusal::{busy, check_line, conflict, internal, store};
use crate::signature::{Distrust, SignatureScheme, SignedBody};
use crate::{Call, CallAnswer};
use mapping::{MAPPING_FORM, Mapping, OF_RESPONSES, delivered, text_at};
use proof::DeliveryProof;
pub(crate) use proof::{Proofs, VERIFY};

/// Kind of the documents by which deliveries are known again, and of the counters of those that were not believed.
const DELIVERY: &str = "delivery";
const COUNTERS: &str = "counters";
const REFUSED: &str = "refused";

/// Hours for which a delivery is known again, and the most: longer than any sender repeats it.
const KEPT_HOURS: u32 = 7 * 24;
const MOST_HOURS: u32 = 60 * 24;

/// The largest delivery, in bytes.
const MOST_BYTES: usize = 256 * 1024;

/// Characters of the longest name of a provider.
const LONGEST_PROVIDER: usize = 128;

/// The longest id of a model call, in bytes.
const LONGEST_JOB: usize = 256;

/// A webhook to a connector.
#[derive(Clone, Debug)]
pub struct ReceivedDelivery {
    /// The connector that the path names.
    pub connector_id: ConnectorId,
    /// The webhook.
    pub sent: SignedBody,
    /// The present instant.
    pub now: Timestamp,
}

/// Bookkeeping of the server about a connector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnectorIndex {
    proof: Option<DeliveryProof>,
    mapping: Option<Mapping>,
    kept_hours: u32,
    /// True if whoever made it is bound to no workspace: tasks of its deliveries find the same agents. Of one that was stored
    /// without it nobody knows, and they find what a bound one finds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_unbound: bool,
}

impl Lists {
    pub(crate) async fn list_connectors(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, .. } = Filters::read(&call.query)?;
        let wanted = |connector: &Connector| workspace_id.as_ref().is_none_or(|id| connector.workspace_id == *id);
        self.page::<Connector>(call, Narrowed::to(None, workspace_id.as_ref()), wanted).await
    }
}

impl Reads {
    /// The connector, with the number of deliveries that were not believed.
    pub(crate) async fn get_connector(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let mut connector = self.named::<Connector>(call, "connector_id").await?.kept.resource;
        let counters = self.records().counters(&refused_of(&connector.envelope.id)).await.map_err(store)?;
        let refused = counters.and_then(|counters| counters.left.get(REFUSED).copied()).unwrap_or_default();
        connector.webhook.insert("refused_deliveries".to_owned(), refused.into());
        found(&connector)
    }
}

impl Api {
    pub(crate) async fn create_connector(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: CreateConnectorRequest = call.body.clone().decode()?;
        self.reads.check_place(call, Some(&request.workspace_id)).await?;
        let session = self.reads.see::<Session>(call, &request.target_session_id).await?;
        if session.kept.resource.workspace_id != request.workspace_id {
            return Err(ProtocolError::invalid("target_session_id", "the session is in another workspace"));
        }
        if let Some(persona) = &request.target_persona_id {
            self.chosen_persona(call, Some(&request.workspace_id), Some(persona)).await?;
        }
        let proof = self.proofs.chosen(call, &request.auth, &request.workspace_id).await?;
        let mapping: Mapping = read("mapping", &request.mapping, MAPPING_FORM)?;
        mapping.check()?;
        check_line("provider", &request.provider, LONGEST_PROVIDER)?;
        if let Some(unknown) = request.dedupe_policy.keys().find(|name| *name != "keep_hours") {
            let message = "there is no such field; a policy has `keep_hours`";
            return Err(ProtocolError::invalid(format!("dedupe_policy.{unknown}"), message));
        }
        let kept_hours = match request.dedupe_policy.get("keep_hours") {
            None => KEPT_HOURS,
            Some(hours) => hours
                .as_u64()
                .and_then(|hours| u32::try_from(hours).ok())
                .filter(|hours| (1..=MOST_HOURS).contains(hours))
                .ok_or_else(|| {
                    ProtocolError::invalid("dedupe_policy.keep_hours", format!("expected 1 to {MOST_HOURS}"))
                })?,
        };
        let id: ConnectorId = self.fresh(call.now);
        let connector = Connector {
            envelope: Envelope::new(id.clone(), call.now).with_metadata(redact::object(request.metadata)),
            provider: request.provider,
            workspace_id: request.workspace_id.clone(),
            status: ConnectorStatus::Active,
            event_kinds: request.event_kinds,
            dedupe_policy: Map::from_iter([("keep_hours".to_owned(), kept_hours.into())]),
            auth: shown(&proof)?,
            webhook: Map::from_iter([
                ("path".to_owned(), format!("/v1/connectors/{id}/deliveries").into()),
                ("mapping".to_owned(), Value::Object(shown(&mapping)?)),
            ]),
            polling: Map::new(),
            target_persona_id: request.target_persona_id,
            target_session_id: Some(request.target_session_id),
        };
        let is_unbound = call.actor.workspaces.is_none();
        let index = ConnectorIndex { proof: Some(proof), mapping: Some(mapping), kept_hours, is_unbound };
        let place = place_write(&request.workspace_id);
        let stored = Stored::new(&call.actor.tenant, Some(request.workspace_id), connector, index);
        Change::new(Journal::new(vec![place, stored.write()?], Vec::new()), 201, &stored.kept.resource)
    }

    pub(crate) async fn update_connector(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: UpdateConnectorRequest = call.body.clone().decode()?;
        let mut stored = self.reads.named::<Connector>(call, "connector_id").await?;
        if let Some(auth) = &request.auth {
            let proof = self.proofs.chosen(call, auth, &stored.kept.resource.workspace_id).await?;
            stored.kept.resource.auth = shown(&proof)?;
            stored.kept.own.proof = Some(proof);
        }
        let connector = &mut stored.kept.resource;
        connector.status = request.status.unwrap_or(connector.status);
        let metadata = request.metadata.map(redact::object);
        connector.envelope.metadata = metadata.unwrap_or_else(|| std::mem::take(&mut connector.envelope.metadata));
        connector.envelope.updated_at = call.now;
        Change::new(Journal::new(vec![stored.write()?], Vec::new()), 200, &stored.kept.resource)
    }

    /// Refuses a change of a connector's secrets before which another one came: whoever sent it has not seen which secrets
    /// stand now.
    ///
    /// # Errors
    /// `conflict` with the names of these secrets, never their values.
    pub(crate) async fn check_not_overtaken(&self, call: &Call) -> Result<(), ProtocolError> {
        if call.operation != Operation::UpdateConnector
            || call.body.clone().decode::<UpdateConnectorRequest>()?.auth.is_none()
        {
            return Ok(());
        }
        let connector = self.reads.named::<Connector>(call, "connector_id").await?.kept.resource;
        let message = "the connector was changed at the same time: details.auth is what stands; send the change again if it is to replace that";
        Err(conflict(message).with_detail("auth", connector.auth))
    }

    /// Takes a webhook. It is given the status and the body of the answer.
    ///
    /// # Errors
    /// `unauthenticated` for one that is not believed; what its use is refused for.
    pub async fn deliver(&self, delivery: ReceivedDelivery) -> Result<CallAnswer, ProtocolError> {
        let ReceivedDelivery { connector_id, sent, now } = delivery;
        if sent.body.len() > MOST_BYTES {
            return Err(ProtocolError::too_large(MOST_BYTES));
        }
        let not_found = || ProtocolError::not_found("connector");
        let stored =
            self.reads.find::<Connector>(&connector_id, now).await?.filter(|found| found.kept.deleted.is_none());
        let stored = stored.ok_or_else(not_found)?;
        let index = &stored.kept.own;
        let (Some(proof), Some(mapping)) = (&index.proof, &index.mapping) else { return Err(not_found()) };
        let distrusted = |distrust: Distrust| ProtocolError::new(ErrorCode::Unauthenticated, distrust.message());
        // No secret makes up for a signature that is not there, and anybody can send that: it costs neither one nor a write.
        if let Err(unsigned @ Distrust::Header(_)) = proof.scheme.verify(&sent, &[], &proof.header, now) {
            return Err(distrusted(unsigned));
        }
        let secrets = self.proofs.secrets_of(&stored, proof, now).await?;
        let id = match proof.scheme.verify(&sent, &secrets, &proof.header, now) {
            Ok(id) => id,
            Err(distrust) => {
                self.count_refused(&connector_id, now).await;
                return Err(distrusted(distrust));
            }
        };
        if stored.kept.resource.status != ConnectorStatus::Active {
            return Err(conflict("the connector does not take deliveries now"));
        }
        let body: Value = dormouse_json::read(&sent.body, ENTRY)
            .map_err(|_| ProtocolError::new(ErrorCode::InvalidRequest, "the body is not JSON"))?;
        if let (SignatureScheme::Slack, Some("url_verification")) = (proof.scheme, body["type"].as_str()) {
            return Ok(CallAnswer::Json(200, json!({ "challenge": body["challenge"] })));
        }
        let kinds = &stored.kept.resource.event_kinds;
        let kind = kind_of(&sent, &body);
        let is_meant = |kind: &String| match mapping {
            Mapping::Model { .. } if kinds.is_empty() => kind.starts_with(OF_RESPONSES),
            Mapping::Model { .. } | Mapping::Task { .. } | Mapping::Message { .. } | Mapping::Answer { .. } => {
                kinds.contains(kind)
            }
        };
        let is_particular = !kinds.is_empty() || matches!(mapping, Mapping::Model { .. });
        if is_particular && !kind.as_ref().is_some_and(is_meant) {
            return Ok(CallAnswer::Json(200, json!({ "object": "delivery", "id": id, "status": "ignored" })));
        }
        let seen = seen_write(&stored, &id, index.kept_hours, now)?;
        if self.is_used(&seen, now).await? {
            return Ok(deduped(&id));
        }
        if let Mapping::Model { job } = mapping {
            return self.tell_of_model(text_at(&body, job)?, seen, &id, now).await;
        }
        let call = delivered(&stored, mapping, &body, now)?;
        self.use_delivery(&call, seen, &id).await
    }

    /// Does what `call` says, in one transaction with `seen`.
    async fn use_delivery(&self, call: &Call, seen: DocumentWrite, id: &str) -> Result<CallAnswer, ProtocolError> {
        for _ in 0..ATTEMPTS {
            let change = self.change(call).await;
            // It may have come twice at once, and what it asks for is done then.
            if change.is_err() && self.is_used(&seen, call.now).await? {
                return Ok(deduped(id));
            }
            let mut change = change?;
            change.journal.documents.push(seen.clone());
            let made = change.answer.1.get("id").cloned().unwrap_or_default();
            let object = change.answer.1.get("object").cloned().unwrap_or_default();
            change.answer = (
                200,
                json!({ "object": "delivery", "id": id, "status": "accepted", "made": { "object": object, "id": made } }),
            );
            if let Some(answer) = self.commit(call, change).await? {
                return Ok(answer);
            }
            if self.is_used(&seen, call.now).await? {
                return Ok(deduped(id));
            }
        }
        Err(busy())
    }

    /// True if the delivery that `seen` notes was used by `now`.
    async fn is_used(&self, seen: &DocumentWrite, now: Timestamp) -> Result<bool, ProtocolError> {
        Ok(self.reads.records().document(&seen.key, now).await.map_err(store)?.is_some())
    }

    /// Wakes the invocation that waits for the model call `job`. Telling twice does no harm: it is noted as seen behind
    /// that.
    async fn tell_of_model(
        &self,
        job: String,
        seen: DocumentWrite,
        id: &str,
        now: Timestamp,
    ) -> Result<CallAnswer, ProtocolError> {
        if job.is_empty() || job.len() > LONGEST_JOB || job.contains(char::is_control) {
            return Err(ProtocolError::invalid("mapping.job", "the body has no id of a model call there"));
        }
        let signal_id = BackgroundJob { id: job }.signal_id();
        if let Err(error) = self.parts().harness.send_signal(&signal_id, Map::new()).await {
            tracing::warn!(%error, %signal_id, "nobody could be told that a model call has ended; its run finds out when it looks");
            let message = "the delivery could not be passed on; send it again";
            return Err(ProtocolError::new(ErrorCode::ServiceUnavailable, message).retry_after(5));
        }
        let commit = Commit {
            journal: Journal::new(vec![seen], Vec::new()),
            ..Commit::new(self.parts().harness.engine().ports().ids.fresh(), now)
        };
        if let Err(error) = self.parts().harness.engine().ports().store.commits.commit(&commit).await {
            tracing::warn!(%error, id, "a delivery could not be noted; when it comes again its run looks once more");
        }
        let made = json!({ "object": "signal", "id": signal_id });
        Ok(CallAnswer::Json(200, json!({ "object": "delivery", "id": id, "status": "accepted", "made": made })))
    }

    async fn count_refused(&self, id: &ConnectorId, now: Timestamp) {
        let amounts = BTreeMap::from([(REFUSED.to_owned(), 1)]);
        let write = CounterWrite { key: refused_of(id), change: CounterChange::Add { amounts } };
        let journal = Journal { counters: vec![write], ..Journal::default() };
        let ports = self.parts().harness.engine().ports();
        let commit = Commit { journal, ..Commit::new(ports.ids.fresh(), now) };
        if let Err(error) = ports.store.commits.commit(&commit).await {
            tracing::warn!(%error, %id, "a delivery that was refused could not be counted");
        }
    }
}

/// Kind of the event of a delivery, as its sender calls it.
fn kind_of(sent: &SignedBody, body: &Value) -> Option<String> {
    let inner = body["event"]["type"].as_str().or_else(|| body["type"].as_str());
    sent.header("x-github-event").or(inner).map(str::to_owned)
}

fn seen_write(
    connector: &Stored<Connector>,
    id: &str,
    hours: u32,
    now: Timestamp,
) -> Result<DocumentWrite, ProtocolError> {
    let Kept { tenant, resource, .. } = &connector.kept;
    let (connector, workspace) = (resource.envelope.id.as_str(), resource.workspace_id.as_str());
    let digest = hex::encode(Sha256::new().chain_update(connector).chain_update([0]).chain_update(id).finalize());
    let expires_at = now.checked_add(SignedDuration::from_hours(i64::from(hours))).map_err(|error| internal(&error))?;
    let body = [("connector", connector), ("tenant", tenant.as_str()), ("workspace", workspace)];
    let body = body.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
    let key = DocumentKey::new(DELIVERY, digest);
    Ok(DocumentWrite { key, expect: 0, body: Some(body), listed: Vec::new(), expires_at: Some(expires_at) })
}

fn deduped(id: &str) -> CallAnswer {
    CallAnswer::Json(200, json!({ "object": "delivery", "id": id, "status": "deduped" }))
}

fn refused_of(id: &ConnectorId) -> DocumentKey {
    DocumentKey::new(COUNTERS, id.as_str())
}

fn read<T: serde::de::DeserializeOwned>(field: &str, value: &Map, form: &str) -> Result<T, ProtocolError> {
    serde_json::from_value(Value::Object(value.clone())).map_err(|_| ProtocolError::invalid(field, form))
}

fn shown(value: &impl Serialize) -> Result<Map, ProtocolError> {
    object(value)
}
