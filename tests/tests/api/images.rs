//! Images of tools and messages: their model sees them, their bytes are kept once beside the state.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_agent::graph::graph;
use dormouse_api::{Agent, CallAnswer, Outside};
use dormouse_ports::model::{Block, CompletionRequest, ImageSource, Message};
use dormouse_ports::tool::{Effect, ToolContent, ToolOutput, ToolReply};
use serde_json::{Value, json};

use crate::cast::{ScriptedModel, Toolbox, calls, parts, results, says as answers, tool};
use crate::replays::{path_of, projected, replayed, world};
use crate::world::{MakesAgent, World, actor, ada, body, says, text};

/// What the camera takes.
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\nof a cat";

/// An agent that takes a picture where it is asked to, and the requests to its model.
struct Painter {
    model: Arc<ScriptedModel>,
    tools: Arc<Toolbox>,
}

impl Painter {
    fn new() -> Self {
        let model = ScriptedModel::new(|request: &CompletionRequest| {
            let last = request.messages.last().map(|message| json!(message)["content"].to_string());
            Ok(match last {
                Some(last) if last.contains("take a picture") => calls(&[("c1", "look", json!({ "to": "x" }))]),
                Some(_) | None => answers(&format!("I see {} pictures", shown(request).len())),
            })
        });
        let tools = Toolbox::new(vec![tool("look", Effect::Safe)], |_| {
            let image = ToolContent::Image { data: STANDARD.encode(PICTURE), media_type: "image/png".to_owned() };
            let content = vec![ToolContent::text("taken"), image];
            Ok(ToolReply::Done(ToolOutput { content, ..ToolOutput::default() }))
        });
        Self { model, tools }
    }

    fn agent(&self, takes_images: bool) -> MakesAgent {
        let (model, tools) = (self.model.clone(), self.tools.clone());
        let make = move |outside: &Outside| {
            let mut parts = parts("description: looks", model.clone(), tools.clone(), outside.clock.clone());
            parts.model.takes_images = takes_images;
            graph(parts.showing(outside.images.clone()))
        };
        ("helper", Agent::new(make))
    }

    fn last_request(&self) -> CompletionRequest {
        self.model.requests.lock().unwrap().last().cloned().unwrap()
    }
}

/// Bytes of the images in `request`, which are all inline.
fn shown(request: &CompletionRequest) -> Vec<String> {
    let blocks = |message: &Message| match message {
        Message::User { content } => content.blocks().unwrap_or_default().to_vec(),
        Message::Tool { images, .. } => images.clone(),
        Message::System { .. } | Message::Assistant(_) => Vec::new(),
    };
    let inline = |block: Block| match block {
        Block::Image { source: ImageSource::Inline { base64_data }, .. } => Some(base64_data),
        Block::Text { .. } => None,
        other @ (Block::Image { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. }) => {
            panic!("it was not read: {other:?}")
        }
    };
    request.messages.iter().flat_map(blocks).filter_map(inline).collect()
}

async fn run(world: &World, session: &str, mut task: Value) -> Value {
    task["persona_id"] = json!("persona_helper");
    let task = world.post(&format!("{session}/tasks"), task).await;
    world.work().await;
    let task = world.get(&path_of(&task)).await;
    assert_eq!(task["status"], "COMPLETED", "{task:#}");
    task
}

fn written(world: &World, image: &str) -> usize {
    world.written().matches(image).count()
}

#[tokio::test]
async fn a_model_sees_the_picture_of_a_tool_in_this_run_and_the_next_and_clients_fetch_it() {
    let painter = Painter::new();
    let (world, session) = world(&[painter.agent(true)]).await;
    let task = run(&world, &session, says("take a picture")).await;
    let picture = STANDARD.encode(PICTURE);
    assert_eq!(shown(&painter.last_request()), std::slice::from_ref(&picture));
    assert_eq!(results(&painter.last_request()), ["taken\n[image, image/png, 16 bytes]"]);
    assert_eq!(written(&world, &picture), 1, "its bytes stand once in the store, and in no state");

    let artifacts = world.get(&format!("/v1/artifacts?task_id={}", text(&task["id"]))).await;
    let image = artifacts["data"].as_array().unwrap().iter().find(|one| one["kind"] == "image").unwrap().clone();
    assert_eq!((&image["mime_type"], &image["metadata"]["bytes"]), (&json!("image/png"), &json!(PICTURE.len())));
    let path = format!("/v1/artifacts/{}/content", text(&image["id"]));
    let content = world.call(ada(), "GET", &path, &Value::Null, None).await;
    let bytes = PICTURE.to_vec();
    assert_eq!(content, Ok(CallAnswer::Bytes { content_type: "image/png".to_owned(), bytes }));

    run(&world, &session, says("what did you see?")).await;
    assert_eq!(shown(&painter.last_request()), std::slice::from_ref(&picture), "in a later run of the session");
    let fork = world.post(&format!("{session}/fork"), json!({})).await;
    let fork = format!("/v1/sessions/{}", text(&fork["id"]));
    run(&world, &fork, says("and here?")).await;
    assert_eq!(shown(&painter.last_request()), std::slice::from_ref(&picture), "in a fork");

    let parts = json!([{ "type": "text", "text": "Again?", "visibility": "public" },
        { "type": "image_ref", "artifact_id": image["id"], "mime_type": "image/png", "visibility": "public" }]);
    run(&world, &session, json!({ "input": { "role": "user", "parts": parts } })).await;
    assert_eq!(shown(&painter.last_request()), [picture.clone(), picture.clone()], "as a part of a message");
    assert_eq!(written(&world, &picture), 1, "still once");
}

#[tokio::test]
async fn a_run_with_a_picture_is_replayed_without_it() {
    let painter = Painter::new();
    let (world, session) = world(&[painter.agent(true)]).await;
    let task = run(&world, &session, says("take a picture")).await;
    let asked = (painter.model.calls(), painter.tools.made().len());
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!(replay["status"], "COMPLETED", "{replay:#}");
    assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
    assert_eq!((painter.model.calls(), painter.tools.made().len()), asked, "nothing outside is asked");
}

#[tokio::test]
async fn a_model_that_takes_no_images_is_told_in_words_and_how_that_is_changed() {
    let painter = Painter::new();
    let (world, session) = world(&[painter.agent(false)]).await;
    run(&world, &session, says("take a picture")).await;
    let result = results(&painter.last_request()).remove(0);
    assert!(result.contains("cannot be shown to you") && result.contains("`input: [text, image]`"), "{result}");
    assert_eq!(written(&world, &STANDARD.encode(PICTURE)), 0, "nothing is kept");
    let picture = register(&world, &session, &address("A")).await;
    run(&world, &session, json!({ "input": { "role": "user", "parts": [image_ref(&picture)] } })).await;
    let last = json!(painter.last_request().messages.last());
    let words = text(&last["content"]);
    assert!(words.contains("an image, which cannot be shown to you") && words.contains("input"), "{words}");
}

/// A PNG of that name in Base64.
fn png(name: &str) -> String {
    STANDARD.encode([b"\x89PNG\r\n\x1a\n", name.as_bytes()].concat())
}

fn address(name: &str) -> String {
    format!("data:image/png;base64,{}", png(name))
}

fn image_ref(artifact: &Value) -> Value {
    json!({ "type": "image_ref", "artifact_id": artifact["id"], "mime_type": "image/png", "visibility": "public" })
}

async fn register(world: &World, session: &str, uri: &str) -> Value {
    let session = session.rsplit('/').next().unwrap();
    let request = json!({ "kind": "image", "mime_type": "image/png", "uri": uri, "visibility": "public",
        "sha256": null, "workspace_id": null, "session_id": session, "task_id": null });
    world.post("/v1/artifacts", request).await
}

#[tokio::test]
async fn of_the_pictures_of_messages_those_are_shown_that_are_here_and_of_this_workspace() {
    let painter = Painter::new();
    let (world, session) = world(&[painter.agent(true)]).await;
    let here = register(&world, &session, &address("A")).await;
    let fake = register(&world, &session, "data:image/png;base64,AAAA").await;
    let far = register(&world, &session, "https://example.com/a.png").await;
    let other = world.session().await;
    let other = register(&world, &other, &address("B")).await;
    let stranger = actor("eve", "evil", None);
    let theirs = json!({ "kind": "image", "mime_type": "image/png", "uri": address("C"),
        "visibility": "public", "sha256": null, "workspace_id": null, "session_id": null, "task_id": null });
    let theirs = body(world.call(stranger, "POST", "/v1/artifacts", &theirs, None).await.unwrap());
    let all = [&here, &fake, &far, &other, &theirs].map(image_ref);
    run(&world, &session, json!({ "input": { "role": "user", "parts": all } })).await;
    assert_eq!(shown(&painter.last_request()), [png("A")]);
    let last = json!(painter.last_request().messages.last()).to_string();
    assert_eq!(last.matches("its bytes are not here").count(), 4, "{last}");
}
