//! Runs of one session of which one sleeps while others go on.

use std::sync::Arc;

use dormouse_agent::SessionMemory;
use dormouse_agent::graph::{ToolPart, graph};
use dormouse_agent::workspace::ToolOrigin;
use dormouse_api::{Agent, Outside};
use dormouse_ports::model::CompletionRequest;
use dormouse_ports::tool::{Effect, ToolOutput, ToolReply};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, says as answers, tool};
use crate::replays::{path_of, world};
use crate::world::{MakesAgent, World, says, text};

/// An agent that asks before it sends, and remembers.
fn helper(model: &Arc<ScriptedModel>) -> MakesAgent {
    let model = model.clone();
    let make = move |outside: &Outside| {
        let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], |call| {
            Ok(ToolReply::Done(ToolOutput::text(format!("{}: done", call.name))))
        });
        let matter = "policy: {approval: {external: [send]}}";
        let mut parts = parts(matter, model.clone(), tools, outside.clock.clone());
        parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
        parts.remembers = true;
        parts.tools.push(ToolPart {
            name: "session_memory".to_owned(),
            origin: ToolOrigin::Native,
            expose: Default::default(),
            source: Arc::new(SessionMemory),
        });
        SessionMemory::give_to(&mut parts.agent);
        graph(parts)
    };
    ("helper", Agent::new(make))
}

/// What the user said last, and the number of answers of the model since.
fn asked(request: &CompletionRequest) -> (String, usize) {
    let at = request.messages.iter().rposition(|message| message.role() == "user").expect("a user");
    let since = request.messages[at..].iter().filter(|message| message.role() == "assistant").count();
    (text(&json!(request.messages[at])["content"]).to_owned(), since)
}

async fn task(world: &World, session: &str, words: &str) -> Value {
    let mut body = says(words);
    body["persona_id"] = json!("persona_helper");
    let task = world.post(&format!("{session}/tasks"), body).await;
    world.work().await;
    world.get(&path_of(&task)).await
}

async fn approved(world: &World, task: &Value) {
    assert_eq!(task["status"], "AUTH_REQUIRED", "{task:#}");
    let parts = json!([{ "type": "json", "value": { "approved": true }, "visibility": "public" }]);
    let yes = json!({ "kind": "tool_confirmation", "message": { "role": "user", "parts": parts } });
    world.post(&format!("{}/messages", path_of(task)), yes).await;
    world.work().await;
    assert_eq!(world.get(&path_of(task)).await["status"], "COMPLETED");
}

#[tokio::test]
async fn runs_of_a_session_at_the_same_time_keep_the_notes_of_each_other() {
    let note = |name: &str| calls(&[(name, "Remember", json!({ "name": name, "text": format!("text of {name}") }))]);
    let model = ScriptedModel::new(move |request| {
        let (words, since) = asked(request);
        Ok(match (words.as_str(), since) {
            ("slow", 0) => note("a"),
            ("slow", 1) => calls(&[("s", "send", json!({ "to": "ada" }))]),
            ("slow", 2) => note("c"),
            ("fast", 0) => note("b"),
            (_, _) => answers("done"),
        })
    });
    let (world, session) = world(&[helper(&model)]).await;
    let slow = task(&world, &session, "slow").await;
    task(&world, &session, "fast").await;
    approved(&world, &slow).await;
    task(&world, &session, "what do you know").await;
    let told = json!(model.last().messages[0])["content"].to_string();
    for name in ["a", "b", "c"] {
        assert!(told.contains(&format!("text of {name}")), "{name} is missing: {told}");
    }
}

