use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

/// In PEM; the file names their origin.
const AMAZON: &str = include_str!("../../roots/amazon.pem");

/// The roots of accepted certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Roots {
    /// Amazon's, compiled in.
    Amazon,
    /// Those in the system's folder, which is read at the first connection.
    System,
}

impl Roots {
    /// The roots for the servers that may answer in `region` or at `endpoints`.
    pub(super) fn of<'a>(region: &str, mut endpoints: impl Iterator<Item = &'a str>) -> Self {
        let elsewhere = region.starts_with("cn-") || endpoints.any(|endpoint| endpoint.starts_with("https://"));
        if elsewhere { Self::System } else { Self::Amazon }
    }
}

/// A client for `https`, and for `http` where an endpoint has that scheme.
pub(super) fn client(roots: Roots) -> SharedHttpClient {
    let trusted = match roots {
        Roots::Amazon => TrustStore::empty().with_pem_certificate(AMAZON),
        Roots::System => TrustStore::default(),
    };
    let client = Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
    let client = match TlsContext::builder().with_trust_store(trusted).build() {
        Ok(context) => client.tls_context(context).build_https(),
        // The system's roots are the default.
        Err(error) => {
            tracing::warn!(%error, "the roots of Amazon cannot be used; the system's are");
            client.build_https()
        }
    };
    SharedHttpClient::new(OnDemand(client))
}

/// Reads the roots when a request is sent for the first time. By itself the SDK's client reads them also for each
/// service that is configured, and discards the result.
#[derive(Debug)]
struct OnDemand(SharedHttpClient);

impl HttpClient for OnDemand {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        self.0.http_connector(settings, components)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_sdk_dynamodb::error::SdkError;
    use aws_smithy_types::retry::RetryConfig;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest, Sha256};

    use super::*;

    /// As published by Amazon Trust Services.
    const FINGERPRINTS: [&str; 5] = [
        "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e",
        "1ba5b2aa8c65401a82960118f80bec4f62304d83cec4713a19c39c011ea46db4",
        "18ce6cfe7bf14e60b2e347b8dfe868cb31d02ebb3ada271569f50343b46db3a4",
        "e35d28419ed02025cfa69038cd623962458da5c695fbdea3c22b0bfb25897092",
        "568d6905a2c88708a4b3025190edcfedb1974a606a13c6e5290fcb2ae63edab5",
    ];

    #[test]
    fn the_roots_are_those_of_amazon() {
        let blocks = AMAZON.split("-----BEGIN CERTIFICATE-----").skip(1);
        let prints: Vec<String> = blocks
            .map(|block| {
                let text = block.split("-----END CERTIFICATE-----").next().expect("an end");
                let der = STANDARD.decode(text.split_whitespace().collect::<String>()).expect("base64");
                hex::encode(Sha256::digest(der))
            })
            .collect();
        assert_eq!(prints, FINGERPRINTS);
    }

    /// The client reads the roots when it connects for the first time, and panics over what it cannot read.
    #[tokio::test]
    async fn the_roots_can_be_read() {
        for roots in [Roots::Amazon, Roots::System] {
            let nobody =
                std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port").local_addr().expect("an address");
            let config = aws_sdk_dynamodb::Config::builder()
                .behavior_version(BehaviorVersion::latest())
                .region(Region::new("us-east-1"))
                .credentials_provider(Credentials::new("a", "b", None, None, "test"))
                .endpoint_url(format!("https://{nobody}"))
                .retry_config(RetryConfig::disabled())
                .http_client(client(roots));
            let answer = aws_sdk_dynamodb::Client::from_conf(config.build()).list_tables().send().await;
            assert!(matches!(answer, Err(SdkError::DispatchFailure(_))), "{answer:?}");
        }
    }

    #[test]
    fn somebody_else_is_believed_only_where_somebody_else_answers() {
        let of = |region, endpoint: Option<&'static str>| Roots::of(region, endpoint.into_iter());
        assert_eq!(of("eu-central-1", None), Roots::Amazon);
        assert_eq!(of("us-gov-west-1", None), Roots::Amazon);
        assert_eq!(of("eu-central-1", Some("http://127.0.0.1:8000")), Roots::Amazon);
        assert_eq!(of("eu-central-1", Some("https://dynamodb.example.com")), Roots::System);
        assert_eq!(of("cn-north-1", None), Roots::System);
    }
}
