use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_ports::tool::SHOWN_OUTPUT;
use serde::Serialize;

use super::fields::Fields;
use super::matter::FrontMatter;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};

/// Characters of a description that is taken from the body.
const INFERRED: usize = 200;
/// Bytes of instructions that a model is told, as of any output of a tool; a few are what stands around them.
const MOST_TOLD: usize = SHOWN_OUTPUT - 256;
/// The fields that are acted on, and behind them those that are for others.
const FIELDS: [&str; 6] = ["name", "description", "license", "compatibility", "metadata", "allowed-tools"];

/// A skill: instructions that a model reads when it needs them, with files beside them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SkillDefinition {
    /// Its name.
    pub name: String,
    /// Path of its file.
    pub file: String,
    /// Purpose of the skill.
    pub description: String,
    /// The instructions.
    #[serde(skip)]
    pub body: Arc<str>,
    /// Files beside the instructions, by their paths from the skill's folder.
    #[serde(skip)]
    pub resources: Arc<BTreeMap<String, Vec<u8>>>,
}

impl SkillDefinition {
    /// Reads the skill of `file` from `text`; `folder` is the name of its folder.
    pub(crate) fn read(folder: &str, file: &str, text: &str, problems: &mut FileProblems<'_>) -> Option<Self> {
        problems.about(DefinitionName::new(DefinitionKind::Skill, folder));
        let (matter, node) = FrontMatter::read(text, &FIELDS, problems)?;
        let mut fields = Fields::of(&node, "the front matter", problems);
        let name = fields.text("name", problems).unwrap_or_else(|| folder.to_owned());
        problems.about(DefinitionName::new(DefinitionKind::Skill, &name));
        let description = fields.text("description", problems);
        for known in FIELDS.into_iter().skip(2) {
            fields.get(known);
        }
        fields.finish(problems);
        let body = matter.body.trim();
        if body.is_empty() {
            problems.error(
                matter.body_line,
                format!("the skill `{name}` has no instructions: write them below the front matter"),
            );
            return None;
        }
        if body.len() > MOST_TOLD {
            let message = format!(
                "the skill `{name}` has {} bytes of instructions, and a model is told {MOST_TOLD} of them: move what it needs \
                 at times into files beside this one",
                body.len()
            );
            problems.warning(matter.body_line, message);
        }
        let description = description.unwrap_or_else(|| inferred(body));
        Some(Self { name, file: file.to_owned(), description, body: body.into(), resources: Arc::default() })
    }
}

/// The first words of `body` that are no heading.
fn inferred(body: &str) -> String {
    let line = body.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let line = line.or_else(|| body.lines().next()).unwrap_or_default().trim_start_matches('#').trim();
    line[..line.floor_char_boundary(INFERRED)].to_owned()
}
