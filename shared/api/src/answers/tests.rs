use super::*;

fn approval() -> SignalDescriptor {
    SignalDescriptor::new("s").with("kind", "approval").with(
        "answers",
        json!({"approved": {"decision": "yes"}, "denied": {"decision": "no"}, "by": "decided_by", "text": "note"}),
    )
}

fn asleep_on(descriptor: SignalDescriptor) -> PausedInvocation {
    let now = jiff::Timestamp::UNIX_EPOCH;
    PausedInvocation { descriptor, ..PausedInvocation::unreadable("task_1".into(), 1, now) }
}

fn said(parts: Vec<Part>) -> MessageInput {
    MessageInput { parts, ..MessageInput::user("") }
}

#[test]
fn yes_and_no_become_what_the_descriptor_says() {
    for (parts, decision) in [
        (vec![Part::json(json!({"approved": true}))], "yes"),
        (vec![Part::json(json!({"outcome": "denied"}))], "no"),
        (vec![Part::text("Approved!")], "yes"),
        (vec![Part::text(" no ")], "no"),
    ] {
        let payload = payload_for(&approval(), TaskMessageKind::ToolConfirmation, &said(parts), "ada").unwrap();
        assert_eq!(Value::Object(payload), json!({"decision": decision, "decided_by": "ada"}));
    }
}

#[test]
fn a_no_that_stands_beside_a_yes_is_heard_in_any_form() {
    let yes = || Part::text("yes");
    for no in [
        json!({"approved": false}),
        json!({"approved": false, "outcome": "no"}),
        json!({"approved": "no"}),
        json!({"decision": "stop", "metadata": null}),
        json!({"outcome": "rejected", "approved": null}),
        json!({"answer": {"decision": "deny"}, "reviewer": 7}),
        json!(false),
        json!("no"),
    ] {
        for parts in [vec![Part::json(no.clone()), yes()], vec![yes(), Part::json(no.clone())]] {
            for kind in [TaskMessageKind::ToolConfirmation, TaskMessageKind::Input] {
                let refused = payload_for(&approval(), kind, &said(parts.clone()), "ada");
                assert!(refused.is_err(), "{no} {parts:?}: {refused:?}");
            }
        }
    }
}

#[test]
fn fields_and_text_are_taken_as_they_are() {
    let input = TaskMessageKind::Input;
    let fields = said(vec![Part::json(json!({"decision": "later", "decided_by": "bob"}))]);
    let taken = payload_for(&approval(), input, &fields, "ada").unwrap();
    assert_eq!(Value::Object(taken), json!({"decision": "later", "decided_by": "ada"}), "nobody answers as another");
    for named in [json!(5), json!(null), json!(["bob"])] {
        let fields = said(vec![Part::json(json!({"decision": "later", "decided_by": named}))]);
        let refused = payload_for(&approval(), input, &fields, "ada").unwrap_err();
        assert!(refused.to_string().contains("`decided_by`"), "{refused}");
    }
    let taken = payload_for(&approval(), input, &MessageInput::user("Ask me again"), "ada").unwrap();
    assert_eq!(Value::Object(taken), json!({"note": "Ask me again", "decided_by": "ada"}));
}

#[test]
fn the_verdict_is_not_turned_round_and_comments_are_no_mistake() {
    let accepted = json!({ "properties": { "decision": {}, "decided_by": {} } });
    let answer = json!({ "approved": true, "reason": "fine", "decision": "later", "amount": 1 });
    let answer = said(vec![Part::json(answer)]);
    let of = |descriptor: &SignalDescriptor| {
        Value::Object(payload_for(descriptor, TaskMessageKind::ToolConfirmation, &answer, "ada").unwrap())
    };
    let everything = json!({ "reason": "fine", "decision": "yes", "amount": 1, "decided_by": "ada" });
    assert_eq!(of(&approval()), everything, "where everything is accepted, the graph is given everything");
    let named = of(&approval().with("accepts", accepted));
    assert_eq!(named, json!({ "decision": "yes", "amount": 1, "decided_by": "ada" }), "the pause refuses the rest");
}

#[test]
fn a_yes_and_a_no_in_one_message_are_refused() {
    for kind in [TaskMessageKind::ToolConfirmation, TaskMessageKind::Input] {
        for parts in [
            vec![Part::json(json!({"approved": true, "outcome": "denied"}))],
            vec![Part::json(json!({"approved": true, "decision": "deny"}))],
            vec![Part::json(json!({"approved": true, "decision": "stop"}))],
            vec![Part::json(json!({"approved": true, "answer": {"decision": "no"}}))],
            vec![Part::json(json!({"approved": true, "answer": "no"}))],
            vec![Part::json(json!({"outcome": "approved", "answer": {"approved": false}}))],
            vec![Part::json(json!({"approved": true})), Part::text("No!")],
            vec![Part::json(json!({"approved": false})), Part::text("yes")],
            vec![Part::json(json!({"approved": false})), Part::json(json!({"approved": true}))],
        ] {
            let refusal = payload_for(&approval(), kind, &said(parts.clone()), "ada").unwrap_err();
            assert_eq!(refusal.status(), 400, "{parts:?}");
        }
        let twice = vec![Part::json(json!({"approved": false, "decision": "stop"})), Part::text("no")];
        let payload = payload_for(&approval(), kind, &said(twice), "ada").unwrap();
        assert_eq!(payload["decision"], "no", "what is said twice is said");
    }
}

#[test]
fn what_says_nothing_is_refused() {
    let input = TaskMessageKind::Input;
    let plain = SignalDescriptor::new("s");
    assert_eq!(payload_for(&plain, input, &MessageInput::user("yes"), "ada").unwrap_err().status(), 400);
    assert_eq!(payload_for(&approval(), input, &said(Vec::new()), "ada").unwrap_err().status(), 400);
    let unclear = said(vec![Part::json(json!({"decision": "yes"}))]);
    assert_eq!(payload_for(&approval(), TaskMessageKind::ToolConfirmation, &unclear, "ada").unwrap_err().status(), 400);
}

#[test]
fn a_word_in_a_session_ends_no_wait_that_a_time_or_a_machine_ends() {
    let plain = || SignalDescriptor::new("s");
    let yes = json!({ "approved": { "go": true } });
    for (descriptor, takes_none) in [
        (plain().with("kind", "job"), true),
        (plain().with("wake_after", "PT1H"), true),
        (plain().with("wake_at", "2027-01-31T09:00:00Z").with("description", "It sleeps"), true),
        (plain().with("wake_after", "PT1H").with("answers", yes), false),
        (approval(), false),
        (plain(), false),
    ] {
        assert_eq!(takes_no_word(&asleep_on(descriptor.clone())), takes_none, "{descriptor:?}");
    }
}

#[test]
fn a_yes_is_no_answer_where_nobody_is_asked() {
    let yes = said(vec![Part::json(json!({"approved": true}))]);
    let of = |descriptor: &SignalDescriptor, kind| {
        answer_payload(&asleep_on(descriptor.clone()), kind, &yes, "ada").map(Value::Object)
    };
    let job = SignalDescriptor::new("s")
        .with("kind", "job")
        .with("description", "Tools that the agent called work elsewhere")
        .with("calls", json!({ "call-1": { "tool": "await_signature" } }));
    for (descriptor, words) in [
        (job.clone(), "the outcome of `await_signature`"),
        (SignalDescriptor::new("s").with("kind", "event").with("description", "a delivery"), "an event"),
        (SignalDescriptor::new("s").with("kind", "timer"), "a time"),
        (SignalDescriptor::new("s"), "the signal `s`"),
    ] {
        let refusal = of(&descriptor, TaskMessageKind::ToolConfirmation).unwrap_err();
        assert_eq!(refusal.status(), 400);
        let refusal = refusal.to_string();
        assert!(refusal.contains(words) && refusal.contains("dormouse answer task_1"), "{refusal}");
        // What is meant as the outcome is taken as one.
        assert_eq!(of(&descriptor, TaskMessageKind::Input).unwrap(), json!({"approved": true}));
    }
    for asking in [
        approval(),
        job.with("answers", json!({ "approved": { "approved": true } })),
        SignalDescriptor::new("s").with("description", "Shall it go on?"),
        SignalDescriptor::new("s").with("kind", "approval"),
        SignalDescriptor::new("s")
            .with("accepts", json!({ "type": "object", "properties": { "approved": { "type": "boolean" } } })),
    ] {
        assert!(of(&asking, TaskMessageKind::ToolConfirmation).is_ok(), "{asking:?}");
    }
}

#[test]
fn what_waits_for_no_fields_is_woken_by_none() {
    let nothing = SignalDescriptor::new("s").with("accepts", json!({ "properties": {} }));
    let empty = said(vec![Part::json(json!({}))]);
    let input = TaskMessageKind::Input;
    assert_eq!(payload_for(&nothing, input, &empty, "ada").unwrap(), Map::new());
    for descriptor in [SignalDescriptor::new("s"), approval()] {
        assert_eq!(payload_for(&descriptor, input, &empty, "ada").unwrap_err().status(), 400);
    }
    assert_eq!(payload_for(&nothing, input, &MessageInput::user("hello"), "ada").unwrap_err().status(), 400);
}

#[test]
fn a_yes_to_who_waits_for_an_agent_is_told_whom_to_answer() {
    let calls = json!({ "call-1": { "tool": "SubAgent" } });
    let mut paused = asleep_on(SignalDescriptor::new("asked").with("kind", "job").with("calls", calls));
    let child = |id: &str, signal: &str, ended: bool| ChildLink {
        invocation_id: id.into(),
        session_id: "s".into(),
        graph: "scout".to_owned(),
        signal_id: signal.into(),
        background: false,
        ended,
    };
    let children =
        json!([child("task_2", "asked", false), child("task_3", "other", false), child("task_4", "asked", true)]);
    paused.state = Map::from_iter([("dormouse_children".to_owned(), children)]).into();
    let yes = said(vec![Part::json(json!({ "approved": true }))]);
    let refusal = answer_payload(&paused, TaskMessageKind::ToolConfirmation, &yes, "ada").unwrap_err().to_string();
    assert!(refusal.contains("the outcome of `SubAgent`"), "{refusal}");
    assert!(refusal.ends_with("`dormouse approve task_2`"), "{refusal}");
    paused.state = Map::new().into();
    let refusal = answer_payload(&paused, TaskMessageKind::ToolConfirmation, &yes, "ada").unwrap_err().to_string();
    assert!(refusal.contains("`dormouse answer task_1"), "{refusal}");
}

#[test]
fn a_value_may_be_said_in_a_word() {
    let fields = json!({ "decision": { "enum": ["happened", "repeat", "skip"] }, "result": { "type": "string" } });
    let doubt = SignalDescriptor::new("s")
        .with("kind", "uncertain_effect")
        .with("accepts", json!({ "properties": fields }))
        .with("answers", json!({ "approved": { "decision": "happened" }, "denied": { "decision": "repeat" } }));
    let of = |said: &str| payload_for(&doubt, TaskMessageKind::Input, &MessageInput::user(said), "ada");
    for (said, decision) in [("Skip!", "skip"), ("happened", "happened"), ("Repeat", "repeat")] {
        assert_eq!(Value::Object(of(said).unwrap()), json!({ "decision": decision }));
    }
    let refusal = of("perhaps").unwrap_err().to_string();
    assert!(refusal.contains("decision, result"), "{refusal}");
    assert!(refusal.contains("say one of `happened`, `repeat`, `skip`"), "{refusal}");
    // A no would make the call again, and a yes take it for done.
    let (input, confirmation) = (TaskMessageKind::Input, TaskMessageKind::ToolConfirmation);
    for (kind, parts) in [
        (input, vec![Part::text("no")]),
        (input, vec![Part::text("Yes!")]),
        (input, vec![Part::json(json!({ "approved": false }))]),
        (input, vec![Part::json(json!({ "outcome": "denied", "decision": "skip" }))]),
        (confirmation, vec![Part::json(json!({ "approved": true }))]),
        (confirmation, vec![Part::json(json!({ "decision": "happened" }))]),
    ] {
        let refusal = payload_for(&doubt, kind, &said(parts.clone()), "ada").unwrap_err();
        let told = refusal.to_string();
        assert!(refusal.status() == 400 && told.contains("`happened`, `repeat`, `skip`"), "{parts:?}: {told}");
    }
    let happened = said(vec![Part::json(json!({ "decision": "happened", "result": "yes" }))]);
    assert!(payload_for(&doubt, input, &happened, "ada").is_ok());
}

#[test]
fn a_permission_is_told_from_an_input() {
    assert_eq!(status_of(&approval()), TaskStatus::AuthRequired);
    assert_eq!(status_of(&SignalDescriptor::new("s").with("kind", "job")), TaskStatus::InputRequired);
}
