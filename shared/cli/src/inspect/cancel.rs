use dormouse_ports::InvocationId;
use serde_json::json;

use super::print::Printer;
use super::{InspectError, InspectOutcome, not_found};
use crate::target::OpenedStore;

/// Ends the invocation `id`. An unknown one is refused unless `ahead`: it is more often a slip of the pen.
pub(super) async fn cancel(
    opened: &OpenedStore,
    id: InvocationId,
    reason: Option<String>,
    (ahead, json): (bool, bool),
) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    if !ahead && opened.store().glance(std::slice::from_ref(&id)).await?.iter().all(Option::is_none) {
        return not_found(&printer, &id);
    }
    let turn = opened.harness.cancel(&id, None, reason).await?;
    printer.fields(&json!({ "status": "canceled", "invocation_id": turn.invocation_id,
        "reason": turn.cancellation.reason, "at": turn.cancellation.at, "repeated": turn.repeated }))?;
    Ok(InspectOutcome::Fine)
}
