use dormouse_engine::Delay;
use serde::Serialize;
use wildmatch::WildMatch;

use super::fields::{Fields, text_of};
use super::problem::FileProblems;
use super::yaml::Node;

/// Which calls of tools wait for a person, and for how long (`policy.approval`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApprovalPolicy {
    /// True if every tool that is not safe waits (`approval: manual`).
    pub manual: bool,
    /// Patterns of native tools.
    pub native: Vec<String>,
    /// Patterns of actions.
    pub actions: Vec<String>,
    /// Patterns of tools of servers, with their prefix.
    pub external: Vec<String>,
    /// Time after which a call that nobody decided on is denied; three days when absent.
    pub deny_after: Option<String>,
    /// Time after which the people who were asked are reminded.
    pub remind_after: Option<String>,
}

/// Where a tool comes from.
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

impl ApprovalPolicy {
    /// True if a call of the tool `name` waits; `is_safe` as its effect says.
    pub fn asks(&self, origin: ToolOrigin, name: &str, is_safe: bool) -> bool {
        let patterns = match origin {
            ToolOrigin::Native => &self.native,
            ToolOrigin::Action => &self.actions,
            ToolOrigin::External => &self.external,
            ToolOrigin::Skill | ToolOrigin::Agent => return false,
        };
        (self.manual && !is_safe) || patterns.iter().any(|pattern| WildMatch::new(pattern).matches(name))
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
        }
    }

    /// The policy where the one that was written cannot be read: better one question too many.
    pub(crate) fn everything() -> Self {
        let all = || vec!["*".to_owned()];
        Self { manual: true, native: all(), actions: all(), external: all(), ..Self::default() }
    }

    pub(crate) fn read(node: &Node, problems: &mut FileProblems<'_>) -> Self {
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

    fn of_fields(node: &Node, problems: &mut FileProblems<'_>) -> Self {
        let mut fields = Fields::of(node, "`approval`", problems);
        let policy = Self {
            manual: fields.boolean("manual", problems).unwrap_or_default(),
            native: fields.texts("native", problems).unwrap_or_default(),
            actions: fields.texts("actions", problems).unwrap_or_default(),
            external: fields.texts("external", problems).unwrap_or_default(),
            deny_after: time(&mut fields, "deny_after", problems),
            remind_after: time(&mut fields, "remind_after", problems),
        };
        fields.finish(problems);
        policy
    }
}

/// A time as ISO 8601 writes it, from one second.
fn time(fields: &mut Fields<'_>, name: &'static str, problems: &mut FileProblems<'_>) -> Option<String> {
    let node = fields.get(name)?;
    let text = text_of(node).unwrap_or_default();
    match text.parse::<Delay>() {
        Ok(_) => Some(text),
        Err(error) => {
            problems.error(node.line, format!("`{name}` must be a time such as `P3D` or `PT1H`: {error}"));
            None
        }
    }
}
