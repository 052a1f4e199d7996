use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{
    Answer, Branch, CompiledGraph, Delay, END, EngineError, EventWait, FieldKey, Graph, GraphState, Migrate, NodeError,
    ParallelBranches, Projection, Rule, SessionConcurrency, SessionPolicy, Wait, invocation_id,
};

crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Order {
        item: String,
        paid: bool,
    }
}

/// Waits for the signal `paid-ITEM`, and counts in `withdrawn` what is canceled.
fn orders(withdrawn: Arc<AtomicUsize>) -> Agents {
    Agents::new().graph(move |_| {
        let withdrawn = withdrawn.clone();
        Graph::<Order>::new("order")
            .inputs(Order::item)
            .entry("pay")
            .wait("pay", |order| {
                let answer = Answer::new().required(Order::paid, Rule::boolean());
                Ok(Wait::signal(format!("paid-{}", order.item), answer))
            })
            .edge("pay", END)
            .on_cancel(move |_| {
                let withdrawn = withdrawn.clone();
                async move {
                    withdrawn.fetch_add(1, Ordering::Relaxed);
                }
            })
            .compile()
    })
}

#[test]
fn a_signal_may_come_before_its_wait_and_behind_it_and_must_fit() {
    let mut bed = TestBed::new(&orders(Arc::default()));
    bed.signal("paid-lamp", json!({ "paid": true })).unwrap();
    let lamp = bed.start("order", json!({ "item": "lamp" }));
    assert_eq!(bed.status(&lamp).completed()["paid"], true);
    let chair = bed.start("order", json!({ "item": "chair" }));
    assert!(bed.signal("paid-chair", json!({ "payed": true })).is_err());
    assert!(bed.status(&chair).is_asleep());
    bed.signal("paid-chair", json!({ "paid": true })).unwrap();
    assert_eq!(bed.status(&chair).completed()["paid"], true);
    let again = bed.signal("paid-chair", json!({ "paid": false })).unwrap_err();
    assert_eq!(again.category, "conflict", "{again}");
}

/// Sleeps for a day, and then needs a service that is away for the first hour of that day.
fn away(outside: &Outside) -> Result<CompiledGraph, EngineError> {
    let clock = outside.clock.clone();
    let back = clock.now() + Duration::from_secs(25 * 60 * 60);
    Graph::<Order>::new("away")
        .entry("sleep")
        .wait("sleep", |_| Ok(Wait::sleep(format!("sleep-{}", invocation_id()?), Delay::days(1))))
        .node("pay", move |()| {
            let is_back = clock.now() >= back;
            async move {
                match is_back {
                    true => Ok(Order::paid.set(true)),
                    false => Err(NodeError::new("away").with_category(Category::ProviderUnavailable)),
                }
            }
        })
        .edge("sleep", "pay")
        .edge("pay", END)
        .compile()
}

#[test]
fn what_fails_for_a_while_is_tried_again_until_it_does_not() {
    let mut bed = TestBed::new(&Agents::new().graph(away));
    let failing = bed.start("away", json!({}));
    bed.pass(Duration::from_secs(24 * 60 * 60 + 60));
    assert!(bed.status(&failing).is_asleep(), "it waits to be tried again");
    bed.pass_days(1);
    assert_eq!(bed.status(&failing).completed()["paid"], true);
}

#[test]
fn a_node_that_always_fails_holds_no_other_deadline_up() {
    let broken = |_: &Outside| {
        Graph::<Order>::new("broken")
            .entry("sleep")
            .wait("sleep", |_| Ok(Wait::sleep(format!("sleep-{}", invocation_id()?), Delay::days(1))))
            .node("pay", async |()| Err(NodeError::new("a mistake")))
            .edge("sleep", "pay")
            .edge("pay", END)
            .compile()
    };
    let mut bed = TestBed::new(&Agents::new().graph(broken).graph(away));
    let broken = bed.start("broken", json!({}));
    let away = bed.start("away", json!({}));
    bed.pass_days(30);
    assert!(bed.status(&broken).is_asleep());
    assert_eq!(bed.status(&away).completed()["paid"], true);
}

#[test]
fn what_is_canceled_has_failed_and_is_undone() {
    let withdrawn = Arc::new(AtomicUsize::new(0));
    let mut bed = TestBed::new(&orders(withdrawn.clone()));
    let lamp = bed.start("order", json!({ "item": "lamp" }));
    bed.cancel(&lamp).unwrap();
    assert_eq!(bed.status(&lamp).failed().category, "invocation_canceled");
    assert!(bed.answer(&lamp, json!({ "paid": true })).is_err());
    assert_eq!(withdrawn.load(Ordering::Relaxed), 1);
}

#[test]
fn what_panics_when_it_is_to_be_undone_is_canceled_all_the_same() {
    let broken = |_: &Outside| {
        Graph::<Order>::new("broken")
            .entry("pay")
            .wait("pay", |_| Ok(Wait::signal("paid", Answer::new().required(Order::paid, Rule::boolean()))))
            .edge("pay", END)
            .on_cancel(async |order: Order| assert!(order.paid, "nothing was paid"))
            .compile()
    };
    let mut bed = TestBed::new(&Agents::new().graph(broken));
    let order = bed.start("broken", json!({}));
    bed.cancel(&order).unwrap();
    assert_eq!(bed.status(&order).failed().category, "invocation_canceled");
}

#[test]
fn a_node_that_sleeps_on_its_clock_moves_it() {
    let patient = |outside: &Outside| {
        let clock = outside.clock.clone();
        Graph::<Order>::new("patient")
            .entry("pay")
            .node("pay", move |()| {
                let clock = clock.clone();
                async move {
                    clock.sleep(Duration::from_secs(5)).await;
                    Ok(Order::paid.set(true))
                }
            })
            .edge("pay", END)
            .compile()
    };
    let mut bed = TestBed::new(&Agents::new().graph(patient));
    let before = bed.now();
    let order = bed.start("patient", json!({}));
    assert_eq!(bed.status(&order).completed()["paid"], true);
    assert_eq!(bed.now(), before + Duration::from_secs(5));
}

crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Trip {
        city: String,
        weather: String,
        hotel: String,
    }
}

#[test]
fn branches_are_given_the_fields_that_are_named_and_give_theirs_back() {
    let inner = |words: &'static str| {
        Graph::<Order>::new(words)
            .entry("say")
            .node("say", move |order: Order| async move { Ok(Order::item.set(format!("{words} {}", order.item))) })
            .edge("say", END)
            .compile()
            .map(Arc::new)
    };
    let trip = move |_: &Outside| {
        let into = |field| Projection::by_name().input(Order::item, Trip::city).output(field, Order::item);
        let branches = ParallelBranches::new()
            .branch("weather", Branch::subgraph(inner("rain in")?, into(Trip::weather)))
            .branch("hotel", Branch::subgraph(inner("a bed in")?, into(Trip::hotel)));
        Graph::<Trip>::new("trip")
            .inputs(Trip::city)
            .entry("both")
            .parallel_branches("both", branches)
            .edge("both", END)
            .compile()
    };
    let mut bed = TestBed::new(&Agents::new().graph(trip));
    let trip = bed.start("trip", json!({ "city": "Rome" }));
    let state = bed.status(&trip).completed();
    assert_eq!((&state["weather"], &state["hotel"]), (&json!("rain in Rome"), &json!("a bed in Rome")));
}

#[test]
fn what_a_node_fails_with_says_whether_a_run_that_slept_goes_on() {
    let careful = |_: &Outside| {
        Graph::<Order>::new("careful")
            .entry("ask")
            .wait("ask", |_| Ok(Wait::signal("asked", Answer::new().required(Order::item, Rule::text()))))
            .node("pay", async |order: Order| match order.item.as_str() {
                "lamp" => Err(NodeError::new("no lamp").with_category(Category::Application("no_such_item".into()))),
                "bed" => panic!("out of paper"),
                _ => Err(NodeError::new("try again")),
            })
            .edge("ask", "pay")
            .edge("pay", END)
            .compile()
    };
    let mut bed = TestBed::new(&Agents::new().graph(careful));
    let order = bed.start("careful", json!({}));
    for (item, said) in [("chair", "try again"), ("bed", "the node panicked: out of paper")] {
        let refused = bed.answer(&order, json!({ "item": item })).unwrap_err();
        assert_eq!((refused.category.as_str(), refused.message.as_str()), ("node_exception", said));
        assert!(bed.status(&order).is_asleep(), "the answer may come again");
    }
    assert!(bed.answer(&order, json!({ "item": "lamp" })).is_err());
    assert_eq!(bed.status(&order).failed().category, "no_such_item");
}

crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Memo {
        note: String,
    }
}

/// Asks for a note, which its session keeps.
fn memos(version: &'static str) -> Agents {
    Agents::new().graph(move |_| {
        let same: Migrate = Arc::new(Ok);
        let policy = SessionPolicy::keeping(Memo::note).concurrency(SessionConcurrency::Rebase);
        Graph::<Memo>::new("memo")
            .version(version)
            .migration("1", "2", same.clone())
            .migration("2", "3", same.clone())
            .sessions(policy.migration("1", "2", same.clone())?.migration("2", "3", same)?)
            .entry("ask")
            .wait("ask", |_| {
                let answer = Answer::new().required(Memo::note, Rule::text());
                Ok(Wait::signal(invocation_id()?.as_str(), answer))
            })
            .edge("ask", END)
            .compile()
    })
}

#[test]
fn an_answer_to_a_pause_of_an_earlier_version_is_in_its_session_also_where_that_went_on_meanwhile() {
    let mut bed = TestBed::new(&memos("1"));
    let first = bed.start_in("s", "memo", json!({}));
    bed.deploy(&memos("2"));
    bed.deploy(&memos("3"));
    let second = bed.start_in("s", "memo", json!({}));
    assert!(bed.status(&second).is_asleep(), "its pause has saved the session");
    bed.answer(&first, json!({ "note": "milk" })).unwrap();
    assert_eq!(bed.status(&first).completed()["note"], "milk");
    let third = bed.start_in("s", "memo", json!({}));
    let Status::Asleep { state, .. } = bed.status(&third) else { panic!("it does not sleep") };
    assert_eq!(state["note"], "milk");
}

crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Parcel {
        weight: String,
        sent: bool,
    }
}
crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Weighed {
        weight: u32,
        sent: bool,
    }
}
crate::state! {
    #[derive(Clone, Debug, Default)]
    struct Renamed {
        grams: String,
        sent: bool,
    }
}

fn parcels<S: GraphState>(sent: FieldKey<S, bool>) -> Agents {
    Agents::new().graph(move |_| {
        Graph::<S>::new("parcel")
            .version("1")
            .entry("send")
            .wait("send", move |_| {
                Ok(Wait::signal(invocation_id()?.as_str(), Answer::new().required(sent, Rule::boolean())))
            })
            .edge("send", END)
            .compile()
    })
}

#[test]
fn a_state_that_changed_without_its_version_is_told_as_that_and_nothing_is_lost() {
    let mut bed = TestBed::new(&parcels(Parcel::sent));
    let parcel = bed.start("parcel", json!({ "weight": "heavy" }));
    for (agents, said) in
        [(parcels(Weighed::sent), "field `weight`"), (parcels(Renamed::sent), "field `weight` is not declared")]
    {
        bed.deploy(&agents);
        let refused = bed.answer(&parcel, json!({ "sent": true })).unwrap_err();
        assert_eq!(refused.category, "suspension_record_invalid", "{refused}");
        assert!(refused.message.contains(said), "{refused}");
        assert!(refused.message.contains("register a migration from `1`"), "{refused}");
        assert!(bed.status(&parcel).is_asleep());
    }
    bed.deploy(&parcels(Parcel::sent));
    bed.answer(&parcel, json!({ "sent": true })).unwrap();
    assert_eq!(bed.status(&parcel).completed()["sent"], true);
}

/// Waits for the event that an order was paid, or for a person who says so.
fn either(_: &Outside) -> Result<CompiledGraph, EngineError> {
    Graph::<Order>::new("either")
        .inputs(Order::item)
        .entry("pay")
        .wait("pay", |order| {
            let event = EventWait::matching("shop", "Order Paid", "$.detail.order");
            let answer = Answer::new().optional(Order::paid, Rule::boolean());
            Ok(Wait::event(format!("paid-{}", order.item), event, answer)
                .kind("approval")
                .answers(Order::paid.set(true), Order::paid.set(false))
                .remind(Delay::days(1))
                .or_default(Delay::days(3), Order::item.set("nobody paid")))
        })
        .edge("pay", END)
        .compile()
}

#[test]
fn a_wait_for_an_event_may_be_answered_by_a_person_and_has_one_end_for_both() {
    let mut bed = TestBed::new(&Agents::new().graph(either));
    let [lamp, chair, bench] = ["lamp", "chair", "bench"].map(|item| bed.start("either", json!({ "item": item })));
    bed.pass_days(1);
    assert_eq!(bed.published().len(), 3, "each is reminded once");
    bed.publish("shop", "Order Paid", json!({ "order": "paid-lamp", "paid": true, "clerk": "Ada" }));
    bed.answer(&chair, json!({ "paid": true })).unwrap();
    assert!(bed.status(&bench).is_asleep());
    bed.pass_days(2);
    assert_eq!(
        (&bed.status(&lamp).completed()["paid"], &bed.status(&chair).completed()["paid"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(bed.status(&bench).completed()["item"], "nobody paid");
}
