//! Calls whose outcome comes later: by a signal, or because their source is asked for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, results, says, tool};
use crate::runs::{MATTER, asleep, bed_with, sender};
use async_trait::async_trait;
use dormouse::json;
use dormouse_agent::workspace::ToolOrigin;
use dormouse_ports::SignalId;
use dormouse_ports::model::CompletionRequest;
use dormouse_ports::tool::{
    CallbackAddresses, Effect, InputRequest, Pending, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec,
};

#[test]
fn a_pending_call_sleeps_until_its_outcome_comes() {
    let pending = |timeout: Option<u64>, poll: Option<u64>| {
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let reference = Some("job-1".to_owned());
        Pending { reference, timeout: seconds(timeout), poll_after: seconds(poll), ..Pending::default() }
    };
    let waiting = pending(None, None);
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |_| Ok(ToolReply::Pending(waiting.clone())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    assert!(bed.status(&run).is_asleep());
    bed.answer(&run, json!({ "delivered": true })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["{\"delivered\":true}"]);
    let run = bed.start("helper", message("write"));
    bed.pass_days(1);
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["error: the tool sent no outcome in time"]);

    let polled = pending(None, Some(60));
    let tools = Toolbox::new(vec![tool("send", Effect::Safe)], move |_| Ok(ToolReply::Pending(polled.clone())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.pass(Duration::from_secs(150));
    assert!(bed.status(&run).is_asleep());
    let made = tools.made.lock().unwrap();
    assert_eq!(made.len(), 3, "it is asked again each minute");
    assert!(made.iter().all(|call| call.idempotency_key == made[0].idempotency_key), "under the same key");
}

#[test]
fn a_pending_call_is_recorded_whatever_its_tool_calls_it() {
    let waiting = Pending { reference: Some("job ".repeat(50_000)), ..Pending::default() };
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |_| Ok(ToolReply::Pending(waiting.clone())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "delivered": true })).unwrap();
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["{\"delivered\":true}"]);
}

/// Sends and looks in one step.
fn sender_and_looker() -> Arc<ScriptedModel> {
    ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("a", "send", json!({ "to": "ada" })), ("b", "look", json!({ "to": "x" }))]),
            _ => says("done"),
        })
    })
}

/// One call is polled, the other one waits for its callback much longer: neither ends the other's wait.
#[test]
fn pending_calls_of_one_step_are_waited_for_each_by_itself() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Manual)], |call| {
        let poll = call.name == "look";
        Ok(match &call.pending {
            Some(state) if *state == json!("job") && poll => ToolReply::Done(ToolOutput::text("looked up")),
            _ => ToolReply::Pending(Pending {
                poll_after: poll.then(|| Duration::from_secs(60)),
                state: if poll { json!("job") } else { serde_json::Value::Null },
                ..Pending::default()
            }),
        })
    });
    let mut bed = bed_with(MATTER, &sender_and_looker(), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    assert!(bed.status(&run).is_asleep());
    bed.pass(Duration::from_secs(70));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["calls"], json!({ "call-1": { "tool": "send" } }), "the other one has ended");
    assert_eq!(tools.made().len(), 3, "what must not run twice is only asked how it stands");
    bed.answer(&run, json!({ "delivered": true })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["{\"delivered\":true}", "looked up"]);
    let run = bed.start("helper", message("write"));
    bed.pass_days(1);
    let told = contents(&bed.status(&run).completed(), "tool");
    assert_eq!(told, ["error: the tool sent no outcome in time", "looked up"]);
}

/// How it stands is asked of its source, also while that does not list its tools.
#[test]
fn a_pending_call_outlives_a_source_that_cannot_be_listed() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |call| {
        Ok(match call.pending.as_ref().and_then(serde_json::Value::as_u64) {
            Some(2) => ToolReply::Done(ToolOutput::text("sent")),
            polls => ToolReply::Pending(Pending {
                poll_after: Some(Duration::from_secs(60)),
                state: json!(polls.map_or(0, |polls| polls + 1)),
                ..Pending::default()
            }),
        })
    });
    let mut bed = bed_with(MATTER, &sender("post_send"), &tools, |parts| {
        parts.tools[0].expose.tool_prefix = Some("post".to_owned());
    });
    let run = bed.start("helper", message("write"));
    assert!(bed.status(&run).is_asleep());
    tools.unlisted.store(true, Ordering::SeqCst);
    bed.pass(Duration::from_secs(130));
    assert!(bed.status(&run).is_asleep(), "it goes on");
    tools.unlisted.store(false, Ordering::SeqCst);
    bed.pass(Duration::from_secs(60));
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["sent"]);
    let made = tools.made();
    assert_eq!(made.len(), 4, "it is made once, and asked for three times");
    assert!(made.iter().all(|(name, _)| name == "send"), "without the prefix of its source: {made:?}");
}

/// Calls of a toolbox that end later; what it knows as a secret it takes out of their outcomes once it has looked that up.
#[derive(Debug)]
struct Discreet {
    tools: Arc<Toolbox>,
    recalled: Mutex<String>,
}

#[async_trait]
impl ToolSource for Discreet {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.tools.list().await
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        self.tools.call(call).await
    }

    async fn recall(&self, name: &str) {
        name.clone_into(&mut self.recalled.lock().expect("not poisoned"));
    }

    fn masked(&self, _: &str, output: ToolOutput) -> ToolOutput {
        let recalled = self.recalled.lock().expect("not poisoned").clone();
        output.with_texts(&|text| text.replace("hush", &format!("[secret of {recalled}]")))
    }
}

/// Addresses with the same token for all.
struct OneToken;

impl CallbackAddresses for OneToken {
    fn address(&self, signal_id: &SignalId) -> Option<String> {
        Some(format!("https://d.example/signals/{signal_id}?token=t0-ken_1"))
    }

    fn is_token(&self, _: &SignalId, text: &str) -> bool {
        text == "t0-ken_1"
    }
}

#[test]
fn an_outcome_that_comes_later_is_without_the_secrets_of_its_tool_and_the_token_of_its_address() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Pending(Pending::default())));
    let discreet = Arc::new(Discreet { tools: tools.clone(), recalled: Mutex::default() });
    let mut bed = bed_with(MATTER, &sender("send"), &tools, move |parts| {
        parts.tools[0].source = discreet.clone();
        parts.callbacks = Some(Arc::new(OneToken));
    });
    for (told, shown) in [
        (json!({ "said": "hush\nt0-ken_1" }), r#"{"said":"[secret of send]\n[secret]"}"#),
        (
            json!({ "content": [{ "type": "text", "text": "to /x?token=t0-ken_1, hush" }] }),
            "to /x?token=[secret], [secret of send]",
        ),
    ] {
        let run = bed.start("helper", message("write"));
        bed.answer(&run, told).unwrap();
        assert_eq!(contents(&bed.status(&run).completed(), "tool"), [shown]);
    }
}

#[test]
fn a_large_outcome_that_comes_later_is_cut_and_kept_whole() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Ok(ToolReply::Pending(Pending::default())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    let large = "y".repeat(100_000);
    bed.answer(&run, json!({ "content": [{ "type": "text", "text": large }] })).unwrap();
    let state = bed.status(&run).completed();
    assert!(contents(&state, "tool")[0].contains("of 100000 bytes are shown"));
    assert_eq!(state["outputs"], json!([{ "call": "c1", "text": large }]));
    assert_eq!(tools.made().len(), 1);
}

#[test]
fn a_tool_that_is_asked_every_few_seconds_may_take_a_day() {
    let polled = Pending { poll_after: Some(Duration::from_secs(5)), state: json!("job"), ..Pending::default() };
    let tools = Toolbox::new(vec![tool("send", Effect::Safe)], move |_| Ok(ToolReply::Pending(polled.clone())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.pass(Duration::from_secs(60));
    let quick = tools.made().len();
    assert!((12..=14).contains(&quick), "each five seconds at first: {quick}");
    bed.pass_days(1);
    assert!(bed.status(&run).is_asleep(), "{:?}", bed.status(&run));
    let asked = tools.made().len();
    assert!((1_000..2_000).contains(&asked), "and less often the longer it takes: {asked}");
}

/// What one call asks of a person comes between two pauses that wait for the outcome of another: it is taken all the same.
#[test]
fn an_outcome_that_comes_while_a_person_is_asked_about_another_call_is_taken() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], |call| {
        Ok(match (call.name.as_str(), &call.pending, &call.input) {
            ("look", _, Some(_)) => ToolReply::Done(ToolOutput::text("looked up")),
            ("look", Some(_), None) => {
                let (message, schema) = ("Which?".to_owned(), dormouse_ports::Map::new());
                ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") })
            }
            ("look", None, None) => {
                let poll_after = Some(Duration::from_secs(60));
                ToolReply::Pending(Pending { poll_after, state: json!("job"), ..Pending::default() })
            }
            _ => ToolReply::Pending(Pending::default()),
        })
    });
    let mut bed = bed_with(MATTER, &sender_and_looker(), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.pass(Duration::from_secs(70));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["kind"], "tool_input");
    let outcome = format!("{}/1/call-1", run.id());
    bed.publish("dormouse", "Dormouse Signal", json!({ "signal_id": outcome, "payload": { "delivered": true } }));
    assert!(bed.status(&run).is_asleep(), "the person has not answered");
    bed.answer(&run, json!({ "decision": "answer", "content": {} })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["{\"delivered\":true}", "looked up"]);
}

#[test]
fn a_call_that_is_asked_for_more_seldom_is_asked_for_before_its_time_is_over() {
    let (poll_after, timeout) = (Some(Duration::from_secs(5)), Some(Duration::from_secs(20)));
    let polled = Pending { poll_after, timeout, state: json!("job"), ..Pending::default() };
    let tools = Toolbox::new(vec![tool("send", Effect::Safe)], move |_| Ok(ToolReply::Pending(polled.clone())));
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.pass(Duration::from_secs(2 * 60 * 60));
    assert!(bed.status(&run).is_asleep(), "{:?}", bed.status(&run));
    let asked = tools.made().len();
    assert!((700..900).contains(&asked), "each ten seconds: {asked}");
}

#[test]
fn many_calls_that_are_asked_for_by_themselves_let_their_run_rest_between() {
    let polled =
        |after| Pending { poll_after: Some(Duration::from_secs(after)), state: json!("job"), ..Pending::default() };
    let tools = Toolbox::new(vec![tool("send", Effect::Safe)], move |call| {
        let seconds = call.arguments["to"].as_str().map_or(5, |to| 3 + to.len() as u64);
        Ok(ToolReply::Pending(polled(seconds)))
    });
    let model = ScriptedModel::new(|request: &CompletionRequest| {
        let asked: Vec<_> = (0..8).map(|n| (format!("c{n}"), "x".repeat(n))).collect();
        let asked: Vec<_> = asked.iter().map(|(id, to)| (id.as_str(), "send", json!({ "to": to }))).collect();
        Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
    });
    let mut bed = bed_with(MATTER, &model, &tools, |_| {});
    let run = bed.start("helper", message("write"));
    bed.pass(Duration::from_secs(2 * 60 * 60));
    assert!(bed.status(&run).is_asleep(), "{:?}", bed.status(&run));
}

/// An action, too, has the address at which it tells what came of it, and may be in doubt while its work goes on elsewhere.
#[test]
fn what_a_tool_tells_while_a_person_is_asked_whether_its_call_happened_is_the_outcome() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| {
        Err(ToolError::permanent("it says in words that cannot be read that its outcome comes later").maybe_done())
    });
    for origin in [ToolOrigin::External, ToolOrigin::Action] {
        let mut bed = bed_with(MATTER, &sender("send"), &tools, move |parts| {
            parts.tools[0].origin = origin;
            parts.callbacks = Some(Arc::new(OneToken));
        });
        let run = bed.start("helper", message("write"));
        assert_eq!(asleep(&bed, &run).1["kind"], "uncertain_effect");
        let outcome = format!("{}/1/call-1", run.id());
        bed.publish("dormouse", "Dormouse Signal", json!({ "signal_id": outcome, "payload": { "delivered": true } }));
        bed.answer(&run, json!({ "decision": "happened" })).unwrap();
        assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["{\"delivered\":true}"], "{origin:?}");
    }
}
