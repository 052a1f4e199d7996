use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{AssistantMessage, Message};

/// Answer of a model (§6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The message of the model.
    #[serde(serialize_with = "with_role", deserialize_with = "of_role")]
    pub message: AssistantMessage,
    /// Reason why it ended there.
    pub finish_reason: FinishReason,
    /// Tokens, as far as the provider reports them.
    pub usage: Usage,
    /// The provider's answer as it came; of a streamed one, its pieces put together.
    pub raw: Value,
    /// The value that the request's schema asked for; absent without a schema and where tools are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsed: Option<Value>,
}

impl Response {
    /// Tokens as a provider counts them when it sends its bill, where `usage` has them as the specification wants them: those of
    /// the request with those that its caches had or took in (Anthropic and Bedrock count them apart), those of the answer with
    /// what the model thought (Gemini has it in the total alone). An answer out of a record, which has no `raw`, has its bill in
    /// `usage`.
    pub fn billed(&self) -> Usage {
        let usage = self.usage;
        if self.raw.is_null() {
            return usage;
        }
        let Some((read, written)) = self.counted_apart() else {
            let thought =
                usage.prompt_tokens.zip(usage.total_tokens).map(|(prompt, total)| total.saturating_sub(prompt));
            return Usage { completion_tokens: usage.completion_tokens.max(thought), ..usage };
        };
        let cached = read.unwrap_or_default().saturating_add(written.unwrap_or_default());
        let prompt_tokens = usage.prompt_tokens.map(|prompt| prompt.saturating_add(cached));
        let total_tokens =
            prompt_tokens.zip(usage.completion_tokens).map(|(prompt, answer)| prompt.saturating_add(answer));
        Usage { prompt_tokens, total_tokens, cached_tokens: read, cache_creation_tokens: written, ..usage }
    }

    /// What caches had and took in, where the provider does not count it among the tokens of the request.
    fn counted_apart(&self) -> Option<(Option<u64>, Option<u64>)> {
        const NAMES: [[&str; 3]; 2] = [
            ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"],
            ["inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"],
        ];
        let counters = self.raw.get("usage")?;
        let count = |name: &str| counters.get(name).and_then(Value::as_u64);
        let [_, read, written] = NAMES.iter().find(|[input, ..]| counters.get(*input).is_some())?;
        let (read, written) = (count(read), count(written));
        read.or(written).map(|_| (read, written))
    }

    /// The provider's own name of the reason why the model stopped, as `raw` has it; `None` where it gives none.
    pub fn stop_word(&self) -> Option<&str> {
        const PLACES: [&str; 5] = [
            "/choices/0/finish_reason",
            "/stop_reason",
            "/stopReason",
            "/candidates/0/finishReason",
            "/incomplete_details/reason",
        ];
        PLACES.iter().find_map(|place| self.raw.pointer(place)).and_then(Value::as_str)
    }

    /// Why the answer ends. Gemini's answers with calls of tools have [`FinishReason::ToolCalls`], whatever else they say (§8.3.2):
    /// here a filter that stopped one, and the most tokens, count before that.
    pub fn ends_by(&self) -> FinishReason {
        let word = self.raw.pointer("/candidates/0/finishReason").and_then(Value::as_str);
        match word.map(FinishReason::of_gemini) {
            Some(reason @ (FinishReason::ContentFilter | FinishReason::Length)) => reason,
            Some(_) | None => self.finish_reason,
        }
    }

    /// True if the provider says that it failed on the way. Else [`FinishReason::Error`] only means that its reason to stop
    /// is none that the specification knows.
    pub fn has_failed(&self) -> bool {
        // DeepSeek's, where it has no room to go on, and that of servers that give an answer up.
        const GIVEN_UP: [&str; 3] = ["error", "insufficient_system_resource", "abort"];
        self.finish_reason == FinishReason::Error
            && (self.raw.get("error").is_some_and(|error| !error.is_null())
                || self.raw.get("status").and_then(Value::as_str) == Some("failed")
                || self.stop_word().is_some_and(|word| GIVEN_UP.contains(&word)))
    }
}

fn with_role<S: Serializer>(message: &AssistantMessage, serializer: S) -> Result<S::Ok, S::Error> {
    Message::Assistant(message.clone()).serialize(serializer)
}

fn of_role<'de, D: Deserializer<'de>>(deserializer: D) -> Result<AssistantMessage, D::Error> {
    match Message::deserialize(deserializer)? {
        Message::Assistant(message) => Ok(message),
        other @ (Message::System { .. } | Message::User { .. } | Message::Tool { .. }) => {
            Err(serde::de::Error::custom(format!("a response is a message of an assistant, not of a {}", other.role())))
        }
    }
}

/// Reason why a model stopped (§6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// The most tokens were reached.
    Length,
    /// It waits for the results of tools.
    ToolCalls,
    /// The provider's filter stepped in.
    ContentFilter,
    /// The provider failed on the way, or stopped for a reason that is none of the others; what there is, is there.
    Error,
}

impl FinishReason {
    /// Meaning of a `finishReason` of Gemini (§8.3.2).
    pub fn of_gemini(word: &str) -> Self {
        match word {
            "STOP" => Self::Stop,
            "MAX_TOKENS" => Self::Length,
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => Self::ContentFilter,
            _ => Self::Error,
        }
    }

    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
            Self::Error => "error",
        }
    }
}

/// Tokens of a call (§6). `None`: the provider did not report it, or reported what is no count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u64>,
    /// Both.
    pub total_tokens: Option<u64>,
    /// Tokens of the request that a cache of prefixes had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Tokens of the request that were written to such a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_tokens: Option<u64>,
}
