//! Images of tools and messages, from a server of tools to the server of the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::header;
use axum::routing::get;
use dormouse_protocol::resource::TaskStatus;
use serde_json::json;
use tokio::net::TcpListener;

use super::world::Project;
use crate::assistant::world::{Wire, eventually};

const DONE: [TaskStatus; 1] = [TaskStatus::Completed];
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\nof a cat";
/// The same, as the model is sent it.
const SENT: &str = "data:image/png;base64,iVBORw0KGgpvZiBhIGNhdA==";

/// A camera that counts its pictures: its address.
async fn camera(taken: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let shoot = move || {
        taken.fetch_add(1, Ordering::SeqCst);
        async { ([(header::CONTENT_TYPE, "image/png")], PICTURE) }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(shoot))).await });
    url
}

/// The addresses of the images in the last request to the model.
fn seen(project: &Project) -> Vec<String> {
    let request = project.model.requests().pop().expect("a request");
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let blocks = messages.iter().filter_map(|message| message["content"].as_array()).flatten();
    let images = blocks.filter_map(|block| block["image_url"]["url"].as_str().map(str::to_owned));
    images.collect()
}

async fn with_camera(taken: &Arc<AtomicUsize>) -> Project {
    let tool = format!(
        "cam:\n  http: {{method: GET, url: '{}', description: Takes a picture.}}\n  expose: {{tool_prefix: ''}}\n",
        camera(taken.clone()).await
    );
    let agent = (".openharness/agents/assistant.md", "---\n{}\n---\nWork.\n");
    Project::of(&[(".openharness/tools/settings.yaml", &tool), agent]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_was_taken_before_a_kill_is_shown_after_it() {
    let taken = Arc::<AtomicUsize>::default();
    let project = with_camera(&taken).await;
    project.describe_model("  input: [text, image]\n");
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[("cam", json!({}))]);
    let wire = Wire::of(&dormouse);
    wire.task(&task, &DONE).await;
    assert_eq!(seen(&project), [SENT]);
    let session = wire.task(&task, &DONE).await.session_id.to_string();

    project.hold_answers(true);
    let before = project.model.requests().len();
    let next = project.say_in(&dormouse, &session, &[]);
    eventually("the model is asked", || project.model.requests().len() > before).await;
    // Whoever is asked after the kill answers at once.
    project.hold_answers(false);
    let dormouse = dormouse.kill_and_restart();
    let wire = Wire::of(&dormouse);
    wire.task(&next, &DONE).await;
    assert_eq!((seen(&project), taken.load(Ordering::SeqCst)), (vec![SENT.to_owned()], 1));

    let artifacts = wire.get(&format!("/v1/artifacts?task_id={task}")).await;
    let artifacts = artifacts["data"].as_array().cloned().unwrap_or_default();
    let image = artifacts.iter().find(|one| one["kind"] == "image").expect("an artifact");
    let exported = dormouse.command(&["export", &session]).output().expect("it runs");
    let exported = String::from_utf8(exported.stdout).expect("text");
    assert!(exported.contains(r#""content_base64":"iVBORw0KGgpvZiBhIGNhdA==""#), "{exported}");
    let parts = json!([{ "type": "text", "text": "script []", "visibility": "public" }, { "type": "image_ref",
        "artifact_id": image["id"], "mime_type": "image/png", "visibility": "public" }]);
    let input = json!({ "input": { "role": "user", "parts": parts }, "persona_id": "persona_assistant" });
    let (status, said) = wire.post(&format!("/v1/sessions/{session}/tasks"), "with-image", &input).await;
    assert_eq!(status, 202, "{said}");
    wire.task(said["id"].as_str().expect("an id"), &DONE).await;
    assert_eq!(seen(&project), [SENT, SENT], "the picture of the tool, and that of the message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_shown_no_picture_unless_its_definition_says_so() {
    let taken = Arc::<AtomicUsize>::default();
    let project = with_camera(&taken).await;
    let dormouse = project.serve();
    let task = project.say(&dormouse, &[("cam", json!({}))]);
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert_eq!((seen(&project).len(), taken.load(Ordering::SeqCst)), (0, 1));
    assert!(project.results()[0].contains("`input: [text, image]`"), "{:?}", project.results());
    project.describe_model("  input: [pictures]\n");
    let checked = project.check();
    assert!(
        checked.contains("`input` of model `main` has `pictures`: models are given `text` and `image`"),
        "{checked}"
    );
}
