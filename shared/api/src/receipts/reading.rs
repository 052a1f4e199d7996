//! Lists, reads and verifies receipts.

use dormouse_protocol::envelope::{List, Named, ResourcePointer};
use dormouse_protocol::event::{Draft, EventKind};
use dormouse_protocol::id::ReceiptId;
use dormouse_protocol::receipt::wire::SCHEMA;
use dormouse_protocol::receipt::{Receipt, ReceiptVerification, ReceiptWireEnvelope, VerifyReceiptRequest};
use dormouse_protocol::request::ListQuery;
use dormouse_protocol::resource::{Session, Task};
use dormouse_protocol::{Envelope, Event, Identifier, Map, ProtocolError};
use dormouse_receipts::{Flaw, Keys};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::issue::{PREVIOUS, RECEIPT};
use crate::api::{Change, by, found};
use crate::change::SessionChange;
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::{fitting, scope};
use crate::reads::Reads;
use crate::refusal::{internal, store};
use crate::transcript::event_of;
use crate::{Call, CallAnswer, Receipts};

/// A receipt as it is stored.
struct Issued {
    /// The receipt itself.
    body: Map,
    /// The id of the one before it in its chain.
    previous: Option<ReceiptId>,
}

impl Reads {
    /// The receipt called `id`, which its id leads to.
    async fn issued(&self, id: &ReceiptId) -> Result<Option<Issued>, ProtocolError> {
        let Some((stream, position)) = id.place().filter(|(_, position)| *position > 0) else { return Ok(None) };
        let entries = self.records().entries(stream, position - 1, 1).await.map_err(store)?;
        let Some(entry) = entries.into_iter().next() else { return Ok(None) };
        Ok(issued_by(event_of(entry.entry)?).filter(|_| id.is_well_formed()))
    }
}

/// Receipts that were issued, as callers may know them.
#[derive(Clone)]
pub(crate) struct IssuedReceipts {
    pub(crate) lists: Lists,
    /// Issues them; without it there are none.
    pub(crate) receipts: Option<Receipts>,
}

impl IssuedReceipts {
    /// The receipts of a task, the newest first: of its end, and of the answers to its questions for a permission.
    pub(crate) async fn list(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        self.issuer(call)?;
        let task = self.lists.reads.named::<Task>(call, "task_id").await?;
        let session = self.lists.reads.session_of(&task, call).await?;
        let task = match task.clone().known_to(&session) {
            Some(open) if !task.kept.resource.status.is_terminal() => open,
            // It has ended in the meantime.
            None if !task.kept.resource.status.is_terminal() => self.lists.reads.named::<Task>(call, "task_id").await?,
            Some(_) | None => task,
        };
        let stream = session.kept.resource.envelope.id.as_str();
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, task.kept.resource.envelope.id.as_str());
        let before = self.lists.position(call, &scope, query.cursor.as_deref())?;
        let before = before.first().and_then(|place| place.parse().ok()).unwrap_or(u64::MAX);
        let places = task.kept.own.receipts.at.iter().rev().copied().filter(|place| *place < before);
        let mut shown = Vec::new();
        for place in places.clone().take(query.limit) {
            let id = ReceiptId::at(stream, place);
            let issued = self.lists.reads.issued(&id).await?.ok_or_else(|| internal(&"a receipt that is listed"))?;
            shown.push((place, resource(&id, issued.body)?));
        }
        let count = fitting(shown.iter().map(|(_, receipt)| receipt), query.limit)?;
        shown.truncate(count);
        let last = shown.last().map(|(place, _)| *place);
        let goes_on = last.filter(|last| places.into_iter().any(|place| place < *last));
        let next = goes_on.map(|last| self.lists.cursor(call, &scope, &[last.to_string()])).transpose()?;
        found(&List::page(shown.into_iter().map(|(_, receipt)| receipt).collect::<Vec<_>>(), next))
    }

    pub(crate) async fn get(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let (id, issued, _) = self.named(call).await?;
        found(&resource(&id, issued.body)?)
    }

    /// Says whether a receipt is valid, and that it follows the one before it. What comes of it is told in the session.
    pub(crate) async fn verify(&self, call: &Call) -> Result<Change, ProtocolError> {
        let VerifyReceiptRequest { trust_anchor, at_time } = call.body.clone().decode()?;
        let (id, issued, session) = self.named(call).await?;
        let ours = self.issuer(call)?.keys().clone();
        let keys = match &trust_anchor {
            Some(anchor) => {
                ours.anchored(anchor).map_err(|error| ProtocolError::invalid("trust_anchor", error.to_string()))?
            }
            None => ours,
        };
        let verdict = self.verdict(&issued, &keys, at_time.unwrap_or(call.now)).await?;
        let verification = verification(&issued, verdict.err(), call.now);
        let kind = match verification.valid {
            true => EventKind::ReceiptVerified,
            false => EventKind::ReceiptVerificationFailed,
        };
        let told = json!({
            "receipt_id": id,
            "valid": verification.valid,
            "reason": verification.reason,
            "details": verification.details,
        });
        // Told of the session: the end of a task is the last that is told of it.
        let workspace = session.kept.resource.workspace_id.clone();
        let session_id = session.kept.resource.envelope.id.clone();
        let draft = Draft::new(kind, session_id.pointer(), told).within(Some(&workspace), Some(&session_id), None);
        let mut change = SessionChange::open(session, by(call), call.now);
        change.emit_for_session(draft);
        Change::new(change.close()?.1, 200, &verification)
    }

    async fn verdict(&self, issued: &Issued, keys: &Keys, at: Timestamp) -> Result<Result<(), Flaw>, ProtocolError> {
        let receipt = match dormouse_receipts::Receipt::new(issued.body.clone()) {
            Ok(receipt) => receipt,
            Err(flaw) => return Ok(Err(flaw)),
        };
        if let Err(flaw) = receipt.verify(keys, at) {
            return Ok(Err(flaw));
        }
        let before = match &issued.previous {
            Some(previous) => self
                .lists
                .reads
                .issued(previous)
                .await?
                .and_then(|before| dormouse_receipts::Receipt::new(before.body).ok()),
            None => None,
        };
        let hash = before.map(|before| before.hash()).transpose();
        let previous = receipt.previous_hash();
        Ok(match hash {
            Ok(hash) if hash.as_deref() == previous => Ok(()),
            Ok(_) => Err(Flaw::PreviousMissing { previous: previous.unwrap_or("null").to_owned() }),
            Err(flaw) => Err(flaw),
        })
    }

    /// Issuer of receipts.
    ///
    /// # Errors
    /// `not_implemented` where the server issues none.
    fn issuer(&self, call: &Call) -> Result<&Receipts, ProtocolError> {
        self.receipts.as_ref().ok_or_else(|| ProtocolError::not_implemented(call.operation))
    }

    /// The receipt that the path names, as far as the caller may know, with its session.
    async fn named(&self, call: &Call) -> Result<(ReceiptId, Issued, Stored<Session>), ProtocolError> {
        self.issuer(call)?;
        let id = ReceiptId::from(call.params.get("receipt_id"));
        let not_found = || ProtocolError::not_found(ReceiptId::OBJECT);
        let (stream, _) = id.place().ok_or_else(not_found)?;
        let owner = self.lists.reads.find::<Session>(&stream.into(), call.now).await?;
        let session = owner.filter(|session| session.is_seen_by(&call.actor)).ok_or_else(not_found)?;
        let issued = self.lists.reads.issued(&id).await?.ok_or_else(not_found)?;
        Ok((id, issued, session))
    }
}

/// The receipt that `event` holds, if it is the issue of one.
fn issued_by(event: Event) -> Option<Issued> {
    let mut payload = event.payload;
    let body = payload.shift_remove(RECEIPT).filter(|_| event.event == EventKind::ReceiptIssued)?;
    let previous = payload.get(PREVIOUS).and_then(Value::as_str).map(ReceiptId::from);
    match body {
        Value::Object(body) => Some(Issued { body, previous }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// The receipt `body` as a resource.
fn resource(id: &ReceiptId, body: Map) -> Result<Receipt, ProtocolError> {
    let text = |path: &str| Value::Object(body.clone()).pointer(path).and_then(Value::as_str).map(str::to_owned);
    let needed = |path: &str| text(path).ok_or_else(|| internal(&format!("a receipt without {path}")));
    let subject = ResourcePointer { object: needed("/subject/object")?, id: needed("/subject/id")? };
    let issued_at: Timestamp = needed("/issued_at")?.parse().map_err(|error| internal(&error))?;
    let summary = format!("{} {}: {}", subject.object, subject.id, needed("/lifecycle/final_state")?);
    let issuer = needed("/issuer/id")?;
    let wire = ReceiptWireEnvelope {
        schema_version: SCHEMA.to_owned(),
        subject: subject.clone(),
        issued_at,
        payload: body,
        signature: None,
    };
    Ok(Receipt {
        envelope: Envelope::new(id.clone(), issued_at),
        subject,
        format: SCHEMA.to_owned(),
        summary,
        issued_at,
        issuer,
        wire: Some(wire),
        verification: None,
    })
}

fn verification(issued: &Issued, flaw: Option<Flaw>, now: Timestamp) -> ReceiptVerification {
    let of_chain = |name: &str| issued.body.get("chain").and_then(|chain| chain.get(name)).cloned().unwrap_or_default();
    let mut details = Map::from_iter([
        ("receipt_hash".to_owned(), of_chain("receipt_hash")),
        ("previous_receipt_hash".to_owned(), of_chain("previous_receipt_hash")),
    ]);
    if let Some(flaw) = &flaw {
        details.insert("code".to_owned(), flaw.code().into());
    }
    let reason = flaw.as_ref().map(ToString::to_string);
    ReceiptVerification { valid: flaw.is_none(), checked_at: now, reason, details }
}
