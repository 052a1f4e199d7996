//! Hooks as they answered.

use std::sync::Arc;

use async_trait::async_trait;
use dormouse_ports::Map;
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler};
use serde::Deserialize;
use serde_json::Value;

use super::past::{Past, text};

/// Answers as a hook of the run did, time by time.
pub(super) struct RecordedHook {
    name: String,
    past: Arc<Past>,
}

impl std::fmt::Debug for RecordedHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedHook").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RecordedHook {
    pub(super) fn handler(name: &str, past: &Arc<Past>) -> Arc<dyn HookHandler> {
        Arc::new(Self { name: name.to_owned(), past: past.clone() })
    }

    fn lacks(&self, reason: &str) -> HookFailure {
        self.past.material.lack("host_fact", format!("host:hook:{}", self.name), reason);
        HookFailure(reason.to_owned())
    }
}

#[async_trait]
impl HookHandler for RecordedHook {
    async fn handle(&self, _: &Value) -> Result<HookAnswer, HookFailure> {
        let Some(entry) = self.past.take_hook(&self.name) else {
            return Err(self.lacks("the hook did not run then"));
        };
        let answer = entry.material.get("answer").and_then(Value::as_object);
        match answer {
            Some(answer) => said(answer),
            // Silence is not recorded.
            None if text(&entry.payload, "status") == Some("passed") => Ok(HookAnswer::default()),
            None => Err(self.lacks("what the hook answered was not recorded")),
        }
    }
}

fn said(answer: &Map) -> Result<HookAnswer, HookFailure> {
    if let Some(message) = text(answer, "failed") {
        return Err(HookFailure(message.to_owned()));
    }
    let text = text(answer, "text").unwrap_or_default().to_owned();
    let model_call = answer.get("model_call").and_then(|call| Deserialize::deserialize(call).ok());
    Ok(HookAnswer { text, blocks: answer.get("blocks") == Some(&Value::Bool(true)), model_call })
}
