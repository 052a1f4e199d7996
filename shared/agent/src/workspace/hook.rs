use std::collections::BTreeSet;

use dormouse_ports::hook::HookHandlerDefinition;
use regex::{Regex, RegexBuilder};
use serde::Serialize;

use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::YamlNode;

/// The most seconds that a hook may take.
const LONGEST: u64 = 120;
/// The seconds where nothing is said.
const USUAL: u64 = 10;
/// The most bytes of a compiled matcher: it meets names, and each is kept for as long as its workspace is.
const MOST_MATCHER: usize = 128 * 1024;
/// The most hooks of a workspace.
pub(super) const MOST_HOOKS: usize = 64;

/// The expression that the matcher `written` is.
pub(crate) fn matcher(written: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(written).size_limit(MOST_MATCHER).dfa_size_limit(MOST_MATCHER).build()
}

/// A hook, as a file in `.openharness/hooks` declares it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookDefinition {
    /// Its name.
    pub name: String,
    /// Path of its file; hooks run in the order of these.
    pub file: String,
    /// Events at which it is run.
    pub events: Vec<HookEvent>,
    /// Expression that the model, the tool or the trigger has to match.
    pub matcher: Option<String>,
    /// Handler of the hook.
    pub handler: HookHandlerDefinition,
    /// Changes that it may make.
    pub capabilities: BTreeSet<HookCapability>,
    /// Meaning of its failure.
    pub on_error: OnHookError,
    /// Seconds that it may take.
    pub timeout_seconds: u64,
}

macro_rules! words {
    ($(#[$meta:meta])* $name:ident: $($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name in files and records.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

words! {
    /// A moment at which hooks run.
    HookEvent:
    /// Before a conversation is made shorter.
    BeforeContextCompact = "before_context_compact",
    /// After it was made shorter.
    AfterContextCompact = "after_context_compact",
    /// Before the request to the model is put together.
    BeforeContextBuild = "before_context_build",
    /// After it was put together.
    AfterContextBuild = "after_context_build",
    /// Before the model is asked.
    BeforeModelCall = "before_model_call",
    /// After it answered.
    AfterModelCall = "after_model_call",
    /// Before a call of a tool is decided on.
    BeforeToolDispatch = "before_tool_dispatch",
    /// After it ended.
    AfterToolDispatch = "after_tool_dispatch",
    /// A run ended well.
    RunCompleted = "run_completed",
    /// A run ended badly.
    RunFailed = "run_failed",
}

words! {
    /// Something that a hook may change.
    HookCapability:
    /// The conversation that the model is shown.
    RewriteContext = "rewrite_context",
    /// The request to the model.
    RewriteModelRequest = "rewrite_model_request",
    /// The answer of the model.
    RewriteModelResponse = "rewrite_model_response",
    /// The arguments of a call.
    RewriteToolRequest = "rewrite_tool_request",
    /// The output of a call.
    RewriteToolResponse = "rewrite_tool_response",
    /// Output is withheld from the model.
    SuppressOutput = "suppress_output",
}

/// Meaning of the failure of a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnHookError {
    /// The run goes on without it.
    #[default]
    Open,
    /// It counts as a block.
    Closed,
}

impl HookDefinition {
    pub(crate) fn read(file: &str, stem: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<Self> {
        let mut fields = Fields::of(node, "the hook", problems);
        problems.named_on(fields.get("name").map(|name| name.line));
        let name = fields.text("name", problems).unwrap_or_else(|| stem.to_owned());
        problems.about(DefinitionName::new(DefinitionKind::Hook, &name));
        let events = named(&mut fields, "events", HookEvent::ALL, HookEvent::as_str, problems);
        if fields.get("events").is_none_or(|events| events.as_list().is_some_and(<[_]>::is_empty)) {
            problems.error(node.line, format!("hook `{name}` has no `events`: name what it is run at"));
        }
        let capabilities = named(&mut fields, "capabilities", HookCapability::ALL, HookCapability::as_str, problems);
        let written = fields.text("matcher", problems);
        if let Some(Err(error)) = written.as_deref().map(matcher) {
            let line = fields.place_of("matcher");
            problems.error(line, unmet(&name, &error));
        }
        let on_error = match fields.word("on_error", &["open", "closed"], problems) {
            Some("closed") => OnHookError::Closed,
            Some(_) | None => OnHookError::Open,
        };
        let handler = match fields.get("handler") {
            Some(node) => handler(node, problems),
            None => {
                problems.error(node.line, format!("hook `{name}` has no `handler`"));
                None
            }
        };
        fields.finish(problems);
        let (handler, timeout) = handler?;
        Some(Self {
            name,
            file: file.to_owned(),
            events,
            matcher: written,
            handler,
            capabilities: capabilities.into_iter().collect(),
            on_error,
            timeout_seconds: timeout.unwrap_or(USUAL),
        })
    }
}

/// The complaint about the matcher of the hook `name`.
fn unmet(name: &str, error: &regex::Error) -> String {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return format!(
            "`matcher` of hook `{name}` becomes larger than {MOST_MATCHER} bytes: repeat less, and write `[a-z_]` in the place \
             of `\\w`"
        );
    }
    let reason = error.to_string();
    let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("`matcher` of hook `{name}` is no regular expression: {reason}; `.*` stands for anything")
}

/// The values that a list of words names.
fn named<T: Copy>(
    fields: &mut Fields<'_>,
    field: &'static str,
    all: &[T],
    word: fn(T) -> &'static str,
    problems: &mut FileProblems<'_>,
) -> Vec<T> {
    let mut found = Vec::new();
    for (text, line) in fields.texts_in_lines(field, problems).unwrap_or_default() {
        match all.iter().find(|one| word(**one) == text) {
            Some(one) => found.push(*one),
            None => {
                let guess = crate::names::nearest(&text, all.iter().map(|one| word(*one)));
                let names = || all.iter().map(|one| word(*one)).collect::<Vec<_>>().join("`, `");
                let guess = guess.map(|guess| format!(": did you mean `{guess}`?"));
                let guess = guess.unwrap_or_else(|| format!(": it has `{}`", names()));
                problems.error(line, format!("`{field}` has no `{text}`{guess}"));
            }
        }
    }
    found
}

fn handler(node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<(HookHandlerDefinition, Option<u64>)> {
    let mut fields = Fields::of(node, "`handler`", problems);
    let kind = fields.word("type", &["command", "http", "prompt", "agent"], problems);
    if kind.is_none() && fields.get("type").is_none() {
        problems.error(node.line, "`handler` has no `type`: `command`, `http`, `prompt` or `agent`");
    }
    let mut needed = |name: &'static str, fields: &mut Fields<'_>| {
        let text = fields.text(name, problems);
        if text.is_none() {
            problems.error(node.line, format!("`handler` has no `{name}`"));
        }
        text
    };
    let handler = match kind? {
        "command" => {
            let command = needed("command", &mut fields);
            let environment = fields.environment(problems);
            command.map(|command| HookHandlerDefinition::Command { command, environment })
        }
        "http" => {
            needed("url", &mut fields);
            let url = fields.template("url", problems);
            let headers = fields.templates("headers", problems);
            url.map(|url| HookHandlerDefinition::Http { url, headers })
        }
        "prompt" => needed("prompt", &mut fields).map(|prompt| HookHandlerDefinition::Prompt { prompt }),
        _ => {
            let agent = needed("agent", &mut fields);
            let task = fields.text("task", problems).unwrap_or_default();
            agent.map(|agent| HookHandlerDefinition::Agent { agent, task })
        }
    };
    let timeout = fields.whole("timeout_seconds", (1, LONGEST), problems);
    fields.finish(problems);
    Some((handler?, timeout))
}
