//! Calls of which a person has said something, and whose server is away when they are to be made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cast::{Toolbox, contents, message, tool};
use crate::questions::painter;
use crate::runs::{APPROVED, MATTER, asleep, bed, bed_with, sender};
use async_trait::async_trait;
use dormouse::json;
use dormouse_ports::tool::{Effect, ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};

/// A server that cannot be reached so many times more.
#[derive(Debug)]
struct Away {
    times: AtomicUsize,
    tools: Arc<Toolbox>,
}

impl Away {
    fn reached(&self) -> Result<(), ToolError> {
        match self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| times.checked_sub(1)) {
            Ok(_) => Err(ToolError::transient("no connection")),
            Err(_) => Ok(()),
        }
    }
}

#[async_trait]
impl ToolSource for Away {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.reached()?;
        self.tools.list().await
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        self.reached()?;
        self.tools.call(call).await
    }
}

/// A tool whose first calls fail with `error`, as many as `times`.
fn failing(times: usize, error: ToolError) -> Arc<Toolbox> {
    let tries = AtomicUsize::new(0);
    Toolbox::new(vec![tool("send", Effect::Manual)], move |_| match tries.fetch_add(1, Ordering::SeqCst) < times {
        true => Err(error.clone()),
        false => Ok(ToolReply::Done(ToolOutput::text("sent"))),
    })
}

#[test]
fn an_approved_call_whose_server_cannot_be_listed_for_a_moment_is_made_when_it_is_back() {
    let unreached = "error: the call was not made: the tool `send` of `box` cannot be reached now: no connection; it may \
                     work later";
    for (times, told, made) in [(1, "sent", 1), (3, "sent", 1), (50, unreached, 0)] {
        let tools = failing(0, ToolError::transient("never"));
        let away = Arc::new(Away { times: AtomicUsize::new(0), tools: tools.clone() });
        let source = away.clone();
        let mut bed = bed_with(APPROVED, &sender("send"), &tools, move |parts| parts.tools[0].source = source.clone());
        let run = bed.start("helper", message("write"));
        assert_eq!(asleep(&bed, &run).1["kind"], "approval");
        away.times.store(times, Ordering::SeqCst);
        bed.answer(&run, json!({ "decision": "approve" })).expect("it is answered");
        assert_eq!(contents(&bed.status(&run).completed(), "tool"), [told], "{times}");
        assert_eq!(tools.made().len(), made, "{times}");
    }
}

#[test]
fn an_approved_call_that_was_not_sent_is_tried_again_and_one_that_may_have_been_is_not() {
    let refused = || ToolError::transient("no connection");
    let tools = failing(2, refused());
    let mut approved = bed(APPROVED, &sender("send"), &tools);
    let run = approved.start("helper", message("write"));
    approved.answer(&run, json!({ "decision": "approve" })).expect("it is answered");
    assert_eq!(contents(&approved.status(&run).completed(), "tool"), ["sent"]);
    let keys: Vec<String> =
        tools.made.lock().expect("not poisoned").iter().map(|call| call.idempotency_key.clone()).collect();
    assert!(keys.len() == 3 && keys.iter().all(|key| *key == keys[0]), "it is one call: {keys:?}");

    let tools = failing(1, refused().maybe_done());
    let mut doubted = bed(APPROVED, &sender("send"), &tools);
    let run = doubted.start("helper", message("write"));
    doubted.answer(&run, json!({ "decision": "approve" })).expect("it is answered");
    assert_eq!((&asleep(&doubted, &run).1["kind"], tools.made().len()), (&json!("uncertain_effect"), 1));

    let tools = failing(1, refused());
    let mut unasked = bed(MATTER, &sender("send"), &tools);
    let run = unasked.start("helper", message("write"));
    let told = contents(&unasked.status(&run).completed(), "tool");
    assert_eq!((told, tools.made().len()), (vec!["error: no connection; it may work later".to_owned()], 1));
}

#[test]
fn what_a_person_answered_a_tool_is_not_lost_where_its_server_is_away_for_a_moment() {
    let unreached = "error: the call was not made: the tool `send` of `box` cannot be reached now: no connection; it may \
                     work later";
    for (times, told, made) in [(3, "{\"color\":\"red\"}", 2), (50, unreached, 1)] {
        let tools = painter();
        let away = Arc::new(Away { times: AtomicUsize::new(0), tools: tools.clone() });
        let source = away.clone();
        let mut bed = bed_with(MATTER, &sender("send"), &tools, move |parts| parts.tools[0].source = source.clone());
        let run = bed.start("helper", message("paint"));
        assert_eq!(asleep(&bed, &run).1["questions"]["call-1"]["message"], "Which color?");
        away.times.store(times, Ordering::SeqCst);
        bed.answer(&run, json!({ "decision": "answer", "content": { "color": "red" } })).expect("it is answered");
        assert_eq!(contents(&bed.status(&run).completed(), "tool"), [told], "{times}");
        assert_eq!(tools.made().len(), made, "{times}");
    }
}

#[test]
fn the_time_before_an_approved_call_is_tried_again_is_time_of_its_run() {
    const HURRIED: &str = "policy: {run_timeout_seconds: 16, approval: {external: [send]}}";
    let tools = failing(3, ToolError::transient("no connection"));
    let mut bed = bed(HURRIED, &sender("send"), &tools);
    let run = bed.start("helper", message("write"));
    bed.answer(&run, json!({ "decision": "approve" })).expect("it is answered");
    assert_eq!(contents(&bed.status(&run).completed(), "tool"), ["sent"]);
    let ends: Vec<_> = tools.made.lock().expect("not poisoned").iter().map(|call| call.deadline).collect();
    assert!(ends.len() == 4 && ends[0].is_some() && ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}
