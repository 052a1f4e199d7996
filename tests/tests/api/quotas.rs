//! Quotas: what is used up is refused before anything is written, and comes back.

use std::time::Duration;

use dormouse_api::{Actor, CallAnswer};
use dormouse_engine::{CompiledGraph, END, EngineError, Graph, record, state};
use dormouse_ports::{EntryKind, JournalEntry};
use dormouse_protocol::{ProtocolError, Scope};
use futures::FutureExt;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::receipts::{Costs, metered};
use crate::world::{World, actor, ada, text};

state! {
    #[derive(Clone, Debug, Default)]
    struct Steps {
        done: u64,
    }
}

/// Asks a model four times, each time in a durable step, for 60 tokens and 0.1.
pub(crate) fn stepping() -> Result<CompiledGraph, EngineError> {
    let step = async |steps: Steps| {
        record(
            JournalEntry::new(EntryKind::SpanCompleted)
                .with("gen_ai.operation.name", "chat")
                .with("usage", json!({"prompt_tokens": 50, "completion_tokens": 10}))
                .with("cost", 0.1)
                .with("duration_ms", 7),
        )?;
        Ok(Steps::done.set(steps.done + 1))
    };
    let graph = Graph::<Steps>::new("steps").entry("one");
    let graph =
        ["one", "two", "three", "four"].into_iter().fold(graph, |graph, name| graph.node(name, step).durable(name));
    graph.edge("one", "two").edge("two", "three").edge("three", "four").edge("four", END).compile()
}

fn expense() -> Value {
    json!({"persona_id": "persona_expense-approval",
        "input": {"employee": "Ada", "amount_cents": 12000, "purpose": "a keyboard"}})
}

pub(crate) async fn limited(world: &World, limits: Value, period: Option<u64>) -> (String, String) {
    let workspace = world.workspace().await;
    let mut quota = json!({"scope": "workspace", "owner_id": workspace, "limits": limits});
    if let Some(seconds) = period {
        quota["period_seconds"] = seconds.into();
    }
    let quota = world.post("/v1/quotas", quota).await;
    let session = world.post("/v1/sessions", json!({"workspace_id": workspace})).await;
    (text(&quota["id"]).to_owned(), format!("/v1/sessions/{}/tasks", text(&session["id"])))
}

fn used(tasks: u64, open: u64) -> Value {
    json!({"tasks": tasks, "concurrent_tasks": open, "tokens": 0, "cost_micros": 0, "active_ms": 0})
}

/// Submits what the quota refuses; nothing is written.
async fn refused(world: &World, who: Actor, tasks: &str, quota: &str, limit: &str) -> ProtocolError {
    let refusal = world.refusal(who, "POST", tasks, expense()).await;
    let status = (refusal.status(), refusal.code().as_str());
    assert_eq!(status, (429, "rate_limited"), "{refusal}");
    let told = serde_json::to_value(refusal.clone().into_response("r")).unwrap();
    assert_eq!(told["error"]["details"], json!({"quota_id": quota, "limit": limit}));
    refusal
}

#[tokio::test]
async fn tasks_are_counted_and_refused_beyond_the_limit() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"tasks": 2}), Some(60)).await;
    for _ in 0..2 {
        let task = world.post(&tasks, expense()).await;
        assert_eq!(text(&task["quota_id"]), quota);
    }
    let refusal = refused(&world, ada(), &tasks, &quota, "tasks").await;
    assert_eq!(refusal.header(), Some(("retry-after", "61")));
    let shown = world.get(&format!("/v1/quotas/{quota}")).await;
    assert_eq!(shown["usage"], used(2, 2));
    assert_eq!(shown["exhaustion_reason"], "nothing is left of tasks");
    assert_eq!(world.get("/v1/quotas").await["data"], json!([shown]));
    world.clock.advance(Duration::from_secs(60));
    world.post(&tasks, expense()).await;
    let shown = world.get(&format!("/v1/quotas/{quota}")).await;
    assert_eq!(shown["usage"], used(1, 3), "a new period");
}

#[tokio::test]
async fn tasks_at_once_are_given_back_when_they_end() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"concurrent_tasks": 2}), None).await;
    let first = world.post(&tasks, expense()).await;
    let second = world.post(&tasks, expense()).await;
    world.work().await.unwrap();
    let refusal = refused(&world, ada(), &tasks, &quota, "concurrent_tasks").await;
    assert_eq!(refusal.header(), Some(("retry-after", "5")));
    world.post(&format!("/v1/tasks/{}/cancel", text(&first["id"])), json!({})).await;
    world.post(&format!("/v1/tasks/{}/cancel", text(&first["id"])), json!({})).await;
    world.callback(text(&second["id"]), json!({"decision": "approved"})).await;
    let used = world.get(&format!("/v1/quotas/{quota}")).await;
    assert_eq!(used["usage"]["concurrent_tasks"], 0, "each is given back once");
    for _ in 0..2 {
        world.post(&tasks, expense()).await;
    }
    refused(&world, ada(), &tasks, &quota, "concurrent_tasks").await;
}

#[tokio::test]
async fn limits_that_change_count_at_once_and_soft_ones_refuse_nothing() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"tasks": 1}), None).await;
    let target = format!("/v1/quotas/{quota}");
    world.post(&tasks, expense()).await;
    let refusal = refused(&world, ada(), &tasks, &quota, "tasks").await;
    assert_eq!(refusal.header(), None, "nothing comes back by waiting");
    world.patch(&target, json!({"limits": {"tasks": 3}})).await;
    world.post(&tasks, expense()).await;
    let changed = world.patch(&target, json!({"limits": {"tasks": 1}})).await;
    assert_eq!((&changed["limits"], &changed["usage"]["tasks"]), (&json!({"tasks": 1}), &json!(2)));
    refused(&world, ada(), &tasks, &quota, "tasks").await;
    world.patch(&target, json!({"hard_limit": false})).await;
    for _ in 0..2 {
        world.post(&tasks, expense()).await;
    }
    let used = world.get(&target).await;
    assert_eq!((&used["usage"]["tasks"], &used["soft_limit"]), (&json!(4), &json!(true)));
    world.patch(&target, json!({"limits": {}, "hard_limit": true})).await;
    world.post(&tasks, expense()).await;
}

#[tokio::test]
async fn who_may_not_change_quotas_takes_none_away_and_charges_no_other() {
    let world = World::new();
    let (one, other) = (world.workspace().await, world.workspace().await);
    let of = async |workspace: &str| {
        let quota = json!({"scope": "workspace", "owner_id": workspace, "limits": {"tasks": 1}});
        text(&world.post("/v1/quotas", quota).await["id"]).to_owned()
    };
    let (quota, foreign) = (of(&one).await, of(&other).await);
    let persona = json!({"name": "Clerk", "version": "1", "entry_workflow": "expense-approval", "description": "",
        "autonomy_tier": "act_auto", "receipt_policy": "optional"});
    let persona = format!("/v1/personas/{}", text(&world.post("/v1/personas", persona).await["id"]));
    let workspace = format!("/v1/workspaces/{one}");
    let bound = actor("bob", "acme", Some(&[&one]));
    let mut without_scope = ada();
    without_scope.scopes.remove(&Scope::QuotasWrite);
    for who in [bound, without_scope] {
        for target in [&workspace, &persona] {
            for quota in [json!(null), json!(foreign)] {
                let refusal = world.refusal(who.clone(), "PATCH", target, json!({"quota_id": quota})).await;
                assert_eq!(refusal.status(), 403, "{target} {quota}: {refusal}");
            }
        }
        let renamed = world.call(who.clone(), "PATCH", &workspace, &json!({"name": "Desk"}), None).await;
        assert!(renamed.is_ok(), "the rest is theirs: {renamed:?}");
    }
    assert_eq!(world.get(&workspace).await["quota_id"], quota);
    assert_eq!(world.patch(&workspace, json!({"quota_id": null})).await["quota_id"], json!(null));
}

#[tokio::test]
async fn a_task_counts_against_persona_workspace_and_key() {
    let world = World::new();
    let persona = json!({"name": "Clerk", "version": "1", "entry_workflow": "expense-approval", "description": "",
        "autonomy_tier": "act_auto", "receipt_policy": "optional"});
    let persona = world.post("/v1/personas", persona).await;
    let of_persona = json!({"scope": "persona", "owner_id": persona["id"], "limits": {"tasks": 1}});
    let of_persona = world.post("/v1/quotas", of_persona).await;
    let of_key = world.post("/v1/quotas", json!({"scope": "tenant", "limits": {"tasks": 2}})).await;
    let (of_workspace, tasks) = limited(&world, json!({"tasks": 3}), None).await;
    let bob = || Actor { quota_id: Some(text(&of_key["id"]).into()), ..actor("bob", "acme", None) };
    let clerk = json!({"persona_id": persona["id"], "input": expense()["input"]});
    let submit = async |who: Actor, body: &Value| world.call(who, "POST", &tasks, body, None).await;
    assert!(matches!(submit(bob(), &clerk).await, Ok(CallAnswer::Json(202, _))));
    let refusal = submit(bob(), &clerk).await.unwrap_err();
    assert_eq!(refusal.status(), 429);
    assert!(submit(bob(), &expense()).await.is_ok(), "another persona");
    refused(&world, bob(), &tasks, text(&of_key["id"]), "tasks").await;
    assert!(submit(ada(), &expense()).await.is_ok(), "another key");
    refused(&world, ada(), &tasks, &of_workspace, "tasks").await;
    let used = async |id: &str| world.get(&format!("/v1/quotas/{id}")).await["usage"]["tasks"].clone();
    let all = [used(text(&of_persona["id"])).await, used(text(&of_key["id"])).await, used(&of_workspace).await];
    assert_eq!(all, [json!(1), json!(2), json!(3)], "what was refused took from none");
}

#[tokio::test]
async fn quotas_that_make_no_sense_are_refused() {
    let world = World::new();
    let good = json!({"scope": "tenant", "limits": {}});
    for (field, bad, status) in [
        ("limits", json!({"tasks": -1}), 400),
        ("limits", json!({"tasks": 1.5}), 400),
        ("limits", json!({"dollars": 1}), 400),
        ("limits", json!({"tasks": 1_000_000_000_000_000_i64}), 400),
        ("limits", json!([]), 400),
        ("period_seconds", json!(0), 400),
        ("period_seconds", json!(400 * 24 * 3600), 400),
        ("scope", json!("galaxy"), 400),
        ("owner_id", json!("other"), 404),
    ] {
        let mut quota = good.clone();
        quota[field] = bad.clone();
        assert_eq!(world.refusal(ada(), "POST", "/v1/quotas", quota).await.status(), status, "{field} {bad}");
    }
    let quota = world.post("/v1/quotas", good.clone()).await;
    let target = format!("/v1/quotas/{}", text(&quota["id"]));
    assert_eq!(world.refusal(ada(), "PATCH", &target, json!({"limits": {"x": 1}})).await.status(), 400);
    let eve = || actor("eve", "other", None);
    for (method, body) in [("GET", Value::Null), ("PATCH", json!({"limits": {}}))] {
        assert_eq!(world.refusal(eve(), method, &target, body).await.status(), 404);
    }
    let one = world.workspace().await;
    let stolen = json!({"scope": "workspace", "owner_id": one, "limits": {}});
    assert_eq!(world.refusal(eve(), "POST", "/v1/quotas", stolen).await.status(), 404);
    let bound = actor("bob", "acme", Some(&[&one]));
    assert_eq!(world.refusal(bound, "POST", "/v1/quotas", good).await.status(), 403);
}

#[tokio::test]
async fn a_workspace_or_persona_with_a_quota_gets_no_second_one_unseen() {
    let world = World::new();
    let workspace = world.workspace().await;
    let persona = json!({"name": "Clerk", "version": "1", "entry_workflow": "expense-approval", "description": "",
        "autonomy_tier": "act_auto", "receipt_policy": "optional"});
    let persona = text(&world.post("/v1/personas", persona).await["id"]).to_owned();
    for (scope, owner, target) in [("workspace", &workspace, "workspaces"), ("persona", &persona, "personas")] {
        let quota = json!({"scope": scope, "owner_id": owner, "limits": {"tasks": 1}});
        let first = world.post("/v1/quotas", quota.clone()).await;
        let refusal = world.refusal(ada(), "POST", "/v1/quotas", quota.clone()).await;
        assert_eq!((refusal.status(), refusal.code().as_str()), (409, "conflict"), "{refusal}");
        let told = json!(refusal.into_response("r"));
        assert_eq!(told["error"]["details"]["quota_id"], first["id"], "{told}");
        world.patch(&format!("/v1/{target}/{owner}"), json!({"quota_id": null})).await;
        let second = world.post("/v1/quotas", quota).await;
        assert_ne!(second["id"], first["id"]);
    }
}

#[tokio::test]
async fn a_key_for_some_workspaces_sees_their_quotas_and_its_own() {
    let world = World::new();
    let (mine, tasks) = limited(&world, json!({"tasks": 5}), None).await;
    let (theirs, _) = limited(&world, json!({"tasks": 5}), None).await;
    let of = async |scope: &str, owner: Value| {
        let quota = json!({"scope": scope, "owner_id": owner, "limits": {"tasks": 9}});
        text(&world.post("/v1/quotas", quota).await["id"]).to_owned()
    };
    let (tenants, keys) = (of("tenant", json!("acme")).await, of("tenant", Value::Null).await);
    let workspace = world.get(tasks.strip_suffix("/tasks").unwrap()).await["workspace_id"].clone();
    let bob = || Actor { quota_id: Some(keys.as_str().into()), ..actor("bob", "acme", Some(&[text(&workspace)])) };
    let seen = async |target: &str| world.call(bob(), "GET", target, &Value::Null, None).await;
    let mut listed = crate::world::ids(&crate::world::body(seen("/v1/quotas?limit=1").await.unwrap()));
    assert_eq!(listed.len(), 1, "a page of those that are seen");
    listed = crate::world::ids(&crate::world::body(seen("/v1/quotas").await.unwrap()));
    listed.sort();
    let mut expected = [mine.clone(), keys.clone()];
    expected.sort();
    assert_eq!(listed, expected);
    for (quota, is_seen) in [(&mine, true), (&keys, true), (&theirs, false), (&tenants, false)] {
        let status = seen(&format!("/v1/quotas/{quota}")).await.map_or_else(|refusal| refusal.status(), |_| 200);
        assert_eq!(status, if is_seen { 200 } else { 404 }, "{quota}");
    }
    assert_eq!(crate::world::ids(&world.get("/v1/quotas").await).len(), 4, "a key for all workspaces sees all");
}

/// Tasks that are submitted at the same time take no more than there is.
pub(crate) async fn at_once(world: &World) {
    let (quota, tasks) = limited(world, json!({"tasks": 5}), None).await;
    let body = expense();
    let all = (0..12).map(|_| world.call(ada(), "POST", &tasks, &body, None));
    let accepted = join_all(all).await.into_iter().filter(Result::is_ok).count();
    assert_eq!(accepted, 5);
    let shown = world.get(&format!("/v1/quotas/{quota}")).await;
    assert_eq!(shown["usage"]["tasks"], 5);
}

/// What a task holds itself, or used when it was accepted, is not what ends it.
#[tokio::test]
async fn a_step_is_refused_for_what_it_needs_alone() {
    for more in ["concurrent_tasks", "tasks"] {
        let world = World::new();
        let (_, tasks) = limited(&world, json!({more: 1, "tokens": 120}), None).await;
        let task = world.post(&tasks, json!({"persona_id": "persona_steps", "input": {}})).await;
        world.work().await;
        let task = world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await;
        assert_eq!(task["status"], "FAILED", "{task}");
        assert!(text(&task["failure"]["message"]).contains("nothing is left of tokens"), "{more}: {task}");
    }
}

/// What steps use is counted with them, and a task goes on as long as something was left before its step.
pub(crate) async fn step_by_step(world: &World) {
    let steps = json!({"persona_id": "persona_steps", "input": {}});
    for (limits, ending, tokens) in [
        (json!({"tokens": 1000}), "COMPLETED", 240),
        (json!({"tokens": 181}), "COMPLETED", 240),
        // The third step uses the last; the fourth is the end, which is paid for and counts.
        (json!({"tokens": 180}), "COMPLETED", 240),
        // The second step uses the last, and the third is not kept as a step any more.
        (json!({"tokens": 120}), "FAILED", 180),
        (json!({"cost_micros": 200_000}), "FAILED", 180),
        (json!({"active_ms": 14}), "FAILED", 180),
    ] {
        let (quota, tasks) = limited(world, limits.clone(), None).await;
        let task = world.post(&tasks, steps.clone()).await;
        world.work().await;
        let task = world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await;
        assert_eq!(task["status"], ending, "{limits}: {task}");
        let used = world.get(&format!("/v1/quotas/{quota}")).await["usage"].clone();
        let amounts = (&used["tokens"], &used["cost_micros"], &used["active_ms"], &used["concurrent_tasks"]);
        let (cost, active) = (tokens / 60 * 100_000, tokens / 60 * 7);
        assert_eq!(amounts, (&json!(tokens), &json!(cost), &json!(active), &json!(0)), "{limits}");
        if ending == "FAILED" {
            assert_eq!(task["failure"]["code"], "limit_exceeded");
            assert!(text(&task["failure"]["message"]).contains(&quota), "{task}");
            let refusal = world.call(ada(), "POST", &tasks, &steps, None).await.unwrap_err();
            assert_eq!(refusal.status(), 429, "{limits}");
        }
    }
}

#[tokio::test]
async fn of_tasks_at_once_no_more_are_accepted_than_the_quota_has() {
    at_once(&World::new()).await;
}

#[tokio::test]
async fn a_task_whose_steps_use_a_quota_up_ends() {
    step_by_step(&World::new()).await;
}

#[tokio::test]
async fn a_period_that_ends_while_a_task_works_begins_anew_with_its_next_step() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"tokens": 120}), Some(60)).await;
    let steps = json!({"persona_id": "persona_steps", "input": {}});
    let task = world.post(&tasks, steps.clone()).await;
    world.clock.advance(Duration::from_secs(61));
    world.work().await;
    let task = world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await;
    assert_eq!(task["status"], "FAILED", "the new period is used up by the third step: {task}");
    let shown = world.get(&format!("/v1/quotas/{quota}")).await;
    assert_eq!((&shown["usage"]["tokens"], &shown["usage"]["tasks"]), (&json!(180), &json!(0)));
}

/// Somebody changes a quota in the instant in which a step of a task is written that counts against it.
#[tokio::test]
async fn a_limit_that_changes_while_a_task_works_counts_from_its_next_step_on() {
    for (before, after, ending, tokens) in [
        // The first step uses up what is left, and the next one is not kept as a step any more.
        (json!({"tokens": 1000}), json!({"tokens": 60}), "FAILED", 120),
        // Nothing was left when the first one was written.
        (json!({"tokens": 1000}), json!({"tokens": 0}), "FAILED", 60),
        (json!({"tokens": 60}), json!({"tokens": 1000}), "COMPLETED", 240),
        (json!({"tokens": 60}), json!({}), "COMPLETED", 240),
        (json!({"tokens": 1000}), json!({"cost_micros": 100_000}), "FAILED", 120),
    ] {
        let case = format!("{before} {after}");
        let world = World::new();
        let (quota, tasks) = limited(&world, before, None).await;
        let task = world.post(&tasks, json!({"persona_id": "persona_steps", "input": {}})).await;
        let target = format!("/v1/quotas/{quota}");
        let change = {
            let (world, target) = (world.clone(), target.clone());
            async move { world.patch(&target, json!({"limits": after})).await }
        };
        let mut change = Some(change.boxed());
        world.gate.hold(move |commit| {
            let is_step = !commit.journal.counters.is_empty();
            let change = change.take_if(|_| is_step);
            async move {
                if let Some(change) = change {
                    change.await;
                }
                Ok(())
            }
            .boxed()
        });
        world.work().await;
        world.gate.open();
        let task = world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await;
        assert_eq!(task["status"], ending, "{case}: {task}");
        let used = world.get(&target).await["usage"].clone();
        assert_eq!((&used["tokens"], &used["concurrent_tasks"]), (&json!(tokens), &json!(0)), "{case}");
    }
}

#[tokio::test]
async fn tasks_that_work_give_back_what_they_took_whatever_their_quota_has_become() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"concurrent_tasks": 3}), None).await;
    let target = format!("/v1/quotas/{quota}");
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(text(&world.post(&tasks, expense()).await["id"]).to_owned());
    }
    world.patch(&target, json!({"limits": {"concurrent_tasks": 1}})).await;
    let end = async |task: &str| world.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    for task in &open {
        refused(&world, ada(), &tasks, &quota, "concurrent_tasks").await;
        end(task).await;
    }
    let last = world.post(&tasks, expense()).await;
    // The workspace gets another quota meanwhile: what was counted by the one before is given back to that.
    let workspace = world.get(tasks.strip_suffix("/tasks").unwrap()).await["workspace_id"].clone();
    world.patch(&format!("/v1/workspaces/{}", text(&workspace)), json!({"quota_id": null})).await;
    let other = json!({"scope": "workspace", "owner_id": workspace, "limits": {"concurrent_tasks": 1}});
    let other = text(&world.post("/v1/quotas", other).await["id"]).to_owned();
    end(text(&last["id"])).await;
    for quota in [quota, other] {
        let shown = world.get(&format!("/v1/quotas/{quota}")).await;
        assert_eq!(shown["usage"]["concurrent_tasks"], 0, "{shown}");
    }
}

#[tokio::test]
async fn what_was_accepted_is_answered_again_when_the_quota_is_used_up() {
    let world = World::new();
    let (quota, tasks) = limited(&world, json!({"tasks": 1}), None).await;
    let first = world.keyed(&tasks, &expense(), "one").await.unwrap();
    let again = world.keyed(&tasks, &expense(), "one").await.unwrap();
    assert_eq!(crate::world::body(first), crate::world::body(again));
    assert_eq!(world.keyed(&tasks, &expense(), "two").await.unwrap_err().status(), 429);
    assert_eq!(world.get(&format!("/v1/quotas/{quota}")).await["usage"]["tasks"], 1);
}

#[tokio::test]
async fn sessions_of_a_tenant_count_against_its_quota() {
    let world = World::new();
    let quota = json!({"scope": "tenant", "owner_id": "acme", "limits": {"tasks": 2}});
    let first = world.post("/v1/quotas", quota.clone()).await;
    let submit = async |session: String| world.call(ada(), "POST", &format!("{session}/tasks"), &expense(), None).await;
    for _ in 0..2 {
        submit(world.session().await).await.unwrap();
    }
    let refusal = submit(world.session().await).await.unwrap_err();
    assert_eq!(refusal.status(), 429);
    let other = world.post("/v1/quotas", quota).await;
    submit(world.session().await).await.unwrap();
    let used =
        async |quota: &Value| world.get(&format!("/v1/quotas/{}", text(&quota["id"]))).await["usage"]["tasks"].clone();
    assert_eq!([used(&first).await, used(&other).await], [json!(2), json!(1)], "the newer one counts");
}

#[tokio::test]
async fn a_task_of_a_key_whose_quota_is_not_there_is_refused() {
    let (world, session) = World::with_session().await;
    let before = world.written();
    let bob = Actor { quota_id: Some("quota_none".into()), ..actor("bob", "acme", None) };
    let refusal = world.refusal(bob, "POST", &format!("{session}/tasks"), expense()).await;
    assert_eq!((refusal.code().as_str(), refusal.status()), ("policy_violation", 422), "{refusal}");
    assert_eq!(world.written(), before, "nothing is written");
}

/// The costs of a turn with four checked steps, of one that goes to sleep, and of its end behind an approval.
async fn costs(quotas: bool) -> [Costs; 3] {
    let (embedded, store, meter) = metered().await;
    let world = World::on(store.clone(), store, None);
    let costs = world.while_time_passes(async {
        let tasks = match quotas {
            true => limited(&world, json!({"tasks": 9, "concurrent_tasks": 9, "tokens": 9_000}), None).await.1,
            false => format!("{}/tasks", world.session().await),
        };
        let steps = world.post(&tasks, json!({"persona_id": "persona_steps", "input": {}})).await;
        meter.reset();
        world.work().await;
        let stepping = Costs::of(&meter);
        assert_eq!(world.get(&format!("/v1/tasks/{}", text(&steps["id"]))).await["status"], "COMPLETED");
        let task = world.post(&tasks, expense()).await;
        meter.reset();
        world.work().await;
        let sleeping = Costs::of(&meter);
        world.callback(text(&task["id"]), json!({"decision": "approved"})).await;
        let ending = Costs::of(&meter);
        assert_eq!(world.get(&format!("/v1/tasks/{}", text(&task["id"]))).await["status"], "COMPLETED");
        [stepping, sleeping, ending]
    });
    let costs = costs.await;
    embedded.stop().await.unwrap();
    costs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_takes_no_request_of_a_turn_and_at_most_two_write_units_of_a_commit() {
    let without = costs(false).await;
    let with = costs(true).await;
    // Four steps, and an end.
    let commits = [5.0, 1.0, 1.0];
    let names = ["four steps", "going to sleep", "end behind it"];
    for (((with, without), name), commits) in with.iter().zip(&without).zip(names).zip(commits) {
        eprintln!(
            "{name:<14} requests {} and {} without quotas, write units {} and {}",
            with.requests, without.requests, with.writes, without.writes
        );
        let more = (with.writes - without.writes) / commits;
        assert!(with.requests == without.requests && (0.0..=2.0).contains(&more), "{with:?}, and without {without:?}");
    }
}
