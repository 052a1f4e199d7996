//! The prompt of a call, and its budget of tokens (observability §5.5.15, prompt-management §12).

use dormouse_engine::{ActivePrompt, TokenBudget, active_prompt};
use dormouse_ports::AttributeValue;
use dormouse_ports::model::Usage;

use super::AttributeList;

pub(super) fn named(list: &mut AttributeList) {
    let Some(prompt) = active_prompt() else { return };
    let ActivePrompt { name, version, label, template_hash, rendered_hash, group, token_budget } = &*prompt;
    list.text("openarmature.prompt.name", name);
    list.text("openarmature.prompt.version", version);
    list.text("openarmature.prompt.label", label);
    list.text("openarmature.prompt.template_hash", template_hash);
    list.text("openarmature.prompt.rendered_hash", rendered_hash);
    if let Some(group) = group {
        list.text("openarmature.prompt.group_name", group);
    }
    if let Some(TokenBudget { input_max_tokens, total_max_tokens }) = token_budget {
        list.integer("openarmature.prompt.token_budget.input_max_tokens", *input_max_tokens);
        list.integer("openarmature.prompt.token_budget.total_max_tokens", *total_max_tokens);
    }
}

/// Says whether `usage` is more than the prompt's budget, and logs it where it is. Tokens that nobody reported are compared
/// with nothing.
pub(super) fn judged(list: &mut AttributeList, usage: &Usage) {
    let Some(prompt) = active_prompt() else { return };
    let Some(budget) = prompt.token_budget else { return };
    let exceeded = budget.used_by(usage).map(|(_, used, most)| used > most);
    let Some(is_exceeded) = exceeded.reduce(|one, other| one || other) else { return };
    list.0.push(("openarmature.llm.token_budget.exceeded", AttributeValue::Flag(is_exceeded)));
    if is_exceeded {
        tracing::warn!(
            prompt = prompt.name,
            version = prompt.version,
            prompt_tokens = usage.prompt_tokens,
            total_tokens = usage.total_tokens,
            input_max_tokens = budget.input_max_tokens,
            total_max_tokens = budget.total_max_tokens,
            "a call took more tokens than its prompt is meant to"
        );
    }
}
