//! Who asks, as the services are told.

use aws_runtime::user_agent::UserAgentInterceptor;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeSerializationInterceptorContextRef, BeforeTransmitInterceptorContextMut,
};
use aws_smithy_runtime_api::client::interceptors::{Intercept, disable_interceptor};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

const AGENT: &str = concat!("dormouse/", env!("CARGO_PKG_VERSION"), " aws-sdk-rust");

/// Sends one name, in place of the two headers that the SDK puts together anew for each request, of all that it knows about
/// machine, language and configuration: a twentieth of the instructions of a start, and as many for each later request.
#[derive(Debug)]
pub(super) struct OneUserAgent;

impl Intercept for OneUserAgent {
    fn name(&self) -> &'static str {
        "OneUserAgent"
    }

    fn read_before_execution(
        &self,
        _: &BeforeSerializationInterceptorContextRef<'_>,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(disable_interceptor::<UserAgentInterceptor>("one name is sent"));
        Ok(())
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        context.request_mut().headers_mut().insert("user-agent", AGENT);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::Credentials;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{AwsAccess, Endpoints};

    #[tokio::test]
    async fn one_name_is_sent_and_signed() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let heard = tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut heard = Vec::new();
            while !heard.windows(4).any(|four| four == b"\r\n\r\n") {
                client.read_buf(&mut heard).await.expect("a request");
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"TableNames\":[]}";
            client.write_all(answer.as_bytes()).await.expect("it is answered");
            String::from_utf8_lossy(&heard).to_lowercase()
        });
        let access = AwsAccess {
            region: "us-east-1".to_owned(),
            credentials: Credentials::new("a", "b", None, None, "test"),
            endpoints: Endpoints { all: Some(address), ..Endpoints::default() },
        };
        access.dynamodb().list_tables().send().await.expect("an answer");
        let heard = heard.await.expect("it heard");
        let agents: Vec<&str> = heard.lines().filter(|line| line.contains("user-agent:")).collect();
        assert_eq!(agents, [format!("user-agent: {AGENT}")], "{heard}");
        assert!(heard.contains("authorization: aws4-hmac-sha256"), "{heard}");
    }
}
