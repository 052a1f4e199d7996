//! Reading the fields of a mapping, with a problem for each that is missing, of another kind, or unknown.

use dormouse_ports::Template;
use dormouse_ports::tool::{NATIVE_TOOLS, is_variable_of_command};
use serde_json::Value;

use super::problem::FileProblems;
use super::yaml::{NodeValue, YamlEntry, YamlNode};
use crate::names::nearest;

/// Bytes of the longest text whose line is noted as that of a name.
const LONGEST_NAME: usize = 128;

/// The fields of one mapping. Every field that is read is known; [`finish`](Self::finish) reports the others.
pub(crate) struct Fields<'n> {
    /// What the mapping is, for messages.
    what: String,
    line: usize,
    entries: &'n [YamlEntry],
    known: Vec<&'static str>,
    is_misfit: bool,
}

impl<'n> Fields<'n> {
    /// The fields of `node`, which is `what`; nothing for a null.
    pub(crate) fn of(node: &'n YamlNode, what: impl Into<String>, problems: &mut FileProblems<'_>) -> Self {
        let what = what.into();
        let entries = match &node.value {
            NodeValue::Map(entries) => entries.as_slice(),
            NodeValue::Null => &[],
            NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => {
                problems.error(node.line, format!("{what} must be a mapping of fields, and is {}", node.kind()));
                &[]
            }
        };
        let is_misfit = node.as_map().is_none() && node.value != NodeValue::Null;
        Self { what, line: node.line, entries, known: Vec::new(), is_misfit }
    }

    /// True for what is no mapping, which has been told.
    pub(crate) fn is_misfit(&self) -> bool {
        self.is_misfit
    }

    /// Line of the mapping.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The field `name`, unless it is absent or null.
    pub(crate) fn get(&mut self, name: &'static str) -> Option<&'n YamlNode> {
        self.know(name);
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        (entry.value.value != NodeValue::Null).then_some(&entry.value)
    }

    /// Line of the field `name`, or else of the mapping.
    pub(crate) fn place_of(&self, name: &str) -> usize {
        self.line_of(name).unwrap_or(self.line)
    }

    /// Line of the field `name`, also where it is null.
    pub(crate) fn line_of(&self, name: &str) -> Option<usize> {
        self.entries.iter().find(|entry| entry.key == name).map(|entry| entry.line)
    }

    pub(crate) fn text(&mut self, name: &'static str, problems: &mut FileProblems<'_>) -> Option<String> {
        let node = self.get(name)?;
        noted(node, problems).or_else(|| self.misfit(name, node, "a text", problems))
    }

    /// A text that may refer to the environment and to secrets.
    pub(crate) fn template(&mut self, name: &'static str, problems: &mut FileProblems<'_>) -> Option<Template> {
        let line = self.get(name)?.line;
        let text = self.text(name, problems)?;
        template_of(&text, line, problems)
    }

    pub(crate) fn boolean(&mut self, name: &'static str, problems: &mut FileProblems<'_>) -> Option<bool> {
        let node = self.get(name)?;
        node.as_bool().or_else(|| self.misfit(name, node, &format!("`true` or `false`{}", unquoted(node)), problems))
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn whole(
        &mut self,
        name: &'static str,
        (least, most): (u64, u64),
        problems: &mut FileProblems<'_>,
    ) -> Option<u64> {
        let node = self.get(name)?;
        let number = node.as_number().and_then(serde_json::Number::as_u64);
        let number = number.filter(|number| (least..=most).contains(number));
        let expected = || format!("a whole number from {least} to {most}{}", unquoted(node));
        number.or_else(|| self.misfit(name, node, &expected(), problems))
    }

    /// A number from `least` to `most`.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        (least, most): (f64, f64),
        problems: &mut FileProblems<'_>,
    ) -> Option<f64> {
        let node = self.get(name)?;
        let number = node.as_number().and_then(serde_json::Number::as_f64);
        let number = number.filter(|number| (least..=most).contains(number));
        let expected = || format!("a number from {least} to {most}{}", unquoted(node));
        number.or_else(|| self.misfit(name, node, &expected(), problems))
    }

    /// A list of texts; a single text stands for a list of one.
    pub(crate) fn texts(&mut self, name: &'static str, problems: &mut FileProblems<'_>) -> Option<Vec<String>> {
        let node = self.get(name)?;
        let texts = match node.as_list() {
            Some(items) => items.iter().map(|item| noted(item, problems)).collect(),
            None => noted(node, problems).map(|text| vec![text]),
        };
        texts.or_else(|| self.misfit(name, node, "a list of texts", problems))
    }

    /// The same, each with its line.
    pub(crate) fn texts_in_lines(
        &mut self,
        name: &'static str,
        problems: &mut FileProblems<'_>,
    ) -> Option<Vec<(String, usize)>> {
        let texts = self.texts(name, problems)?;
        let node = self.get(name)?;
        let items = node.as_list().unwrap_or(std::slice::from_ref(node));
        Some(texts.into_iter().zip(items.iter().map(|item| item.line)).collect())
    }

    /// One of `words`.
    pub(crate) fn word(
        &mut self,
        name: &'static str,
        words: &[&'static str],
        problems: &mut FileProblems<'_>,
    ) -> Option<&'static str> {
        let node = self.get(name)?;
        let text = text_of(node).unwrap_or_default();
        if let Some(word) = words.iter().find(|word| **word == text) {
            return Some(word);
        }
        let guess = nearest(&text, words.iter().copied()).map(|word| format!(": did you mean `{word}`?"));
        let guess = guess.or_else(|| other_word(&text, words).map(|advice| format!(": {advice}")));
        let what = &self.what;
        let all = words.join("`, `");
        let message = format!("`{name}` of {what} must be one of `{all}`{}", guess.unwrap_or_default());
        problems.error(node.line, message);
        None
    }

    /// A mapping of names to templates.
    pub(crate) fn templates(&mut self, name: &'static str, problems: &mut FileProblems<'_>) -> Vec<(String, Template)> {
        let Some(node) = self.get(name) else { return Vec::new() };
        let NodeValue::Map(entries) = &node.value else {
            self.misfit::<()>(name, node, "a mapping of names to texts", problems);
            return Vec::new();
        };
        let mut found = Vec::new();
        for entry in entries {
            match text_of(&entry.value) {
                Some(text) => {
                    if let Some(variable) = variable_of_shell(&text) {
                        let references = format!("`${{secrets.{variable}}}` or `${{env.{variable}}}`");
                        let message = format!(
                            "`${variable}` in `{name}.{}` is taken as it stands: write {references}",
                            entry.key
                        );
                        problems.warning(entry.value.line, message);
                    }
                    let template = template_of(&text, entry.value.line, problems);
                    found.extend(template.map(|template| (entry.key.clone(), template)));
                }
                None => problems.error(entry.line, format!("`{name}.{}` must be a text", entry.key)),
            }
        }
        found
    }

    /// The variables of a command that is run in a shell.
    pub(crate) fn environment(&mut self, problems: &mut FileProblems<'_>) -> Vec<(String, Template)> {
        let variables = self.templates("environment", problems);
        let entries = self.get("environment").and_then(YamlNode::as_map).unwrap_or_default();
        for entry in entries.iter().filter(|entry| !is_variable_of_command(&entry.key)) {
            let name = &entry.key;
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.is_empty();
            let advice = if is_plain { "it changes how programs are loaded" } else { "use letters, digits and `_`" };
            problems.error(entry.line, format!("the variable `{name}` of {} cannot be set: {advice}", self.what));
        }
        variables
    }

    fn know(&mut self, name: &'static str) {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
    }

    /// Any value, as JSON.
    pub(crate) fn json(&mut self, name: &'static str) -> Option<Value> {
        self.get(name).map(YamlNode::to_json)
    }

    /// A field that this version does not act on; it is named so that its author knows.
    pub(crate) fn without_effect(&mut self, name: &'static str, why: &str, problems: &mut FileProblems<'_>) {
        self.know(name);
        if let Some(entry) = self.entries.iter().find(|entry| entry.key == name) {
            problems.warning(entry.line, format!("`{name}` of {} has no effect: {why}", self.what));
        }
    }

    /// Reports the fields that were never read.
    pub(crate) fn finish(self, problems: &mut FileProblems<'_>) {
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&&*entry.key)) {
            let what = &self.what;
            let key = &entry.key;
            let advice = match (nearest(key, self.known.iter().copied()), other_name(key, &self.known)) {
                (_, Some(advice)) => advice.to_owned(),
                (Some(name), None) => format!("did you mean `{name}`?"),
                (None, None) => format!("it has `{}`", self.known.join("`, `")),
            };
            problems.error(entry.line, format!("{what} has no field `{key}`: {advice}"));
        }
    }

    fn misfit<T>(&self, name: &str, node: &YamlNode, expected: &str, problems: &mut FileProblems<'_>) -> Option<T> {
        let shown = match &node.value {
            NodeValue::Text(text) if text.len() <= 40 => format!("`{text}`"),
            NodeValue::Number(number) => number.to_string(),
            NodeValue::Text(_) | NodeValue::Null | NodeValue::Bool(_) | NodeValue::List(_) | NodeValue::Map(_) => {
                node.kind().to_owned()
            }
        };
        problems.error(node.line, format!("`{name}` of {} must be {expected}, and is {shown}", self.what));
        None
    }
}

/// What to write in the place of `key`, which is a field of the same in files for other programs, or stands elsewhere here.
fn other_name(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let has = |name: &str| known.contains(&name);
    match key {
        "args" | "arguments" if has("command") => Some("write all of it into `command`, which is one command line"),
        "env" if has("environment") => Some("did you mean `environment`?"),
        "type" | "transport" if has("oauth") => Some("leave it out: `command` is a process, `url` an address"),
        "cwd" if has("oauth") => Some("it runs in the folder of the workspace: begin `command` with `cd FOLDER && …`"),
        "disabled" if has("enabled") => Some("did you mean `enabled: false`?"),
        "base_url" | "baseUrl" | "baseURL" | "api_base" | "endpoint" if has("url") => Some("did you mean `url`?"),
        "api_key" | "apiKey" if has("key") => Some("did you mean `key`?"),
        "approval" | "approvals" if has("policy") => Some("it stands in `policy`: `policy: {approval: …}`"),
        "model" if has("provider") => Some("did you mean `name`?"),
        "command" if has("entry") => Some("it stands in `entry`: `entry: {command: …}`"),
        "command" | "url" | "prompt" | "agent" if has("handler") => Some("it stands in `handler`, with its `type`"),
        "hooks" if has("handler") => Some("a file has one hook, whose fields stand at its top"),
        "approvers" | "quorum" if has("deny_after") => {
            Some("one person decides about a call; a graph in Rust may wait for several")
        }
        "parameters" if has("input_schema") => Some("did you mean `input_schema`?"),
        key if has("native") && has("skills") => native_tool(key),
        key if has("subagents") => misplaced_in_agent(key),
        _ => None,
    }
}

/// What to write in the place of a native tool that is switched on or off by its name.
fn native_tool(key: &str) -> Option<&'static str> {
    let is_native = NATIVE_TOOLS.iter().any(|tool| tool.eq_ignore_ascii_case(key));
    is_native.then_some("native tools stand in a list of those that the agent may call: `native: [Read, Grep]`")
}

/// What to do with `key` in the front matter of an agent, where it stands elsewhere.
fn misplaced_in_agent(key: &str) -> Option<&'static str> {
    match key {
        "name" | "id" => Some("an agent is called as its file is; leave it out"),
        "prompt" | "instructions" | "system_prompt" => Some("instructions stand below the front matter"),
        "native" | "external" => Some("it stands in `tools`: `tools: {native: […], external: […]}`"),
        "max_steps"
        | "max_total_tokens"
        | "max_cost"
        | "max_concurrent_subagents"
        | "parallel_tool_calls"
        | "run_timeout_seconds"
        | "tool_timeout_seconds" => Some("it stands in `policy`"),
        "permission" | "permissions" | "permissionMode" => {
            Some("`policy: {approval: …}` names calls that wait for a person, `disallowed` those that are not made")
        }
        "allowed-tools" | "allowed_tools" => Some("it stands in `tools`: `tools: {native: […], external: […]}`"),
        "disallowedTools" | "disallowed_tools" => Some("it stands in `disallowed`: `disallowed: {tools: […]}`"),
        "mcpServers" | "mcp" => Some("servers of tools stand in `.openharness/tools/settings.yaml`"),
        "hooks" => Some("hooks stand in files of `.openharness/hooks`"),
        "handoff" | "handoffs" => Some("did you mean `switch`?"),
        "schedule" | "schedules" | "cron" => {
            Some("nothing here begins a run by the clock: have cron run `dormouse send`")
        }
        "fallback" | "fallbacks" | "fallback_model" | "fallback_models" => {
            Some("an agent has one model, which is asked again until it answers; leave it out")
        }
        "output_schema" | "response_format" => {
            Some("say in its instructions what answers look like, or give it a tool whose `input_schema` is that form")
        }
        _ => None,
    }
}

/// What is to be changed besides in `node` where a number or a boolean was meant, and stands in quotes.
fn unquoted(node: &YamlNode) -> &'static str {
    match &node.value {
        NodeValue::Text(text) if text.parse::<f64>().is_ok_and(f64::is_finite) || text.parse::<bool>().is_ok() => {
            ", without quotes"
        }
        NodeValue::Text(_)
        | NodeValue::Null
        | NodeValue::Bool(_)
        | NodeValue::Number(_)
        | NodeValue::List(_)
        | NodeValue::Map(_) => "",
    }
}

/// What to write in the place of `word` where one of `words` is the provider of a model.
fn other_word(word: &str, words: &[&'static str]) -> Option<&'static str> {
    if !words.contains(&"openai-compatible") {
        return None;
    }
    match word.to_lowercase().as_str() {
        "ollama" => Some("Ollama is `openai-compatible`, with `url: http://127.0.0.1:11434/v1`"),
        "azure" | "deepseek" | "groq" | "lmstudio" | "localai" | "mistral" | "openrouter" | "together" | "vllm"
        | "xai" => Some("a provider that speaks OpenAI's format is `openai-compatible`, with its `url`"),
        "claude" => Some("did you mean `anthropic`?"),
        "google" | "vertex" => Some("did you mean `gemini`?"),
        "aws" => Some("did you mean `bedrock`?"),
        _ => None,
    }
}

/// The text of a scalar; numbers and booleans count as they are written in JSON.
pub(crate) fn text_of(node: &YamlNode) -> Option<String> {
    match &node.value {
        NodeValue::Text(text) => Some(text.clone()),
        NodeValue::Number(number) => Some(number.to_string()),
        NodeValue::Bool(value) => Some(value.to_string()),
        NodeValue::Null | NodeValue::List(_) | NodeValue::Map(_) => None,
    }
}

/// The name of a variable in `text` that is written as a shell has it, `$NAME`, which nothing replaces.
fn variable_of_shell(text: &str) -> Option<&str> {
    text.split('$').skip(1).find_map(|behind| {
        let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let name = &behind[..behind.find(|c: char| !is_of_name(c)).unwrap_or(behind.len())];
        (name.len() > 1 && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
    })
}

/// The text of `node`, whose line is noted where it may be a name.
fn noted(node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<String> {
    let text = text_of(node)?;
    if text.len() <= LONGEST_NAME {
        problems.note(&text, node.line);
    }
    Some(text)
}

fn template_of(text: &str, line: usize, problems: &mut FileProblems<'_>) -> Option<Template> {
    match Template::parse(text) {
        Ok(template) => Some(template),
        Err(reason) => {
            problems.error(line, reason);
            None
        }
    }
}
