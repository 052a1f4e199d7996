//! Runs of an agent in a world in memory: tools, approvals, questions, sleep, limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use async_trait::async_trait;
use dormouse::testing::{Invocation, TestBed};
use dormouse::{Agents, Map, Value, json};
use dormouse_agent::graph::{self, AgentParts, ToolPart};
use dormouse_ports::SignalId;
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{
    CallbackAddresses, Effect, InputRequest, Pending, ToolAnnotations, ToolCall, ToolError, ToolOutput, ToolReply,
    ToolSource, ToolSpec,
};
use dormouse_testkit::ManualClock;
use futures::future::join;

pub(crate) const MATTER: &str = "description: helps";
const APPROVED: &str = "policy: {approval: {external: [send]}}";

pub(crate) fn bed(matter: &'static str, model: &Arc<ScriptedModel>, tools: &Arc<Toolbox>) -> TestBed {
    bed_with(matter, model, tools, |_| {})
}

pub(crate) fn bed_with(
    matter: &'static str,
    model: &Arc<ScriptedModel>,
    tools: &Arc<Toolbox>,
    change: impl Fn(&mut AgentParts) + Send + Sync + 'static,
) -> TestBed {
    let model = model.clone();
    let tools = tools.clone();
    TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = parts(matter, model.clone(), tools.clone(), outside.clock.clone());
        change(&mut parts);
        graph::graph(parts)
    }))
}

pub(crate) fn mailer() -> Arc<Toolbox> {
    Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], |call| {
        Ok(ToolReply::Done(ToolOutput::text(format!("{} to {}", call.name, call.arguments["to"]))))
    })
}

/// Calls the tool once, then repeats the result.
fn sender(tool: &'static str) -> Arc<ScriptedModel> {
    ScriptedModel::new(move |request| {
        let results = results(request);
        Ok(match results.last() {
            None => calls(&[("c1", tool, json!({ "to": "ada" }))]),
            Some(result) => says(&format!("done: {result}")),
        })
    })
}

fn asleep(bed: &TestBed, run: &Invocation) -> (Map, Map) {
    match bed.status(run) {
        dormouse::testing::Status::Asleep { state, waiting_for, .. } => {
            (state, waiting_for.metadata.unwrap_or_default())
        }
        other @ (dormouse::testing::Status::Completed(_) | dormouse::testing::Status::Failed(_)) => {
            panic!("it sleeps, and not {other:?}")
        }
    }
}

#[test]
fn a_run_calls_a_tool_and_answers() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(MATTER, &model, &tools);
    let run = bed.start("helper", message("write to ada"));
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "assistant").last().map(String::as_str), Some("done: send to \"ada\""));
    assert_eq!(
        (&state["reason"], &state["steps"], &state["agent"]),
        (&json!("completed"), &json!(2), &json!("helper"))
    );
    assert_eq!(state["usage"]["prompt_tokens"], 200);
    assert!((state["usage"]["cost"].as_f64().unwrap() - 0.00024).abs() < 1e-9, "{}", state["usage"]);
    assert_eq!(tools.made(), [("send".to_owned(), json!({ "to": "ada" }))]);
    let request = &model.requests.lock().unwrap()[0];
    let Value::Object(system) = serde_json::to_value(&request.messages[0]).unwrap() else { panic!() };
    assert!(system["content"].as_str().unwrap().contains("Project rules."), "AGENTS.md goes along word for word");
    assert_eq!(tools.made.lock().unwrap()[0].idempotency_key, format!("{}/1/call-1", run.id()));
}

#[test]
fn an_approval_is_one_pause_with_digest_and_the_call_runs_as_approved() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write to ada"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["kind"], "approval");
    let shown = &wait["calls"]["call-1"];
    assert_eq!((&shown["tool"], &shown["arguments"]), (&json!("send"), &json!({ "to": "ada" })));
    assert_eq!(tools.made(), [], "nothing ran");
    assert_eq!(model.calls(), 1);
    bed.answer(&run, json!({ "decision": "approve", "digest": shown["digest"] })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["dormouse_shortfall"]), (&json!("completed"), &json!(null)));
    assert_eq!(tools.made().len(), 1);
    assert_eq!(model.calls(), 2, "no model call was repeated");
}

#[test]
fn a_tool_that_writes_the_same_twice_is_asked_for_and_one_that_only_reads_is_not() {
    let hinted = |name: &str, annotations: ToolAnnotations| ToolSpec {
        annotations,
        effect: annotations.effect(),
        ..tool(name, Effect::Manual)
    };
    let put = ToolAnnotations { idempotent: Some(true), ..ToolAnnotations::default() };
    let look = ToolAnnotations { read_only: Some(true), idempotent: Some(true), ..ToolAnnotations::default() };
    let tools = Toolbox::new(vec![hinted("put", put), hinted("look", look)], |call| {
        Ok(ToolReply::Done(ToolOutput::text(call.name.clone())))
    });
    let manual = "policy: {approval: manual}";
    let mut bed = bed(manual, &sender("look"), &tools);
    let run = bed.start("helper", message("look"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let mut bed = self::bed(manual, &sender("put"), &tools);
    let run = bed.start("helper", message("put it there"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["calls"]["call-1"]["tool"], "put");
    assert_eq!(tools.made().len(), 1, "it alone did not run");
}

#[test]
fn arguments_can_be_edited_and_who_gives_them_wrongly_is_asked_again() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "decision": "approve", "arguments": { "to": "grace" } })).unwrap();
    assert!(bed.status(&run).completed()["reason"] == "completed");
    assert_eq!(tools.made(), [("send".to_owned(), json!({ "to": "grace" }))]);
    let run = bed.start("helper", message("write"));
    let wrong = json!({ "decision": "approve", "arguments": { "to": 7 } });
    let first = bed.status(&run).waiting_for().signal_id;
    bed.answer(&run, &wrong).unwrap();
    let (_, wait) = asleep(&bed, &run);
    assert_ne!(
        first,
        bed.status(&run).waiting_for().signal_id,
        "a late answer to the first question is none to the second"
    );
    let shown = &wait["calls"]["call-1"];
    assert!(shown["unfit"].as_str().unwrap().contains("7 is not of type"), "{shown}");
    assert_eq!(shown["arguments"], json!({ "to": "ada" }), "what would be called is what was");
    bed.answer(&run, json!({ "decision": "approve", "arguments": { "to": "linus" } })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(tools.made()[1..], [("send".to_owned(), json!({ "to": "linus" }))]);
    assert_eq!(model.calls(), 4, "no model call was repeated");
    let run = bed.start("helper", message("write"));
    for _ in 0..4 {
        bed.answer(&run, &wrong).unwrap();
    }
    let state = bed.status(&run).completed();
    assert!(contents(&state, "tool")[0].contains("do not fit"), "{:?}", contents(&state, "tool"));
    assert_eq!(tools.made().len(), 2);
}

#[test]
fn of_several_calls_only_the_one_that_was_given_wrongly_is_asked_about_again() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).is_empty() {
            true => calls(&[("c1", "send", json!({ "to": "ada" })), ("c2", "send", json!({ "to": "grace" }))]),
            false => says("sent"),
        })
    });
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    bed.answer_as(&run, "call-1", json!({ "decision": "approve" })).unwrap();
    bed.answer_as(&run, "call-2", json!({ "decision": "approve", "arguments": {} })).unwrap();
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["calls"].as_object().unwrap().keys().collect::<Vec<_>>(), ["call-2"]);
    assert_eq!(tools.made(), [], "nothing runs while a person may end the whole of it");
    bed.answer(&run, json!({ "decision": "approve", "arguments": { "to": "linus" } })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let mut made = tools.made();
    made.sort_by_key(|(_, arguments)| arguments.to_string());
    assert_eq!(made, [("send".to_owned(), json!({ "to": "ada" })), ("send".to_owned(), json!({ "to": "linus" }))]);
}

#[test]
fn the_model_is_told_of_arguments_that_a_person_changed_behind_the_result_and_its_call_stays() {
    let told = |answer: Value| {
        let (model, tools) = (sender("send"), mailer());
        let mut bed = bed(APPROVED, &model, &tools);
        let run = bed.start("helper", message("write to ada"));
        bed.answer(&run, answer).unwrap();
        let state = bed.status(&run).completed();
        let result = contents(&state, "tool").remove(0);
        assert!(!result.contains("a person"), "what the tool said stays as it was: {result}");
        let request = json!(model.last().messages);
        assert_eq!(request[2]["tool_calls"][0]["arguments"], json!({ "to": "ada" }), "the model asked for that");
        request[3]["content"].as_str().unwrap().to_owned()
    };
    let changed = told(json!({ "decision": "approve", "arguments": { "to": "grace" } }));
    let words = "[a person changed the arguments of this call; they became {\"to\":\"grace\"}]";
    assert_eq!(changed, format!("send to \"grace\"\n{words}"));
    for same in [json!({ "decision": "approve" }), json!({ "decision": "approve", "arguments": { "to": "ada" } })] {
        assert_eq!(told(same), "send to \"ada\"");
    }
}

#[test]
fn numbers_that_would_be_rounded_are_refused_to_the_model_and_to_a_person() {
    let schema = json!({ "type": "object", "properties": { "amount": { "type": ["number", "string"] } } });
    let Value::Object(input_schema) = schema else { panic!("an object") };
    let pay = ToolSpec { input_schema, ..tool("pay", Effect::Manual) };
    let ask = |written: &'static str| {
        let asked: Value = serde_json::from_str(written).unwrap();
        ScriptedModel::new(move |request| {
            Ok(match results(request).last() {
                None => calls(&[("c1", "pay", json!({ "amount": asked }))]),
                Some(result) => says(result),
            })
        })
    };
    let approved = "policy: {approval: {external: [pay]}}";
    let paid = || Toolbox::new(vec![pay.clone()], |_| Ok(ToolReply::Done(ToolOutput::text("paid"))));
    for (written, is_made) in [
        ("12345678901234567890123", false),
        ("-12345678901234567890123", false),
        ("18446744073709551616", false),
        ("18446744073709551615", true),
        ("-9223372036854775808", true),
        ("\"12345678901234567890123\"", true),
        ("0.1", true),
    ] {
        let tools = paid();
        let mut bed = bed("policy: {approval: {external: []}}", &ask(written), &tools);
        let run = bed.start("helper", message("pay"));
        let said = contents(&bed.status(&run).completed(), "assistant").pop().unwrap();
        assert_eq!(tools.made().len(), usize::from(is_made), "{written}: {said}");
        assert_eq!(said.contains("beyond 64 bits"), !is_made, "{written}: {said}");
    }
    let tools = paid();
    let mut bed = bed(approved, &ask("1"), &tools);
    let run = bed.start("helper", message("pay"));
    let large: Value = serde_json::from_str("12345678901234567890123").unwrap();
    bed.answer(&run, json!({ "decision": "approve", "arguments": { "amount": large } })).unwrap();
    let (_, wait) = asleep(&bed, &run);
    assert!(wait["calls"]["call-1"]["unfit"].as_str().unwrap().contains("beyond 64 bits"), "{wait:#?}");
    assert_eq!(tools.made(), []);
}

#[test]
fn calls_of_an_answer_that_was_cut_before_their_arguments_or_filtered_are_not_made() {
    let told_by = |finish_reason: FinishReason, raw: Value, asked: &[(&str, &str, Value)]| {
        let first = Response { finish_reason, raw, ..calls(asked) };
        let (model, tools) = (ScriptedModel::playing(vec![Ok(first), Ok(says("done"))]), open_box());
        let mut bed = bed("policy: {approval: {external: []}}", &model, &tools);
        let run = bed.start("helper", message("look"));
        let state = bed.status(&run).completed();
        let made: Vec<String> = tools.made().into_iter().map(|(name, _)| name).collect();
        (made, contents(&state, "tool"), state["reason"].as_str().unwrap().to_owned())
    };
    let answer = |finish_reason, asked: &[(&str, &str, Value)]| told_by(finish_reason, Value::Null, asked);
    let (empty, whole) = (json!({}), json!({ "to": "x" }));
    let (made, told, reason) =
        answer(FinishReason::Length, &[("a", "one", empty.clone()), ("b", "two", empty.clone())]);
    assert_eq!((made.as_slice(), reason.as_str()), (&["one".to_owned()][..], "completed"));
    assert!(told[1].contains("the answer was cut"), "the model can call it again: {told:?}");
    let (made, ..) = answer(FinishReason::Length, &[("a", "one", whole.clone())]);
    assert_eq!(made, ["one"], "its arguments are whole");
    let (made, ..) = answer(FinishReason::ToolCalls, &[("a", "one", empty)]);
    assert_eq!(made, ["one"], "it has none");
    let (made, told, reason) = answer(FinishReason::ContentFilter, &[("a", "one", whole.clone())]);
    assert_eq!((made.len(), reason.as_str()), (0, "content_filter"));
    assert!(told[0].contains("filter"), "the conversation is whole: {told:?}");
    // Of Gemini's answers the specification only tells that there are calls.
    let gemini = |word: &str, arguments: &Value| {
        let raw = json!({ "candidates": [{ "finishReason": word }] });
        told_by(FinishReason::ToolCalls, raw, &[("a", "one", arguments.clone())])
    };
    for word in ["SAFETY", "PROHIBITED_CONTENT"] {
        let (made, _, reason) = gemini(word, &whole);
        assert_eq!((made.len(), reason.as_str()), (0, "content_filter"), "{word}");
    }
    let (made, told, reason) = gemini("MAX_TOKENS", &json!({}));
    assert_eq!((made.len(), reason.as_str()), (0, "completed"));
    assert!(told[0].contains("the answer was cut"), "{told:?}");
    assert_eq!(gemini("STOP", &json!({})).0, ["one"]);
}

/// Tools that take anything.
fn open_box() -> Arc<Toolbox> {
    let anything = |name: &str| ToolSpec {
        input_schema: Map::from_iter([("type".to_owned(), "object".into())]),
        ..tool(name, Effect::Manual)
    };
    Toolbox::new(vec![anything("one"), anything("two")], |_| Ok(ToolReply::Done(ToolOutput::text("made"))))
}

#[test]
fn an_approval_of_other_arguments_is_none() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    for decision in ["approve", "deny"] {
        for digest in ["0".repeat(64), String::new()] {
            let refused = bed.answer(&run, json!({ "decision": decision, "digest": digest })).unwrap_err().to_string();
            assert!(refused.contains("field `digest` must be"), "{refused}");
        }
    }
    assert!(bed.status(&run).is_asleep(), "it waits for an answer to what it asked");
    assert_eq!(tools.made(), []);
    let two = ScriptedModel::new(|request| {
        Ok(match results(request).is_empty() {
            true => calls(&[("c1", "send", json!({ "to": "ada" })), ("c2", "send", json!({ "to": "grace" }))]),
            false => says("sent"),
        })
    });
    let mut bed = self::bed(APPROVED, &two, &tools);
    let run = bed.start("helper", message("write to both"));
    let (_, wait) = asleep(&bed, &run);
    let of_first = &wait["calls"]["call-1"]["digest"];
    bed.answer_as(&run, "call-1", json!({ "decision": "approve", "digest": of_first })).unwrap();
    bed.answer_as(&run, "call-2", json!({ "decision": "approve", "digest": of_first })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool")[1], "the call was not made: what was approved are other arguments");
    assert_eq!(tools.made(), [("send".to_owned(), json!({ "to": "ada" }))]);
}

#[test]
fn a_denial_goes_to_the_model_or_ends_the_run() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "decision": "deny", "reason": "not today" })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["a person denied the call: not today"]);
    assert_eq!(state["reason"], "completed");
    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "decision": "stop", "reason": "enough" })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(state["reason"], "denied");
    assert_eq!(tools.made(), []);
    let refused = bed.start("helper", message("write"));
    assert!(bed.answer(&refused, json!({ "decision": "perhaps" })).is_err(), "and it sleeps on");
    assert!(bed.status(&refused).is_asleep());
}

#[test]
fn nobody_decides_for_three_days() {
    let model = sender("send");
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    bed.pass_days(2);
    assert!(bed.status(&run).is_asleep());
    bed.pass_days(1);
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["the call was not made: nobody approved it in time"]);
    assert_eq!(tools.made(), []);
}

#[test]
fn several_calls_are_asked_about_in_one_pause() {
    let model = ScriptedModel::new(|request: &CompletionRequest| {
        Ok(match results(request).len() {
            0 => calls(&[
                ("a", "send", json!({ "to": "ada" })),
                ("b", "send", json!({ "to": "grace" })),
                ("c", "look", json!({ "to": "x" })),
            ]),
            _ => says("done"),
        })
    });
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write to both"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["expects"]["parts"].as_object().unwrap().len(), 2);
    bed.answer_as(&run, "call-1", json!({ "decision": "approve" })).unwrap();
    assert!(bed.status(&run).is_asleep());
    bed.answer_as(&run, "call-2", json!({ "decision": "deny", "reason": "no" })).unwrap();
    let state = bed.status(&run).completed();
    let told = ["send to \"ada\"", "a person denied the call: no", "look to \"x\""];
    assert_eq!(contents(&state, "tool"), told, "in the order of the calls");
    assert_eq!(tools.made().len(), 2);
}

#[test]
fn mistakes_of_a_model_go_back_to_it() {
    let model = ScriptedModel::playing(vec![
        Ok(calls(&[
            ("a", "Send", json!({ "to": "ada" })),
            ("b", "send", json!({ "to": 7 })),
            ("c", "fly", json!({})),
            ("d", "send", json!({})),
        ])),
        Ok(says("I give up")),
    ]);
    let tools = mailer();
    let mut bed = bed(MATTER, &model, &tools);
    let run = bed.start("helper", message("write"));
    let state = bed.status(&run).completed();
    let told = contents(&state, "tool");
    assert!(told[0].contains("did you mean `send`?"), "{told:?}");
    assert!(told[1].contains("do not fit the schema: /to:"), "{told:?}");
    assert!(told[2].contains("there are `send`, `look`"), "{told:?}");
    assert!(told[3].contains("\"to\" is a required property"), "{told:?}");
    assert_eq!(tools.made(), []);
}

#[test]
fn an_answer_with_calls_without_end_is_recorded_and_the_model_is_told_of_them_together() {
    let model = ScriptedModel::new(|request| {
        let asked: Vec<String> = (0..300).map(|number| format!("c{number}")).collect();
        let asked: Vec<_> = asked.iter().map(|id| (id.as_str(), "look", json!({ "to": "x" }))).collect();
        Ok(if results(request).is_empty() { calls(&asked) } else { says("that was too much") })
    });
    let tools = mailer();
    let mut bed = bed(MATTER, &model, &tools);
    let run = bed.start("helper", message("look everywhere"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!((model.calls(), tools.made().len()), (2, 25));
    let told = results(&model.last());
    assert_eq!((told.len(), &*told[24]), (300, "look to \"x\""), "each call has a result");
    assert_eq!(told[49], "25 tools can be called at a time: call this one again in the next step");
    assert!(told[50].starts_with("250 calls from this one on were not made: 25 tools"), "{}", told[50]);
    assert!(told[51..].iter().all(|told| told == "the call was not made, either"));
}

#[test]
fn of_two_tools_of_one_name_the_first_counts() {
    let named = |name: &'static str| {
        Toolbox::new(vec![tool("look", Effect::Safe)], move |_| Ok(ToolReply::Done(ToolOutput::text(name))))
    };
    let (first, second) = (named("the first"), named("the second"));
    let other = second.clone();
    let model = sender("look");
    let mut bed = bed_with(MATTER, &model, &first, move |parts| {
        let one = ToolPart { name: "other".to_owned(), source: other.clone(), ..parts.tools[0].clone() };
        parts.tools.push(one);
    });
    let run = bed.start("helper", message("look"));
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["the first"]);
    assert_eq!(model.requests.lock().unwrap()[0].tools.len(), 1, "a model is offered it once");
    assert_eq!((first.made().len(), second.made().len()), (1, 0));
}

/// Two sources have a tool of one name. What a call was planned for, and a person was asked about, is made there or not at
/// all.
#[test]
fn a_call_is_made_at_the_source_that_it_was_planned_for_or_not_at_all() {
    let question = || {
        let (message, schema) = ("Which PIN?".to_owned(), Map::from_iter([("type".to_owned(), json!("object"))]));
        Ok(ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") }))
    };
    let unreached = "error: the call was not made: the tool `send` of `box` cannot be reached now: no connection; it may \
                     work later";
    let dropped = "error: the call was not made: the tool `send` of `box` is not there any more";
    let cases = [
        ("approval", json!({ "decision": "approve" })),
        ("uncertain_effect", json!({ "decision": "repeat" })),
        ("tool_input", json!({ "decision": "answer", "content": { "pin": "1234" } })),
    ];
    for (kind, answer) in cases {
        for is_down in [true, false] {
            let first = Toolbox::new(vec![tool("send", Effect::Manual)], move |call| match (kind, &call.input) {
                ("uncertain_effect", _) => Err(ToolError::transient("the connection was lost").maybe_done()),
                ("tool_input", None) => question(),
                _ => Ok(ToolReply::Done(ToolOutput::text("sent"))),
            });
            let second = mailer();
            let other = second.clone();
            let matter = if kind == "approval" { APPROVED } else { MATTER };
            let mut bed = bed_with(matter, &sender("send"), &first, move |parts| {
                let one = ToolPart { name: "other".to_owned(), source: other.clone(), ..parts.tools[0].clone() };
                parts.tools.push(one);
            });
            let run = bed.start("helper", message("write"));
            let (_, wait) = asleep(&bed, &run);
            assert_eq!(wait["kind"], kind);
            let shown = wait.get("calls").or_else(|| wait.get("questions")).unwrap();
            assert_eq!(shown["call-1"]["source"], "box", "{kind}: who is asked sees whose tool it is");
            let before = first.made().len();
            match is_down {
                true => first.unlisted.store(true, Ordering::SeqCst),
                false => first.specs.lock().unwrap().clear(),
            }
            bed.answer(&run, answer.clone()).unwrap();
            let told = contents(&bed.status(&run).completed(), "tool");
            assert_eq!(told, [if is_down { unreached } else { dropped }], "{kind}");
            assert_eq!((first.made().len(), second.made().len()), (before, 0), "{kind}");
        }
    }
}

#[test]
fn arguments_that_no_longer_fit_when_their_call_is_approved_are_not_sent() {
    let tools = mailer();
    let mut bed = bed(APPROVED, &sender("send"), &tools);
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    let changed = json!({ "type": "object", "properties": { "to": { "type": "integer" } }, "required": ["to"] });
    let Value::Object(changed) = changed else { panic!() };
    tools.specs.lock().unwrap()[0].input_schema = changed;
    let digest = &wait["calls"]["call-1"]["digest"];
    bed.answer(&run, json!({ "decision": "approve", "digest": digest })).unwrap();
    let told = contents(&bed.status(&run).completed(), "tool");
    let expected = "error: the call was not made: its arguments do not fit the schema of the tool now: /to: \"ada\" is not \
                    of type \"integer\"";
    assert_eq!((told, tools.made()), (vec![expected.to_owned()], Vec::new()));
}

#[test]
fn a_call_stays_with_its_source_when_one_that_comes_before_it_is_there_again() {
    let (first, second) = (mailer(), mailer());
    let other = second.clone();
    let matter = "policy: {approval: {external: [other]}}";
    let mut bed = bed_with(matter, &sender("send"), &first, move |parts| {
        let one = ToolPart { name: "other".to_owned(), source: other.clone(), ..parts.tools[0].clone() };
        parts.tools.push(one);
    });
    first.unlisted.store(true, Ordering::SeqCst);
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["calls"]["call-1"]["source"], "other");
    first.unlisted.store(false, Ordering::SeqCst);
    bed.answer(&run, json!({ "decision": "approve", "arguments": { "to": "grace" } })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!((first.made(), second.made()), (Vec::new(), vec![("send".to_owned(), json!({ "to": "grace" }))]));
}

#[test]
fn a_tool_of_a_server_is_meant_by_any_of_its_names_and_a_slip_asks_for_all() {
    for (matter, asks) in [
        ("policy: {approval: {external: [send]}}", true),
        ("policy: {approval: {external: [box]}}", true),
        ("policy: {approval: {external: [box.send]}}", true),
        ("policy: {approval: {external: ['box.*']}}", true),
        ("policy: {approval: {external: [sned]}}", true),
        ("policy: {approval: {external: [parcel]}}", true),
        ("disallowed: {tools: [snd]}", true),
        ("disallowed: {tools: [box]}", false),
        ("policy: {approval: {external: [look]}}", false),
        ("policy: {approval: {external: ['mail.*']}}", false),
    ] {
        let model = ScriptedModel::new(|request: &CompletionRequest| match request.messages.len() {
            2 => Ok(calls(&[("c1", "send", json!({ "to": "ada" }))])),
            _ => Ok(says("done")),
        });
        let tools = mailer();
        let mut bed = bed(matter, &model, &tools);
        let run = bed.start("helper", message("send"));
        assert_eq!(bed.status(&run).is_asleep(), asks, "{matter}");
        let was_made = !asks && !matter.contains("disallowed");
        assert_eq!(tools.made.lock().unwrap().len(), usize::from(was_made), "{matter}");
    }
}

#[test]
fn the_end_of_a_run_has_a_reason() {
    for (matter, reason, steps) in [
        ("policy: {max_steps: 1}", "max_steps", 1),
        ("policy: {max_steps: 3}", "max_steps", 3),
        ("policy: {max_total_tokens: 200}", "budget", 2),
        ("policy: {max_cost: 0.0001}", "budget", 1),
    ] {
        let model = ScriptedModel::new(|request: &CompletionRequest| {
            let id = format!("c{}", request.messages.len());
            Ok(calls(&[(&id, "look", json!({ "to": "x" }))]))
        });
        let tools = mailer();
        let mut bed = bed(matter, &model, &tools);
        let run = bed.start("helper", message("look"));
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], &state["steps"]), (&json!(reason), &json!(steps)), "{matter}");
        assert_eq!(state["dormouse_shortfall"]["code"], reason, "{matter}: its task has failed");
        let last = contents(&state, "tool").pop().unwrap();
        assert!(last.contains("the run ended"), "every call has a result: {last}");
        assert_eq!(model.calls(), steps, "{matter}: the model is asked no more often than that");
    }
}

#[test]
fn who_is_told_of_a_question_is_told_in_the_order_of_time_and_before_its_end() {
    let matter = "policy: {approval: {external: [send], remind_after: PT1S, deny_after: P2D, \
                  notify: {boss: P1D, late: P2D, ops: PT1S}}}";
    let mut bed = bed(matter, &sender("send"), &mailer());
    let run = bed.start("helper", message("write to ada"));
    let (_, wait) = asleep(&bed, &run);
    let ladder = wait["deadlines"].as_array().unwrap();
    let told: Vec<_> = ladder.iter().map(|step| (step["do"].as_str(), step["to"].as_str())).collect();
    let expected =
        [(Some("notify"), Some("ops")), (Some("remind"), None), (Some("notify"), Some("boss")), (None, None)];
    assert_eq!(told, expected, "{ladder:?}");
    bed.pass(Duration::from_secs(1));
    assert_eq!(bed.published()[0].detail["do"], "notify");
}

#[test]
fn errors_of_tools_go_to_the_model_and_uncertain_ones_to_a_person() {
    let model = sender("send");
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |_| Err(ToolError::transient("the server is down")));
    let mut bed = bed(MATTER, &model, &tools);
    let run = bed.start("helper", message("write"));
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["error: the server is down; it may work later"]);

    let tools =
        Toolbox::new(vec![tool("send", Effect::Manual)], |call| match call.idempotency_key.ends_with("again") {
            true => Ok(ToolReply::Done(ToolOutput::text("sent"))),
            false => Err(ToolError::transient("the connection was lost").maybe_done()),
        });
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(
        (&wait["kind"], &wait["calls"]["call-1"]["known"]),
        (&json!("uncertain_effect"), &json!("the connection was lost"))
    );
    let question = wait["description"].as_str().unwrap();
    assert!(question.starts_with("Did `send` happen?"), "{question}");
    assert!(question.contains("its outcome is in doubt: the connection was lost. `happened`"), "{question}");
    bed.answer(&run, json!({ "decision": "happened", "result": "sent, I saw it" })).unwrap();
    let state = bed.status(&run).completed();
    assert_eq!(contents(&state, "tool"), ["sent, I saw it"]);
    assert_eq!(tools.made().len(), 1);

    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "decision": "repeat" })).unwrap();
    let (_, again) = asleep(&bed, &run);
    assert_eq!(again["kind"], "uncertain_effect", "it was made once more, and is uncertain once more");
    bed.answer(&run, json!({ "decision": "skip" })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
}

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
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("a", "send", json!({ "to": "ada" })), ("b", "look", json!({ "to": "x" }))]),
            _ => says("done"),
        })
    });
    let mut bed = bed_with(MATTER, &model, &tools, |_| {});
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

    fn masked(&self, output: ToolOutput) -> ToolOutput {
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

/// A source that says nothing.
#[derive(Debug)]
struct Silence;

#[async_trait]
impl ToolSource for Silence {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        std::future::pending().await
    }

    async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
        Err(ToolError::permanent("it has no tools"))
    }
}

#[test]
fn a_source_that_says_nothing_does_not_keep_the_tools_of_others_from_being_shown() {
    let clock = Arc::new(ManualClock::default());
    let mut shown = parts(MATTER, sender("send"), mailer(), clock.clone());
    let silence = ToolPart { name: "silence".to_owned(), source: Arc::new(Silence), ..shown.tools[0].clone() };
    shown.tools.push(silence);
    let limit = Duration::from_secs(10);
    let (tools, ()) = futures::executor::block_on(join(shown.offered_tools(limit), async { clock.advance(limit) }));
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["send", "look"]);
}

#[test]
fn a_tool_may_ask_a_person() {
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], |call| match &call.input {
        None => {
            let schema = json!({ "type": "object", "properties": { "subject": { "type": "string" } } });
            let Value::Object(schema) = schema else { panic!() };
            let message = "Which subject?".to_owned();
            Ok(ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") }))
        }
        Some(input) => Ok(ToolReply::Done(ToolOutput::text(format!("{} with {:?}", input.state, input.content)))),
    });
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!((&wait["kind"], &wait["description"]), (&json!("tool_input"), &json!("Which subject?")));
    assert_eq!(wait["answers"], json!({ "by": "by" }), "who answers is named by the key, and by nobody else");
    bed.answer(&run, json!({ "decision": "answer", "content": { "subject": "hi" } })).unwrap();
    let told = contents(&bed.status(&run).completed(), "tool");
    assert!(told[0].contains("\"s1\"") && told[0].contains("hi"), "{told:?}");
}

/// Asks for a color, and says which it was given.
fn painter() -> Arc<Toolbox> {
    Toolbox::new(vec![tool("send", Effect::Manual)], |call| match &call.input {
        None => {
            let color = json!({ "type": "string", "enum": ["red", "blue"] });
            let schema = json!({ "type": "object", "properties": { "color": color }, "required": ["color"] });
            let Value::Object(schema) = schema else { panic!() };
            let message = "Which color?".to_owned();
            Ok(ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") }))
        }
        Some(input) => Ok(ToolReply::Done(ToolOutput::text(json!(input.content).to_string()))),
    })
}

#[test]
fn an_answer_that_does_not_fit_what_a_tool_asked_is_refused_and_changes_nothing() {
    let tools = painter();
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("paint"));
    for content in [json!({ "color": "green" }), json!({}), json!({ "color": 1 })] {
        let refused = bed.answer(&run, json!({ "decision": "answer", "content": content })).unwrap_err().to_string();
        assert!(refused.contains("content.color"), "{refused}");
    }
    assert_eq!(tools.made().len(), 1, "the tool is told of none of them");
    // That it lacks an answer is seen behind the pause.
    bed.answer(&run, json!({ "decision": "answer" })).unwrap();
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["questions"]["call-1"]["unfit"], "\"color\" is a required property");
    assert!(wait["description"].as_str().unwrap().starts_with("Which color?\nThe answer that was given does not fit"));
    bed.answer(&run, json!({ "decision": "answer", "content": { "color": "red" } })).unwrap();
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["{\"color\":\"red\"}"]);
}

#[test]
fn of_several_questions_only_the_one_that_was_answered_wrongly_is_asked_again_and_not_without_end() {
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).is_empty() {
            true => calls(&[("c1", "send", json!({ "to": "ada" })), ("c2", "send", json!({ "to": "grace" }))]),
            false => says("done"),
        })
    });
    let mut bed = bed_with("policy: {parallel_tool_calls: true}", &model, &painter(), |_| {});
    let run = bed.start("helper", message("paint"));
    bed.answer_as(&run, "call-1", json!({ "decision": "answer", "content": { "color": "blue" } })).unwrap();
    bed.answer_as(&run, "call-2", json!({ "decision": "answer", "content": { "color": "green" } })).unwrap();
    let (_, wait) = asleep(&bed, &run);
    let asked = wait["questions"].as_object().unwrap();
    assert_eq!(asked.keys().collect::<Vec<_>>(), ["call-2"]);
    let unfit = asked["call-2"]["unfit"].as_str().unwrap();
    assert!(unfit.starts_with("/color: value is not one of") && !unfit.contains("green"), "{unfit}");
    for _ in 0..3 {
        assert_eq!(asleep(&bed, &run).1["kind"], "tool_input");
        bed.answer(&run, json!({ "decision": "answer" })).unwrap();
    }
    let told = contents(&bed.status(&run).completed(), "tool");
    assert_eq!(told, ["{\"color\":\"blue\"}", "null"], "at last it counts as no answer");
}

#[test]
fn a_call_in_doubt_that_carried_an_answer_is_repeated_with_it() {
    let lost = AtomicBool::new(true);
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |call| match &call.input {
        None => {
            let (message, schema) = ("Which PIN?".to_owned(), Map::from_iter([("type".to_owned(), json!("object"))]));
            Ok(ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") }))
        }
        Some(_) if lost.swap(false, Ordering::SeqCst) => {
            Err(ToolError::transient("the connection was lost").maybe_done())
        }
        Some(input) => Ok(ToolReply::Done(ToolOutput::text(json!([input.content, input.state]).to_string()))),
    });
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("pay"));
    bed.answer(&run, json!({ "decision": "answer", "content": { "pin": "1234" } })).unwrap();
    assert_eq!(asleep(&bed, &run).1["kind"], "uncertain_effect");
    bed.answer(&run, json!({ "decision": "repeat" })).unwrap();
    let told = contents(&bed.status(&run).completed(), "tool");
    assert_eq!(told, ["[{\"pin\":\"1234\"},\"s1\"]"], "nobody is asked for it again");
    assert_eq!(tools.made().len(), 3);
}

#[test]
fn a_model_that_cannot_be_asked_is_asked_later() {
    let busy = || ModelError::new(ModelErrorCategory::RateLimit, "slow down");
    let model = ScriptedModel::playing(vec![Err(busy()), Err(busy()), Ok(says("hello"))]);
    let mut bed = bed(MATTER, &model, &mailer());
    let run = bed.start("helper", message("hi"));
    assert!(bed.status(&run).is_asleep());
    bed.pass(Duration::from_secs(30));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(model.calls(), 3);
    let told = |seconds| {
        let mut error = busy();
        error.retry_after = Some(Duration::from_secs(seconds));
        Err(error)
    };
    let model = ScriptedModel::playing(vec![told(5_000), Ok(says("hello"))]);
    let mut patient = bed_with(MATTER, &model, &mailer(), |_| {});
    let run = patient.start("helper", message("hi"));
    patient.pass(Duration::from_secs(4_999));
    assert_eq!((patient.status(&run).is_asleep(), model.calls()), (true, 1), "it is not asked before");
    patient.pass(Duration::from_secs(1));
    assert_eq!((&patient.status(&run).completed()["reason"], model.calls()), (&json!("completed"), 2));
    let model = ScriptedModel::playing(vec![told(90_000)]);
    let mut hasty = bed_with(MATTER, &model, &mailer(), |_| {});
    let refused = hasty.try_start("helper", message("hi")).expect_err("nobody waits as long");
    assert!(refused.message.contains("in 90000 seconds"), "{refused:?}");
    let wrong_key = ModelError::new(ModelErrorCategory::Authentication, "the key was refused");
    let model = ScriptedModel::playing(vec![Err(wrong_key)]);
    let mut bed = bed_with(MATTER, &model, &mailer(), |_| {});
    let run = bed.try_start("helper", message("hi"));
    let refused = run.expect_err("an operator has to act");
    assert!(refused.message.contains("the key was refused"), "{refused:?}");
    assert_eq!(refused.category, "provider_authentication");
}

#[test]
fn large_output_is_cut_for_the_model_and_kept_whole() {
    let large = "x".repeat(2_000_000);
    let text = large.clone();
    let tools =
        Toolbox::new(vec![tool("look", Effect::Safe)], move |_| Ok(ToolReply::Done(ToolOutput::text(text.clone()))));
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            made @ 0..=2 => calls(&[(&format!("c{made}"), "look", json!({ "to": "ada" }))]),
            _ => says("done"),
        })
    });
    let mut bed = bed_with(MATTER, &model, &tools, |_| {});
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    let shown = &contents(&state, "tool")[0];
    assert!(shown.len() < 33_000 && shown.contains("of 2000000 bytes are shown"), "{}", shown.len());
    assert_eq!(state["outputs"][0]["text"], large);
    let kept: Vec<_> = state["outputs"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect();
    let room = 3 * 1024 * 1024 - large.len();
    assert_eq!((kept.len(), kept[1]), (2, &large[..room]), "what has no room is kept as far as it goes");
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
fn a_session_keeps_the_conversation() {
    let model =
        ScriptedModel::new(|request: &CompletionRequest| Ok(says(&format!("{} messages", request.messages.len()))));
    let mut bed = bed(MATTER, &model, &mailer());
    let first = bed.start("helper", message("one"));
    assert_eq!(contents(&bed.status(&first).completed(), "assistant"), ["2 messages"]);
}

#[test]
fn a_command_has_the_whole_time_that_the_agent_sets_and_a_moment_to_tell_what_came_of_it() {
    use dormouse_agent::workspace::ToolOrigin;
    use dormouse_ports::tool::TIME_TO_TELL;

    for (origin, told) in [(ToolOrigin::Native, TIME_TO_TELL), (ToolOrigin::External, Duration::ZERO)] {
        let tools = mailer();
        let mut bed = bed_with("policy: {tool_timeout_seconds: 5}", &sender("send"), &tools, move |parts| {
            parts.tools[0].origin = origin;
            parts.agent.tools.native = vec!["send".to_owned()];
        });
        let now = bed.now();
        let run = bed.start("helper", message("write to ada"));
        bed.status(&run).completed();
        let deadline = tools.made.lock().unwrap()[0].deadline.expect("a deadline");
        assert_eq!(Duration::try_from(deadline.duration_since(now)).unwrap(), Duration::from_secs(5) + told);
    }
}

#[test]
fn calls_that_are_made_one_after_the_other_are_made_in_their_order_and_none_is_in_doubt() {
    let model = ScriptedModel::new(|request| {
        let asked = [
            ("c1", "look", json!({ "to": "a" })),
            ("c2", "send", json!({ "to": "b" })),
            ("c3", "look", json!({ "to": "c" })),
        ];
        Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
    });
    let tools = mailer();
    let mut bed = bed("policy: {parallel_tool_calls: false}", &model, &tools);
    let run = bed.start("helper", message("write to ada"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    let made: Vec<String> = tools.made().into_iter().map(|(name, to)| format!("{name} {}", to["to"])).collect();
    assert_eq!(made, ["look \"a\"", "send \"b\"", "look \"c\""]);
}

#[test]
fn an_agent_without_instructions_is_asked_without_any() {
    let model = ScriptedModel::new(|_| Ok(says("done")));
    let mut bed = bed_with(MATTER, &model, &mailer(), |parts| parts.instructions = " \n".to_owned());
    let run = bed.start("helper", message("hello"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(model.last().messages.iter().map(Message::role).collect::<Vec<_>>(), ["user"]);
}

#[test]
fn of_two_calls_with_one_id_the_first_is_made_and_each_has_a_result_of_its_own() {
    let model = ScriptedModel::new(|request| {
        let twice = [("c1", "send", json!({ "to": "ada" })), ("c1", "send", json!({ "to": "grace" }))];
        Ok(if results(request).is_empty() { calls(&twice) } else { says("done") })
    });
    let tools = mailer();
    let mut bed = bed(MATTER, &model, &tools);
    let run = bed.start("helper", message("write"));
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(tools.made(), [("send".to_owned(), json!({ "to": "ada" }))]);
    let told = model.last();
    let results = results(&told);
    assert_eq!((results.len(), &*results[0]), (2, "send to \"ada\""));
    assert!(results[1].contains("has the id of another one of this step, `c1`"), "{results:?}");
    let ids = json!(told.messages);
    let (first, second) = (&ids[2]["tool_calls"][0]["id"], &ids[2]["tool_calls"][1]["id"]);
    assert_ne!(first, second, "a provider takes both back");
    assert_eq!((&ids[3]["tool_call_id"], &ids[4]["tool_call_id"]), (first, second));
}

#[test]
fn a_pattern_that_forbids_actions_or_skills_forbids_no_other_tools() {
    use dormouse_agent::workspace::ToolOrigin::{Action, External};

    for (matter, origin, is_made) in [
        ("disallowed: {actions: ['*']}", External, true),
        ("disallowed: {skills: ['*']}", External, true),
        ("disallowed: {actions: ['*']}", Action, false),
        ("disallowed: {skills: ['*']}", Action, true),
        ("disallowed: {tools: ['*']}", External, false),
        ("disallowed: {tools: ['*']}", Action, false),
        ("disallowed: {actions: [send]}", External, false),
    ] {
        let tools = mailer();
        let mut bed = bed_with(matter, &sender("send"), &tools, move |parts| parts.tools[0].origin = origin);
        let run = bed.start("helper", message("write"));
        assert_eq!(bed.status(&run).completed()["reason"], "completed");
        assert_eq!(tools.made().len(), usize::from(is_made), "{matter} {origin:?}");
    }
}

#[test]
fn system_messages_of_a_conversation_are_told_in_their_places() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = asked.clone();
    let model = ScriptedModel::new(move |request| {
        kept.lock().unwrap().extend(request.messages.clone());
        Ok(says("done"))
    });
    let mut bed = bed(MATTER, &model, &mailer());
    let said = [("system", "the code is TULIP"), ("user", "hello"), ("system", "be brief")];
    let said: Vec<Value> = said.map(|(role, content)| json!({ "role": role, "content": content })).into();
    let run = bed.start("helper", json!({ "messages": said }));
    bed.status(&run).completed();
    let asked = asked.lock().unwrap();
    let reminder = |text: &str| Message::user(format!("<system_reminder>\n{text}\n</system_reminder>"));
    let told = [reminder("the code is TULIP"), Message::user("hello"), reminder("be brief")];
    assert!(asked.ends_with(&told), "{asked:?}");
    assert!(!asked[1..].iter().any(|message| matches!(message, Message::System { .. })), "the agent's own stand first");
}

#[test]
fn a_step_of_many_large_calls_is_asked_about_and_what_does_not_fit_is_read_elsewhere() {
    let model = ScriptedModel::new(|request: &CompletionRequest| {
        let asked: Vec<_> = (0..25).map(|n| format!("c{n}")).collect();
        let asked: Vec<_> = asked.iter().map(|id| (id.as_str(), "send", json!({ "to": "x".repeat(7_500) }))).collect();
        Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
    });
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    let shown = wait["calls"].as_object().unwrap();
    let is_cut = |call: &&Value| call["arguments"]["cut"] == true && call["whole"].is_string();
    assert_eq!((shown.len(), shown.values().filter(is_cut).count()), (25, 21));
    for call in 1..=25 {
        bed.answer_as(&run, &format!("call-{call}"), json!({ "decision": "approve" })).unwrap();
    }
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!((model.calls(), tools.made().len()), (2, 25));
}

#[test]
fn what_tools_ask_is_as_much_as_a_pause_has_room_for_and_the_model_is_told_of_the_rest() {
    let tools = Toolbox::new(vec![tool("send", Effect::Safe)], |call| match &call.input {
        None => {
            let schema = json!({ "type": "object", "properties": { "subject": { "type": "string" } } });
            let Value::Object(schema) = schema else { panic!() };
            let message = "Which? ".repeat(1_000);
            Ok(ToolReply::InputRequired(InputRequest { message, schema, state: json!("s1") }))
        }
        Some(_) => Ok(ToolReply::Done(ToolOutput::text("sent"))),
    });
    let model = ScriptedModel::new(|request: &CompletionRequest| {
        let asked: Vec<_> = (0..4).map(|n| format!("c{n}")).collect();
        let asked: Vec<_> = asked.iter().map(|id| (id.as_str(), "send", json!({ "to": "ada" }))).collect();
        Ok(if results(request).is_empty() { calls(&asked) } else { says("done") })
    });
    let mut bed = bed_with(MATTER, &model, &tools, |_| {});
    let run = bed.start("helper", message("write"));
    let (_, wait) = asleep(&bed, &run);
    assert_eq!(wait["questions"].as_object().unwrap().len(), 2);
    for call in ["call-1", "call-2"] {
        bed.answer_as(&run, call, json!({ "decision": "answer", "content": { "subject": "hi" } })).unwrap();
    }
    let told = contents(&bed.status(&run).completed(), "tool");
    assert_eq!(told[..2], ["sent", "sent"]);
    assert!(told[2..].iter().all(|told| told.contains("call it by itself")), "{told:?}");
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
    let model = ScriptedModel::new(|request| {
        Ok(match results(request).len() {
            0 => calls(&[("a", "send", json!({ "to": "ada" })), ("b", "look", json!({ "to": "x" }))]),
            _ => says("done"),
        })
    });
    let mut bed = bed_with(MATTER, &model, &tools, |_| {});
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
