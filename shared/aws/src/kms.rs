//! A key of AWS KMS that signs receipts: one signed request for each signature, over the HTTP client that is there already.
//! The SDK's client for KMS would make each function longer, for the same two operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::{
    Clock, Fetch, FetchError, FetchLimits, FetchRequest, FetchResponse, Method, Sign, Signer, SignerError,
};
use serde_json::{Value, json};

use crate::connect::kms_address;
use crate::refusal::{RefusalKind, kind_of, with_remedy};
use crate::{AwsAccess, RequestSigner};

/// Attempts at one request, and the pause behind the first; the next one is twice as long.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(50);
/// Time of one attempt.
const WITHIN: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read.
const ANSWER_LIMIT: usize = 64 * 1024;
/// The key spec whose keys sign as receipts are signed.
const KEY_SPEC: &str = "ECC_NIST_EDWARDS25519";
/// The algorithm of a signature over the message itself, as receipts have it (RFC 8032); the other one signs a hash of it.
const ALGORITHM: &str = "ED25519_SHA_512";
/// What stands before the 32 bytes of a public key in its DER form (RFC 8410).
const DER_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// An Ed25519 key of AWS KMS. Its private half never leaves KMS.
#[derive(Clone)]
pub struct KmsKey {
    fetch: Arc<dyn Fetch>,
    signer: Arc<dyn Sign>,
    clock: Arc<dyn Clock>,
    address: String,
    /// Its ARN.
    key: String,
}

impl KmsKey {
    /// The key with the ARN `key`, in the region that it names. `access` has the credentials.
    pub fn new(access: &AwsAccess, key: &str, fetch: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        let region = key.split(':').nth(3).unwrap_or(&access.region).to_owned();
        let access = AwsAccess { region, ..access.clone() };
        let signer = Arc::new(RequestSigner::new(&access, "kms", clock.clone()));
        Self { fetch, signer, clock, address: format!("{}/", kms_address(&access)), key: key.to_owned() }
    }

    /// Its public half: `base64:` and its 32 bytes in base 64.
    ///
    /// # Errors
    /// [`SignerError`], also for a key that is none of the spec `ECC_NIST_EDWARDS25519` for signatures.
    pub async fn public_key(&self) -> Result<String, SignerError> {
        let answer = self.ask("GetPublicKey", &json!({ "KeyId": self.key })).await?;
        let (spec, usage) = (answer["KeySpec"].as_str(), answer["KeyUsage"].as_str());
        if (spec, usage) != (Some(KEY_SPEC), Some("SIGN_VERIFY")) {
            let (spec, usage) = (spec.unwrap_or("none"), usage.unwrap_or("none"));
            let reason =
                format!("{} has the spec {spec} for {usage}; make one of {KEY_SPEC} for SIGN_VERIFY", self.key);
            return Err(SignerError::Refused(reason));
        }
        let der = self.bytes(&answer, "PublicKey")?;
        let key = der.strip_prefix(&DER_PREFIX).filter(|key| key.len() == 32);
        key.map(|key| format!("base64:{}", STANDARD.encode(key))).ok_or_else(|| self.garbled("PublicKey"))
    }

    /// The 64 bytes of its signature over `message`.
    async fn signature(&self, message: &[u8]) -> Result<Vec<u8>, SignerError> {
        let request = json!({
            "KeyId": self.key,
            "Message": STANDARD.encode(message),
            "MessageType": "RAW",
            "SigningAlgorithm": ALGORITHM,
        });
        let answer = self.ask("Sign", &request).await?;
        let signature = self.bytes(&answer, "Signature")?;
        if signature.len() == 64 { Ok(signature) } else { Err(self.garbled("Signature")) }
    }

    /// Asks for `operation` until an attempt is final. Neither operation changes anything, so each may be repeated.
    async fn ask(&self, operation: &str, input: &Value) -> Result<Value, SignerError> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            match self.once(operation, input).await {
                Err(SignerError::Unavailable(reason)) if attempt < ATTEMPTS => {
                    tracing::debug!(reason, attempt, "the request to KMS is repeated");
                    self.clock.sleep(pause).await;
                    pause *= 2;
                }
                answer => return answer,
            }
        }
        Err(SignerError::Unavailable(self.key.clone()))
    }

    async fn once(&self, operation: &str, input: &Value) -> Result<Value, SignerError> {
        let request = FetchRequest::new(Method::Post, self.address.clone());
        let request = request.header("content-type", "application/x-amz-json-1.1");
        let mut request = request.header("x-amz-target", format!("TrentService.{operation}"));
        request.body = input.to_string().into_bytes();
        request.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: ANSWER_LIMIT };
        self.signer.sign(&mut request).await.map_err(|error| SignerError::Refused(error.to_string()))?;
        let lost = |error: FetchError| match &error {
            FetchError::Denied(reason) => SignerError::Refused(format!("kms:{operation}: {reason}")),
            FetchError::Dns(_)
            | FetchError::Connect(_)
            | FetchError::Tls(_)
            | FetchError::Timeout(_)
            | FetchError::Closed(_)
            | FetchError::TooLarge(_) => SignerError::Unavailable(format!("kms:{operation} on {}: {error}", self.key)),
        };
        let answer = self.fetch.fetch(request).await.map_err(lost)?;
        let (status, named) = (answer.status, code_in_header(&answer));
        let bytes = answer.whole(ANSWER_LIMIT).await.map_err(lost)?;
        let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if (200..=299).contains(&status) {
            return Ok(said);
        }
        Err(self.refused(operation, status, named.as_deref(), &said))
    }

    fn refused(&self, operation: &str, status: u16, named: Option<&str>, said: &Value) -> SignerError {
        let code = said["__type"].as_str().and_then(|code| code.rsplit('#').next()).or(named).unwrap_or_default();
        let sentence = said["message"].as_str().or_else(|| said["Message"].as_str()).unwrap_or("it says nothing");
        let reason = format!("kms:{operation} on {}: {status} {code}: {}", self.key, with_remedy(code, sentence));
        let kind = match code {
            "DependencyTimeoutException" | "KeyUnavailableException" | "KMSInternalException" => RefusalKind::Transient,
            _ => kind_of(code, status),
        };
        match kind {
            RefusalKind::Transient => SignerError::Unavailable(reason),
            RefusalKind::Denied | RefusalKind::Refused => SignerError::Refused(reason),
        }
    }

    fn bytes(&self, answer: &Value, field: &str) -> Result<Vec<u8>, SignerError> {
        let bytes = answer[field].as_str().and_then(|text| STANDARD.decode(text).ok());
        bytes.ok_or_else(|| self.garbled(field))
    }

    /// What an answer has in `field` is none. It may have been cut on its way.
    fn garbled(&self, field: &str) -> SignerError {
        SignerError::Unavailable(format!("{}: the answer of KMS has no {field} of an Ed25519 key", self.key))
    }
}

fn code_in_header(answer: &FetchResponse) -> Option<String> {
    answer.header("x-amzn-errortype").and_then(|text| text.split(':').next()).map(str::to_owned)
}

impl fmt::Debug for KmsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KmsKey").field("key", &self.key).field("address", &self.address).finish_non_exhaustive()
    }
}

/// Signs receipts with a key of AWS KMS.
#[derive(Clone, Debug)]
pub struct KmsSigner {
    key: KmsKey,
    id: String,
}

impl KmsSigner {
    /// Signs with `key`, whose public half is published as `id`.
    pub fn new(key: KmsKey, id: &str) -> Self {
        Self { key, id: id.to_owned() }
    }
}

#[async_trait]
impl Signer for KmsSigner {
    fn key_id(&self) -> &str {
        &self.id
    }

    async fn sign(&self, message: &[u8]) -> Result<String, SignerError> {
        let signature = self.key.signature(message).await?;
        Ok(format!("base64:{}", STANDARD.encode(signature)))
    }
}

#[cfg(test)]
mod tests;
