use dormouse_engine::EngineError;
use dormouse_harness::TurnError;
use dormouse_ports::{Category, Map};
use serde_json::{Value, json};

use crate::HttpResponse;
use crate::status::{retry_after, status_of};

/// Longest message in an answer, in characters.
const MESSAGE: usize = 500;

/// A request that is answered with an error.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    error: TurnError,
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// A refusal of `category` with the status that belongs to it.
    pub(crate) fn new(category: Category, message: impl Into<String>) -> Self {
        TurnError::new(category, message).into()
    }

    /// The request cannot be read.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Category::RequestInvalid, message)
    }

    /// The one answer for what does not exist and for what the caller may not know of.
    pub(crate) fn no_invocation() -> Self {
        Self::new(Category::NotFound, "there is no such invocation, or the token is not for it")
    }

    /// Replaces the status, where HTTP has a more precise one than the category.
    pub(crate) fn status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The error as it is shown.
    pub(crate) fn body(error: &TurnError) -> Value {
        let mut shown = Map::new();
        shown.insert("category".to_owned(), error.category.as_str().into());
        shown.insert("bucket".to_owned(), error.bucket.as_str().into());
        shown.insert("message".to_owned(), error.message.chars().take(MESSAGE).collect::<String>().into());
        let advice = error.payload().into_iter().filter(|(key, _)| key != "diagnostic_message");
        shown.extend(advice.filter(|(key, _)| key != "category" && key != "bucket"));
        Value::Object(shown)
    }
}

impl From<TurnError> for Refusal {
    fn from(error: TurnError) -> Self {
        let wait = retry_after(&error).map(|seconds| ("retry-after", seconds.to_string()));
        Self { status: status_of(&error), headers: wait.into_iter().collect(), error }
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        TurnError::from(error).into()
    }
}

impl From<Refusal> for HttpResponse {
    fn from(refusal: Refusal) -> Self {
        let answer = Self::new(refusal.status, json!({ "error": Refusal::body(&refusal.error) }));
        refusal.headers.into_iter().fold(answer, |answer, (name, value)| answer.header(name, value))
    }
}
