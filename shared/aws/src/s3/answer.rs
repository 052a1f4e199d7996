//! What an answer of S3 means.

use dormouse_ports::{FetchError, FetchResponse, Object, ObjectError, ObjectVersion};

use crate::refusal::{RefusalKind, kind_of, with_remedy};

/// Bytes of an error that are read.
const ERROR_LIMIT: usize = 64 * 1024;

/// Outcome of one attempt.
pub(super) enum Attempt {
    /// It will not come to anything else.
    Final(Result<Received, ObjectError>),
    /// The next one may come to more.
    Again(ObjectError),
}

pub(super) enum Received {
    /// An object; of a write, its version without content.
    Object(Object),
    /// There is no object of that key.
    Nothing,
}

/// The most bytes that are read of an answer: those of an object, or of an error.
pub(super) fn most_bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).max(ERROR_LIMIT)
}

pub(super) async fn read(key: &str, limit: u64, answer: Result<FetchResponse, FetchError>) -> Attempt {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return lost(key, limit, error),
    };
    let version = ObjectVersion::new(answer.header("etag").unwrap_or_default());
    let status = answer.status;
    let bytes = match answer.whole(most_bytes(limit)).await {
        Ok(bytes) => bytes,
        Err(error) => return lost(key, limit, error),
    };
    match status {
        200..=299 if u64::try_from(bytes.len()).is_ok_and(|size| size > limit) => {
            Attempt::Final(Err(ObjectError::TooLarge { key: key.to_owned(), limit }))
        }
        200..=299 => Attempt::Final(Ok(Received::Object(Object { bytes, version }))),
        _ => refused(key, status, &String::from_utf8_lossy(&bytes)),
    }
}

/// Attempt without a known answer, or with one that was not whole.
fn lost(key: &str, limit: u64, error: FetchError) -> Attempt {
    match error {
        FetchError::TooLarge(_) => Attempt::Final(Err(ObjectError::TooLarge { key: key.to_owned(), limit })),
        FetchError::Denied(reason) => Attempt::Final(Err(ObjectError::Rejected(reason))),
        FetchError::Dns(_)
        | FetchError::Connect(_)
        | FetchError::Tls(_)
        | FetchError::Timeout(_)
        | FetchError::Closed(_) => Attempt::Again(ObjectError::Transient(error.to_string())),
    }
}

fn refused(key: &str, status: u16, body: &str) -> Attempt {
    let code = between(body, "<Code>", "</Code>").unwrap_or_default();
    let sentence = || {
        let message = between(body, "<Message>", "</Message>").unwrap_or("it says nothing");
        format!("{key}: {status} {code}: {}", with_remedy(code, message))
    };
    match (status, code) {
        (404, "NoSuchBucket") => Attempt::Final(Err(ObjectError::Denied(format!("there is no such bucket: {key}")))),
        (301, _) => {
            let sentence = format!("{}: it is in another region, which AWS_REGION has to name", sentence());
            Attempt::Final(Err(ObjectError::Rejected(sentence)))
        }
        (404, _) => Attempt::Final(Ok(Received::Nothing)),
        (412, _) => Attempt::Final(Err(ObjectError::Conflict(key.to_owned()))),
        // Of two conditional writes at the same time the second may be told to come again.
        (409, "ConditionalRequestConflict") => Attempt::Again(ObjectError::Conflict(key.to_owned())),
        (_, "SlowDown" | "RequestTimeout") => Attempt::Again(ObjectError::Transient(sentence())),
        _ => match kind_of(code, status) {
            RefusalKind::Transient => Attempt::Again(ObjectError::Transient(sentence())),
            RefusalKind::Denied => Attempt::Final(Err(ObjectError::Denied(sentence()))),
            RefusalKind::Refused => Attempt::Final(Err(ObjectError::Rejected(sentence()))),
        },
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after)?.0)
}
