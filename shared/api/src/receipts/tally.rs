//! What the nodes of a run have recorded, as far as receipts tell of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use dormouse_ports::tool::{NotedEffects, WrittenFile};
use dormouse_ports::{JournalEntry, Records, StoreError};
use dormouse_protocol::Map;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::TaskId;
use serde::Deserialize;
use serde_json::Value;

/// Calls of tools, answers of models, and side effects, that a receipt lists one by one; it counts all of them.
pub(super) const MOST_LISTED: usize = 100;
/// Entries that are read at once.
const PAGE: usize = 200;
/// Field of the entry of a model call with the model.
const MODEL: &str = "gen_ai.request.model";
/// Number of tasks with known tallies.
const MOST_RECENT: usize = 64;

/// Sums of what was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskTally {
    /// By provider and model, in the order of their first calls.
    pub(crate) models: Vec<ModelUse>,
    /// Answers of models, the first ones.
    pub(crate) answers: Vec<ModelAnswer>,
    /// Calls of tools, the first ones.
    pub(crate) tools: Vec<ToolUse>,
    /// All of them.
    pub(crate) tool_calls: u64,
    /// Hosts that were asked, each for one purpose; the first ones.
    pub(crate) contacts: Vec<Contact>,
    /// Files that were written, the first ones.
    pub(crate) files: Vec<WrittenFile>,
    /// Agents that were asked, the first ones.
    pub(crate) handoffs: Vec<Handoff>,
    /// Number of side effects, and of answers of models, that are not listed.
    pub(crate) left_out: BTreeMap<&'static str, u64>,
    /// Reason that an agent gives for its end.
    pub(crate) reason: Option<String>,
}

/// A host that was asked for one purpose.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contact {
    pub(crate) host: String,
    pub(crate) purpose: String,
    pub(crate) calls: u64,
}

/// An agent that was asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Handoff {
    pub(crate) agent: String,
    pub(crate) task: String,
}

/// Use of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelUse {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost: f64,
}

impl ModelUse {
    /// Adds the usage that an entry tells of.
    fn add(&mut self, payload: &Map) {
        let tokens = |field| payload.get("usage").and_then(|usage| usage.get(field)?.as_u64()).unwrap_or_default();
        self.input_tokens = self.input_tokens.saturating_add(tokens("prompt_tokens"));
        self.output_tokens = self.output_tokens.saturating_add(tokens("completion_tokens"));
        self.cost += payload.get("cost").and_then(Value::as_f64).unwrap_or_default();
    }
}

/// An answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelAnswer {
    pub(crate) step: u64,
    pub(crate) request: Option<String>,
    pub(crate) response: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolUse {
    pub(crate) tool: String,
    pub(crate) call: String,
    pub(crate) failed: bool,
    pub(crate) input: Option<String>,
    pub(crate) output: Option<String>,
}

/// Entries that were recorded, and where those before them are.
#[derive(Clone, Copy)]
pub(crate) struct Recorded<'a> {
    /// Reads the stream.
    pub(crate) records: &'a dyn Records,
    /// The session of the task.
    pub(crate) stream: &'a str,
    /// The position of the first event of the task.
    pub(crate) first: u64,
    /// The task.
    pub(crate) task: &'a TaskId,
}

impl TaskTally {
    /// Adds an entry, as clients see it.
    pub(crate) fn add(&mut self, kind: &str, payload: &Map) {
        match kind {
            "span.completed" if text(payload, "gen_ai.operation.name") == Some("chat") => self.add_model(payload),
            "tool.completed" | "tool.failed" => {
                self.add_tool(payload, kind == "tool.failed");
                self.add_effects(payload);
            }
            "vendor.dormouse.tool_pending" | "vendor.dormouse.tool_asks" | "vendor.dormouse.tool_uncertain" => {
                self.add_effects(payload);
            }
            "vendor.dormouse.context_compacted" | "vendor.dormouse.context_kept" => self.add_summary(payload),
            "vendor.dormouse.answer_lost" => self.add_asked(payload),
            "vendor.dormouse.agent_asked" => self.add_handoff(payload),
            "vendor.dormouse.run_ended" => self.reason = text(payload, "reason").map(str::to_owned),
            _ => {}
        }
    }

    /// Adds `entries`.
    pub(crate) fn add_entries(&mut self, entries: &[JournalEntry]) {
        for entry in entries {
            self.add(entry.kind.as_str(), &redact::object(entry.payload.clone()));
        }
    }

    /// Adds a call of a model, whatever became of its answer.
    fn add_asked(&mut self, payload: &Map) {
        if let Some(server) = text(payload, "server.address") {
            self.add_contact(server, "model".to_owned());
        }
        self.add_use(payload);
    }

    fn add_model(&mut self, payload: &Map) {
        self.add_asked(payload);
        // What hooks ask of models is no step.
        if payload.contains_key("hook") {
            return;
        }
        if self.answers.len() < MOST_LISTED {
            let step = payload.get("step").and_then(Value::as_u64).unwrap_or_default();
            let request = digest(payload, "request_digest");
            let response = digest(payload, "response_digest");
            self.answers.push(ModelAnswer { step, request, response });
        } else {
            self.leave_out("materials");
        }
    }

    /// Adds the usage of the model that `payload` names.
    fn add_use(&mut self, payload: &Map) {
        let name = |field| text(payload, field).unwrap_or("unknown").to_owned();
        let provider = name("gen_ai.provider.name");
        let model = name(MODEL);
        let known = self.models.iter().position(|used| used.provider == provider && used.model == model);
        let place = known.unwrap_or(self.models.len());
        if known.is_none() {
            self.models.push(ModelUse { provider, model, ..ModelUse::default() });
        }
        if let Some(used) = self.models.get_mut(place) {
            used.add(payload);
        }
    }

    fn add_tool(&mut self, payload: &Map, failed: bool) {
        self.tool_calls += 1;
        if self.tools.len() < MOST_LISTED {
            self.tools.push(ToolUse {
                tool: text(payload, "tool").unwrap_or("unknown").to_owned(),
                call: text(payload, "tool_call_id").unwrap_or("unknown").to_owned(),
                failed,
                input: digest(payload, "input_digest"),
                output: digest(payload, "output_digest"),
            });
        }
    }

    /// Adds what was asked of a model for a summary of older messages. Where an earlier version did not record of which, it
    /// was the one that was asked last.
    fn add_summary(&mut self, payload: &Map) {
        match self.models.last_mut().filter(|_| !payload.contains_key(MODEL)) {
            _ if !payload.contains_key("usage") => {}
            Some(last) => last.add(payload),
            None => self.add_use(payload),
        }
    }

    fn add_effects(&mut self, payload: &Map) {
        let Some(Ok(NotedEffects { hosts, files })) = payload.get("side_effects").map(NotedEffects::deserialize) else {
            return;
        };
        let tool = text(payload, "tool").unwrap_or("unknown");
        for host in hosts.iter().filter(|host| !host.is_empty()) {
            self.add_contact(host, format!("tool {tool}"));
        }
        for file in files {
            match self.files.len() < MOST_LISTED {
                true => self.files.push(file),
                false => self.leave_out("fs_writes"),
            }
        }
    }

    fn add_contact(&mut self, host: &str, purpose: String) {
        let has_room = self.contacts.len() < MOST_LISTED;
        let mut known = self.contacts.iter_mut();
        match known.find(|known| known.host == host && known.purpose == purpose) {
            Some(known) => known.calls += 1,
            None if has_room => self.contacts.push(Contact { host: host.to_owned(), purpose, calls: 1 }),
            None => self.leave_out("network_egress"),
        }
    }

    fn add_handoff(&mut self, payload: &Map) {
        let (Some(agent), Some(task)) = (text(payload, "agent"), text(payload, "invocation_id")) else { return };
        match self.handoffs.len() < MOST_LISTED {
            true => self.handoffs.push(Handoff { agent: agent.to_owned(), task: task.to_owned() }),
            false => self.leave_out("a2a_handoffs"),
        }
    }

    fn leave_out(&mut self, kind: &'static str) {
        *self.left_out.entry(kind).or_default() += 1;
    }

    /// The tally of all that is in the stream of `recorded`.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn read(recorded: Recorded<'_>) -> Result<Self, StoreError> {
        let Recorded { records, stream, first, task } = recorded;
        let mut tally = Self::default();
        let mut after = first.saturating_sub(1);
        loop {
            let stretch = records.stretch(stream, after, PAGE).await?;
            for one in stretch.entries {
                after = one.position;
                let is_of_task = text(&one.entry, "task_id") == Some(task.as_str());
                if let (true, Some(kind), Some(Value::Object(payload))) =
                    (is_of_task, text(&one.entry, "event"), one.entry.get("payload"))
                {
                    tally.add(kind, payload);
                }
            }
            if !stretch.more {
                return Ok(tally);
            }
        }
    }
}

fn text<'a>(payload: &'a Map, name: &str) -> Option<&'a str> {
    payload.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// The digest `name` as receipts write it.
fn digest(payload: &Map, name: &str) -> Option<String> {
    let text = text(payload, name)?;
    let is_digest = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_digest.then(|| format!("sha256:{text}"))
}

/// Tallies of tasks that are under way in this process: their end reads nothing.
#[derive(Default)]
pub(crate) struct RecentTallies(Mutex<VecDeque<(TaskId, u64, TaskTally)>>);

impl RecentTallies {
    /// The tally of the first `recorded` entries of `task`, if it is known.
    pub(crate) fn get(&self, task: &TaskId, recorded: u64) -> Option<TaskTally> {
        if recorded == 0 {
            return Some(TaskTally::default());
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().find(|(id, count, _)| id == task && *count == recorded);
        found.map(|(_, _, tally)| tally.clone())
    }

    /// `tally` is that of the first `recorded` entries of `task`, which are written.
    pub(crate) fn note(&self, task: &TaskId, recorded: u64, tally: TaskTally) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(id, _, _)| id != task);
        known.truncate(MOST_RECENT - 1);
        known.push_front((task.clone(), recorded, tally));
    }

    /// `task` has ended.
    pub(crate) fn forget(&self, task: &TaskId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _, _)| id != task);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_is_of_the_model_that_wrote_it_and_of_the_last_where_that_is_not_known() {
        let entry = |more: Value| {
            let mut payload = json!({ "gen_ai.operation.name": "chat", "usage": { "prompt_tokens": 10 }, "cost": 0.5 });
            more.as_object().cloned().unwrap_or_default().into_iter().for_each(|(name, value)| payload[name] = value);
            payload.as_object().cloned().unwrap_or_default()
        };
        let of = |model: &str| entry(json!({ "gen_ai.provider.name": "openai", "gen_ai.request.model": model }));
        let mut tally = TaskTally::default();
        tally.add("span.completed", &of("large"));
        tally.add("span.completed", &of("small"));
        tally.add("vendor.dormouse.context_compacted", &of("large"));
        tally.add("vendor.dormouse.context_kept", &of("other"));
        tally.add("vendor.dormouse.context_compacted", &entry(json!({})));
        tally.add("vendor.dormouse.context_kept", &Map::new());
        tally.add("vendor.dormouse.answer_lost", &of("other"));
        let used: Vec<(&str, u64, f64)> =
            tally.models.iter().map(|used| (used.model.as_str(), used.input_tokens, used.cost)).collect();
        assert_eq!(used, [("large", 20, 1.0), ("small", 10, 0.5), ("other", 30, 1.5)]);
        assert_eq!(tally.answers.len(), 2, "a summary is no step, and no answer that was thrown away is");
    }

    #[test]
    fn answers_of_models_beyond_the_first_hundred_are_counted() {
        let chat = |more: Value| {
            let mut payload = json!({ "gen_ai.operation.name": "chat" });
            more.as_object().cloned().unwrap_or_default().into_iter().for_each(|(name, value)| payload[name] = value);
            payload.as_object().cloned().unwrap_or_default()
        };
        let mut tally = TaskTally::default();
        for step in 1..=102 {
            tally.add("span.completed", &chat(json!({ "step": step })));
            tally.add("span.completed", &chat(json!({ "step": step, "hook": "guard" })));
        }
        assert_eq!((tally.answers.len(), tally.answers[99].step), (100, 100));
        assert_eq!(tally.left_out, BTreeMap::from([("materials", 2)]));
    }
}
