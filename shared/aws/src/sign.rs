use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_sdk_dynamodb::config::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign};
use aws_sigv4::sign::v4;
use dormouse_ports::{Clock, FetchRequest, Method, Sign, SignError};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::AwsAccess;

/// Characters that stand for themselves in a query.
const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Signs requests for one service of AWS in one region (Signature Version 4).
pub struct RequestSigner {
    credentials: Credentials,
    region: String,
    service: &'static str,
    clock: Arc<dyn Clock>,
}

impl RequestSigner {
    /// Signs for `service`, in the region of `access` and with its credentials.
    pub fn new(access: &AwsAccess, service: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { credentials: access.credentials.clone(), region: access.region.clone(), service, clock }
    }

    /// The address `url` with a permission in it: each holder may send one kind of request there, for as long as
    /// `valid` or the credentials hold. `url` has no query.
    ///
    /// # Errors
    /// [`SignError`] for an address that is none.
    pub fn presigned(&self, method: Method, url: &str, valid: Duration) -> Result<String, SignError> {
        let rejected = |error: &dyn fmt::Display| SignError::Rejected(error.to_string());
        let identity = self.credentials.clone().into();
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(valid);
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(SystemTime::from(self.clock.now()))
            .settings(settings)
            .build()
            .map_err(|error| rejected(&error))?
            .into();
        let signable = SignableRequest::new(method.as_str(), url, std::iter::empty(), SignableBody::UnsignedPayload)
            .map_err(|error| rejected(&error))?;
        let (instructions, _) = sign(signable, &params).map_err(|error| rejected(&error))?.into_parts();
        let encoded = |(name, value): &(&str, std::borrow::Cow<'static, str>)| {
            format!("{name}={}", utf8_percent_encode(value, IN_QUERY))
        };
        let query: Vec<String> = instructions.params().iter().map(encoded).collect();
        Ok(format!("{url}?{}", query.join("&")))
    }

    fn headers_for(&self, request: &FetchRequest) -> Result<Vec<(String, String)>, SignError> {
        let rejected = |error: &dyn fmt::Display| SignError::Rejected(error.to_string());
        let identity = self.credentials.clone().into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(self.service)
            .time(SystemTime::from(self.clock.now()))
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| rejected(&error))?
            .into();
        let headers = request.headers.iter().map(|(name, value)| (name.as_str(), value.expose()));
        let body = SignableBody::Bytes(&request.body);
        let signable = SignableRequest::new(request.method.as_str(), request.url.as_str(), headers, body)
            .map_err(|error| rejected(&error))?;
        let (instructions, _) = sign(signable, &params).map_err(|error| rejected(&error))?.into_parts();
        Ok(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

impl fmt::Debug for RequestSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestSigner")
            .field("region", &self.region)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Sign for RequestSigner {
    async fn sign(&self, request: &mut FetchRequest) -> Result<(), SignError> {
        let headers = self.headers_for(request)?;
        request.headers.extend(headers.into_iter().map(|(name, value)| (name, value.into())));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Method;
    use dormouse_testkit::ManualClock;

    use super::*;
    use crate::Endpoints;

    fn signer() -> RequestSigner {
        let credentials = Credentials::new("AKIDEXAMPLE", "hush-hush", Some("token-hush".to_owned()), None, "test");
        let region = "eu-central-1".to_owned();
        let access = AwsAccess { region, credentials, endpoints: Endpoints::default() };
        let start = "2027-01-15T08:00:00Z".parse().expect("an instant");
        RequestSigner::new(&access, "bedrock", Arc::new(ManualClock::starting_at(start)))
    }

    /// The signature is the one that botocore makes of the same request.
    #[tokio::test]
    async fn a_request_is_signed_as_amazon_does() {
        let host = "https://bedrock-runtime.eu-central-1.amazonaws.com";
        let url = format!("{host}/model/anthropic.claude-x%3A0/converse");
        let mut request = FetchRequest::new(Method::Post, url).json(br#"{"messages":[]}"#.to_vec());
        signer().sign(&mut request).await.expect("signed");
        let header = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.expose().to_owned()).unwrap_or_default()
        };
        assert_eq!(header("x-amz-date"), "20270115T080000Z");
        assert_eq!(header("x-amz-security-token"), "token-hush");
        let signature = "Signature=ecd5dae1be1df8313b7cfda026f850e325294642c084ba09d4179cf11dc756d0";
        assert!(header("authorization").ends_with(signature), "{}", header("authorization"));
    }

    /// The signature is the one that the rules of Signature Version 4 make of the same address, computed in Python.
    #[test]
    fn an_address_carries_a_permission() {
        let credentials = Credentials::new("AKIDEXAMPLE", "hush-hush", Some("token/hush=".to_owned()), None, "test");
        let region = "eu-central-1".to_owned();
        let access = AwsAccess { region, credentials, endpoints: Endpoints::default() };
        let start = "2027-01-15T08:00:00Z".parse().expect("an instant");
        let signer = RequestSigner::new(&access, "s3", Arc::new(ManualClock::starting_at(start)));
        let url = "https://s3.eu-central-1.amazonaws.com/bucket/workspaces/desk/files/current";
        let signed = signer.presigned(Method::Put, url, Duration::from_secs(1200)).expect("signed");
        assert!(signed.starts_with(url) && signed.contains("X-Amz-Expires=1200"), "{signed}");
        assert!(signed.contains("X-Amz-Security-Token=token%2Fhush%3D"), "{signed}");
        assert!(signed.contains("X-Amz-SignedHeaders=host&"), "{signed}");
        let signature = "X-Amz-Signature=9cb2b8996273695bc0d738456b7f1e0637da7194fb3d446b994a2518875dd723";
        // In any order of its parts: where the token stands differs between builds of the signing crate.
        assert!(signed.split(['?', '&']).any(|part| part == signature), "{signed}");
    }

    #[tokio::test]
    async fn what_cannot_be_signed_is_told_and_nothing_secret_is() {
        let mut request = FetchRequest::new(Method::Post, "no address");
        assert!(matches!(signer().sign(&mut request).await, Err(SignError::Rejected(_))));
        assert!(!format!("{:?}", signer()).contains("hush"));
    }
}
