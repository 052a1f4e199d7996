//! Quotas as clients see them.

use dormouse_protocol::ProtocolError;
use dormouse_protocol::resource::Quota;

use crate::api::{Api, found};
use crate::page::Narrowed;
use crate::{Call, CallAnswer};

impl Api {
    pub(crate) async fn list_quotas(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        self.page::<Quota>(call, Narrowed::Nothing, |_| true).await
    }

    pub(crate) async fn get_quota(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Quota>(call, "quota_id").await?.kept.resource)
    }
}
