//! Objects in a bucket of S3: two requests, signed, over the HTTP client that models are asked with. The SDK's client for
//! S3 would make each function a megabyte longer, for the same two.

mod answer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{
    Clock, Fetch, FetchLimits, FetchRequest, Method, Object, ObjectCondition, ObjectError, Objects, Sign,
};
use sha2::{Digest, Sha256};

use crate::connect::s3_address;
use crate::{AwsAccess, RequestSigner};
use answer::{Attempt, Received};

/// Attempts at one request, and the pause behind the first; each next one is twice as long.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);
/// Time of one attempt.
const WITHIN: Duration = Duration::from_secs(5);

/// Objects of one bucket. Cheap to clone.
#[derive(Clone)]
pub struct S3Objects {
    fetch: Arc<dyn Fetch>,
    signer: Arc<dyn Sign>,
    clock: Arc<dyn Clock>,
    /// Address of the bucket, without a slash at its end.
    address: String,
}

impl S3Objects {
    /// The objects of `bucket`, which is in the region of `access`, or at its endpoint for S3.
    pub fn new(access: &AwsAccess, bucket: &str, fetch: Arc<dyn Fetch>, clock: Arc<dyn Clock>) -> Self {
        let signer = Arc::new(RequestSigner::new(access, "s3", clock.clone()));
        let address = format!("{}/{bucket}", s3_address(access));
        Self { fetch, signer, clock, address }
    }

    /// Sends what `request` makes until an attempt is final. A write that is repeated may meet its own first attempt, which
    /// is a conflict then.
    async fn send(&self, limit: u64, request: impl Fn() -> FetchRequest) -> Result<Received, ObjectError> {
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            match self.once(limit, request()).await {
                Attempt::Final(received) => return received,
                Attempt::Again(error) if attempt >= ATTEMPTS => return Err(error),
                Attempt::Again(error) => {
                    tracing::debug!(%error, attempt, "the request to S3 is repeated");
                    self.clock.sleep(pause).await;
                    pause *= 2;
                    attempt += 1;
                }
            }
        }
    }

    async fn once(&self, limit: u64, mut request: FetchRequest) -> Attempt {
        let key = request.url.strip_prefix(&self.address).unwrap_or_default().trim_start_matches('/').to_owned();
        request.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: answer::most_bytes(limit) };
        let digest = hex::encode(Sha256::digest(&request.body));
        request = request.header("x-amz-content-sha256", digest);
        match self.signer.sign(&mut request).await {
            Ok(()) => answer::read(&key, limit, self.fetch.fetch(request).await).await,
            Err(error) => Attempt::Final(Err(ObjectError::Denied(error.to_string()))),
        }
    }

    fn request(&self, method: Method, key: &str) -> FetchRequest {
        FetchRequest::new(method, format!("{}/{key}", self.address))
    }
}

impl fmt::Debug for S3Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Objects").field("address", &self.address).finish_non_exhaustive()
    }
}

/// True for a key that is the same in an address and in a signature, without any encoding.
fn is_plain(key: &str) -> bool {
    let is_part = |part: &str| {
        !["", ".", ".."].contains(&part) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    key.split('/').all(is_part)
}

fn checked(key: &str) -> Result<(), ObjectError> {
    match is_plain(key) {
        true => Ok(()),
        false => Err(ObjectError::Rejected(format!("{key:?} is no key: use letters, digits, `-`, `_`, `.` and `/`"))),
    }
}

#[async_trait]
impl Objects for S3Objects {
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        checked(key)?;
        match self.send(limit, || self.request(Method::Get, key)).await? {
            Received::Object(object) => Ok(Some(object)),
            Received::Nothing => Ok(None),
        }
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: ObjectCondition) -> Result<(), ObjectError> {
        checked(key)?;
        let request = || {
            let request = self.request(Method::Put, key).json(bytes.clone());
            match &condition {
                ObjectCondition::Absent => request.header("if-none-match", "*"),
                ObjectCondition::Unchanged(version) => request.header("if-match", version.as_str()),
            }
        };
        match self.send(0, request).await? {
            Received::Object(_) => Ok(()),
            Received::Nothing => match condition {
                ObjectCondition::Unchanged(_) => Err(ObjectError::Conflict(key.to_owned())),
                ObjectCondition::Absent => Err(ObjectError::Denied(format!("there is no bucket {}", self.address))),
            },
        }
    }
}

#[cfg(test)]
mod tests;
