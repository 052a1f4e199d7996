//! Reading and writing at the addresses of a request.

use std::time::Duration;

use dormouse_ports::execution::{ExecutionError, RemoteRequest};
use dormouse_ports::{Fetch, FetchLimits, FetchRequest, FetchResponse, Method};

use super::CopyLimits;
use super::definitions::{self, Definitions};
use super::tree::FileTree;

/// Time of one attempt, and attempts at one request.
const WITHIN: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 3;
/// Bytes of a bundle.
const BUNDLE: usize = 12 << 20;
/// Bytes that files may take more in their archive than their content.
const AROUND: u64 = 8 << 20;

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyOutcome {
    Done,
    /// Another writer came in between.
    Conflict,
}

/// The addresses of one request.
pub(super) struct Exchange<'a> {
    fetch: &'a dyn Fetch,
    definitions: Option<String>,
    files: String,
    written: String,
    limits: CopyLimits,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(fetch: &'a dyn Fetch, request: &RemoteRequest, limits: CopyLimits) -> Self {
        let RemoteRequest { definitions, files, written, operation: _ } = request.clone();
        Self { fetch, definitions, files, written, limits }
    }

    /// The definitions; none where the request names none.
    pub(super) async fn definitions(&self) -> Result<Definitions, ExecutionError> {
        let Some(address) = &self.definitions else { return Ok(Definitions::new()) };
        let answer = self.send(&FetchRequest::new(Method::Get, address), BUNDLE).await?;
        match answer.status {
            200 => definitions::read(&answer.body),
            status => Err(refused("the definitions of the workspace cannot be read", status, false)),
        }
    }

    /// The files, and the version of them; none where none were written.
    pub(super) async fn files(&self) -> Result<(FileTree, Option<String>), ExecutionError> {
        let most = usize::try_from(self.limits.bytes + AROUND).unwrap_or(usize::MAX);
        let answer = self.send(&FetchRequest::new(Method::Get, &self.files), most).await?;
        match (answer.status, answer.version) {
            (404, _) => Ok((FileTree::default(), None)),
            (200, Some(version)) => Ok((FileTree::from_bytes(&answer.body, self.limits)?, Some(version))),
            (status, _) => Err(refused("the files of the workspace cannot be read", status, false)),
        }
    }

    /// Writes `tree`, where `version` is the one that is there still.
    pub(super) async fn write(&self, tree: &FileTree, version: Option<&str>) -> Result<CopyOutcome, ExecutionError> {
        let mut request = FetchRequest::new(Method::Put, &self.written);
        request.body = tree.to_bytes()?;
        let request = match version {
            Some(version) => request.header("if-match", version),
            None => request.header("if-none-match", "*"),
        };
        let answer = self.send(&request, 64 << 10).await?;
        match answer.status {
            200..=299 => Ok(CopyOutcome::Done),
            409 | 412 => Ok(CopyOutcome::Conflict),
            // What was there is gone.
            404 if version.is_some() => Ok(CopyOutcome::Conflict),
            status => Err(refused("the files of the workspace cannot be written", status, status >= 500)),
        }
    }

    /// Sends `request` until an answer comes that is final. A write that is repeated may meet its own first attempt, which
    /// is a conflict.
    async fn send(&self, request: &FetchRequest, most: usize) -> Result<ExchangeAnswer, ExecutionError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut request = request.clone();
            request.limits = FetchLimits { total: WITHIN, idle: WITHIN, most_bytes: most };
            let sent = match self.fetch.fetch(request).await {
                Ok(response) => ExchangeAnswer::of(response, most).await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(answer) if answer.status == 429 || answer.status >= 500 => last = Some(answer.status.to_string()),
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error.to_string()),
            }
        }
        let reason = format!("the files of the workspace cannot be reached: {}", last.unwrap_or_default());
        Err(ExecutionError::Unavailable { reason, uncertain: request.method != Method::Get })
    }
}

struct ExchangeAnswer {
    status: u16,
    version: Option<String>,
    body: Vec<u8>,
}

impl ExchangeAnswer {
    async fn of(response: FetchResponse, most: usize) -> Result<Self, dormouse_ports::FetchError> {
        let version = response.header("etag").map(str::to_owned);
        Ok(Self { status: response.status, version, body: response.whole(most).await? })
    }
}

fn refused(what: &str, status: u16, uncertain: bool) -> ExecutionError {
    let reason = format!("{what}: its store answers {status}");
    if uncertain { ExecutionError::Unavailable { reason, uncertain } } else { ExecutionError::Denied { reason } }
}
