use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dormouse_ports::{Fetch, FetchBody, FetchError, FetchRequest, FetchResponse};
use futures::StreamExt;
use serde_json::Value;

use crate::lock;

/// An answer that is given once.
#[derive(Clone, Debug)]
pub struct ScriptedAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    end: AnswerEnd,
}

/// End behind the last piece.
#[derive(Clone, Debug)]
enum AnswerEnd {
    Complete,
    Broken(FetchError),
    Silence,
}

impl ScriptedAnswer {
    /// An answer with `pieces` as its body, which arrive one by one.
    pub fn pieces<P: Into<Vec<u8>>>(status: u16, pieces: impl IntoIterator<Item = P>) -> Self {
        let pieces = pieces.into_iter().map(Into::into).collect();
        Self { status, headers: Vec::new(), pieces, end: AnswerEnd::Complete }
    }

    /// An answer with that JSON.
    pub fn json(status: u16, body: &Value) -> Self {
        Self::pieces(status, [body.to_string()])
    }

    /// A stream of server-sent events, each `data` being one.
    pub fn events<D: std::fmt::Display>(data: impl IntoIterator<Item = D>) -> Self {
        Self::pieces(200, data.into_iter().map(|data| format!("data: {data}\n\n")))
    }

    /// Adds a header. `name` is in lower case.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body breaks off behind its pieces.
    #[must_use]
    pub fn broken(mut self, error: FetchError) -> Self {
        self.end = AnswerEnd::Broken(error);
        self
    }

    /// Nothing comes behind the pieces, and no end either.
    #[must_use]
    pub fn silent(mut self) -> Self {
        self.end = AnswerEnd::Silence;
        self
    }
}

/// HTTP out that gives scripted answers, one after the other, and keeps the requests. Where the script is at its end
/// no connection can be made.
#[derive(Clone, Debug, Default)]
pub struct ScriptedFetch(Arc<Script>);

#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Result<ScriptedAnswer, FetchError>>>,
    requests: Mutex<Vec<FetchRequest>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl ScriptedFetch {
    /// Appends an answer.
    pub fn answer(&self, answer: ScriptedAnswer) -> &Self {
        lock(&self.0.answers).push_back(Ok(answer));
        self
    }

    /// Appends a request that gets no answer.
    pub fn fail(&self, error: FetchError) -> &Self {
        lock(&self.0.answers).push_back(Err(error));
        self
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<FetchRequest> {
        lock(&self.0.requests).clone()
    }

    /// The bodies of the requests so far, as JSON; `Null` for one that has none.
    pub fn bodies(&self) -> Vec<Value> {
        let requests = self.requests();
        requests.iter().map(|request| serde_json::from_slice(&request.body).unwrap_or_default()).collect()
    }

    /// Number of answers that were not asked for.
    pub fn left(&self) -> usize {
        lock(&self.0.answers).len()
    }

    /// Number of connections that are open now: answers that are neither read to their end nor dropped.
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::SeqCst)
    }

    /// The largest number of connections that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.0.most_open.load(Ordering::SeqCst)
    }
}

/// Counts a connection as open until it is dropped.
struct Open(Arc<Script>);

impl Open {
    fn new(script: &Arc<Script>) -> Self {
        let open = script.open.fetch_add(1, Ordering::SeqCst) + 1;
        script.most_open.fetch_max(open, Ordering::SeqCst);
        Self(script.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Fetch for ScriptedFetch {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        lock(&self.0.requests).push(request);
        let next = lock(&self.0.answers).pop_front();
        let answer = next.unwrap_or_else(|| Err(FetchError::Connect("the script has no more answers".to_owned())))?;
        let open = Open::new(&self.0);
        Ok(FetchResponse {
            status: answer.status,
            headers: answer.headers,
            body: body(answer.pieces, answer.end, open),
        })
    }
}

fn body(pieces: Vec<Vec<u8>>, end: AnswerEnd, open: Open) -> FetchBody {
    let pieces = futures::stream::iter(pieces.into_iter().map(Ok));
    let end: FetchBody = match end {
        AnswerEnd::Complete => futures::stream::empty().boxed(),
        AnswerEnd::Broken(error) => futures::stream::iter([Err(error)]).boxed(),
        AnswerEnd::Silence => futures::stream::pending().boxed(),
    };
    let held = futures::stream::once(async move {
        drop(open);
        None
    });
    // The connection is dropped behind the last piece, or with the stream.
    pieces.chain(end).map(Some).chain(held).filter_map(std::future::ready).boxed()
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Method;

    use super::*;

    #[tokio::test]
    async fn answers_come_in_order_and_requests_are_kept() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::pieces(200, ["a", "b"])).fail(FetchError::Dns("nowhere".to_owned()));
        let request = FetchRequest::new(Method::Get, "http://localhost/");
        let mut answer = fetch.fetch(request.clone()).await.expect("an answer");
        assert_eq!((fetch.open(), fetch.left()), (1, 1));
        assert_eq!(answer.body.next().await, Some(Ok(b"a".to_vec())));
        assert_eq!(answer.body.next().await, Some(Ok(b"b".to_vec())));
        assert_eq!(answer.body.next().await, None);
        assert_eq!(fetch.open(), 0);
        assert!(matches!(fetch.fetch(request.clone()).await, Err(FetchError::Dns(_))));
        assert!(matches!(fetch.fetch(request).await, Err(FetchError::Connect(_))));
        assert_eq!(fetch.requests().len(), 3);
    }

    #[tokio::test]
    async fn a_dropped_answer_closes_its_connection() {
        let fetch = ScriptedFetch::default();
        fetch.answer(ScriptedAnswer::pieces(200, ["a"]).silent());
        let mut answer = fetch.fetch(FetchRequest::new(Method::Get, "http://localhost/")).await.expect("an answer");
        assert_eq!(answer.body.next().await, Some(Ok(b"a".to_vec())));
        assert_eq!(fetch.open(), 1);
        drop(answer);
        assert_eq!(fetch.open(), 0);
    }
}
