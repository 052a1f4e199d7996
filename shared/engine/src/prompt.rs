//! Identity of the prompt that a model is called with (prompt-management §12): whoever rendered it says so, and the call is
//! told with it.

use dormouse_ports::model::Usage;

/// A rendered prompt, as those who look at a call know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActivePrompt {
    /// Its name.
    pub name: String,
    /// Its version: another one for other contents.
    pub version: String,
    /// The label that it was fetched by, such as `production`.
    pub label: String,
    /// Digest of its template.
    pub template_hash: String,
    /// Digest of what was rendered of it.
    pub rendered_hash: String,
    /// The group that it is used as a member of.
    pub group: Option<String>,
    /// Number of tokens that a call is expected to take at most, if somebody said so.
    pub token_budget: Option<TokenBudget>,
}

/// Tokens that a call is expected to take at most. It is told where more are taken; the request is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenBudget {
    /// Tokens of the request.
    pub input_max_tokens: Option<u64>,
    /// Tokens of request and answer together.
    pub total_max_tokens: Option<u64>,
}

impl TokenBudget {
    /// What `usage` takes of each bound: its name, the tokens that were used, and the most that are expected (observability
    /// §5.5.15). A bound that nobody declared, or the counter of which nobody reported, is left out; the total is the sum of
    /// request and answer where the provider tells those alone.
    pub fn used_by(self, usage: &Usage) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let both = usage.prompt_tokens.zip(usage.completion_tokens).map(|(one, other)| one.saturating_add(other));
        let bounds = [
            ("input", usage.prompt_tokens, self.input_max_tokens),
            ("total", usage.total_tokens.or(both), self.total_max_tokens),
        ];
        bounds.into_iter().filter_map(|(kind, used, most)| Some((kind, used?, most?)))
    }
}
