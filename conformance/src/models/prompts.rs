//! Prompts that fixtures have their nodes render; the runner is the caller who does that.

use dormouse_engine::{ActivePrompt, NodeError, TokenBudget};
use dormouse_ports::Map;
use indexmap::IndexMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Failure;
use crate::directives::Directives;

/// The prompts of a case, and what they are rendered with.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptsSpec {
    prompts: IndexMap<String, PromptSpec>,
    variables: Map,
}

#[derive(Clone, Debug)]
struct PromptSpec {
    /// Without what rendering gives.
    identity: ActivePrompt,
    template: String,
}

/// Prompt that a node renders, and the group that it is a member of.
#[derive(Clone, Debug)]
pub(crate) struct PromptUse {
    name: String,
    group: Option<String>,
}

impl PromptsSpec {
    pub(super) fn read(case: &mut Directives<'_>) -> Result<Self, Failure> {
        let variables = case.mapping("render_variables")?.cloned().unwrap_or_default();
        let mut prompts = IndexMap::new();
        if let Some(mut backend) = case.nested("prompt_backend")? {
            match backend.required_text("type")? {
                "filesystem" => {}
                other => return Err(Failure::missing(format!("prompt backend `{other}`"))),
            }
            for (name, prompt) in backend.mapping("prompts")?.into_iter().flatten() {
                prompts.insert(name.clone(), PromptSpec::read(Directives::new(format!("prompts.{name}"), prompt)?)?);
            }
            backend.done()?;
        }
        Ok(Self { prompts, variables })
    }

    /// The prompt of that name as rendered, and its text.
    pub(super) fn render(&self, wanted: &PromptUse) -> Result<(ActivePrompt, String), NodeError> {
        let missing = || NodeError::new(format!("there is no prompt `{}`", wanted.name));
        let PromptSpec { identity, template } = self.prompts.get(&wanted.name).ok_or_else(missing)?;
        let text = self.variables.iter().fold(template.clone(), |text, (name, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            text.replace(&format!("{{{{{name}}}}}"), &value)
        });
        let rendered_hash = hex::encode(Sha256::digest(&text));
        Ok((ActivePrompt { rendered_hash, group: wanted.group.clone(), ..identity.clone() }, text))
    }
}

impl PromptSpec {
    fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let token_budget = given.nested("token_budget")?.map(budget).transpose()?;
        let identity = ActivePrompt {
            name: given.required_text("name")?.to_owned(),
            version: given.required_text("version")?.to_owned(),
            label: given.required_text("label")?.to_owned(),
            template_hash: given.required_text("template_hash")?.to_owned(),
            token_budget,
            ..ActivePrompt::default()
        };
        let template = given.required_text("template")?.to_owned();
        given.done()?;
        Ok(Self { identity, template })
    }
}

fn budget(mut given: Directives<'_>) -> Result<TokenBudget, Failure> {
    let mut tokens = |key| Ok(given.integer(key)?.and_then(|tokens| u64::try_from(tokens).ok()));
    let budget =
        TokenBudget { input_max_tokens: tokens("input_max_tokens")?, total_max_tokens: tokens("total_max_tokens")? };
    given.done()?;
    Ok(budget)
}

impl PromptUse {
    /// `renders_prompt`.
    pub(crate) fn one(name: &str) -> Self {
        Self { name: name.to_owned(), group: None }
    }

    /// `renders_prompt_group`.
    pub(crate) fn member(mut given: Directives<'_>) -> Result<Self, Failure> {
        let group = Some(given.required_text("group_name")?.to_owned());
        let name = given.required_text("active_prompt")?.to_owned();
        let members = given.texts("members")?.unwrap_or_default();
        given.done()?;
        if members.len() < 2 || !members.contains(&name) {
            return Err(Failure::invalid(format!("a group has two members or more, and `{name}` is one of them")));
        }
        Ok(Self { name, group })
    }
}

/// A message of a user with that text, as a request has it.
pub(super) fn message(text: &str) -> Value {
    serde_json::json!([{ "role": "user", "content": text }])
}
