use dormouse_local::ServedBus;
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
    if let Some(served) = opened.served() {
        return ask(served, &id, reason.as_deref(), &printer).await;
    }
    let turn = opened.harness.cancel(&id, None, reason).await?;
    printer.fields(&json!({ "status": "canceled", "invocation_id": turn.invocation_id,
        "reason": turn.cancellation.reason, "at": turn.cancellation.at, "repeated": turn.repeated }))?;
    Ok(InspectOutcome::Fine)
}

/// Has the process that serves the folder do it, which has every graph.
async fn ask(
    served: &ServedBus,
    id: &InvocationId,
    reason: Option<&str>,
    printer: &Printer,
) -> Result<InspectOutcome, InspectError> {
    let unheard = |error| InspectError::Answer(format!("the process that serves the folder does not answer: {error}"));
    let (status, answer) = served.cancel(id, reason).await.map_err(unheard)?;
    if status != 200 {
        let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
        return Err(InspectError::Answer(format!("{}: {}", text("category"), text("message"))));
    }
    printer.fields(&json!({ "status": "canceled", "invocation_id": answer["invocation_id"],
        "reason": answer["reason"], "at": answer["canceled_at"], "repeated": answer["repeated"] }))?;
    Ok(InspectOutcome::Fine)
}
