use std::collections::BTreeMap;

use dormouse_engine::Delay;
use serde::Serialize;
use wildmatch::WildMatch;

use super::fields::{Fields, text_of};
use super::problem::FileProblems;
use super::yaml::YamlNode;

/// Which calls of tools wait for a person, and for how long (`policy.approval`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApprovalPolicy {
    /// True if every tool that is not safe waits (`approval: manual`).
    pub manual: bool,
    /// Patterns of native tools.
    pub native: Vec<String>,
    /// Patterns of actions.
    pub actions: Vec<String>,
    /// Patterns of tools of servers, by any of their names: `track`, `post.track` with a prefix, `parcels.track` and
    /// `parcels` with the server's name.
    pub external: Vec<String>,
    /// Time after which a call without a decision is denied; three days when absent.
    pub deny_after: Option<String>,
    /// Time after which the people who were asked are reminded.
    pub remind_after: Option<String>,
    /// Channels over which notifications go out, as the operator has described them, each with the time after which.
    pub notify: BTreeMap<String, String>,
    /// Line on which it is written; absent where it is not.
    #[serde(skip)]
    pub(crate) line: Option<usize>,
}

/// Origin of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// Of Dormouse itself, or of the crate that runs the agent.
    Native,
    /// An action of the workspace.
    Action,
    /// A server or an HTTP tool.
    External,
    /// Skills, which are only read.
    Skill,
    /// Other agents.
    Agent,
}

impl ToolOrigin {
    /// Its name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Action => "action",
            Self::External => "external",
            Self::Skill => "skill",
            Self::Agent => "agent",
        }
    }
}

impl ApprovalPolicy {
    /// True if a call of a tool waits that people call by any of `names`; `is_harmless` says that it is known to change
    /// nothing, or declared safe.
    pub fn asks(&self, origin: ToolOrigin, names: &[impl AsRef<str>], is_harmless: bool) -> bool {
        let patterns = match origin {
            ToolOrigin::Native => &self.native,
            ToolOrigin::Action => &self.actions,
            ToolOrigin::External => &self.external,
            ToolOrigin::Skill | ToolOrigin::Agent => return false,
        };
        (self.manual && !is_harmless) || matches(patterns, names)
    }

    /// What either of the two asks for; the shorter time is not chosen: that of `self` counts where it sets one.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let both = |mine: &[String], theirs: &[String]| mine.iter().chain(theirs).cloned().collect();
        Self {
            manual: self.manual || other.manual,
            native: both(&self.native, &other.native),
            actions: both(&self.actions, &other.actions),
            external: both(&self.external, &other.external),
            deny_after: self.deny_after.clone().or_else(|| other.deny_after.clone()),
            remind_after: self.remind_after.clone().or_else(|| other.remind_after.clone()),
            notify: other.notify.iter().chain(&self.notify).map(|(to, after)| (to.clone(), after.clone())).collect(),
            line: self.line.or(other.line),
        }
    }

    /// True if there may be a call that waits.
    pub fn asks_for_any(&self) -> bool {
        self.manual || [&self.native, &self.actions, &self.external].iter().any(|patterns| !patterns.is_empty())
    }

    /// That of the field `approval` of `fields`.
    pub(crate) fn of(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Self {
        let policy = fields.get("approval").map(|node| Self::read(node, problems)).unwrap_or_default();
        Self { line: fields.line_of("approval"), ..policy }
    }

    /// The policy where the one that was written cannot be read: better one question too many.
    pub(crate) fn everything() -> Self {
        let all = || vec!["*".to_owned()];
        Self { manual: true, native: all(), actions: all(), external: all(), ..Self::default() }
    }

    fn read(node: &YamlNode, problems: &mut FileProblems<'_>) -> Self {
        if node.as_map().is_some() {
            return Self::of_fields(node, problems);
        }
        if text_of(node).is_some_and(|text| text == "manual") {
            return Self { manual: true, ..Self::default() };
        }
        let message = "`approval` must be `manual`, or patterns under `native`, `actions` and `external`";
        problems.error(node.line, format!("{message}; it is {}", node.kind()));
        Self::everything()
    }

    fn of_fields(node: &YamlNode, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`approval`", problems);
        for list in ["native", "actions", "external"] {
            note(list, &mut fields, problems);
        }
        let policy = Self {
            manual: fields.boolean("manual", problems).unwrap_or_default(),
            native: fields.texts("native", problems).unwrap_or_default(),
            actions: fields.texts("actions", problems).unwrap_or_default(),
            external: fields.texts("external", problems).unwrap_or_default(),
            deny_after: time(&mut fields, "deny_after", problems),
            remind_after: time(&mut fields, "remind_after", problems),
            notify: channels(&mut fields, problems),
            line: None,
        };
        fields.finish(problems);
        policy
    }
}

/// Notes where the patterns of `list` stand: their names may stand elsewhere in the file, too.
fn note(list: &'static str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) {
    let Some(node) = fields.get(list) else { return };
    for item in node.as_list().unwrap_or(std::slice::from_ref(node)) {
        if let Some(pattern) = text_of(item) {
            problems.note(&listed(list, &pattern), item.line);
        }
    }
}

/// The name under which the place of `pattern` in `list` is noted.
pub(crate) fn listed(list: &str, pattern: &str) -> String {
    format!("approval.{list}: {pattern}")
}

/// True if one of `names` is meant by one of `patterns`.
pub(crate) fn matches<'p>(patterns: impl IntoIterator<Item = &'p String>, names: &[impl AsRef<str>]) -> bool {
    patterns
        .into_iter()
        .map(|pattern| WildMatch::new(pattern))
        .any(|pattern| names.iter().any(|name| pattern.matches(name.as_ref())))
}

/// True for a pattern that is a name.
pub(crate) fn is_exact(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// The most channels of one policy: a ladder of deadlines has a reminder and an end as well.
const MOST_CHANNELS: usize = 6;
/// The same of the policies of an agent and of the settings together.
pub(super) const MOST_CHANNELS_OF_BOTH: usize = 8;

/// Channels, each with the time after which it is used.
fn channels(fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> BTreeMap<String, String> {
    let Some(node) = fields.get("notify") else { return BTreeMap::new() };
    let Some(entries) = node.as_map().filter(|entries| (1..=MOST_CHANNELS).contains(&entries.len())) else {
        let message = format!("`notify` must be 1 to {MOST_CHANNELS} channels with times, such as `{{ops: PT1S}}`");
        problems.error(node.line, message);
        return BTreeMap::new();
    };
    let mut read = BTreeMap::new();
    for entry in entries {
        let text = text_of(&entry.value).unwrap_or_default();
        match text.parse::<Delay>() {
            Ok(after) if !after.length().is_zero() => {
                read.insert(entry.key.clone(), text);
            }
            Ok(_) | Err(_) => {
                let message = format!("`notify.{}` must be a time from one second on, such as `PT1S`", entry.key);
                problems.error(entry.value.line, message);
            }
        }
    }
    read
}

/// A time as ISO 8601 writes it, from one second.
fn time(fields: &mut Fields<'_>, name: &'static str, problems: &mut FileProblems<'_>) -> Option<String> {
    let node = fields.get(name)?;
    let text = text_of(node).unwrap_or_default();
    match text.parse::<Delay>() {
        Ok(time) if time.length().is_zero() => {
            problems.error(
                node.line,
                format!("`{name}` must be a time from one second on, such as `P3D`, and is `{text}`"),
            );
            None
        }
        Ok(_) => Some(text),
        Err(error) => {
            problems.error(node.line, format!("`{name}` must be a time such as `P3D` or `PT1H`: {error}"));
            None
        }
    }
}
