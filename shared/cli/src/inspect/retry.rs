use dormouse_ports::{Category, InvocationId};
use serde_json::json;

use super::print::Printer;
use super::{InspectError, InspectOutcome, not_found};
use crate::target::OpenedStore;

/// Lets the invocation `id`, which was put aside, go on.
pub(super) async fn retry(opened: &OpenedStore, id: &InvocationId, json: bool) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    match opened.harness.retry(id).await {
        Err(error) if error.category == Category::NotFound => not_found(&printer, id),
        // The category is one for callers of turns; the sentence says it all.
        Err(error) if error.category == Category::SuspensionRecordInvalid => Err(InspectError::Answer(error.message)),
        Err(error) => Err(error.into()),
        Ok(()) => {
            printer.fields(&json!({ "status": "accepted", "invocation_id": id }))?;
            Ok(InspectOutcome::Fine)
        }
    }
}
