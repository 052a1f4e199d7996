//! Images of tools and messages: their model sees them, their bytes are kept once beside the state.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_agent::graph::graph;
use dormouse_api::{Agent, CallAnswer, Outside, StoredImages};
use dormouse_ports::model::{Block, CompletionRequest, ImageSource, Message};
use dormouse_ports::tool::{Effect, ToolContent, ToolOutput, ToolReply};
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, DocumentKey, DocumentWrite, IMAGE_BYTES, Image,
    ImageOwner, Images, Journal, Map, Records, StoreError,
};
use dormouse_testkit::{CountingIds, ManualClock, MemoryStore};
use jiff::Timestamp;
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
        Self::taking(1)
    }

    /// One that gives the picture so often.
    fn taking(times: usize) -> Self {
        let model = ScriptedModel::new(|request: &CompletionRequest| {
            let last = request.messages.last().map(|message| json!(message)["content"].to_string());
            Ok(match last {
                Some(last) if last.contains("take a picture") => calls(&[("c1", "look", json!({ "to": "x" }))]),
                Some(_) | None => answers(&format!("I see {} pictures", shown(request).len())),
            })
        });
        let tools = Toolbox::new(vec![tool("look", Effect::Safe)], move |_| {
            let image = ToolContent::Image { data: STANDARD.encode(PICTURE), media_type: "image/png".to_owned() };
            let images = std::iter::repeat_n(image, times);
            let content = std::iter::once(ToolContent::text("taken")).chain(images).collect();
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
    assert_eq!(format!("sha256:{}", text(&image["sha256"])), dormouse_receipts::canonical::sha256(PICTURE));
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
async fn a_tool_that_gives_a_picture_twice_has_given_one() {
    let painter = Painter::taking(2);
    let (world, session) = world(&[painter.agent(true)]).await;
    let task = run(&world, &session, says("take a picture")).await;
    assert_eq!(painter.tools.made().len(), 1, "the step is made once");
    assert_eq!(shown(&painter.last_request()), [STANDARD.encode(PICTURE)]);
    let artifacts = world.get(&format!("/v1/artifacts?task_id={}", text(&task["id"]))).await;
    let images = artifacts["data"].as_array().unwrap().iter().filter(|one| one["kind"] == "image");
    assert_eq!(images.count(), 1);
    let replay = replayed(&world, &path_of(&task), json!({})).await;
    assert_eq!(projected(&world, &replay).await, projected(&world, &task).await);
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
    let named = format!("[an image, image/png, artifact {}, which cannot be shown to you: ", text(&picture["id"]));
    assert!(words.contains(&named) && words.contains("input"), "{words}");
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

#[tokio::test]
async fn a_truncation_before_a_message_with_a_picture_takes_that_away() {
    let painter = Painter::new();
    let (world, whole) = world(&[painter.agent(true)]).await;
    let here = register(&world, &whole, &address("A")).await;
    run(&world, &whole, says("hello")).await;
    let empty = json!({ "type": "text", "text": "", "visibility": "public" });
    let words = json!({ "type": "text", "text": "look", "visibility": "public" });
    let mut internal = image_ref(&here);
    internal["visibility"] = json!("internal");
    for (parts, by_task, pictures) in [
        (json!([empty, image_ref(&here)]), true, 1),
        (json!([words, empty, image_ref(&here), words]), true, 1),
        (json!([words, internal]), true, 0),
        (json!([words, internal]), false, 0),
    ] {
        let fork = world.post(&format!("{whole}/fork"), json!({})).await;
        let session = format!("/v1/sessions/{}", text(&fork["id"]));
        let message = json!({ "role": "user", "parts": parts });
        if by_task {
            run(&world, &session, json!({ "input": message })).await;
        } else {
            world.post(&format!("{session}/messages"), json!({ "message": message })).await;
            run(&world, &session, says("and this?")).await;
        }
        assert_eq!(shown(&painter.last_request()).len(), pictures, "{parts}");
        world.post(&format!("{session}/truncate"), json!({ "keep_first": 2 })).await;
        run(&world, &session, says("what is left?")).await;
        let told = json!(painter.last_request().messages);
        let roles: Vec<&str> = told.as_array().unwrap().iter().map(|message| text(&message["role"])).collect();
        assert_eq!(roles, ["system", "user", "assistant", "user"], "{parts}: {told:#}");
    }
}

/// A store that notes which documents are written.
#[derive(Default)]
struct Noting {
    store: Arc<MemoryStore>,
    written: Mutex<Vec<DocumentKey>>,
}

#[async_trait]
impl Commits for Noting {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.written.lock().unwrap().extend(commit.journal.documents.iter().map(|write| write.key.clone()));
        self.store.commit(commit).await
    }
}

impl Noting {
    /// Images of a process that begins.
    fn images(self: &Arc<Self>) -> StoredImages {
        let clock = Arc::new(ManualClock::default());
        StoredImages::new(self.store.clone(), self.clone(), Arc::new(CountingIds::default()), clock)
    }

    /// Writes what is no image in the place of the one that was written as number `at`.
    async fn tear(&self, at: usize) {
        let key = self.written.lock().unwrap()[at].clone();
        let expect = self.store.document(&key, Timestamp::UNIX_EPOCH).await.unwrap().unwrap().version;
        let body = Some(Map::from_iter([("data".to_owned(), json!("no Base64!"))]));
        let write = DocumentWrite { key, expect, body, listed: Vec::new(), expires_at: None };
        let journal = Journal::new(vec![write], Vec::new());
        self.store.commit(&Commit { journal, ..Commit::new("tear", Timestamp::UNIX_EPOCH) }).await.unwrap();
    }
}

fn owner() -> ImageOwner {
    let (tenant, session) = (Some("acme".to_owned()), Some("session_1".into()));
    ImageOwner { tenant, workspace: None, session, invocation: "run".into() }
}

fn picture(name: &str, bytes: usize) -> Image {
    let mut bytes = vec![0; bytes];
    bytes[..8].copy_from_slice(b"\x89PNG\r\n\x1a\n");
    bytes[8..8 + name.len()].copy_from_slice(name.as_bytes());
    Image { media_type: "image/png".to_owned(), bytes }
}

#[tokio::test]
async fn a_picture_that_cannot_be_read_is_one_that_is_not_here() {
    let store = Arc::new(Noting::default());
    let id = store.images().keep(&owner(), &picture("A", 16)).await.unwrap();
    assert_eq!(store.images().image(&owner(), &id).await, Ok(Some(picture("A", 16))));
    store.tear(0).await;
    assert_eq!(store.images().image(&owner(), &id).await, Ok(None));
}

#[tokio::test]
async fn a_picture_that_is_kept_already_is_not_written_once_more() {
    let store = Arc::new(Noting::default());
    let images = store.images();
    let id = images.keep(&owner(), &picture("A", 16)).await;
    assert_eq!(images.keep(&owner(), &picture("A", 16)).await, id);
    assert_eq!(store.images().keep(&owner(), &picture("A", 16)).await, id, "in another process");
    assert_eq!(store.written.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_pictures_that_were_used_last_stay_at_hand() {
    let store = Arc::new(Noting::default());
    let images = store.images();
    let first = images.keep(&owner(), &picture("A", IMAGE_BYTES)).await.unwrap();
    for name in ["B", "C", "D"] {
        images.keep(&owner(), &picture(name, IMAGE_BYTES)).await.unwrap();
    }
    store.tear(0).await;
    assert!(images.image(&owner(), &first).await.unwrap().is_some());
    images.keep(&owner(), &picture("E", IMAGE_BYTES)).await.unwrap();
    assert!(images.image(&owner(), &first).await.unwrap().is_some(), "the one that was not used for longest has gone");
}
