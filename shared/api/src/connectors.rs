//! Connectors as clients see them.

use dormouse_protocol::ProtocolError;
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::Connector;

use crate::api::{Api, found};
use crate::page::Narrowed;
use crate::{Call, CallAnswer};

impl Api {
    pub(crate) async fn list_connectors(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, .. } = Filters::read(&call.query);
        let wanted = |connector: &Connector| workspace_id.as_ref().is_none_or(|id| connector.workspace_id == *id);
        self.page::<Connector>(call, Narrowed::to(None, workspace_id.as_ref()), wanted).await
    }

    pub(crate) async fn get_connector(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Connector>(call, "connector_id").await?.kept.resource)
    }
}
