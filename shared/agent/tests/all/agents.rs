//! Agents that call agents: hand-over, children that are waited for, children in the background, limits, cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cast::{ScriptedModel, Toolbox, calls, contents, message, parts, results, says, tool};
use async_trait::async_trait;
use dormouse::testing::{Invocation, Status, TestBed};
use dormouse::{Agents, Map, Outside, json};
use dormouse_agent::graph::{self, AgentParts, Colleague, Colleagues};
use dormouse_agent::workspace::AgentMode;
use dormouse_ports::model::{CompletionRequest, FinishReason, Message, ModelError, ModelErrorCategory, Response};
use dormouse_ports::tool::{Effect, ToolError, ToolErrorKind};
use dormouse_ports::{ChildError, ChildRuns, ChildStanding, ChildStart, InvocationId};
use serde_json::Value;

fn nothing() -> Arc<Toolbox> {
    Toolbox::new(Vec::new(), |_| panic!("there is no tool"))
}

fn colleague(name: &str) -> Colleague {
    Colleague { name: name.to_owned(), description: format!("{name}s"), background: false }
}

fn agent(name: &str, model: &Arc<ScriptedModel>, outside: &Outside) -> AgentParts {
    let mut parts = parts("description: helps", model.clone(), nothing(), outside.clock.clone());
    parts.agent.name = name.to_owned();
    parts.name = name.to_owned();
    parts.colleagues.runs = Some(Arc::new(outside.children.clone()));
    parts
}

/// `lead` may ask `scout`, and `scout` may ask `scout`.
fn bed(lead: &Arc<ScriptedModel>, scout: &Arc<ScriptedModel>, change: fn(&mut AgentParts)) -> TestBed {
    let (lead, scout) = (lead.clone(), scout.clone());
    let agents = Agents::new().graph(move |outside| {
        let mut parts = agent("lead", &lead, outside);
        parts.colleagues.ask = vec![colleague("scout")];
        change(&mut parts);
        graph::graph(parts)
    });
    TestBed::new(&agents.graph(move |outside| {
        let mut parts = agent("scout", &scout, outside);
        parts.agent.mode = AgentMode::Subagent;
        parts.colleagues.ask = vec![colleague("scout")];
        graph::graph(parts)
    }))
}

fn asks(count: usize, background: bool) -> Arc<ScriptedModel> {
    ScriptedModel::new(move |request| {
        let results = results(request);
        let told = told(request);
        if results.len() < count {
            let prompt = |at: usize| json!({ "prompt": format!("look {at}"), "run_in_background": background });
            let asked: Vec<_> = (0..count).map(|at| (format!("c{at}"), prompt(at))).collect();
            let asked: Vec<(&str, &str, Value)> =
                asked.iter().map(|(id, arguments)| (id.as_str(), "SubAgent", arguments.clone())).collect();
            return Ok(calls(&asked));
        }
        Ok(says(&format!("heard {} and {told:?}", results.join("|"))))
    })
}

/// The results of children in the background that a model is told.
fn told(request: &CompletionRequest) -> Vec<String> {
    let text = |message: &Message| serde_json::to_value(message).ok()?["content"].as_str().map(str::to_owned);
    request.messages.iter().filter_map(text).filter(|text| text.starts_with("<agent_result")).collect()
}

fn answers() -> Arc<ScriptedModel> {
    ScriptedModel::new(|request| {
        let asked = serde_json::to_value(request.messages.last()).expect("JSON")["content"]
            .as_str()
            .expect("a text")
            .to_owned();
        Ok(says(&format!("found for {asked}")))
    })
}

fn last(bed: &TestBed, run: &Invocation) -> String {
    contents(&bed.status(run).completed(), "assistant").last().cloned().expect("an answer")
}

#[test]
fn an_agent_asks_another_one_and_sleeps_until_it_answers() {
    let (lead, scout) = (asks(1, false), answers());
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    assert!(answer.starts_with("heard found for look 0\n[task_id: "), "{answer}");
    assert_eq!((lead.calls(), scout.calls()), (2, 1));
}

#[test]
fn a_long_answer_of_an_agent_is_cut_and_leads_to_the_whole() {
    let (lead, scout) = (asks(1, false), ScriptedModel::new(|_| Ok(says(&"ü".repeat(60_000)))));
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    assert!(
        answer.contains("ü\n[cut: 28672 of 120000 bytes are told; ask for less at a time]\n[task_id: "),
        "{}",
        answer.len()
    );
    assert_eq!(answer.matches("[cut: ").count(), 1, "and not once more behind that");
}

#[test]
fn agents_that_are_asked_together_work_side_by_side() {
    let (lead, scout) = (asks(3, false), answers());
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    for at in 0..3 {
        assert!(answer.contains(&format!("found for look {at}\n")), "{answer}");
    }
    assert_eq!((lead.calls(), scout.calls()), (2, 3));
}

#[test]
fn more_agents_than_may_be_asked_at_a_time_are_refused_to_the_model() {
    let (lead, scout) = (asks(3, false), answers());
    let mut bed = bed(&lead, &scout, |parts| parts.agent.policy.max_concurrent_subagents = Some(2));
    let run = bed.start("lead", message("go"));
    assert!(last(&bed, &run).contains("2 agents are asked at a time at most"), "{}", last(&bed, &run));
    assert_eq!(scout.calls(), 2);
}

#[test]
fn a_run_asks_only_so_many_agents_in_all() {
    // As many in a step as are made of one, again and again.
    let lead = ScriptedModel::new(|request| {
        let heard = results(request);
        if heard.len() >= 75 {
            let found = heard.iter().filter(|text| text.starts_with("found for look")).count();
            return Ok(says(&format!("{found} answered, and at last: {}", heard[74])));
        }
        let ids: Vec<String> = (heard.len()..heard.len() + 25).map(|at| format!("c{at}")).collect();
        let prompt = |id: &String| json!({ "prompt": format!("look {id}") });
        let asked: Vec<(&str, &str, Value)> = ids.iter().map(|id| (id.as_str(), "SubAgent", prompt(id))).collect();
        Ok(calls(&asked))
    });
    let scout = answers();
    let mut bed = bed(&lead, &scout, |parts| parts.agent.policy.max_concurrent_subagents = Some(25));
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    assert!(answer.starts_with("64 answered, and at last: error: a run asks at most 64 agents"), "{answer}");
    assert_eq!((lead.calls(), scout.calls()), (4, 64));
}

/// Runs agents, but for the first one, which is not begun, and the second, of which is not told how it stands.
#[derive(Debug)]
struct Flaky {
    runs: Arc<dyn ChildRuns>,
    begun: AtomicUsize,
    looks: AtomicUsize,
}

#[async_trait]
impl ChildRuns for Flaky {
    async fn begin(&self, start: ChildStart) -> Result<(), ChildError> {
        match self.begun.fetch_add(1, Ordering::Relaxed) {
            0 => Err(ChildError { message: "the store is away".to_owned(), transient: true }),
            _ => self.runs.begin(start).await,
        }
    }

    async fn look(&self, id: &InvocationId) -> Result<ChildStanding, ChildError> {
        match self.looks.fetch_add(1, Ordering::Relaxed) {
            0 => Err(ChildError { message: "the store is slow".to_owned(), transient: true }),
            _ => self.runs.look(id).await,
        }
    }

    async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<(), ChildError> {
        self.runs.cancel(id, reason).await
    }
}

#[test]
fn an_agent_that_could_not_be_asked_keeps_no_other_one_from_being_asked() {
    let lead = ScriptedModel::new(|request| {
        let results = results(request);
        let prompt = json!({ "prompt": format!("look {}", results.len()) });
        Ok(match results.len() {
            0..3 => calls(&[(&format!("c{}", results.len()), "SubAgent", prompt)]),
            _ => says(&results.join("|")),
        })
    });
    let mut bed = bed(&lead, &answers(), |parts| {
        parts.agent.policy.max_concurrent_subagents = Some(1);
        let runs = parts.colleagues.runs.take().expect("it runs others");
        let flaky = Flaky { runs, begun: AtomicUsize::new(0), looks: AtomicUsize::new(0) };
        parts.colleagues.runs = Some(Arc::new(flaky));
    });
    let run = bed.start("lead", message("go"));
    let told = last(&bed, &run);
    let told: Vec<&str> = told.split('|').collect();
    assert_eq!(told[0], "error: the store is away; it may work later");
    assert_eq!(told[1], "error: the store is slow; it may work later");
    assert!(told[2].starts_with("found for look 2\n"), "{told:?}");
}

#[test]
fn an_agent_in_the_background_wakes_its_parent() {
    let lead = asks(2, true);
    // The first attempts fail, so that the children sleep while the parent has nothing to do any more.
    let scout = ScriptedModel::playing(
        [
            Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")),
            Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")),
            Ok(says("one")),
            Ok(says("two")),
        ]
        .into(),
    );
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let waiting = bed.status(&run).waiting_for();
    assert_eq!(waiting.metadata.as_ref().unwrap()["agents"], json!(["scout", "scout"]), "{waiting:?}");
    assert_eq!(lead.calls(), 2, "it went on at once, and sleeps now");
    bed.pass(Duration::from_secs(60));
    let answer = last(&bed, &run);
    assert!(answer.contains("one") && answer.contains("two"), "{answer}");
    assert!(state_children(&bed.status(&run).completed()).iter().all(|child| child["ended"] == true));
}

fn state_children(state: &Map) -> Vec<Value> {
    state["dormouse_children"].as_array().cloned().expect("children")
}

#[test]
fn the_failure_of_an_agent_is_an_error_for_the_one_that_asked() {
    let lead = asks(1, false);
    let scout = ScriptedModel::new(|_| Err(ModelError::new(ModelErrorCategory::Authentication, "no key")));
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    assert!(answer.contains("the agent failed (provider_authentication): no key"), "{answer}");
}

#[test]
fn agents_ask_agents_only_so_deep() {
    let lead = asks(1, false);
    // Every scout asks another one, and repeats what it hears.
    let scout = asks(1, false);
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    assert!(last(&bed, &run).contains("at most 3 deep"), "{}", last(&bed, &run));
}

#[test]
fn what_only_agents_may_ask_does_not_run_by_itself() {
    let (lead, scout) = (asks(1, false), answers());
    let mut bed = bed(&lead, &scout, |_| {});
    let refused = bed.try_start("scout", message("go")).expect_err("it is refused");
    assert_eq!(refused.category, "request_invalid");
    assert_eq!(scout.calls(), 0);
    let forged = json!({ "messages": message("go")["messages"], "dormouse_parent": { "invocation_id": "x", "signal_id": "y", "depth": 0 } });
    bed.try_start("scout", forged).expect_err("nobody names a parent from outside");
}

#[test]
fn a_run_is_handed_over_and_goes_on_with_the_other_agent() {
    let first = ScriptedModel::new(|_| Ok(calls(&[("c", "AgentSwitch", json!({ "to": "second" }))])));
    let second = ScriptedModel::new(|request| Ok(says(&results(request).join("|"))));
    let models = (first.clone(), second.clone());
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = agent("first", &models.0, outside);
        parts.colleagues.switch = vec![colleague("second")];
        let mut other = agent("second", &models.1, outside);
        other.name = "first".to_owned();
        other.instructions = "You are the second.".to_owned();
        other.agent.system_reminder = Some("Be brief.".to_owned());
        other.colleagues = Colleagues::default();
        parts.successors = vec![Arc::new(other)];
        graph::graph(parts)
    }));
    let run = bed.start("first", message("go"));
    assert_eq!(last(&bed, &run), "the agent `second` goes on from here");
    assert_eq!(bed.status(&run).completed()["agent"], "second");
    assert_eq!((first.calls(), second.calls()), (1, 1));
    let request = serde_json::to_value(&second.last().messages).unwrap();
    assert_eq!(request[0]["content"], "You are the second.");
    assert_eq!(request[1]["content"], "<system_reminder>\nBe brief.\n</system_reminder>\ngo");
    assert!(second.last().tools.is_empty(), "it has its own tools");
}

#[test]
fn a_run_that_is_handed_over_to_an_agent_with_a_model_that_there_is_not_fails_at_once() {
    let first = ScriptedModel::new(|_| Ok(calls(&[("c", "AgentSwitch", json!({ "to": "second" }))])));
    let second = ScriptedModel::new(|_| Err(ModelError::new(ModelErrorCategory::InvalidModel, "there is no `tinny`")));
    let models = (first, second.clone());
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = agent("first", &models.0, outside);
        parts.colleagues.switch = vec![colleague("second")];
        let mut other = agent("second", &models.1, outside);
        other.name = "first".to_owned();
        other.colleagues = Colleagues::default();
        parts.successors = vec![Arc::new(other)];
        graph::graph(parts)
    }));
    let refused = bed.try_start("first", message("go")).expect_err("nothing but its definition mends that");
    assert_eq!((refused.category.as_str(), second.calls()), ("provider_invalid_model", 1));
}

#[test]
fn of_two_hand_overs_in_a_step_the_first_counts_and_the_second_is_told() {
    let first = ScriptedModel::new(|request| {
        let to = |name: &str| json!({ "to": name });
        let both = [("a", "AgentSwitch", to("second")), ("b", "AgentSwitch", to("third"))];
        Ok(if results(request).is_empty() { calls(&both) } else { says("back") })
    });
    let next = ScriptedModel::new(|request| Ok(says(&results(request).join("|"))));
    let models = (first.clone(), next.clone());
    let mut bed = TestBed::new(&Agents::new().graph(move |outside| {
        let mut parts = agent("first", &models.0, outside);
        parts.colleagues.switch = vec![colleague("second"), colleague("third")];
        let other = |name: &str| Arc::new(AgentParts { name: "first".to_owned(), ..agent(name, &models.1, outside) });
        parts.successors = vec![other("second"), other("third")];
        graph::graph(parts)
    }));
    let run = bed.start("first", message("go"));
    let told = last(&bed, &run);
    let (first_told, second_told) = told.split_once('|').expect("two results");
    assert_eq!(first_told, "the agent `second` goes on from here");
    assert!(second_told.contains("handed over to `second` already"), "{second_told}");
    assert_eq!(bed.status(&run).completed()["agent"], "second");
}

#[test]
fn a_task_id_alone_goes_on_with_the_agent_that_was_asked_under_it_and_with_no_other() {
    let lead = ScriptedModel::new(|request| {
        let results = results(request);
        let id = || {
            let (_, behind) = results[0].rsplit_once("[task_id: ").expect("a task_id");
            behind.split(']').next().unwrap_or_default().to_owned()
        };
        let ask = |arguments: Value| Ok(calls(&[("c", "SubAgent", arguments)]));
        match results.len() {
            0 => ask(json!({ "prompt": "look", "subagent_name": "scout" })),
            1 => ask(json!({ "prompt": "go on", "task_id": id() })),
            2 => ask(json!({ "prompt": "go on", "task_id": id(), "subagent_name": "poet" })),
            3 => ask(json!({ "prompt": "go on", "task_id": id(), "subagent_name": "scout" })),
            _ => Ok(says(&results[1..].join("|"))),
        }
    });
    let (scout, poet) =
        (ScriptedModel::new(|request| Ok(says(&format!("seen {}", request.messages.len())))), answers());
    let models = (lead.clone(), scout.clone(), poet.clone());
    let agents = Agents::new().graph(move |outside| {
        let mut parts = agent("lead", &models.0, outside);
        parts.colleagues.ask = vec![colleague("poet"), colleague("scout")];
        graph::graph(parts)
    });
    let asked = [("scout", scout.clone()), ("poet", poet.clone())];
    let mut bed = TestBed::new(&asked.into_iter().fold(agents, |agents, (name, model)| {
        agents.graph(move |outside| {
            let mut parts = agent(name, &model, outside);
            parts.agent.mode = AgentMode::Subagent;
            graph::graph(parts)
        })
    }));
    let run = bed.start("lead", message("go"));
    let told = last(&bed, &run);
    let told: Vec<&str> = told.split('|').collect();
    assert!(told[0].starts_with("seen 4\n"), "the same conversation: {told:?}");
    assert!(told[1].contains("with `scout`, not with `poet`"), "{told:?}");
    assert!(told[2].starts_with("seen 6\n"), "{told:?}");
    assert_eq!((scout.calls(), poet.calls()), (3, 0));
}

/// Agents whose model is busy, for good or, with `times`, so often for the first of them.
fn busy(times: usize) -> Arc<ScriptedModel> {
    let first = AtomicUsize::new(0);
    ScriptedModel::new(move |request| {
        let asked = serde_json::to_value(request.messages.last()).expect("JSON")["content"].to_string();
        match asked.contains("look 0") && first.fetch_add(1, Ordering::Relaxed) >= times {
            true => Ok(says("found")),
            false => Err(ModelError::new(ModelErrorCategory::Unavailable, "busy")),
        }
    })
}

/// The agents that were told that they are not wanted any more, as their ends say.
fn canceled(bed: &TestBed) -> usize {
    let said = bed.published().into_iter().map(|event| Value::Object(event.detail).to_string());
    said.filter(|said| said.contains("the agent was canceled: the agent that asked has ended")).count()
}

#[test]
fn a_run_that_waits_for_agents_ends_when_its_own_time_is_over_and_they_with_it() {
    for background in [false, true] {
        let (lead, scout) = (asks(2, background), busy(usize::MAX));
        let mut bed = bed(&lead, &scout, |parts| parts.agent.policy.run_timeout_seconds = Some(100));
        let run = bed.start("lead", message("go"));
        bed.pass(Duration::from_secs(99));
        assert!(bed.status(&run).is_asleep());
        assert_eq!(canceled(&bed), 0);
        bed.pass(Duration::from_secs(1));
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], &state["dormouse_shortfall"]["code"]), (&json!("time"), &json!("time")));
        assert_eq!(state["usage"]["active_ms"], 100_000, "others worked for it all the time");
        assert_eq!(canceled(&bed), 2, "in the background: {background}");
        let (asked, led) = (scout.calls(), lead.calls());
        bed.pass_days(1);
        assert_eq!((scout.calls(), lead.calls()), (asked, led), "nobody works for a run that has ended");
    }
}

#[test]
fn a_run_that_may_not_hear_what_agents_in_the_background_find_has_not_come_to_an_answer() {
    type Change = fn(&mut AgentParts);
    let limits: [(Change, &str); 2] = [
        (|parts| parts.agent.policy.max_steps = Some(2), "max_steps"),
        (|parts| parts.agent.policy.max_total_tokens = Some(220), "budget"),
    ];
    for (change, reason) in limits {
        let (lead, scout) = (asks(1, true), busy(usize::MAX));
        let mut bed = bed(&lead, &scout, change);
        let run = bed.start("lead", message("go"));
        let state = bed.status(&run).completed();
        assert_eq!((&state["reason"], &state["dormouse_shortfall"]["code"]), (&json!(reason), &json!(reason)));
        assert_eq!((lead.calls(), canceled(&bed)), (2, 1));
    }
}

#[test]
fn the_waits_of_a_run_for_agents_in_the_background_are_counted_together() {
    let (lead, scout) = (asks(2, true), busy(3));
    let mut bed = bed(&lead, &scout, |parts| parts.agent.policy.run_timeout_seconds = Some(100));
    let run = bed.start("lead", message("go"));
    // The first one rests for 5, 20 and 60 seconds before it has an answer.
    bed.pass(Duration::from_secs(99));
    assert!(bed.status(&run).is_asleep());
    assert_eq!(told(&lead.last()).len(), 1, "it was told of the first one");
    bed.pass(Duration::from_secs(1));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["usage"]["active_ms"]), (&json!("time"), &json!(100_000)));
    assert_eq!(state["usage"].get("waits_since"), None);
    let ended: Vec<_> = state_children(&state).iter().map(|child| child["ended"] == true).collect();
    assert_eq!((ended, canceled(&bed)), (vec![true, false], 1), "who has ended is not canceled");
}

#[test]
fn the_time_for_which_agents_work_that_were_asked_one_behind_the_other_is_counted_once() {
    let lead = ScriptedModel::new(|_| {
        let ask = json!({ "prompt": "look" });
        Ok(calls(&[("a", "SubAgent", ask.clone()), ("b", "send", json!({ "to": "ada" })), ("c", "SubAgent", ask)]))
    });
    // They rest for longer than the run may take.
    let scout = ScriptedModel::new(|_| {
        let mut error = ModelError::new(ModelErrorCategory::Unavailable, "busy");
        error.retry_after = Some(Duration::from_secs(6 * 60 * 60));
        Err(error)
    });
    let mut bed = bed(&lead, &scout, |parts| {
        parts.agent.policy.run_timeout_seconds = Some(3600);
        parts.agent.policy.parallel_tool_calls = Some(false);
        parts.tools[0].source = Toolbox::new(vec![tool("send", Effect::Manual)], |_| {
            Err(ToolError::new(ToolErrorKind::TimedOut, "nothing is known").maybe_done())
        });
    });
    let run = bed.start("lead", message("go"));
    assert_eq!(scout.calls(), 1, "the second one is asked behind the mail, of which a person is asked");
    bed.pass(Duration::from_secs(100));
    bed.answer(&run, json!({ "decision": "skip" })).unwrap();
    assert_eq!(scout.calls(), 2);
    // The run looks for each of them every quarter of an hour, at other instants.
    bed.pass(Duration::from_secs(3499));
    assert!(bed.status(&run).is_asleep());
    bed.pass(Duration::from_secs(1));
    let state = bed.status(&run).completed();
    assert_eq!((&state["reason"], &state["usage"]["active_ms"]), (&json!("time"), &json!(3_600_000)));
    assert_eq!((lead.calls(), canceled(&bed)), (1, 2));
}

/// Agents of which `first` hands its run over to `second`, which asks `scout` in the background and waits; `change` is
/// made to the parts of both.
fn handed_over(scout: &Arc<ScriptedModel>, change: fn(&mut AgentParts)) -> TestBed {
    let first = ScriptedModel::new(|_| Ok(calls(&[("c", "AgentSwitch", json!({ "to": "second" }))])));
    let (models, scout) = ((first, asks(2, true)), scout.clone());
    let agents = Agents::new().graph(move |outside| {
        let mut parts = agent("first", &models.0, outside);
        parts.colleagues.switch = vec![colleague("second")];
        let mut other = agent("second", &models.1, outside);
        other.name = "first".to_owned();
        other.colleagues.ask = vec![colleague("scout")];
        [&mut parts, &mut other].into_iter().for_each(change);
        parts.successors = vec![Arc::new(other)];
        graph::graph(parts)
    });
    TestBed::new(&agents.graph(move |outside| {
        let mut parts = agent("scout", &scout, outside);
        parts.agent.mode = AgentMode::Subagent;
        graph::graph(parts)
    }))
}

#[test]
fn a_run_that_was_handed_over_waits_as_the_agent_does_that_has_it() {
    let limited = |parts: &mut AgentParts| {
        let is_second = parts.agent.name == "second";
        parts.agent.policy.run_timeout_seconds = is_second.then_some(60);
    };
    let mut bed = handed_over(&busy(usize::MAX), limited);
    let run = bed.start("first", message("go"));
    bed.pass(Duration::from_secs(59));
    assert!(bed.status(&run).is_asleep());
    bed.pass(Duration::from_secs(1));
    assert_eq!(bed.status(&run).completed()["reason"], "time", "not a quarter of an hour later");
}

#[test]
fn a_run_that_was_handed_over_is_not_woken_all_the_time_where_the_first_agent_has_no_time_left() {
    let limited = |parts: &mut AgentParts| {
        let is_first = parts.agent.name == "first";
        parts.agent.policy.run_timeout_seconds = is_first.then_some(60);
    };
    let mut bed = handed_over(&busy(usize::MAX), limited);
    let run = bed.start("first", message("go"));
    bed.pass(Duration::from_secs(61));
    let Status::Asleep { due_at: Some(due_at), .. } = bed.status(&run) else { panic!("{:?}", bed.status(&run)) };
    let left = due_at.duration_since(bed.now()).as_secs();
    assert!(left > 600, "it looks again in {left} seconds");
}

#[test]
fn an_agent_that_ended_short_of_an_answer_is_an_error_for_the_one_that_asked_with_the_reason() {
    let lead = asks(1, false);
    let scout = ScriptedModel::new(|_| Ok(Response { finish_reason: FinishReason::Length, ..says("half of it") }));
    let mut bed = bed(&lead, &scout, |_| {});
    let run = bed.start("lead", message("go"));
    let answer = last(&bed, &run);
    assert!(answer.contains("half of it"), "what it said is told: {answer}");
    let why = "[it ended before it was done: length: the answer was cut";
    assert!(answer.contains(why) && answer.contains("[task_id: "), "{answer}");
    assert!(answer.starts_with("heard error: "), "{answer}");
}
