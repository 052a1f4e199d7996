use dormouse_ports::{Category, InvocationId};
use serde_json::json;

use super::print::Printer;
use super::{InspectError, Outcome, not_found};
use crate::target::Opened;

/// Lets the invocation `id`, which was put aside, go on.
pub(super) async fn retry(opened: &Opened, id: &InvocationId, json: bool) -> Result<Outcome, InspectError> {
    let printer = Printer::new(json);
    match opened.harness.retry(id).await {
        Err(error) if error.category == Category::NotFound => not_found(&printer, id),
        Err(error) => Err(error.into()),
        Ok(()) => {
            printer.fields(&json!({ "status": "accepted", "invocation_id": id }))?;
            Ok(Outcome::Fine)
        }
    }
}
