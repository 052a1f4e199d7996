use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;

use super::obey::{EmbeddedDatabase, operation_of};

/// Client by which the SDK sends its requests, in place of a connection.
#[derive(Clone, Debug)]
pub(super) struct InProcessClient(pub(super) EmbeddedDatabase);

impl HttpClient for InProcessClient {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for InProcessClient {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = request.headers().get("x-amz-target").map(operation_of).unwrap_or_default().to_owned();
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let engine = self.0.clone();
        HttpConnectorFuture::new(async move {
            let Some((status, body)) = engine.serve(operation, body).await else {
                return Err(ConnectorError::io("the embedded store has stopped".into()));
            };
            let status = StatusCode::try_from(status).map_err(|error| ConnectorError::user(error.into()))?;
            Ok(HttpResponse::new(status, SdkBody::from(body)))
        })
    }
}
