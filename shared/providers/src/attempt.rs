//! One attempt: one request, one answer.

use std::time::Duration;

use dormouse_ports::model::{
    CallEvent, CallObserver, CompletionRequest, DeltaKind, ModelError, ModelErrorCategory, Response,
};
use dormouse_ports::{Clock, FetchBody, FetchError, FetchRequest, FetchResponse};
use futures::StreamExt;
use futures::future::{BoxFuture, Either, select};
use serde_json::Value;

use crate::check::has_images;
use crate::failure::{excerpt, of_answer, of_fetch, of_malformed, retry_after, until_reset};
use crate::frames::{Halves, StreamFrame, StreamFrames};
use crate::judge::Judge;
use crate::wire::{Assembler, ErrorAnswer, Malformed, StreamFault, StreamProgress, Wire};

/// The most bytes that are read of an answer with an error status.
const MOST_OF_AN_ERROR: usize = 256 << 10;

/// How long a stream may be without an event once it has said why its answer ended. Counters come there; some servers send no end,
/// and keep the connection open. Others say why with each piece, so that it is longer than a model pauses.
const BEHIND_THE_REASON: Duration = Duration::from_secs(10);

/// What some servers write before JSON.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An answer that has begun.
pub(crate) struct Answering<'a> {
    pub(crate) wire: &'a dyn Wire,
    pub(crate) clock: &'a dyn Clock,
    /// As it was sent.
    pub(crate) sent: &'a CompletionRequest,
    pub(crate) judge: Judge<'a>,
    pub(crate) observer: &'a dyn CallObserver,
}

impl Answering<'_> {
    /// Reads the answer to its end.
    pub(crate) async fn read(self, answer: FetchResponse, most: usize) -> Result<Response, ModelError> {
        if !(200..300).contains(&answer.status) {
            return Err(refused(self.wire, self.clock, has_images(self.sent), answer).await);
        }
        let raw = if self.sent.stream { self.pieces(answer, most).await? } else { whole_body(answer, most).await? };
        match self.wire.decode(&raw) {
            Ok(read) if read.is_nothing() && has_error(&raw) => Err(self.reported(&raw)),
            Ok(read) => self.judge.judge(read, raw),
            // Routers that have begun to answer tell of an error of the model behind them so.
            Err(_) if has_error(&raw) => Err(self.reported(&raw)),
            Err(malformed) => {
                // Gemini has an answer without anything in it now and then, which it counts.
                let may_pass = raw.get("usageMetadata").is_some().then_some(true);
                let malformed = self.with_words(malformed, &raw);
                Err(ModelError { may_pass, ..of_malformed(malformed, Some(raw)) })
            }
        }
    }

    async fn pieces(&self, mut answer: FetchResponse, most: usize) -> Result<Value, ModelError> {
        let mut assembler = self.wire.assembler();
        let garbled = |malformed: Malformed| whole_next_time(of_malformed(malformed, None));
        let mut frames = StreamFrames::new(self.wire.framing());
        let mut halves = Halves::default();
        let mut bytes = 0;
        // What came before the first event; all of it, where the answer is no stream.
        let mut unframed = Some(Vec::new());
        // Runs from the last event on, where that may have been the last one.
        let mut grace: Option<BoxFuture<'_, ()>> = None;
        while let Some(portion) = next_portion(&mut answer.body, grace.as_mut()).await {
            let portion = match portion {
                Ok(portion) => portion,
                // The answer is there, whatever becomes of its connection.
                Err(_) if assembler.is_complete() => break,
                Err(error) => return Err(of_fetch(&error)),
            };
            bytes += portion.len();
            if bytes > most {
                return Err(of_fetch(&FetchError::TooLarge(most)));
            }
            frames.feed(&portion);
            unframed.iter_mut().for_each(|begun| begun.extend_from_slice(&portion));
            while let Some(frame) = frames.next().map_err(garbled)? {
                (unframed, grace) = (None, None);
                match self.take(&mut *assembler, frame, &mut halves) {
                    Ok(StreamProgress::More) => {}
                    Ok(StreamProgress::Done) if assembler.has_begun() || assembler.is_complete() => {
                        return Ok(assembler.whole(None));
                    }
                    Ok(StreamProgress::Done) => return Err(ended("the stream ended before anything came")),
                    Err(fault) => return self.broken_off(assembler, fault).map_err(whole_next_time),
                }
            }
            if assembler.is_complete() && grace.is_none() {
                grace = Some(self.clock.sleep(BEHIND_THE_REASON));
            }
        }
        let last = match frames.last() {
            Ok(last) => last,
            // A letter that the end cuts in the middle.
            Err(_) if unframed.is_none() => None,
            Err(malformed) => return Err(garbled(malformed)),
        };
        if let (None, Some(answer)) = (&last, unframed.as_deref().and_then(unstreamed)) {
            return answer;
        }
        // A piece that makes no sense here is one that the end cuts.
        let taken = last.map(|frame| self.take(&mut *assembler, frame, &mut halves));
        if let Some(Err(fault @ StreamFault::Reported(_))) = taken {
            return self.broken_off(assembler, fault).map_err(whole_next_time);
        }
        if assembler.is_complete() {
            return Ok(assembler.whole(None));
        }
        Err(ended("the stream ended in the middle"))
    }

    fn take(
        &self,
        assembler: &mut dyn Assembler,
        frame: StreamFrame,
        halves: &mut Halves,
    ) -> Result<StreamProgress, StreamFault> {
        let data: Value = match frame.data.trim() {
            "[DONE]" => return Ok(StreamProgress::Done),
            "" | "null" => return Ok(StreamProgress::More),
            text => halves
                .read(text)
                .map_err(|error| StreamFault::Malformed(Malformed(format!("a piece is no JSON: {error}"))))?,
        };
        if !data.is_object() {
            return Err(StreamFault::Malformed(Malformed::new("a piece is no object")));
        }
        let mut emit = |kind: DeltaKind, text: &str| {
            if !text.is_empty() {
                self.observer.observe(CallEvent::Token { kind, text });
            }
        };
        assembler.take(&frame.name, data, &mut emit)
    }

    /// An answer that has begun and then failed is a degraded answer; one that never began is an error, and so is one for which
    /// the conversation was too long: it is so again, however often it is sent.
    fn broken_off(&self, assembler: Box<dyn Assembler>, fault: StreamFault) -> Result<Value, ModelError> {
        match fault {
            StreamFault::Malformed(malformed) => Err(of_malformed(malformed, Some(assembler.whole(None)))),
            StreamFault::Reported(body) => {
                let error = self.reported(&body);
                if assembler.has_begun() && !error.too_long { Ok(assembler.whole(Some(body))) } else { Err(error) }
            }
        }
    }

    /// `malformed` with what the server says in the place of an answer.
    fn with_words(&self, malformed: Malformed, body: &Value) -> Malformed {
        let answer = ErrorAnswer { status: 200, body, kind: "", has_images: false };
        match self.wire.refusal(answer).message {
            Some(words) => Malformed(format!("{}; it says: {}", malformed.0, excerpt(&words))),
            None => malformed,
        }
    }

    /// The error that an answer of status 200 tells of.
    fn reported(&self, body: &Value) -> ModelError {
        let answer = ErrorAnswer { status: status_in(body), body, kind: "", has_images: has_images(self.sent) };
        of_answer(self.wire, answer, "", told_wait(body))
    }
}

/// The next portion of `body`; `None` at its end, and where none comes before `grace` is over.
async fn next_portion(
    body: &mut FetchBody,
    grace: Option<&mut BoxFuture<'_, ()>>,
) -> Option<Result<Vec<u8>, FetchError>> {
    let Some(grace) = grace else { return body.next().await };
    match select(body.next(), grace).await {
        Either::Left((portion, _)) => portion,
        Either::Right(((), _)) => None,
    }
}

fn ended(how: &str) -> ModelError {
    of_fetch(&FetchError::Closed(how.to_owned()))
}

/// True if `body` tells of an error.
fn has_error(body: &Value) -> bool {
    body.get("error").is_some_and(|error| error.is_object() || error.as_str().is_some_and(|words| !words.is_empty()))
}

/// An answer that was garbled on its way may be whole the next time, as one that was cut: what people have seen of it begins again.
fn whole_next_time(mut error: ModelError) -> ModelError {
    if error.category == ModelErrorCategory::InvalidResponse {
        error.may_pass = Some(true);
    }
    error
}

/// What a server answers that streams nothing: the answer whole. `None` for what is no answer at all.
fn unstreamed(body: &[u8]) -> Option<Result<Value, ModelError>> {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body).trim_ascii_start();
    matches!(body.first()?, b'{' | b'[' | b'<').then(|| value_in(body, "neither a stream of events nor JSON"))
}

/// The JSON that `body` is, or the error for what is `none`. What has begun as JSON was garbled on its way, and what is empty was
/// lost there: it may be whole the next time. A page of somebody else's comes again.
fn value_in(body: &[u8], none: &str) -> Result<Value, ModelError> {
    dormouse_json::read(body, dormouse_json::STATE).map_err(|error| {
        let (words, may_pass) = match (body.trim_ascii_start().first(), String::from_utf8_lossy(body).trim()) {
            (Some(b'{' | b'['), _) => (error.to_string(), Some(true)),
            (_, "") => ("it is empty".to_owned(), Some(true)),
            (_, page) => (excerpt(page), None),
        };
        ModelError { may_pass, ..of_malformed(Malformed(format!("it is {none}: {words}")), None) }
    })
}

/// The status that an error within an answer of status 200 stands for.
fn status_in(body: &Value) -> u16 {
    let error = body.get("error").unwrap_or(body);
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let named = ["code", "status", "status_code"].iter().find_map(|name| error.get(*name).and_then(number));
    if let Some(status) = named.and_then(|status| u16::try_from(status).ok()).filter(|s| (400..600).contains(s)) {
        return status;
    }
    let mut names = ["type", "code"].iter().filter_map(|name| error.get(*name).and_then(Value::as_str));
    names.find_map(status_of).unwrap_or(500)
}

/// The status of an error that is called `name`.
fn status_of(name: &str) -> Option<u16> {
    match name {
        "authentication_error" => Some(401),
        "billing_error" => Some(402),
        "permission_error" => Some(403),
        "not_found_error" => Some(404),
        "timeout_error" => Some(504),
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => Some(429),
        "invalid_request_error" | "invalid_prompt" | "context_length_exceeded" => Some(400),
        // Responses have a name for each thing that may be wrong with an image.
        name if name.contains("image") => Some(400),
        // Those of Amazon, some of whose servers begin them with a capital.
        _ => match name.to_ascii_lowercase().as_str() {
            "validationexception" => Some(400),
            "modeltimeoutexception" => Some(408),
            "modelstreamerrorexception" => Some(424),
            "throttlingexception" => Some(429),
            "serviceunavailableexception" => Some(503),
            _ => None,
        },
    }
}

/// The error for an answer with an error status.
pub(crate) async fn refused(wire: &dyn Wire, clock: &dyn Clock, has_images: bool, answer: FetchResponse) -> ModelError {
    let wait = wait_of(&answer, clock);
    let status = answer.status;
    let kind = answer.header("x-amzn-errortype").unwrap_or_default().to_owned();
    let leads = answer.header("location").filter(|_| (300..400).contains(&status)).map(led_to);
    // What is wrong is told by the status, if the body does not arrive.
    let text = body_text(answer, MOST_OF_AN_ERROR).await.unwrap_or_default();
    let body = dormouse_json::read(text.as_bytes(), dormouse_json::ENTRY).unwrap_or(Value::Null);
    // Gemini wraps an error in a list where a stream was asked for.
    let body = body.get(0).cloned().unwrap_or(body);
    let wait = wait.or_else(|| told_wait(&body));
    let text = leads.as_deref().unwrap_or(&text);
    of_answer(wire, ErrorAnswer { status, body: &body, kind: &kind, has_images }, text, wait)
}

/// Says where `location` leads: its query may hold what is not for logs.
fn led_to(location: &str) -> String {
    format!("it leads to {}, which is not followed", location.split(['?', '#']).next().unwrap_or_default())
}

fn wait_of(answer: &FetchResponse, clock: &dyn Clock) -> Option<Duration> {
    let in_millis = answer.header("retry-after-ms").and_then(|value| value.trim().parse::<f64>().ok());
    in_millis
        .and_then(|millis| Duration::try_from_secs_f64(millis / 1000.0).ok())
        .or_else(|| answer.header("retry-after").and_then(|value| retry_after(value, clock.now())))
        .or_else(|| reset_of(answer))
}

/// The time until the limit that a request went beyond is whole again, as OpenAI and others with its format tell it. Where none is said
/// to be used up, one had less left than the request takes, and the shorter time is tried.
fn reset_of(answer: &FetchResponse) -> Option<Duration> {
    let limits = if answer.status == 429 { &["requests", "tokens"][..] } else { &[] };
    let told = limits.iter().filter_map(|limit| {
        let wait = until_reset(answer.header(&format!("x-ratelimit-reset-{limit}"))?)?;
        let left = answer.header(&format!("x-ratelimit-remaining-{limit}"));
        Some((left.is_some_and(|left| left.trim() == "0"), wait))
    });
    let (spent, others): (Vec<_>, Vec<_>) = told.partition(|(is_spent, _)| *is_spent);
    let waits = |told: Vec<(bool, Duration)>| told.into_iter().map(|(_, wait)| wait);
    waits(spent).max().or_else(|| waits(others).min())
}

/// The time to wait that Google tells in the body.
fn told_wait(body: &Value) -> Option<Duration> {
    let details = body.pointer("/error/details").and_then(Value::as_array)?;
    let told = details.iter().find_map(|detail| detail.get("retryDelay")).and_then(Value::as_str)?;
    Duration::try_from_secs_f64(told.strip_suffix('s')?.parse().ok()?).ok()
}

/// The body of an answer of one piece.
pub(crate) async fn whole_body(answer: FetchResponse, most: usize) -> Result<Value, ModelError> {
    let text = body_text(answer, most).await.map_err(|error| of_fetch(&error))?;
    value_in(text.as_bytes(), "no JSON")
}

async fn body_text(answer: FetchResponse, most: usize) -> Result<String, FetchError> {
    let body = answer.whole(most).await?;
    Ok(String::from_utf8_lossy(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&body)).into_owned())
}

/// `request` with limits for one attempt.
pub(crate) fn within(mut request: FetchRequest, timeout: Option<Duration>) -> FetchRequest {
    if let Some(timeout) = timeout {
        request.limits.total = timeout;
    }
    request
}
