//! The tool by which a model reads skills.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec};
use serde_json::{Value, json};
use wildmatch::WildMatch;

use crate::names::{SKILL, nearest};
use crate::workspace::{AgentDefinition, DefinitionKind, SkillDefinition, Workspace, WorkspaceKind};

/// Resources of a skill that are listed.
const MOST_LISTED: usize = 50;

/// The skills of one agent.
#[derive(Debug)]
pub struct SkillTools(Vec<Arc<SkillDefinition>>);

impl SkillTools {
    /// Those that `agent` may read; `None` where there are none, and in a `chat` workspace.
    pub fn of(workspace: &Workspace, agent: &AgentDefinition) -> Option<Self> {
        let selection = &agent.tools;
        let is_chosen = |skill: &&SkillDefinition| {
            workspace.is_enabled(DefinitionKind::Skill, &skill.name)
                && selection.skills.as_ref().is_none_or(|names| names.contains(&skill.name))
                && !selection
                    .forbidden_of(DefinitionKind::Skill)
                    .any(|pattern| WildMatch::new(pattern).matches(&skill.name))
        };
        let acts = workspace.settings.kind == WorkspaceKind::Project;
        let skills = workspace.skills.values().filter(|_| acts).filter(is_chosen);
        let skills: Vec<_> = skills.cloned().map(Arc::new).collect();
        (!skills.is_empty()).then_some(Self(skills))
    }

    /// The names of its skills.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|skill| skill.name.as_str())
    }

    fn named(&self, name: &str) -> Result<&SkillDefinition, ToolError> {
        self.0.iter().find(|skill| skill.name == name).map(|skill| &**skill).ok_or_else(|| {
            let guess = nearest(name, self.0.iter().map(|skill| skill.name.as_str()));
            let guess = guess.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            ToolError::new(ToolErrorKind::InvalidArguments, format!("there is no skill `{name}`{guess}"))
        })
    }
}

#[async_trait]
impl ToolSource for SkillTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let mut description =
            "Reads a skill: instructions for a kind of work, to be read before that work is begun. With \
                               `resource_path` it reads a file of the skill instead.\n<available_skills>\n"
                .to_owned();
        for skill in &self.0 {
            description.push_str(&format!("- {}: {}\n", skill.name, skill.description.replace('\n', " ")));
        }
        description.push_str("</available_skills>");
        let names: Vec<&str> = self.0.iter().map(|skill| skill.name.as_str()).collect();
        let schema = json!({
            "type": "object",
            "properties": {
                "skill": { "type": "string", "enum": names },
                "resource_path": { "type": "string", "description": "A file of the skill, as the skill lists it" }
            },
            "required": ["skill"],
            "additionalProperties": false
        });
        let mut spec = ToolSpec::new(SKILL);
        spec.description = description;
        spec.effect = Effect::Safe;
        spec.annotations.read_only = Some(true);
        spec.input_schema = schema.as_object().cloned().unwrap_or_default();
        Ok(vec![spec])
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let argument = |name: &str| call.arguments.get(name).and_then(Value::as_str);
        let skill = self.named(argument("skill").unwrap_or_default())?;
        let output = match argument("resource_path") {
            None => whole(skill),
            Some(path) => resource(skill, path)?,
        };
        Ok(ToolReply::Done(ToolOutput::text(output)))
    }
}

/// The instructions, and what lies beside them.
fn whole(skill: &SkillDefinition) -> String {
    let mut text = format!("<skill name=\"{}\">\n{}\n</skill>", skill.name, skill.body);
    if !skill.resources.is_empty() {
        text.push_str("\n<resources>\n");
        for path in skill.resources.keys().take(MOST_LISTED) {
            text.push_str(path);
            text.push('\n');
        }
        if skill.resources.len() > MOST_LISTED {
            text.push_str(&format!("[{} more]\n", skill.resources.len() - MOST_LISTED));
        }
        text.push_str("</resources>");
    }
    text
}

fn resource(skill: &SkillDefinition, path: &str) -> Result<String, ToolError> {
    let plain = path.trim_start_matches("./");
    let Some(bytes) = skill.resources.get(plain) else {
        let guess = nearest(plain, skill.resources.keys().map(String::as_str));
        let guess = guess.map(|path| format!("; did you mean `{path}`?")).unwrap_or_default();
        let message = format!("the skill `{}` has no file `{path}`{guess}", skill.name);
        return Err(ToolError::new(ToolErrorKind::InvalidArguments, message));
    };
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("[Base64 of {} bytes]\n{}", bytes.len(), STANDARD.encode(bytes)),
    })
}
