//! Outcomes: written in the transaction that ends a task, one for each.

use dormouse_protocol::ProtocolError;
use dormouse_protocol::resource::Outcome;

use crate::api::{Api, found};
use crate::{Answer, Call};

impl Api {
    pub(crate) async fn list_outcomes(&self, call: &Call) -> Result<Answer, ProtocolError> {
        self.page::<Outcome>(call, call.query.get("task_id"), |_| true).await
    }

    pub(crate) async fn get_outcome(&self, call: &Call) -> Result<Answer, ProtocolError> {
        found(&self.named::<Outcome>(call, "outcome_id").await?.kept.resource)
    }
}
