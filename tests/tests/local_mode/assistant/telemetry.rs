//! What a collector is sent of an agent in a folder.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::Uri;
use dormouse_local::ScriptedTurn;
use serde_json::json;
use tokio::net::TcpListener;

use super::world::{Assistant, Wire, eventually};
use super::{DONE, WAITING};
use crate::process::Dormouse;

/// What was sent, by the path that it was sent to.
type Sent = Arc<Mutex<BTreeMap<String, String>>>;

/// A collector beside the process, at a base address.
async fn collector() -> (String, Sent) {
    let sent = Sent::default();
    let kept = sent.clone();
    let take = move |uri: Uri, body: Bytes| async move {
        let mut kept = kept.lock().expect("a lock");
        kept.entry(uri.path().to_owned()).or_default().push_str(&String::from_utf8_lossy(&body));
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
    (url, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_models_and_tools_have_spans_and_measurements_and_show_content_where_that_is_asked_for() {
    for shows in [false, true] {
        let assistant = Assistant::hired().await;
        assistant.answers(|request| match request["messages"].as_array().and_then(|all| all.last()) {
            Some(last) if last["role"] == "tool" => ScriptedTurn::saying("Ebenezer knows"),
            _ => ScriptedTurn::saying("").and_calling("book", json!({ "room": "Obadiah" }).to_string()),
        });
        let (url, sent) = collector().await;
        let mut environment = vec![("OTEL_EXPORTER_OTLP_ENDPOINT", &*url.leak()), ("OTEL_METRICS_EXPORTER", "otlp")];
        if shows {
            environment.push(("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true"));
        }
        let folder = assistant.folder();
        let dormouse = Dormouse::start_in(assistant.place.path(), &["--workspace", &folder, "--no-tour"], &environment);
        let task = assistant.send(&dormouse, "a room for Jedediah");
        let wire = Wire::of(&dormouse);
        wire.task(&task, &WAITING).await;
        assert_eq!(wire.answer(&task, None, json!({ "decision": "approve" })).await.0, 201);
        wire.task(&task, &DONE).await;
        let has =
            |path: &str, word: &str| sent.lock().expect("a lock").get(path).is_some_and(|sent| sent.contains(word));
        for word in [
            "openarmature.llm.complete",
            "gen_ai.request.model",
            "gen_ai.usage.input_tokens",
            "openarmature.prompt.template_hash",
            "openarmature.tool.call",
            "openarmature.tool.name",
        ] {
            eventually(word, || has("/v1/traces", word)).await;
        }
        for word in
            ["openarmature.gen_ai.client.token.usage", "openarmature.gen_ai.client.operation.duration", "scripted-1"]
        {
            eventually(word, || has("/v1/metrics", word)).await;
        }
        let contents = ["Ebenezer", "Obadiah", "Jedediah"];
        for content in contents.into_iter().filter(|_| shows) {
            eventually(content, || has("/v1/traces", content)).await;
        }
        drop(dormouse);
        for content in contents {
            assert_eq!(has("/v1/traces", content), shows, "{content}");
            assert!(!has("/v1/metrics", content), "{content}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_has_a_span_that_says_so() {
    let assistant = Assistant::hired().await;
    let (url, sent) = collector().await;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*url.leak())];
    let folder = assistant.folder();
    let dormouse = Dormouse::start_in(assistant.place.path(), &["--workspace", &folder, "--no-tour"], &environment);
    let wire = Wire::of(&dormouse);
    let gives_up = async |task: &str, span: &str| {
        let canceled = wire.post(&format!("/v1/tasks/{task}/cancel"), &format!("cancel-{task}"), &json!({})).await;
        assert_eq!(canceled.0, 200, "{}", canceled.1);
        for word in [span, "given_up"] {
            let has = || sent.lock().expect("a lock").get("/v1/traces").is_some_and(|sent| sent.contains(word));
            eventually(word, has).await;
        }
        sent.lock().expect("a lock").clear();
    };

    assistant.answers(|_| ScriptedTurn::saying("too late").after(Duration::from_secs(600)));
    let task = assistant.send(&dormouse, "a room for Jedediah");
    eventually("the model is asked", || !assistant.model.requests().is_empty()).await;
    gives_up(&task, "openarmature.llm.complete").await;

    assistant.answers(|_| ScriptedTurn::saying("").and_calling("book", json!({ "room": "4" }).to_string()));
    assistant.office.tarry(600_000);
    let task = assistant.send(&dormouse, "a room for Jedediah");
    wire.task(&task, &WAITING).await;
    assert_eq!(wire.answer(&task, None, json!({ "decision": "approve" })).await.0, 201);
    eventually("the room is being booked", || !assistant.office.bookings().is_empty()).await;
    gives_up(&task, "openarmature.tool.call").await;
}
