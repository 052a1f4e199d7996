//! Runs of an agent in a world in memory: tools, mistakes, ends, limits.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use async_trait::async_trait;
use dormouse::testing::{Invocation, TestBed};
use dormouse::{Agents, Map, Value, json};
use dormouse_agent::graph;
use dormouse_agent::graph::{AgentParts, ToolPart};
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, Response};
use dormouse_ports::tool::{Effect, InputRequest, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use dormouse_testkit::ManualClock;
use futures::future::join;

pub(crate) const MATTER: &str = "description: helps";
pub(crate) const APPROVED: &str = "policy: {approval: {external: [send]}}";

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
pub(crate) fn sender(tool: &'static str) -> Arc<ScriptedModel> {
    ScriptedModel::new(move |request| {
        let results = results(request);
        Ok(match results.last() {
            None => calls(&[("c1", tool, json!({ "to": "ada" }))]),
            Some(result) => says(&format!("done: {result}")),
        })
    })
}

pub(crate) fn asleep(bed: &TestBed, run: &Invocation) -> (Map, Map) {
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
    assert!(told[1].contains("with shorter arguments"), "as long ones would be cut again: {told:?}");
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
fn the_end_of_a_run_has_a_reason() {
    for (matter, reason, steps, told) in [
        ("policy: {max_steps: 1}", "max_steps", 1, "(`max_steps`)"),
        ("policy: {max_steps: 3}", "max_steps", 3, "(`max_steps`)"),
        ("policy: {max_total_tokens: 200}", "budget", 2, "used up its 200 tokens (`max_total_tokens`) before"),
        ("policy: {max_cost: 0.0001}", "budget", 1, "used up its money, 0.0001 in the currency"),
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
        let message = state["dormouse_shortfall"]["message"].as_str().expect("a message");
        assert!(message.contains(told), "{matter}: {message}");
        let last = contents(&state, "tool").pop().unwrap();
        assert!(last.contains("the run ended"), "every call has a result: {last}");
        assert_eq!(model.calls(), steps, "{matter}: the model is asked no more often than that");
    }
}

/// A provider's answer may have as many levels within arguments as an entry has, which has others around them.
#[test]
fn arguments_as_deep_as_they_may_be_are_recorded_asked_for_and_sent() {
    let deep = (0..63).fold(json!("x"), |inner, _| json!({ "a": inner }));
    let arguments = json!({ "to": "ada", "deep": deep });
    let asked = arguments.clone();
    let model = ScriptedModel::new(move |request| {
        Ok(if results(request).is_empty() { calls(&[("c1", "send", asked.clone())]) } else { says("done") })
    });
    let tools = mailer();
    let mut bed = bed(APPROVED, &model, &tools);
    let run = bed.start("helper", message("send"));
    let shown = asleep(&bed, &run).1["calls"]["call-1"]["arguments"].clone();
    assert_eq!(shown, json!({ "cut": true, "bytes": arguments.to_string().len() }));
    bed.answer(&run, json!({ "decision": "approve" })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
    assert_eq!(tools.made(), [("send".to_owned(), arguments)]);
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
    assert!(question.ends_with("`skip`: leave it\nKnown of it: the connection was lost"), "{question}");
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
