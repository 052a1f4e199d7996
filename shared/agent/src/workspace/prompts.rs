use indexmap::IndexMap;
use serde::Serialize;

use super::Workspace;
use super::agent::AgentDefinition;
use super::fields::{Fields, text_of};
use super::problem::FileProblems;
use super::settings::WorkspaceKind;
use super::yaml::{NodeValue, YamlNode};

/// Bytes of memory that an agent is told.
const LONGEST_MEMORY: usize = 32 * 1024;

/// What `.openharness/prompts.yaml` says: the texts of which instructions are made, and their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prompts {
    /// Text for every agent.
    pub base: Option<String>,
    /// Text for models of a provider.
    pub providers: IndexMap<String, String>,
    /// Text for one model, by its alias or reference; it stands instead of that of the provider.
    pub models: IndexMap<String, String>,
    /// The order of the texts. What is not in it is left out.
    pub order: Vec<Segment>,
}

/// A text of which instructions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// For every agent.
    Base,
    /// For the model or its provider.
    LlmOptimized,
    /// The agent's own.
    Agent,
    /// `AGENTS.md`.
    ProjectAgentsMd,
    /// A summary of the place where the agent works.
    Environment,
}

impl Segment {
    /// Segments by their names. Actions, skills and other agents are told by the tools with which they are used: in an
    /// order they have no effect.
    const NAMES: [(&'static str, Option<Self>); 9] = [
        ("base", Some(Self::Base)),
        ("llm_optimized", Some(Self::LlmOptimized)),
        ("agent", Some(Self::Agent)),
        ("actions", None),
        ("project_agents_md", Some(Self::ProjectAgentsMd)),
        ("skills", None),
        ("agent_switches", None),
        ("subagents", None),
        ("environment", Some(Self::Environment)),
    ];
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            base: None,
            providers: IndexMap::new(),
            models: IndexMap::new(),
            order: vec![Segment::Base, Segment::LlmOptimized, Segment::Agent, Segment::ProjectAgentsMd],
        }
    }
}

/// The text of a file beside `prompts.yaml`.
pub(crate) type FileText<'f> = &'f dyn Fn(&str) -> Result<String, String>;

impl Prompts {
    pub(crate) fn read(node: &YamlNode, file: FileText<'_>, problems: &mut FileProblems<'_>) -> Self {
        let mut prompts = Self::default();
        let mut fields = Fields::of(node, "`prompts.yaml`", problems);
        prompts.base = fields.get("base").and_then(|node| prompt(node, "`base`", file, problems));
        if let Some(node) = fields.get("llm_optimized") {
            let mut inner = Fields::of(node, "`llm_optimized`", problems);
            prompts.providers = several(&mut inner, "providers", file, problems);
            prompts.models = several(&mut inner, "models", file, problems);
            inner.finish(problems);
        }
        if let Some(node) = fields.get("compose") {
            let mut inner = Fields::of(node, "`compose`", problems);
            if let Some(order) = order(&mut inner, problems) {
                prompts.order = order;
            }
            let is_told = inner.boolean("include_environment", problems);
            let is_placed = prompts.order.contains(&Segment::Environment);
            match is_told {
                Some(true) if !is_placed => prompts.order.push(Segment::Environment),
                Some(false) => prompts.order.retain(|segment| *segment != Segment::Environment),
                Some(true) | None => {}
            }
            inner.finish(problems);
        }
        fields.finish(problems);
        prompts
    }
}

/// A text, or a mapping with `inline` or `file`.
fn prompt(node: &YamlNode, what: &str, file: FileText<'_>, problems: &mut FileProblems<'_>) -> Option<String> {
    if let Some(text) = text_of(node) {
        return Some(text);
    }
    let mut fields = Fields::of(node, what, problems);
    let inline = fields.text("inline", problems);
    let path = fields.text("file", problems);
    fields.finish(problems);
    match (inline, path) {
        (Some(text), None) => Some(text),
        (None, Some(path)) => file(&path).map_err(|reason| problems.error(node.line, format!("{what}: {reason}"))).ok(),
        (None, None) => {
            problems.error(node.line, format!("{what} has neither `inline` nor `file`: set one of them"));
            None
        }
        (Some(_), Some(_)) => {
            problems.error(node.line, format!("{what} has `inline` and `file`: leave one of them"));
            None
        }
    }
}

/// The name under which the place of `key` in the mapping `field` is noted.
pub(super) fn key_of(field: &str, key: &str) -> String {
    format!("llm_optimized.{field}: {key}")
}

fn several(
    fields: &mut Fields<'_>,
    name: &'static str,
    file: FileText<'_>,
    problems: &mut FileProblems<'_>,
) -> IndexMap<String, String> {
    let Some(node) = fields.get(name) else { return IndexMap::new() };
    let NodeValue::Map(entries) = &node.value else {
        problems.error(node.line, format!("`{name}` must be a mapping of names to texts"));
        return IndexMap::new();
    };
    let mut found = IndexMap::new();
    for entry in entries {
        problems.note(&key_of(name, &entry.key), entry.line);
        let text = prompt(&entry.value, &format!("`{name}.{}`", entry.key), file, problems);
        found.extend(text.map(|text| (entry.key.clone(), text)));
    }
    found
}

fn order(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Option<Vec<Segment>> {
    let mut order = Vec::new();
    let mut is_sound = true;
    for (name, line) in fields.texts_in_lines("order", problems)? {
        match Segment::NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, Some(segment))) if order.contains(segment) => {
                problems.error(line, format!("`order` has `{name}` twice: leave one"));
            }
            Some((_, segment)) => order.extend(*segment),
            None => {
                let guess = crate::names::nearest(&name, Segment::NAMES.iter().map(|(known, _)| *known));
                let guess = guess.map(|guess| format!(": did you mean `{guess}`?")).unwrap_or_default();
                problems.error(line, format!("`order` has no `{name}`{guess}; until then the usual order is used"));
                is_sound = false;
            }
        }
    }
    // One that was not understood would leave instructions out.
    is_sound.then_some(order)
}

impl Workspace {
    /// The instructions of `agent`: the texts of the workspace and its own, in their order, up to the summary of its
    /// environment.
    pub fn instructions_of(&self, agent: &AgentDefinition) -> String {
        let (before, behind) = self.segments();
        let remembered = if behind.is_none() { self.remembered() } else { None };
        self.composed(agent, before, remembered)
    }

    /// The instructions of `agent` behind the summary of its environment; `None` where it is told none. A `chat` workspace
    /// has no environment.
    pub fn instructions_behind(&self, agent: &AgentDefinition) -> Option<String> {
        let (_, behind) = self.segments();
        behind.map(|behind| self.composed(agent, behind, self.remembered()))
    }

    /// The segments before the summary of the environment, and those behind it.
    fn segments(&self) -> (&[Segment], Option<&[Segment]>) {
        let order = self.prompts.order.as_slice();
        let at = order.iter().position(|segment| *segment == Segment::Environment);
        match at.filter(|_| self.settings.kind == WorkspaceKind::Project).and_then(|at| order.split_at_checked(at)) {
            Some((before, behind)) => (before, Some(behind)),
            None => (order, None),
        }
    }

    fn composed(&self, agent: &AgentDefinition, order: &[Segment], last: Option<String>) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Environment => None,
            Segment::Base => self.prompts.base.clone().or_else(|| self.settings.system_prompt.clone()),
            Segment::LlmOptimized => self.optimized(agent),
            Segment::Agent => Some(agent.prompt.clone()),
            Segment::ProjectAgentsMd => {
                let text = self.instructions.as_ref()?;
                Some(format!("<project_instructions>\n{text}\n</project_instructions>"))
            }
        };
        let texts = order.iter().filter_map(text).chain(last);
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The memory of the workspace, where agents are told of it, which those of a `chat` workspace are not: the newest that
    /// fits is not known, so the first files count.
    fn remembered(&self) -> Option<String> {
        let mut room = LONGEST_MEMORY;
        let mut told = String::new();
        let settings = &self.settings;
        let is_told = settings.engine.workspace_memory && settings.kind == WorkspaceKind::Project;
        for (name, text) in self.memory.iter().filter(|_| is_told) {
            let text = text.trim();
            if text.len() > room {
                told.push_str(&format!("\n[`{name}.md` is left out: it has {} bytes]", text.len()));
                continue;
            }
            room -= text.len();
            told.push_str(&format!("\n<memory file=\"{name}.md\">\n{text}\n</memory>"));
        }
        (!told.is_empty()).then(|| format!("<workspace_memory>{told}\n</workspace_memory>"))
    }

    /// The text for the model of `agent`: that of its alias, of its reference, or of its provider.
    fn optimized(&self, agent: &AgentDefinition) -> Option<String> {
        let model = self.model_of(agent).ok()?;
        let alias = agent.model.as_ref().map(|choice| choice.reference.as_str());
        let named = alias.into_iter().chain([model.reference.as_str()]);
        let named = named.filter_map(|name| self.prompts.models.get(name)).next();
        let provider = || self.prompts.providers.get(&self.model(&model.reference)?.provider);
        named.or_else(provider).cloned()
    }
}
