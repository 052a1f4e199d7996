//! Cases that call a model: a provider of ours on a wire that the fixture scripts (llm-provider).

mod clock;
mod end;
mod expect;
mod node;
mod prompts;
mod run;
mod spec;
mod tool;
mod wire;

use crate::Failure;

pub(crate) use expect::checks_invariant;
pub(crate) use node::{ModelCallSpec, NodeModel, NodeModelSpec, SYNTHETIC, WrapperCallSpec};
pub(crate) use prompts::PromptUse;
pub(crate) use spec::ModelCase;
pub(crate) use tool::ToolCallSpec;

/// Runs the case.
pub(crate) async fn run(case: &ModelCase) -> Result<(), Failure> {
    run::run(case).await
}
