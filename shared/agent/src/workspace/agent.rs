use dormouse_ports::model::RuntimeConfig;
use serde::Serialize;

use super::approval::{ApprovalPolicy, is_exact};
use super::fields::{Fields, text_of};
use super::matter::FrontMatter;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::{NodeValue, YamlNode};

/// The largest number of steps that an agent may ask for.
const MOST_STEPS: u64 = 1_000;
const DAY: u64 = 24 * 3600;
/// The most money that a run may be allowed.
const MOST_COST: f64 = 1e9;
/// The name under which the place of that limit is noted.
pub(super) const MAX_COST: &str = "policy.max_cost";
/// The fields of an agent.
const FIELDS: [&str; 17] = [
    "mode",
    "description",
    "model",
    "temperature",
    "top_p",
    "max_tokens",
    "system_reminder",
    "tools",
    "actions",
    "skills",
    "disallowed",
    "switch",
    "subagents",
    "policy",
    "background",
    "hidden",
    "color",
];

/// An agent, as `.openharness/agents/NAME.md` declares it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentDefinition {
    /// Name of its file.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// Whether people or other agents may address it.
    pub mode: AgentMode,
    /// Purpose of the agent.
    pub description: String,
    /// The model that it asks: an alias of the settings or a reference such as `workspace/NAME`.
    pub model: Option<ModelChoice>,
    /// Sampling, over that of the model.
    pub sampling: RuntimeConfig,
    /// Instructions: the body of the file.
    pub prompt: String,
    /// Text that is put before the latest message when the agent takes over.
    pub system_reminder: Option<String>,
    /// The tools that it may call.
    pub tools: ToolSelection,
    /// Agents that it may hand over to.
    pub switch: Vec<String>,
    /// Agents that it may ask.
    pub subagents: Vec<String>,
    /// Limits and approvals.
    pub policy: AgentPolicy,
    /// True if an agent that asks it goes on meanwhile.
    pub background: bool,
    /// True if lists for people leave it out.
    pub hidden: bool,
}

/// Callers that may address an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentMode {
    /// People.
    #[default]
    Primary,
    /// Other agents.
    Subagent,
    /// Both.
    All,
}

/// A model with the sampling that an agent or an alias asks of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelChoice {
    /// Alias or reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Sampling.
    pub config: RuntimeConfig,
    /// Line in its file.
    #[serde(skip)]
    pub(crate) line: usize,
}

/// Selection of tools. `None`: all that there are, except of native tools, of which there are none then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolSelection {
    /// Native tools.
    pub native: Vec<String>,
    /// Actions.
    pub actions: Option<Vec<String>>,
    /// Skills.
    pub skills: Option<Vec<String>>,
    /// Servers, by their names.
    pub external: Option<Vec<String>>,
    /// Tools that it may not call, even where another field allows them.
    pub disallowed: Vec<String>,
    /// The same, with patterns that mean actions alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_actions: Vec<String>,
    /// The same, with patterns that mean skills alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed_skills: Vec<String>,
}

impl ToolSelection {
    /// All names and patterns of what it may not call.
    pub(crate) fn forbidden(&self) -> impl Iterator<Item = &String> {
        self.disallowed.iter().chain(&self.disallowed_actions).chain(&self.disallowed_skills)
    }

    /// Those that mean `kind`: a whole name means whatever has it.
    pub(crate) fn forbidden_of(&self, kind: DefinitionKind) -> impl Iterator<Item = &String> {
        let of = move |list: DefinitionKind| move |name: &&String| kind == list || is_exact(name);
        let actions = self.disallowed_actions.iter().filter(of(DefinitionKind::Action));
        let skills = self.disallowed_skills.iter().filter(of(DefinitionKind::Skill));
        self.disallowed.iter().chain(actions).chain(skills)
    }
}

/// Limits on the runs of an agent. What is absent has the default of the platform.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentPolicy {
    /// Model calls of a run.
    pub max_steps: Option<u64>,
    /// Seconds from the beginning of a run to its end, without the time that it sleeps.
    pub run_timeout_seconds: Option<u64>,
    /// Seconds of one call of a tool.
    pub tool_timeout_seconds: Option<u64>,
    /// True if several tools that the model calls at a time run side by side.
    pub parallel_tool_calls: Option<bool>,
    /// Tokens of all model calls of a run.
    pub max_total_tokens: Option<u64>,
    /// Money of all model calls of a run, in the currency of the model's prices.
    pub max_cost: Option<f64>,
    /// Agents that it asked and that have not ended.
    pub max_concurrent_subagents: Option<u64>,
    /// Calls that wait for a person.
    pub approval: ApprovalPolicy,
}

impl AgentDefinition {
    /// Reads the agent `name` from its file; `None` when the file has no front matter or body to speak of.
    pub(crate) fn read(name: &str, file: &str, text: &str, problems: &mut FileProblems<'_>) -> Option<Self> {
        problems.about(DefinitionName::new(DefinitionKind::Agent, name));
        let (matter, node) = FrontMatter::read(text, &FIELDS, problems)?;
        let agent = Self::of_fields((name, file), &node, matter.body, problems);
        if matter.body.trim().is_empty() {
            problems.error(matter.body_line, "the agent has no instructions: write them below the front matter");
        }
        Some(agent)
    }

    fn of_fields((name, file): (&str, &str), node: &YamlNode, body: &str, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "the front matter", problems);
        let mode = match fields.word("mode", &["primary", "subagent", "all"], problems) {
            Some("subagent") => AgentMode::Subagent,
            Some("all") => AgentMode::All,
            Some(_) | None => AgentMode::Primary,
        };
        let model = fields.get("model").and_then(|node| ModelChoice::read(node, "`model`", problems));
        let sampling = sampling(&mut fields, problems);
        let tools = tools_of(&mut fields, problems);
        let policy = fields.get("policy").map(|node| policy_of(node, problems)).unwrap_or_default();
        let agent = Self {
            name: name.to_owned(),
            file: file.to_owned(),
            mode,
            description: fields.text("description", problems).unwrap_or_default(),
            model,
            sampling,
            prompt: body.trim().to_owned(),
            system_reminder: fields.text("system_reminder", problems),
            tools,
            switch: fields.texts("switch", problems).unwrap_or_default(),
            subagents: fields.texts("subagents", problems).unwrap_or_default(),
            policy,
            background: fields.boolean("background", problems).unwrap_or_default(),
            hidden: fields.boolean("hidden", problems).unwrap_or_default(),
        };
        // For tools that show agents.
        fields.get("color");
        fields.finish(problems);
        agent
    }
}

impl ModelChoice {
    /// Reads a text, or a mapping with `ref` and sampling.
    pub(crate) fn read(node: &YamlNode, what: &str, problems: &mut FileProblems<'_>) -> Option<Self> {
        if let Some(reference) = text_of(node) {
            return Some(Self { reference, config: RuntimeConfig::default(), line: node.line });
        }
        if matches!(node.value, NodeValue::List(_)) {
            let message = format!("{what} is a list, and an agent has one model: name one, such as `workspace/NAME`");
            problems.error(node.line, message);
            return None;
        }
        let mut fields = Fields::of(node, what, problems);
        let reference = fields.text("ref", problems);
        let config = sampling(&mut fields, problems);
        if reference.is_none() {
            problems.error(fields.line(), format!("{what} has no `ref`: name a model, such as `workspace/NAME`"));
        }
        fields.finish(problems);
        Some(Self { reference: reference?, config, line: node.line })
    }
}

fn sampling(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> RuntimeConfig {
    RuntimeConfig {
        temperature: fields.number("temperature", (0.0, 2.0), problems),
        top_p: fields.number("top_p", (0.0, 1.0), problems),
        max_tokens: fields.whole("max_tokens", (1, 10_000_000), problems),
        ..RuntimeConfig::default()
    }
}

/// The tools, under `tools` or, for actions and skills, beside it.
fn tools_of(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> ToolSelection {
    let actions = fields.texts("actions", problems);
    let skills = fields.texts("skills", problems);
    let mut selection = ToolSelection { actions, skills, ..ToolSelection::default() };
    if let Some(node) = mapping(fields, "tools", "{native: […], external: […]}", problems) {
        let mut inner = Fields::of(node, "`tools`", problems);
        selection.native = inner.texts("native", problems).unwrap_or_default();
        selection.actions = inner.texts("actions", problems).or(selection.actions);
        selection.skills = inner.texts("skills", problems).or(selection.skills);
        selection.external = inner.texts("external", problems);
        inner.finish(problems);
    }
    if let Some(node) = mapping(fields, "disallowed", "{tools: […]}", problems) {
        let mut inner = Fields::of(node, "`disallowed`", problems);
        selection.disallowed = inner.texts("tools", problems).unwrap_or_default();
        selection.disallowed_actions = inner.texts("actions", problems).unwrap_or_default();
        selection.disallowed_skills = inner.texts("skills", problems).unwrap_or_default();
        inner.finish(problems);
    }
    selection
}

/// The field `name`, which lists stand in, as `written` shows.
fn mapping<'n>(
    fields: &mut Fields<'n>,
    name: &'static str,
    written: &str,
    problems: &mut FileProblems<'_>,
) -> Option<&'n YamlNode> {
    let node = fields.get(name)?;
    if node.as_map().is_none() {
        let message = format!("`{name}` is {}: lists stand in it by their kinds, `{name}: {written}`", node.kind());
        problems.error(node.line, message);
        return None;
    }
    Some(node)
}

fn policy_of(node: &YamlNode, problems: &mut FileProblems<'_>) -> AgentPolicy {
    let mut fields = Fields::of(node, "`policy`", problems);
    let policy = AgentPolicy {
        max_steps: fields.whole("max_steps", (1, MOST_STEPS), problems),
        run_timeout_seconds: fields.whole("run_timeout_seconds", (1, 30 * DAY), problems),
        tool_timeout_seconds: fields.whole("tool_timeout_seconds", (1, DAY), problems),
        parallel_tool_calls: fields.boolean("parallel_tool_calls", problems),
        max_total_tokens: fields.whole("max_total_tokens", (1, u64::MAX), problems),
        max_cost: fields.number("max_cost", (0.0, MOST_COST), problems),
        max_concurrent_subagents: fields.whole("max_concurrent_subagents", (1, 25), problems),
        approval: ApprovalPolicy::of(&mut fields, problems),
    };
    if let Some(line) = fields.line_of("max_cost") {
        problems.note(MAX_COST, line);
    }
    fields.finish(problems);
    policy
}
