//! What agents are told of the place where they work.

use std::sync::Arc;

use dormouse_ports::execution::ExecutionBackend;

use super::parts::AgentParts;
use super::run::AgentRun;
use crate::memory;

/// Where an agent works, for its instructions.
#[derive(Clone, Debug)]
pub struct EnvironmentPart {
    /// The place; `None` where it has none to work in.
    pub place: Option<Arc<dyn ExecutionBackend>>,
    /// The instructions behind the summary.
    pub behind: String,
}

/// The summary for `run`: that of its first step, so that what a provider has cached of its conversation stays good. `None`
/// where agents are told none.
pub(crate) async fn summary(parts: &AgentParts, run: &AgentRun) -> Option<String> {
    let environment = parts.environment.as_ref()?;
    if !run.environment.is_empty() {
        return Some(run.environment.clone());
    }
    let mut text = format!("<environment>\ndate: {}\n", parts.clock.now().strftime("%Y-%m-%d"));
    if let Some(place) = &environment.place {
        for (name, value) in place.facts().await {
            text.push_str(&format!("{name}: {value}\n"));
        }
    }
    text.push_str("</environment>");
    Some(text)
}

/// The instructions of the agent, with the summary of its environment in its place, and what its session remembers behind
/// them.
pub(crate) fn instructions(parts: &AgentParts, run: &AgentRun) -> String {
    let (environment, behind) = match &parts.environment {
        Some(part) => (run.environment.as_str(), part.behind.as_str()),
        None => ("", ""),
    };
    let remembered = if parts.remembers { memory::told(&run.remembered_now()) } else { None };
    let texts = [parts.instructions.as_str(), environment, behind, remembered.as_deref().unwrap_or_default()];
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}
