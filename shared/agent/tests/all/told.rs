//! What observers that read calls are told of the tools of an agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, message, parts, results, says, tool};
use dormouse::testing::TestBed;
use dormouse::{Agents, json};
use dormouse_agent::graph;
use dormouse_engine::{FrameworkEvent, NodeError, NodeEvent, Observer, Phases};
use dormouse_ports::model::{ModelError, ModelErrorCategory};
use dormouse_ports::tool::{Effect, Pending, ToolError, ToolOutput, ToolReply};

use crate::runs::MATTER;

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

#[async_trait::async_trait]
impl Observer for Told {
    async fn observe(&self, event: &NodeEvent) -> Result<(), NodeError> {
        let failed = event.error.iter().map(|error| format!("{} failed: {}", event.node_name, error.message));
        self.0.lock().expect("no test panicked").extend(failed);
        Ok(())
    }

    async fn observe_framework(&self, event: &FrameworkEvent) -> Result<(), NodeError> {
        let line = match event {
            FrameworkEvent::ToolCall(event) => {
                let (call, request) = (&event.call, &event.request);
                let id = request.tool_call_id.as_deref().unwrap_or_default();
                format!("{} {id} {} in {}: {}", call.call_id, request.tool_name, call.node_name(), event.result)
            }
            FrameworkEvent::ToolCallFailed(event) => {
                let kind = event.error_type.as_deref().unwrap_or_default();
                format!("{} in {}: {kind}: {}", event.request.tool_name, event.call.node_name(), event.error_message)
            }
            FrameworkEvent::FailureIsolated(_)
            | FrameworkEvent::MetadataAugmented(_)
            | FrameworkEvent::CheckpointSaved(_)
            | FrameworkEvent::OperationEnded(_)
            | FrameworkEvent::LlmCompletion(_)
            | FrameworkEvent::LlmFailed(_)
            | FrameworkEvent::LlmToken(_) => return Ok(()),
        };
        self.0.lock().expect("no test panicked").push(line);
        Ok(())
    }
}

/// The agent of `model` and `tools`, and what its observer is told.
fn observed(model: Arc<ScriptedModel>, tools: Arc<Toolbox>) -> (TestBed, Told) {
    let told = Told::default();
    let attached = told.clone();
    let bed = TestBed::new(&Agents::new().graph(move |outside| {
        let graph = graph::graph(parts(MATTER, model.clone(), tools.clone(), outside.clock.clone()))?;
        graph.attach_observer(Arc::new(attached.clone()), Phases::default());
        Ok(graph)
    }));
    (bed, told)
}

#[test]
fn each_call_of_a_tool_is_told_once_and_as_of_the_node_that_made_it() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[
                ("c1", "look", json!({ "to": "ada" })),
                ("c2", "order", json!({ "to": "bob" })),
                ("c3", "fail", json!({ "to": "eve" })),
            ]),
            _ => says("done"),
        })
    });
    let offered = ["look", "order", "fail"].map(|name| tool(name, Effect::Safe)).to_vec();
    let tools = Toolbox::new(offered, |call| match call.name.as_str() {
        "look" => Ok(ToolReply::Done(ToolOutput::text("seen"))),
        "order" => Ok(ToolReply::Pending(Pending { timeout: Some(Duration::from_secs(60)), ..Pending::default() })),
        _ => Err(ToolError::permanent("out of order")),
    });
    let (mut bed, told) = observed(model, tools);
    let run = bed.start("helper", message("go on"));
    assert!(bed.status(&run).is_asleep());
    bed.answer(&run, json!({ "ordered": true })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let lines = told.0.lock().unwrap().clone();
    let [look, fail, order] = &lines[..] else { panic!("{lines:#?}") };
    assert!(look.ends_with(" c1 look in tools: \"seen\""), "{look}");
    assert_eq!(fail, "fail in tools: permanent: out of order");
    assert!(order.ends_with(" c2 order in tools: \"{\\\"ordered\\\":true}\""), "{order}");
    let ids: Vec<_> = [look, order].iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn the_words_in_which_a_provider_refuses_a_request_are_for_people_and_not_for_observers() {
    let model = ScriptedModel::new(|_| {
        let refused = ModelError::new(ModelErrorCategory::InvalidRequest, "status 422: 'input': 'hush'");
        Err(ModelError { status: Some(422), ..refused })
    });
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| Ok(ToolReply::Done(ToolOutput::text("seen"))));
    let (mut bed, told) = observed(model, tools);
    // Observers are told beside the run, the last one by the time of the next.
    for _ in 0..3 {
        let refused = bed.try_start("helper", message("hush")).expect_err("its model refuses");
        assert!(refused.message.contains("hush"), "{refused}");
    }
    let lines = told.0.lock().unwrap();
    assert!(!lines.is_empty());
    assert!(lines.iter().all(|line| line == "model failed: the provider answered with status 422"), "{lines:?}");
}
