use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::obey::{RawAnswer, refusal};

/// Time for which an answer is given again. DynamoDB gives it for ten minutes; a caller in this process has long
/// stopped to repeat a request after one.
const KEPT: Duration = Duration::from_secs(60);
/// Of how many transactions at most, and of how many bytes: one may have four megabytes.
const MOST: usize = 2_000;
const MOST_BYTES: usize = 64 << 20;

/// Transactions are done once for each `ClientRequestToken`, as on AWS.
///
/// The database has such a memory of its own, which goes through all of the last ten minutes with each transaction: the
/// more of them there were, the longer each took. This one looks only at what it forgets.
#[derive(Debug, Default)]
pub(super) struct RequestTokens(Mutex<Done>);

#[derive(Debug, Default)]
struct Done {
    by_token: HashMap<String, Transaction>,
    oldest: VecDeque<(Instant, String)>,
    bytes: usize,
}

#[derive(Debug)]
struct Transaction {
    request: Vec<u8>,
    answer: RawAnswer,
}

impl RequestTokens {
    /// Answer of `execute` to the request `body`, or its earlier answer when it came before with the same `token`.
    pub(super) fn once(&self, token: String, body: &[u8], execute: impl FnOnce() -> RawAnswer) -> RawAnswer {
        // Held while it executes: a repetition meanwhile waits for the answer.
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        done.forget();
        match done.by_token.get(&token) {
            Some(before) if is_same(&before.request, body) => return before.answer.clone(),
            Some(_) => {
                let kind = "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException";
                return refusal(400, kind, "this token was sent with another request");
            }
            None => {}
        }
        let answer = execute();
        if answer.0 == 200 {
            done.oldest.push_back((Instant::now(), token.clone()));
            let transaction = Transaction { request: body.to_vec(), answer: answer.clone() };
            done.bytes += transaction.bytes();
            done.by_token.insert(token, transaction);
        }
        answer
    }
}

impl Transaction {
    fn bytes(&self) -> usize {
        self.request.len() + self.answer.1.len()
    }
}

/// True if both are the same JSON; the order of fields does not count.
fn is_same(left: &[u8], right: &[u8]) -> bool {
    let read = |body| serde_json::from_slice::<Value>(body).ok();
    left == right || read(left) == read(right)
}

impl Done {
    fn forget(&mut self) {
        while let Some((at, _)) = self.oldest.front()
            && (at.elapsed() > KEPT || self.oldest.len() > MOST || self.bytes > MOST_BYTES)
            && let Some((_, token)) = self.oldest.pop_front()
        {
            self.bytes -= self.by_token.remove(&token).map_or(0, |gone| gone.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn once(tokens: &RequestTokens, token: &str, what: &str, status: u16) -> (u16, bool) {
        let mut was_done = false;
        let answer = tokens.once(token.to_owned(), what.as_bytes(), || {
            was_done = true;
            (status, Vec::new())
        });
        (answer.0, was_done)
    }

    #[test]
    fn a_repeated_transaction_is_not_done_again() {
        let tokens = RequestTokens::default();
        assert_eq!(once(&tokens, "a", r#"{"x":1,"y":2}"#, 200), (200, true));
        assert_eq!(once(&tokens, "a", r#"{"y":2,"x":1}"#, 200), (200, false));
        assert_eq!(once(&tokens, "b", r#"{"x":1,"y":2}"#, 200), (200, true));
        assert_eq!(once(&tokens, "a", r#"{"x":2,"y":2}"#, 200), (400, false));
    }

    #[test]
    fn what_failed_is_tried_again() {
        let tokens = RequestTokens::default();
        assert_eq!(once(&tokens, "a", "{}", 500), (500, true));
        assert_eq!(once(&tokens, "a", "{}", 200), (200, true));
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_what_was_done() {
        let tokens = RequestTokens::default();
        for number in 0..5 * MOST {
            once(&tokens, &number.to_string(), "{}", 200);
        }
        let done = tokens.0.lock().expect("a lock");
        assert!(done.by_token.len() <= MOST + 1 && done.oldest.len() == done.by_token.len());
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_the_size_of_what_was_done() {
        let tokens = RequestTokens::default();
        let large = "x".repeat(4 << 20);
        for number in 0..40 {
            once(&tokens, &number.to_string(), &large, 200);
        }
        assert_eq!(once(&tokens, "39", &large, 200), (200, false), "the last ones are known");
        let done = tokens.0.lock().expect("a lock");
        let held: usize = done.by_token.values().map(Transaction::bytes).sum();
        assert!(held == done.bytes && held <= MOST_BYTES + large.len(), "{held}");
    }
}
