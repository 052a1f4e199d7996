//! Images of tools: which of them a model is shown, and what it is told of the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::answers::Nobody;
use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use crate::hooks::hook;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse::testing::TestBed;
use dormouse::{Agents, Map, Value, json};
use dormouse_agent::graph::{self, AgentParts};
use dormouse_agent::workspace::{HookCapability, HookEvent};
use dormouse_ports::hook::{HookAnswer, HookFailure, HookHandler};
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, Block, CallOptions, CompletionRequest, Message, ModelError,
    ModelErrorCategory, ModelIdentity, ModelProvider, Response, StartedJob,
};
use dormouse_ports::tool::{Effect, ToolContent, ToolOutput, ToolReply};
use dormouse_ports::{IMAGE_BYTES, Image, ImageOwner, Images, ImagesError};
use sha2::{Digest, Sha256};

/// Images in memory, all but one that is unlucky.
#[derive(Debug, Default)]
struct Album(Mutex<BTreeMap<String, Image>>);

#[async_trait]
impl Images for Album {
    async fn keep(&self, of: &ImageOwner, image: &Image) -> Result<String, ImagesError> {
        if image.bytes == png(b"unlucky") {
            return Err(ImagesError("the store is away".to_owned()));
        }
        let id = format!("{}/{}", of.invocation, hex::encode(Sha256::digest(&image.bytes)));
        assert_eq!(image.media_type, "image/png", "by its bytes");
        self.0.lock().expect("not poisoned").insert(id.clone(), image.clone());
        Ok(id)
    }

    async fn image(&self, _: &ImageOwner, id: &str) -> Result<Option<Image>, ImagesError> {
        Ok(self.0.lock().expect("not poisoned").get(id).cloned())
    }
}

/// What begins a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

fn png(name: &[u8]) -> Vec<u8> {
    [PNG, name].concat()
}

/// A PNG that its server takes for a JPEG.
fn image(name: &[u8]) -> ToolContent {
    ToolContent::Image { data: STANDARD.encode(png(name)), media_type: "image/jpeg".to_owned() }
}

/// The state and the requests of an agent whose tool gives one of `outputs` at each step.
fn looked(
    outputs: Vec<Vec<ToolContent>>,
    change: impl Fn(&mut AgentParts) + Send + Sync + 'static,
) -> (Map, Vec<CompletionRequest>) {
    let count = outputs.len();
    let made = AtomicUsize::new(0);
    let model = ScriptedModel::new(move |request| {
        if json!(request.messages.first()).to_string().contains("You write the summary") {
            return Ok(says("in short"));
        }
        let made = made.fetch_add(1, Ordering::Relaxed);
        Ok(if made < count { calls(&[(&format!("c{made}"), "look", json!({ "to": "x" }))]) } else { says("done") })
    });
    let outputs = Mutex::new(outputs.into_iter());
    let tools = Toolbox::new(vec![tool("look", Effect::Safe)], move |_| {
        let content = outputs.lock().expect("not poisoned").next().expect("an output");
        Ok(ToolReply::Done(ToolOutput { content, ..ToolOutput::default() }))
    });
    let (asked, album) = (model.clone(), Arc::new(Album::default()));
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts("description: looks", asked.clone(), tools.clone(), outside.clock.clone());
        parts.model.takes_images = true;
        change(&mut parts);
        graph::graph(parts.showing(Some(album.clone())))
    }));
    let run = bed.start("helper", message("look"));
    // A model in the background is looked at after 2 seconds.
    bed.pass(Duration::from_secs(60));
    let state = bed.status(&run).completed();
    let requests = model.requests.lock().expect("not poisoned").clone();
    (state, requests)
}

/// The images of results in `request`, as their bytes.
fn shown(request: &CompletionRequest) -> Vec<String> {
    let of = |message: &Message| match message {
        Message::Tool { images, .. } => images.clone(),
        Message::System { .. } | Message::User { .. } | Message::Assistant(_) => Vec::new(),
    };
    let data = |block: Block| json!(block)["source"]["base64_data"].as_str().map(str::to_owned);
    let data = request.messages.iter().flat_map(of).filter_map(data);
    let name = |data: String| STANDARD.decode(data).expect("Base64")[PNG.len()..].to_vec();
    data.map(|data| String::from_utf8(name(data)).expect("text")).collect()
}

#[test]
fn what_cannot_be_shown_is_told_with_the_reason() {
    let named =
        |media_type: &str, data: &str| ToolContent::Image { data: data.to_owned(), media_type: media_type.to_owned() };
    let output = vec![
        image(b"cat"),
        named("image/tiff", &STANDARD.encode(b"II*\0")),
        named("image/png", &STANDARD.encode(b"<html>no picture</html>")),
        named("image/png", "no Base64!"),
        image(&vec![0; IMAGE_BYTES]),
        image(b"unlucky"),
        ToolContent::text("that is all"),
    ];
    let (state, requests) = looked(vec![output], |_| {});
    assert_eq!(shown(&requests[1]), ["cat"]);
    let told = results(&requests[1]).remove(0);
    for words in [
        "[image, image/png, 11 bytes]",
        "[image, image/tiff, 8 bytes of Base64, which cannot be shown to you: it is none of image/png",
        "[image, image/png, 32 bytes of Base64, which cannot be shown to you: it is none of image/png",
        "it is no Base64",
        "it may have 3750000 bytes",
        "that is all\n[the image is not shown to you: the images of the conversation cannot be had now: the store is away]",
    ] {
        assert!(told.contains(words), "no {words} in {told}");
    }
    let result = state["messages"].as_array().expect("messages").iter().find(|message| message["role"] == "tool");
    let names = result.expect("a result")["images"].as_array().expect("images");
    assert_eq!((names.len(), &names[0]["source"]["type"]), (1, &json!("kept")), "the state names it alone");
    assert!(!Value::Object(state.clone()).to_string().contains(&STANDARD.encode(png(b"cat"))));
    assert_eq!(state["image_bytes"], 26, "what could not be kept took its room, too");
}

#[test]
fn a_run_keeps_so_many_bytes_and_a_result_so_many_images() {
    let many = (0..9).map(|number| image(format!("{number}").as_bytes())).collect();
    let (_, requests) = looked(vec![many, vec![image(b"too much")]], |parts| parts.limits.kept_images = 80);
    assert_eq!(shown(&requests[1]).len(), 8);
    assert!(results(&requests[1])[0].contains("of one result 8 images are shown"), "{:?}", results(&requests[1]));
    assert!(results(&requests[2])[1].contains("of one run 80 bytes of images are kept"), "{:?}", results(&requests[2]));
}

#[test]
fn the_same_image_twice_in_a_result_is_one_and_takes_its_room_once() {
    let (state, requests) = looked(vec![vec![image(b"cat"), image(b"cat")], vec![image(b"cat")]], |_| {});
    assert_eq!(shown(&requests[1]), ["cat"]);
    assert_eq!(shown(&requests[2]), ["cat", "cat"], "each result has it");
    assert_eq!(state["image_bytes"], 11);
}

#[test]
fn of_many_images_the_newest_are_shown() {
    let outputs = (0..22).map(|number| vec![image(format!("{number}").as_bytes())]).collect();
    let (state, requests) = looked(outputs, |_| {});
    let last = requests.last().expect("a request");
    let newest: Vec<String> = (2..22).map(|number| number.to_string()).collect();
    assert_eq!(shown(last), newest);
    assert!(results(last)[1].ends_with("[an image, image/png, which cannot be shown to you: newer ones are]"));
    assert_eq!(contents(&state, "tool")[1], "[image, image/png, 9 bytes]", "the conversation stays as it is");
}

#[test]
fn a_model_that_takes_no_images_is_told_how_that_is_changed() {
    let (state, requests) = looked(vec![vec![image(b"cat")]], |parts| parts.model.takes_images = false);
    assert_eq!(shown(&requests[1]), [""; 0]);
    let told = results(&requests[1]).remove(0);
    assert!(
        told.contains("16 bytes of Base64, which cannot be shown to you") && told.contains("`input: [text, image]`")
    );
    assert_eq!(state["image_bytes"], 0, "nothing is kept");
}

#[test]
fn an_image_counts_in_the_window_of_its_model() {
    let outputs = (0..4).map(|number| vec![image(format!("{number}").as_bytes())]).collect();
    let (state, _) = looked(outputs, |parts| parts.model.context_window = Some(8000));
    assert!(state["compaction"].is_object(), "four images are more than the window has room for");
}

#[test]
fn where_a_provider_refuses_the_images_the_conversation_goes_on_in_words() {
    // Where somebody watches it refuses the stream, too.
    for is_watched in [false, true] {
        let refused = Arc::new(Mutex::new(0));
        let counted = refused.clone();
        let outputs = vec![vec![image(b"cat")], vec![image(b"dog")]];
        let (state, requests) = looked(outputs, move |parts| {
            let (inner, counted) = (parts.model.provider.clone(), counted.clone());
            parts.model.provider = Arc::new(Picky { inner, refused: counted });
            parts.deltas = if is_watched { Some(Arc::new(Nobody)) } else { None };
        });
        let refused = *refused.lock().expect("not poisoned");
        assert_eq!((refused, &state["reason"]), (1, &json!("completed")), "not once more");
        for told in [results(&requests[1]), results(&requests[2])].concat() {
            assert!(told.ends_with("the provider refused the images of this conversation]"), "{told}");
        }
        assert_eq!(state["images_refused"], "workspace/main");
    }
}

#[test]
fn images_that_a_provider_refuses_in_the_background_are_told_in_words_under_another_key() {
    for (when, keys) in
        [(Refuses::AtOnce, ["model-1", "model-1-in-words"]), (Refuses::Later, ["model-1", "model-2-in-words"])]
    {
        let jobs = Arc::new(PickyJobs { when, keys: Mutex::default(), asked: Mutex::default() });
        let provider = jobs.clone();
        let (state, _) = looked(vec![vec![image(b"cat")], vec![image(b"dog")]], move |parts| {
            parts.model.background = Some(provider.clone());
            let mut hook = hook("discreet", &[HookEvent::BeforeModelCall], Arc::new(Discreet));
            hook.definition.capabilities = [HookCapability::RewriteModelRequest].into();
            parts.hooks = vec![hook];
        });
        assert_eq!((&state["reason"], &state["images_refused"]), (&json!("completed"), &json!("workspace/main")));
        let begun = jobs.keys.lock().expect("not poisoned").clone();
        let step = |key: &String| key.split_once('/').map(|(_, key)| key.to_owned());
        let begun: Vec<String> = begun.iter().filter_map(step).collect();
        let of_second = keys.map(|key| format!("2/{key}"));
        assert_eq!(begun[1..3], of_second, "{begun:?}");
        assert_eq!((begun.len(), &*begun[3]), (4, "3/model-1-in-words"), "{begun:?}");
        for asked in &*jobs.asked.lock().expect("not poisoned") {
            assert!(asked.contains("[withheld]") && asked.contains("be kind"), "hooks are heard each time: {asked}");
        }
    }
}

/// Has no model see what users say.
#[derive(Debug)]
struct Discreet;

#[async_trait]
impl HookHandler for Discreet {
    async fn handle(&self, envelope: &Value) -> Result<HookAnswer, HookFailure> {
        let mut messages = envelope["messages"].as_array().cloned().expect("messages");
        for message in messages.iter_mut().filter(|message| message["role"] == "user") {
            message["content"] = "[withheld]".into();
        }
        let patch = json!({ "additionalContext": "be kind", "patch": { "messages": messages } });
        let text = json!({ "hookSpecificOutput": patch }).to_string();
        Ok(HookAnswer { text, ..HookAnswer::default() })
    }
}

/// When a provider of jobs refuses images.
#[derive(Clone, Copy, PartialEq)]
enum Refuses {
    AtOnce,
    Later,
}

/// A provider of jobs that takes no image; the model looks at two of them.
struct PickyJobs {
    when: Refuses,
    keys: Mutex<Vec<String>>,
    /// The messages of each request.
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl BackgroundProvider for PickyJobs {
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError> {
        self.keys.lock().expect("not poisoned").push(key.to_owned());
        self.asked.lock().expect("not poisoned").push(json!(request.messages).to_string());
        let shows = !shown(request).is_empty();
        match shows && self.when == Refuses::AtOnce {
            true => Err(refusal()),
            false => Ok(StartedJob::running(if shows { "bad" } else { "good" })),
        }
    }

    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        if job.id == "bad" {
            return Ok(BackgroundStatus::Failed(Box::new(refusal())));
        }
        let looks = results(request).len();
        let answer =
            if looks < 2 { calls(&[(&format!("c{looks}"), "look", json!({ "to": "x" }))]) } else { says("done") };
        Ok(BackgroundStatus::Completed(Box::new(answer)))
    }

    async fn cancel(&self, _: &BackgroundJob) -> Result<(), ModelError> {
        Ok(())
    }
}

fn refusal() -> ModelError {
    ModelError::new(ModelErrorCategory::UnsupportedContentBlock, "Could not process image")
}

#[test]
fn an_image_that_a_model_is_told_of_in_words_counts_as_these() {
    for takes_images in [true, false] {
        let model = ScriptedModel::new(|_| Ok(says("in short")));
        let asked = model.clone();
        let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
            let tools = Toolbox::new(Vec::new(), |_| panic!("there is none"));
            let mut parts = parts("description: looks", asked.clone(), tools, outside.clock.clone());
            parts.model.takes_images = takes_images;
            parts.model.context_window = Some(8000);
            graph::graph(parts.showing(Some(Arc::new(Album::default()))))
        }));
        let image = |number: usize| json!(Block::image_kept("image/png", format!("art_{number}")));
        let images: Vec<Value> = (0..4).map(image).collect();
        let messages = json!([{ "role": "user", "content": images }, { "role": "assistant", "content": "I see" },
            { "role": "user", "content": "go on" }]);
        let run = bed.start("helper", json!({ "messages": messages }));
        assert_eq!(bed.status(&run).completed()["compaction"].is_object(), takes_images);
        if !takes_images {
            let told = json!(model.requests.lock().expect("not poisoned")[0].messages).to_string();
            assert!(told.contains("[an image, image/png, artifact art_3, which cannot be shown to you: "), "{told}");
        }
    }
}

/// A provider that takes no image, whatever its definition says, and streams nothing.
struct Picky {
    inner: Arc<dyn ModelProvider>,
    refused: Arc<Mutex<usize>>,
}

#[async_trait]
impl ModelProvider for Picky {
    fn identity(&self) -> ModelIdentity {
        self.inner.identity()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        self.inner.ready().await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        if !shown(request).is_empty() {
            *self.refused.lock().expect("not poisoned") += 1;
            return Err(refusal());
        }
        if request.stream {
            let words = "This model doesn't support tool use in streaming mode.";
            let error = ModelError::new(ModelErrorCategory::InvalidRequest, words);
            return Err(ModelError { status: Some(400), ..error });
        }
        self.inner.complete(request, options).await
    }
}
