//! Graphs that do little, in every shape in which an invocation can sleep, beside those that ship.

use std::sync::Arc;

use dormouse_api::{AgentsError, Outside};
use dormouse_engine::{
    CompiledGraph, END, EngineError, FanOut, Field, FieldType, Graph, GraphBuilder, NodeError, Reducer,
    SessionConcurrency, SessionPolicy, State, StateSchema, Update, record, state, suspend,
};
use dormouse_harness::GraphRegistry;
use dormouse_ports::{Category, Clock, EntryKind, JournalEntry, SignalDescriptor};
use serde_json::{Value, json};

use super::planted::PlantedBug;
use super::poison::Place;
use super::sim_ports::SimPorts;

state! {
    /// What the graphs work on. Behind every pause the node `settle` moves `answer` into `answers`. What nodes
    /// record is also in `noted`.
    #[derive(Clone, Debug, Default)]
    struct Work {
        answer: String,
        answers: Vec<String>,
        entries: Vec<String>,
        votes: Value,
        noted: Vec<String>,
    }
}

/// All graphs, on the ports of one process.
pub(crate) fn registry(sim_ports: &Arc<SimPorts>) -> Result<GraphRegistry, AgentsError> {
    let shipped = dormouse_app::agents().compile(&Outside::new(sim_ports.clone(), sim_ports.clone()))?.graphs;
    let own = [
        pausing("ask", sim_ports, |name| wait(name).with("event", heard_of("answers"))),
        pausing("nap", sim_ports, |name| {
            wait(name).with("wake_after", "PT30S").with("wake_payload", json!({ "answer": "woken" }))
        }),
        pausing("lenient", sim_ports, |name| {
            let timeout = timeout(json!({ "resume": { "answer": "late" } }));
            wait(name).with("timeout", timeout).with("event", heard_of("rumours"))
        }),
        pausing("strict", sim_ports, |name| wait(name).with("timeout", timeout(json!("fail")))),
        pausing("ladder", sim_ports, |name| wait(name).with("deadlines", ladder())),
        pausing(JURY, sim_ports, |name| {
            wait(name).with("accepts", vote()).with("expects", jury()).with("deadlines", ladder())
        }),
        twice("twice", sim_ports, |name, pause| wait(&format!("{name}-{pause}"))),
        twice("again", sim_ports, |name, _| wait(name)),
        shaky(sim_ports),
        doomed(),
        poisonous(sim_ports),
        spread(),
        journal(sim_ports),
        diary("diary", sim_ports, SessionConcurrency::LastWriteWins),
        diary("ledger", sim_ports, SessionConcurrency::Optimistic),
    ];
    let own = own.into_iter().map(|graph| graph.map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
    Ok(GraphRegistry::new(shipped.iter().cloned().chain(own)))
}

/// The graph that waits for several signals.
pub(crate) const JURY: &str = "jury";
/// Whom it asks.
pub(crate) const JURORS: [&str; 3] = ["a", "b", "c"];

/// The graph that kills whoever runs it.
pub(crate) const POISON: &str = "poison";

/// The id of the signal of one of several parts.
pub(crate) fn signal_of_part(invocation: &str, part: &str) -> String {
    format!("{}/{part}", signal_of(invocation))
}

/// The id of the signal that `invocation` waits for, in graphs with one pause.
pub(crate) fn signal_of(invocation: &str) -> String {
    format!("signal-{invocation}")
}

fn wait(name: &str) -> SignalDescriptor {
    SignalDescriptor::new(signal_of(name)).with("accepts", accepted(json!({ "answer": { "type": "string" } })))
}

/// Answers with `properties`, of which `answer` must be there.
fn accepted(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": ["answer"] })
}

/// What one of the jury may say.
fn vote() -> Value {
    accepted(json!({ "answer": { "type": "string" }, "veto": { "type": "boolean" } }))
}

/// An event that never comes; its rule must be there all the same, as long as somebody waits.
fn heard_of(source: &str) -> Value {
    json!({ "pattern": { "source": [source] }, "correlation": "$.detail.id" })
}

fn timeout(then: Value) -> Value {
    json!({ "after": "PT2M", "then": then })
}

/// Two of three, or a single no.
fn jury() -> Value {
    let parts: serde_json::Map<String, Value> = JURORS.map(|part| (part.to_owned(), json!({}))).into_iter().collect();
    let veto = json!({ "field": "veto", "is": true });
    json!({ "parts": parts, "until": { "at_least": 2 }, "veto": veto, "into": "votes" })
}

fn ladder() -> Value {
    json!([
        { "after": "PT10S", "do": "remind" },
        { "after": "PT20S", "do": "reassign", "to": "Grace" },
        { "after": "PT2M", "then": { "resume": { "answer": "nobody" } } },
    ])
}

pub(crate) fn name() -> String {
    dormouse_engine::current().map(|identity| identity.invocation_id.to_string()).unwrap_or_default()
}

/// A failure that passes.
fn away() -> NodeError {
    NodeError::new("the provider is away").with_category(Category::ProviderUnavailable)
}

fn settle(work: &Work) -> Update<Work> {
    Work::answers.append([work.answer.clone()])
}

fn graph(name: &str) -> Graph<Work> {
    Graph::new(name)
        .version("1")
        .reducer(Work::answers, Reducer::Append)
        .reducer(Work::entries, Reducer::Append)
        .reducer(Work::noted, Reducer::Append)
}

/// The kind of what nodes record.
pub(crate) const NOTED: &str = "simulation.noted";
/// Of how many entries a planted bug spoils one.
const SPOILT: u64 = 3;

/// Records something that nobody has recorded before, and returns the same for the state.
fn note(sim_ports: &SimPorts) -> Result<String, NodeError> {
    let number = sim_ports.next_entry();
    let noted = format!("{}/{number}", name());
    let kind = EntryKind::vendor(NOTED).map_err(|invalid| NodeError::new(invalid.to_string()))?;
    let spoilt = number.is_multiple_of(SPOILT);
    let times = match sim_ports.planted_in_nodes() {
        Some(PlantedBug::DropEntries) if spoilt => 0,
        Some(PlantedBug::DoubleEntries) if spoilt => 2,
        _ => 1,
    };
    for _ in 0..times {
        record(JournalEntry::new(kind.clone()).with("noted", noted.clone()))?;
    }
    Ok(noted)
}

/// One pause, and a node behind it that takes its time.
fn pausing(
    graph_name: &str,
    sim_ports: &Arc<SimPorts>,
    wait: impl Fn(&str) -> SignalDescriptor + Send + Sync + 'static,
) -> Result<CompiledGraph, EngineError> {
    let sim_ports = sim_ports.clone();
    let wait = Arc::new(wait);
    graph(graph_name)
        .entry("ask")
        .node("ask", move |()| {
            let wait = wait.clone();
            async move { Err(suspend(wait(&name())).await) }
        })
        .node("settle", move |work: Work| {
            let sim_ports = sim_ports.clone();
            async move {
                let noted = note(&sim_ports)?;
                sim_ports.sleep(sim_ports.dawdling()).await;
                if sim_ports.node_fails() { Err(away()) } else { Ok(settle(&work).append(Work::noted, [noted])) }
            }
        })
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Two pauses in a row.
fn twice(
    graph_name: &str,
    sim_ports: &Arc<SimPorts>,
    wait: impl Fn(&str, u8) -> SignalDescriptor + Send + Sync + 'static,
) -> Result<CompiledGraph, EngineError> {
    let wait = Arc::new(wait);
    let sim_ports = sim_ports.clone();
    let again = wait.clone();
    graph(graph_name)
        .entry("ask")
        .node("ask", move |()| {
            let wait = wait.clone();
            async move { Err(suspend(wait(&name(), 1)).await) }
        })
        .node("between", move |work: Work| {
            let sim_ports = sim_ports.clone();
            async move {
                let noted = note(&sim_ports)?;
                sim_ports.sleep(sim_ports.dawdling()).await;
                Ok(settle(&work).append(Work::noted, [noted]))
            }
        })
        .node("ask-again", move |()| {
            let again = again.clone();
            async move { Err(suspend(again(&name(), 2)).await) }
        })
        .node("settle", async |work: Work| Ok(settle(&work)))
        .edge("ask", "between")
        .edge("between", "ask-again")
        .edge("ask-again", "settle")
        .edge("settle", END)
        .compile()
}

/// Fails now and then, before the pause and behind it, so that trying again helps.
fn shaky(sim_ports: &Arc<SimPorts>) -> Result<CompiledGraph, EngineError> {
    let before = sim_ports.clone();
    let behind = sim_ports.clone();
    graph("shaky")
        .entry("try")
        .node("try", move |()| {
            let sim_ports = before.clone();
            async move {
                let noted = note(&sim_ports)?;
                if sim_ports.node_fails() { Err(away()) } else { Ok(Work::noted.append([noted])) }
            }
        })
        .node("ask", async |()| Err(suspend(wait(&name())).await))
        .node("settle", move |work: Work| {
            let sim_ports = behind.clone();
            async move {
                let noted = note(&sim_ports)?;
                if sim_ports.node_fails() { Err(away()) } else { Ok(settle(&work).append(Work::noted, [noted])) }
            }
        })
        .edge("try", "ask")
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Fails behind its pause, so that trying again does not help.
fn doomed() -> Result<CompiledGraph, EngineError> {
    let refusal = || NodeError::new("it is not to be").with_category(Category::Application("refused".into()));
    graph("doomed")
        .entry("ask")
        .node("ask", async |()| Err(suspend(wait(&name())).await))
        .node("settle", move |()| std::future::ready(Err(refusal())))
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Kills its process, before the pause or behind it.
fn poisonous(sim_ports: &Arc<SimPorts>) -> Result<CompiledGraph, EngineError> {
    let before = sim_ports.clone();
    let behind = sim_ports.clone();
    graph(POISON)
        .entry("ask")
        .node("ask", move |()| {
            let sim_ports = before.clone();
            async move {
                sim_ports.poison(&name(), Place::Before).await;
                Err(suspend(wait(&name())).await)
            }
        })
        .node("settle", move |work: Work| {
            let sim_ports = behind.clone();
            async move {
                sim_ports.poison(&name(), Place::Behind).await;
                Ok(settle(&work))
            }
        })
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Pauses inside of a fan-out.
fn spread() -> Result<CompiledGraph, EngineError> {
    let number = || Field::new(FieldType::Int, 0);
    let part = GraphBuilder::new("part", StateSchema::new().field("item", number()).field("out", number()))
        .entry("work")
        .function("work", async |state: State| {
            let item = state.get("item").cloned().unwrap_or_default();
            if item == json!(2) {
                return Err(suspend(wait(&name())).await);
            }
            Ok(Update::none().with("out", item))
        })
        .edge("work", END)
        .compile()?;
    let list = |value: Value| Field::new(FieldType::List(Box::new(FieldType::Any)), value);
    let schema = StateSchema::new()
        .field("items", list(json!([1, 2, 3])))
        .field("outs", list(json!([])))
        .field("answer", Field::new(FieldType::Str, ""))
        .field("answers", list(json!([])));
    GraphBuilder::new("spread", schema)
        .entry("all")
        .fan_out("all", FanOut::over(Arc::new(part)).items("items", "item").collect("out", "outs"))
        .function("settle", async |state: State| {
            let answer = state.get("answer").cloned().unwrap_or_default();
            Ok(Update::none().with("answers", json!([answer])))
        })
        .edge("all", "settle")
        .edge("settle", END)
        .compile()
}

/// Pauses in a session, which keeps an entry from before the pause and one from behind it.
fn journal(sim_ports: &Arc<SimPorts>) -> Result<CompiledGraph, EngineError> {
    let sim_ports = sim_ports.clone();
    graph("journal")
        .sessions(SessionPolicy::keeping(Work::entries).concurrency(SessionConcurrency::Rebase))
        .entry("begin")
        .node("begin", async |()| Ok(Work::entries.append([format!("{}/begin", name())])))
        .node("ask", async |()| Err(suspend(wait(&name())).await))
        .node("settle", move |work: Work| {
            let sim_ports = sim_ports.clone();
            async move {
                let noted = note(&sim_ports)?;
                sim_ports.sleep(sim_ports.dawdling()).await;
                if sim_ports.node_fails() {
                    return Err(away());
                }
                let kept = format!("{}/{}", name(), work.answer);
                Ok(settle(&work).append(Work::entries, [kept]).append(Work::noted, [noted]))
            }
        })
        .edge("begin", "ask")
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Adds an entry to a session without a pause.
fn diary(
    graph_name: &str,
    sim_ports: &Arc<SimPorts>,
    concurrency: SessionConcurrency,
) -> Result<CompiledGraph, EngineError> {
    let sim_ports = sim_ports.clone();
    graph(graph_name)
        .sessions(SessionPolicy::keeping(Work::entries).concurrency(concurrency))
        .entry("write")
        .node("write", move |()| {
            let sim_ports = sim_ports.clone();
            async move {
                sim_ports.sleep(sim_ports.dawdling()).await;
                Ok(Work::entries.append([name()]))
            }
        })
        .edge("write", END)
        .compile()
}
