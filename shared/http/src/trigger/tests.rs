use super::*;

fn read(event: &str) -> Value {
    serde_json::from_str(event).expect("JSON")
}

#[test]
fn a_transformed_event_is_a_signal() {
    let read = signal(read(include_str!("../../tests/events/eventbridge-transformed.json"))).expect("a signal");
    assert_eq!(read.signal_id, EventToken::Text("export-7f3a".to_owned()));
    assert_eq!(read.payload["rows"], 1204);
    assert_eq!(read.event_id.as_deref(), Some("17793124-05d4-b198-2fde-7ededc63b103"));
    let SignalOrigin::Event(event) = read.origin.origin().expect("an origin") else { panic!("somebody sent it") };
    assert_eq!(event.shape.as_ref().map(ShapeId::as_str), Some("0e22b88c7976afe4246ba863fb85b3e795f38fbf"));
    assert_eq!((event.source.as_deref(), event.detail_type.as_deref()), (Some("exporter"), Some("Export Finished")));
}

/// A publisher of events of our own on the bus cannot claim another source for them.
#[test]
fn an_event_of_our_own_has_no_other_origin() {
    let mut event = read(include_str!("../../tests/events/eventbridge-dormouse-signal.json"));
    event["detail"]["shape"] = "0e22b88c7976afe4246ba863fb85b3e795f38fbf".into();
    let read = signal(event).expect("a signal");
    assert!(read.is_own && read.origin == RuleEnvelope::default());
    let wrong = json!({ "dormouse_signal": { "signal_id": "s", "payload": {}, "shape": "round" } });
    assert!(signal(wrong).expect("a signal").origin.origin().is_err());
}

#[test]
fn an_event_of_our_own_is_a_signal() {
    let read = signal(read(include_str!("../../tests/events/eventbridge-dormouse-signal.json"))).expect("a signal");
    assert_eq!(read.signal_id, EventToken::Text("expense-1".to_owned()));
    assert_eq!(read.payload["decision"], "approved");
    assert!(read.event_id.is_some());
    let again = include_str!("../../tests/events/eventbridge-dormouse-signal-replayed.json");
    let again = signal(serde_json::from_str(again).expect("JSON")).expect("a replay is the same signal");
    assert_eq!((again.signal_id, again.event_id), (EventToken::Number(4711.into()), read.event_id));
    assert_eq!(again.payload["decided_by"], "Grün & Söhne");
}

#[test]
fn a_number_is_a_token() {
    let read = signal(json!({ "dormouse_signal": { "signal_id": 4711, "payload": {}, "event_id": null } }));
    assert_eq!(read.expect("a signal").signal_id, EventToken::Number(4711.into()));
}

#[test]
fn the_scheduler_wakes_and_sweeps() {
    let due = wakeup(read(include_str!("../../tests/events/scheduler-wakeup.json"))).expect("a wake-up");
    let invocation_id = "0b5f1f9e-3c0d-4c3e-9d6f-0f6f8f6a1c11".to_owned();
    let due_at = Some(Timestamp::constant(1_798_794_000, 0));
    assert_eq!(due, WakeupOrder::Due { invocation_id: invocation_id.clone(), generation: 2, due_at });
    let before = json!({ "dormouse_wakeup": { "invocation_id": invocation_id, "generation": 2 } });
    let due = wakeup(before).expect("an entry from before a pause had several deadlines");
    assert_eq!(due, WakeupOrder::Due { invocation_id: invocation_id.clone(), generation: 2, due_at: None });
    let told_more = wakeup(read(include_str!("../../tests/events/scheduler-wakeup-with-context.json")));
    assert_eq!(told_more.expect("the same"), WakeupOrder::Due { invocation_id, generation: 2, due_at });
    let sweep = wakeup(read(include_str!("../../tests/events/scheduler-sweep.json"))).expect("a sweep");
    assert_eq!(sweep, WakeupOrder::Sweep(SignalScope::Everything));
}

#[test]
fn an_event_of_our_own_calls_for_work() {
    let call = wakeup(read(include_str!("../../tests/events/eventbridge-dormouse-work.json"))).expect("a call");
    assert_eq!(call, WakeupOrder::Work(WorkCall::new("task_01K9".into())));
    let detail = json!({ "invocation_id": "i", "generation": 2, "due_at": "2027-01-01T00:00:00Z", "swept": true });
    let swept = json!({ "source": "dormouse", "detail-type": "Dormouse Work", "detail": detail });
    let WakeupOrder::Work(call) = wakeup(swept).expect("a call") else { panic!("no call") };
    assert_eq!((call.invocation_id.as_str(), call.generation, call.swept), ("i", Some(2), true));
    assert_eq!(call.due_at, Some(Timestamp::constant(1_798_761_600, 0)));
}

/// Nothing is kept under such an id: what names it is put aside, and not acknowledged as late.
#[test]
fn an_id_that_no_invocation_can_have_is_refused() {
    let long = "i".repeat(900_000);
    for id in ["", "a b", "a\nb", "gr\u{fc}n", &long] {
        let due = json!({ "dormouse_wakeup": { "invocation_id": id, "generation": 1 } });
        let detail = json!({ "invocation_id": id });
        let work = json!({ "source": "dormouse", "detail-type": "Dormouse Work", "detail": detail });
        for event in [due, work] {
            let error = wakeup(event).expect_err("refused").to_string();
            assert!(error.contains("the invocation_id is no id") && error.len() < 1_000, "{error}");
        }
    }
}

/// Events that AWS sends where something is wired that the template does not wire: they may not count as done.
#[test]
fn what_is_not_understood_says_what_was_expected() {
    let foreign = [
        include_str!("../../tests/events/eventbridge-foreign.json"),
        include_str!("../../tests/events/eventbridge-scheduled.json"),
        include_str!("../../tests/events/scheduler-without-input.json"),
        include_str!("../../tests/events/sqs-signal.json"),
        include_str!("../../tests/events/lambda-destination-failed.json"),
        include_str!("../../tests/events/apigw-rest.json"),
        include_str!("../../tests/events/alb.json"),
        "{}",
        "[]",
        "null",
    ];
    let foreign = || foreign.iter().map(|text| read(text));
    let ours = read(include_str!("../../tests/events/eventbridge-dormouse-signal.json"));
    let with_detail = |detail: Value| {
        let mut event = ours.clone();
        event["detail"] = detail;
        event
    };
    let signals = [
        with_detail("{\"signal_id\":\"expense-1\",\"payload\":{}}".into()),
        with_detail(json!({ "signal_id": "expense-1" })),
        with_detail(json!({ "signal_id": "expense-1", "payload": "yes" })),
        json!({ "dormouse_signal": { "signal_id": null, "payload": {} } }),
        json!({ "dormouse_sweep": "due" }),
    ];
    for event in foreign().chain(signals) {
        let error = signal(event.clone()).expect_err("unreadable").to_string();
        assert!(error.contains("expected {\"dormouse_signal\""), "{event}: {error}");
        assert!(error.contains(&format!("detail-type `{SIGNAL}`")), "{event}: {error}");
    }
    let due = json!({ "invocation_id": "i", "generation": 1 });
    let wakeups = [
        json!({ "dormouse_sweep": "all" }),
        json!({ "dormouse_wakeup": {} }),
        json!({ "dormouse_wakeup": { "invocation_id": "i", "generation": "1" } }),
        json!({ "dormouse_wakeup": due, "dormouse_sweep": "due" }),
        json!("sweep"),
        ours.clone(),
    ];
    for event in foreign().chain(wakeups) {
        let error = wakeup(event.clone()).expect_err("unreadable").to_string();
        assert!(error.contains("expected {\"dormouse_wakeup\""), "{event}: {error}");
        assert!(error.contains(&format!("detail-type `{WORK}`")), "{event}: {error}");
    }
}

#[test]
fn only_what_a_later_delivery_or_a_person_can_help_is_raised() {
    for category in Category::SPECIFIED {
        let error = TurnError::new(category.clone(), "");
        let expected = error.bucket != Bucket::UserCorrectable && *category != Category::SuspensionTimedOut;
        assert_eq!(is_to_be_raised(&error), expected, "{category}");
        assert!(!is_to_be_raised(&TurnError { repeated: true, ..error }), "{category}");
    }
}
