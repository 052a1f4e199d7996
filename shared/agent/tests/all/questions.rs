//! What a run asks people: approvals of calls, and what tools ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, results, says, tool};
use crate::runs::{APPROVED, MATTER, asleep, bed, bed_with, mailer, sender};
use dormouse::{Map, Value, json};
use dormouse_ports::model::CompletionRequest;
use dormouse_ports::tool::{Effect, InputRequest, ToolAnnotations, ToolError, ToolOutput, ToolReply, ToolSpec};

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
    let question = wait["description"].as_str().unwrap();
    assert!(question.starts_with("May `helper` call `send`?\nThe arguments that were given do not fit"), "{question}");
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

/// A pause takes reasons of so many characters, and each may be of several bytes.
#[test]
fn the_model_is_told_a_reason_as_long_as_a_person_may_give() {
    let mut bed = bed(APPROVED, &sender("send"), &mailer());
    let run = bed.start("helper", message("write"));
    let reason = "\u{1f4a4}".repeat(16 * 1024);
    bed.answer(&run, json!({ "decision": "deny", "reason": reason })).unwrap();
    let told = contents(&bed.status(&run).completed(), "tool");
    assert_eq!(told, [format!("a person denied the call: {reason}")]);
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

/// The others are asked about calls that nobody makes any more.
#[test]
fn who_ends_the_run_over_one_of_several_calls_waits_for_no_other_answer() {
    let model = ScriptedModel::new(|_: &CompletionRequest| {
        let send = |id, to: &str| (id, "send", json!({ "to": to }));
        Ok(calls(&[send("a", "ada"), send("b", "grace"), send("c", "linus"), ("d", "look", json!({ "to": "x" }))]))
    });
    let ended = "the call was not made: a person ended the run";
    for earlier in ["approve", "deny"] {
        let tools = mailer();
        let mut bed = bed(APPROVED, &model, &tools);
        let run = bed.start("helper", message("write to all"));
        bed.answer_as(&run, "call-1", json!({ "decision": earlier })).unwrap();
        bed.answer_as(&run, "call-2", json!({ "decision": "stop", "reason": "enough" })).unwrap();
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], tools.made()), (&json!("denied"), Vec::new()));
        let first = if earlier == "approve" { ended } else { "a person denied the call" };
        let told = [first, "a person denied the call and ended the run: enough", ended, ended];
        assert_eq!(contents(&state, "tool"), told, "{earlier}");
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

/// Those of the settings and of the agent come together.
#[test]
fn a_question_of_more_channels_than_it_may_have_steps_is_asked_all_the_same() {
    let tools = mailer();
    let mut bed = bed_with(APPROVED, &sender("send"), &tools, |parts| {
        let channels = (1..=12).map(|number| (format!("c{number:02}"), format!("PT{number}S")));
        parts.approval.notify = channels.collect();
    });
    let run = bed.start("helper", message("write to ada"));
    assert_eq!(asleep(&bed, &run).1["deadlines"].as_array().map(Vec::len), Some(10));
    bed.answer(&run, json!({ "decision": "approve" })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
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

#[test]
fn a_tool_that_asks_a_person_wants_back_more_than_its_record_has_room_for() {
    let kept = || json!("s".repeat(100_000));
    let tools = Toolbox::new(vec![tool("send", Effect::Manual)], move |call| match &call.input {
        None => {
            let (message, schema) = ("Which subject?".to_owned(), dormouse_ports::Map::new());
            Ok(ToolReply::InputRequired(InputRequest { message, schema, state: kept() }))
        }
        Some(input) => Ok(ToolReply::Done(ToolOutput::text(format!("the same: {}", input.state == kept())))),
    });
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    assert_eq!(asleep(&bed, &run).1["kind"], "tool_input");
    bed.answer(&run, json!({ "decision": "answer", "content": {} })).unwrap();
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["the same: true"]);
}

#[test]
fn an_error_of_a_tool_is_told_or_asked_about_however_long_it_is() {
    let long = "no ".repeat(100_000);
    let tools = Toolbox::new(vec![tool("send", Effect::Manual), tool("look", Effect::Safe)], move |call| {
        let error = ToolError::permanent(long.clone());
        Err(if call.name == "send" { error.maybe_done() } else { error })
    });
    let mut bed = bed_with(MATTER, &sender("look"), &tools, |_| {});
    let run = bed.start("helper", message("look"));
    let state = bed.status(&run).completed();
    let told = &contents(&state, "tool")[0];
    assert!(told.starts_with("error: no no ") && told.contains("of 300007 bytes are shown"), "{}", told.len());
    assert_eq!(state["outputs"][0]["text"].as_str().map(str::len), Some(300_007), "it is kept whole");
    let mut bed = bed_with(MATTER, &sender("send"), &tools, |_| {});
    let run = bed.start("helper", message("write"));
    assert_eq!(asleep(&bed, &run).1["kind"], "uncertain_effect");
    bed.answer(&run, json!({ "decision": "skip" })).unwrap();
    assert_eq!(bed.status(&run).completed()["reason"], "completed");
}

/// Asks for a color, and says which it was given.
pub(crate) fn painter() -> Arc<Toolbox> {
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
