//! Agents of published bundles: a run keeps the bundle that it began with, and a process asks for no more than it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::bundle::{Bundle, BundleStore};
use dormouse_agent::workspace::{FileContent, Files, Platform, ToolDefinition};
use dormouse_api::{AgentSource, Outside, RecordingEngine, RecordingStore};
use dormouse_declared::{DeclaredPorts, LentModels, PublishedAgents, PublishedFrom, Refresh, ToolSources};
use dormouse_engine::{CompiledGraph, END, Field, FieldType, GraphBuilder, State, StateSchema, Update};
use dormouse_harness::{
    Bucket, DescriptorWakes, FreshTurn, GraphRegistry, GraphSource, Harness, HarnessConfig, Mode, Transmission,
    TurnOutcome,
};
use dormouse_ports::tool::{ToolCall, ToolError, ToolOutput, ToolReply, ToolSource, ToolSpec};
use dormouse_ports::{Category, Map, Secret, SecretError, Secrets};
use dormouse_testkit::{
    CountingIds, ManualClock, MemoryBus, MemoryObjects, MemoryStore, MemorySubscriptions, ScriptedAnswer,
    ScriptedFetch, TokioSpawner,
};
use futures::executor::block_on;
use serde_json::{Value, json};

const NAME: &str = "support";
const CURRENT: &str = "get workspaces/support/current.json";

/// Everything that outlives a process.
struct World {
    objects: Arc<MemoryObjects>,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    fetch: ScriptedFetch,
    ids: Arc<CountingIds>,
    secrets: Arc<dyn Secrets>,
}

/// Secrets that cannot be had while they are away.
#[derive(Default)]
struct Elsewhere(AtomicBool);

#[async_trait]
impl Secrets for Elsewhere {
    async fn resolve(&self, _: &str) -> Result<Secret, SecretError> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(SecretError::Unavailable("too many requests".to_owned())),
            false => Ok(Secret::new("http://models.test/v1")),
        }
    }
}

/// Counts how often it is asked whether anything has changed.
#[derive(Debug, Default)]
struct Looked(AtomicUsize);

#[async_trait]
impl Refresh for Looked {
    async fn refresh(&self, _: &str) -> Result<(), String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A process that serves the workspace.
struct Sandbox {
    agents: Arc<PublishedAgents>,
    harness: Harness,
}

#[derive(Debug)]
struct Booking;

#[async_trait]
impl ToolSource for Booking {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        Ok(vec![ToolSpec::new("book")])
    }

    async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
        Ok(ToolReply::Done(ToolOutput::text("booked")))
    }
}

impl ToolSources for Booking {
    fn source(&self, _: &ToolDefinition) -> Result<Arc<dyn ToolSource>, String> {
        Ok(Arc::new(Self))
    }
}

fn bundle(rules: &str) -> Bundle {
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    let agent = "---\nmodel: workspace/m\npolicy:\n  approval:\n    external: ['*']\n---\nYou book.\n";
    let model = "m:\n  provider: openai-compatible\n  name: tiny\n  url: http://models.test/v1\n  key: ${secrets.K}\n";
    let files = Files::from([
        ("AGENTS.md".to_owned(), bytes(rules)),
        (".openharness/agents/clerk.md".to_owned(), bytes(agent)),
        (".openharness/models/m.yaml".to_owned(), bytes(model)),
        (".openharness/tools/settings.yaml".to_owned(), bytes("desk:\n  url: http://desk.test/mcp\n")),
    ]);
    Bundle::of(&files).expect("a bundle")
}

impl World {
    fn new() -> Self {
        Self {
            objects: Arc::default(),
            store: Arc::default(),
            clock: Arc::default(),
            fetch: ScriptedFetch::default(),
            ids: Arc::default(),
            secrets: Arc::new(Secret::new("hush")),
        }
    }

    fn bundles(&self) -> BundleStore {
        BundleStore::new(self.objects.clone(), "workspaces/")
    }

    fn publish(&self, rules: &str) -> String {
        self.publish_bundle(&bundle(rules))
    }

    fn publish_bundle(&self, made: &Bundle) -> String {
        self.publish_as(NAME, made)
    }

    fn publish_as(&self, name: &str, made: &Bundle) -> String {
        block_on(async {
            let seen = self.bundles().current(name).await.expect("an answer");
            self.bundles().publish(name, made, seen.as_ref()).await.expect("published");
        });
        self.objects.take_asked();
        made.digest().to_owned()
    }

    fn sandbox(&self) -> Sandbox {
        self.sandbox_at(None, Platform::default())
    }

    /// A process whose agents work in the folder of the tenant `home`.
    fn sandbox_at(&self, home: Option<&str>, platform: Platform) -> Sandbox {
        self.sandbox_of(&[NAME], home, platform)
    }

    fn sandbox_of(&self, workspaces: &[&str], home: Option<&str>, platform: Platform) -> Sandbox {
        self.sandbox_with(workspaces, (home, platform), None)
    }

    fn sandbox_with(
        &self,
        workspaces: &[&str],
        (home, platform): (Option<&str>, Platform),
        refresh: Option<Arc<dyn Refresh>>,
    ) -> Sandbox {
        let bus = Arc::new(MemoryBus::default());
        let subscriptions = Arc::new(MemorySubscriptions::default());
        let agents = Arc::new(PublishedAgents::new(PublishedFrom {
            store: self.bundles(),
            workspaces: workspaces.iter().map(|name| (*name).to_owned()).collect(),
            platform,
            ports: DeclaredPorts {
                fetch: Arc::new(self.fetch.clone()),
                clock: self.clock.clone(),
                ids: self.ids.clone(),
                env: Arc::new(Secret::new("none")),
                secrets: self.secrets.clone(),
                tools: Arc::new(Booking),
                deltas: None,
                bedrock: None,
                lender: None,
            },
            outside: Outside::new(bus.clone(), self.clock.clone()),
            home: home.map(str::to_owned),
            refresh,
        }));
        let recording = RecordingStore::new(self.store.clone(), self.store.clone(), self.clock.clone());
        let spawner = Arc::new(TokioSpawner);
        let planner = Arc::new(DescriptorWakes);
        let engine = RecordingEngine::new(recording, self.ids.clone(), spawner, planner);
        let graphs = GraphRegistry::default().with_source(agents.clone());
        let config = HarnessConfig::new(Mode::Sessioned);
        let harness = Harness::new(engine.engine().clone(), graphs, subscriptions, bus, config);
        Sandbox { agents, harness }
    }

    /// What the model was told in its request number `index`.
    fn instructions(&self, index: usize) -> String {
        self.fetch.bodies()[index]["messages"][0]["content"].to_string()
    }
}

fn object(value: Value) -> Map {
    value.as_object().cloned().expect("an object")
}

fn asks_for_the_tool() -> ScriptedAnswer {
    let call = json!({ "id": "c", "type": "function", "function": { "name": "book", "arguments": "{}" } });
    completion(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
}

fn says(text: &str) -> ScriptedAnswer {
    completion(json!({ "role": "assistant", "content": text }), "stop")
}

fn completion(message: Value, finish: &str) -> ScriptedAnswer {
    let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
    let usage = json!({ "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 });
    ScriptedAnswer::json(200, &json!({ "id": "1", "model": "tiny", "choices": [choice], "usage": usage }))
}

fn book() -> FreshTurn {
    let forged = object(json!({ "dormouse.graph_version": "support@forged" }));
    let state = object(json!({ "messages": [{ "role": "user", "content": "book" }] }));
    FreshTurn { metadata: forged, ..FreshTurn::new("clerk", state) }
}

#[tokio::test]
async fn what_sleeps_goes_on_with_its_own_bundle_and_what_begins_has_the_new_one() {
    let world = World::new();
    let first = world.publish("Rules of the first day.");
    world.fetch.answer(asks_for_the_tool()).answer(says("done")).answer(says("hello"));
    let sandbox = world.sandbox();
    assert_eq!(world.objects.take_asked(), [] as [&str; 0], "nothing is loaded before it is asked for");
    let TurnOutcome::Suspended(asleep) = sandbox.harness.turn(book()).await.outcome else { panic!("it waits") };
    let loaded = format!("get workspaces/support/bundles/{first}.json");
    assert_eq!(world.objects.take_asked(), [CURRENT, &loaded]);

    world.publish("Rules of the second day.");
    let other = world.sandbox();
    let answer = object(json!({ "decision": "approve" }));
    let done = other.harness.turn(Transmission::callback(asleep.invocation_id, None, answer)).await.outcome;
    assert!(matches!(done, TurnOutcome::Completed(_)), "{done:?}");
    assert_eq!(world.objects.take_asked(), [loaded.as_str()], "the pinned bundle, and no look at the current one");
    let begun = other.harness.turn(book()).await.outcome;
    assert!(matches!(begun, TurnOutcome::Completed(_)), "{begun:?}");
    let told = [0, 1, 2].map(|index| world.instructions(index).contains("first day"));
    assert_eq!(told, [true, true, false]);
    assert!(world.instructions(2).contains("second day"));
}

#[tokio::test]
async fn a_process_looks_again_after_ten_seconds_and_does_without_where_it_cannot() {
    let world = World::new();
    world.publish("One.");
    let sandbox = world.sandbox();
    let names = async || -> Vec<String> {
        let personas = sandbox.agents.personas().await.expect("personas");
        personas.into_iter().map(|spec| spec.graph).collect()
    };
    assert_eq!(names().await, ["clerk"]);
    assert_eq!(world.objects.take_asked().len(), 2);
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(names().await, ["clerk"]);
    assert_eq!(world.objects.take_asked(), [] as [&str; 0]);
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(names().await, ["clerk"]);
    assert_eq!(world.objects.take_asked(), [CURRENT], "the bundle is in the process");
    world.objects.set_away(true);
    world.clock.advance(Duration::from_secs(11));
    assert_eq!(names().await, ["clerk"], "the last known one counts");
    let cold = world.sandbox();
    let refused = cold.agents.current("clerk", false).await.expect_err("it knows of none");
    assert_eq!(*refused.category(), Category::ProviderUnavailable);
}

#[tokio::test]
async fn whoever_has_found_agents_has_their_graphs_without_another_look_at_what_is_current() {
    let world = World::new();
    let agent = "---\nmodel: workspace/m\n---\nYou work.\n";
    let paths: Vec<String> = (0..20).map(|number| format!(".openharness/agents/clerk-{number}.md")).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), agent)).collect();
    let digest = world.publish_bundle(&bundle_with(&files));
    let looked = Arc::new(Looked::default());
    let sandbox = world.sandbox_with(&[NAME], (None, Platform::default()), Some(looked.clone()));
    let graphs = GraphRegistry::default().with_source(sandbox.agents.clone());
    let personas = sandbox.agents.personas().await.expect("personas");
    assert_eq!(personas.len(), 21);
    for spec in personas {
        let begun = graphs.begun(&spec.graph, spec.version.as_deref()).await.expect("its graph");
        assert_eq!(begun.version, Some(format!("{NAME}@{digest}")));
    }
    assert_eq!(looked.0.load(Ordering::SeqCst), 1, "however many agents there are");
}

#[tokio::test]
async fn each_of_many_workspaces_is_loaded_once() {
    let world = World::new();
    let names: Vec<String> = (0..20).map(|number| format!("team-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for name in &names {
        world.publish_as(name, &bundle("Be kind."));
    }
    let sandbox = world.sandbox_of(&names, None, Platform::default());
    sandbox.agents.personas().await.expect("personas");
    assert_eq!(world.objects.take_asked().len(), 2 * names.len());
    sandbox.agents.personas().await.expect("personas");
    assert_eq!(world.objects.take_asked(), [] as [&str; 0]);
}

/// The names of the agents of `files` that only the tenant `home` finds.
async fn at_home(home: Option<&str>, files: &[(&str, &str)]) -> Vec<String> {
    let world = World::new();
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    let model = "m:\n  provider: openai-compatible\n  name: tiny\n  url: http://models.test/v1\n  key: none\n";
    let servers = "desk: {url: 'http://desk.test/mcp'}\nprocess: {command: server}\n";
    let agents = [
        ("caller", "tools: {external: [desk]}"),
        ("silent", "tools: {external: []}"),
        ("runner", "tools: {external: [process]}"),
        ("whole", "description: has all servers"),
        ("hands", "tools: {external: []}\nswitch: [runner]"),
        ("asks", "tools: {external: []}\nsubagents: [worker]"),
        ("worker", "mode: subagent\ntools: {external: []}\nsubagents: [deep]"),
        ("deep", "mode: subagent\ntools: {external: [process]}"),
    ];
    let agent = |(name, fields): &(&str, &str)| {
        let text = format!("---\nmodel: workspace/m\n{fields}\n---\nWork.\n");
        (format!(".openharness/agents/{name}.md"), bytes(&text))
    };
    let given = files.iter().map(|(path, text)| ((*path).to_owned(), bytes(text)));
    let declared = [(".openharness/models/m.yaml", model), (".openharness/tools/settings.yaml", servers)];
    let declared = declared.map(|(path, text)| (path.to_owned(), bytes(text)));
    let files: Files = agents.iter().map(agent).chain(declared).chain(given).collect();
    world.publish_bundle(&Bundle::of(&files).expect("a bundle"));
    let sandbox = world.sandbox_at(home, Platform { processes: true, ..Platform::default() });
    let personas = sandbox.agents.personas().await.expect("personas");
    assert_eq!(personas.len(), 6, "{personas:?}");
    let mut names: Vec<String> = personas.into_iter().filter(|spec| spec.at_home).map(|spec| spec.graph).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_agent_reaches_the_folder_by_processes_and_actions_and_by_whom_it_calls() {
    let home = Some("default");
    assert_eq!(at_home(home, &[]).await, ["asks", "hands", "runner", "whole"]);
    assert_eq!(at_home(None, &[]).await, [""; 0], "what is published works in nobody's folder");
    assert_eq!(at_home(home, &[(".openharness/settings.yaml", "shared: true\n")]).await, [""; 0]);
    let action = "name: note\ndescription: Notes.\nentry: {command: ./note.sh}\n";
    let of_clients = format!("{action}expose: {{to_llm: false, callable_by_api: true}}\n");
    let note = [(".openharness/actions/note/ACTION.yaml", of_clients.as_str())];
    assert_eq!(at_home(home, &note).await.len(), 6, "a client runs it by any of them");
}

#[tokio::test]
async fn a_bundle_that_was_changed_is_not_run() {
    let world = World::new();
    let digest = world.publish("One.");
    let other = bundle("Two.").to_bytes().expect("bytes");
    world.objects.overwrite(&format!("workspaces/support/bundles/{digest}.json"), &other);
    let refused = world.sandbox().agents.current("clerk", false).await.expect_err("refused");
    assert!(refused.message().contains("was changed after it was published"), "{refused}");
}

#[tokio::test]
async fn a_workspace_that_is_broken_takes_no_other_along() {
    let world = World::new();
    let digest = world.publish("One.");
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    let mut files = bundle("Sell.").files();
    files.remove(".openharness/agents/clerk.md");
    files.insert(".openharness/agents/seller.md".to_owned(), bytes("---\nmodel: workspace/m\n---\nYou sell.\n"));
    world.publish_as("sales", &Bundle::of(&files).expect("a bundle"));
    let other = bundle("Two.").to_bytes().expect("bytes");
    world.objects.overwrite(&format!("workspaces/support/bundles/{digest}.json"), &other);
    let agents = world.sandbox_of(&[NAME, "sales"], None, Platform::default()).agents;
    assert!(agents.current("seller", false).await.expect("an answer").is_some());
    let refused = agents.current("clerk", false).await.expect_err("nobody knows what is in the other one");
    assert!(refused.message().contains("was changed after it was published"), "{refused}");
    let names: Vec<String> = agents.personas().await.expect("personas").into_iter().map(|spec| spec.graph).collect();
    assert_eq!(names, ["seller"]);
    agents.default_agent().await.expect_err("no agent works in the place of the default one");
    let catalog = agents.catalog(true).await.expect("a catalog");
    let told = catalog.iter().find(|line| line.kind == "problem" && line.name == NAME).expect("a line");
    assert!(!told.enabled && told.reasons[0].contains("was changed after it was published"), "{told:?}");
    // It is loaded anew no sooner than after ten seconds, however many requests come for the agents of the other one.
    world.objects.take_asked();
    agents.current("seller", false).await.expect("an answer");
    assert_eq!(world.objects.take_asked(), [] as [&str; 0]);
    world.publish("Three.");
    world.clock.advance(Duration::from_secs(11));
    assert!(agents.current("clerk", false).await.expect("an answer").is_some());
    world.objects.overwrite(&format!("workspaces/support/bundles/{}.json", bundle("Three.").digest()), &other);
    let behind = world.sandbox_of(&["sales", NAME], None, Platform::default()).agents;
    behind.default_agent().await.expect("that of the first one");
    world.objects.set_away(true);
    let cold = world.sandbox_of(&["sales", NAME], None, Platform::default()).agents;
    cold.current("seller", false).await.expect_err("it is tried again");
}

#[tokio::test]
async fn tools_in_rust_that_the_program_does_not_register_are_told_in_the_catalog() {
    let world = World::new();
    world.publish_bundle(&bundle_with(&[(".openharness/tools/settings.yaml", "desk: {rust: desk}\n")]));
    for (registered, is_usable) in [(vec!["desk".to_owned()], true), (Vec::new(), false), (vec!["d".to_owned()], false)]
    {
        let platform = Platform { rust_tools: Some(registered), ..Platform::default() };
        let catalog = world.sandbox_at(None, platform).agents.catalog(true).await.expect("a catalog");
        let line = catalog.iter().find(|line| line.kind == "tool" && line.name == "desk").expect("a line");
        assert_eq!((line.enabled, line.reasons.len()), (is_usable, usize::from(!is_usable)), "{line:?}");
        assert!(catalog.iter().any(|line| line.kind == "agent" && line.enabled), "its agent works: {catalog:?}");
    }
}

/// A graph that is linked into a worker.
fn errand() -> CompiledGraph {
    let graph = GraphBuilder::new("errand", StateSchema::new().field("said", Field::new(FieldType::Any, Value::Null)));
    let graph = graph.entry("run").function("run", |_: State| async { Ok(Update::none()) }).edge("run", END);
    graph.compile().expect("a graph")
}

#[tokio::test]
async fn what_is_linked_into_a_worker_goes_on_beside_a_workspace_that_is_broken() {
    let world = World::new();
    let digest = world.publish("One.");
    let other = bundle("Two.").to_bytes().expect("bytes");
    world.objects.overwrite(&format!("workspaces/support/bundles/{digest}.json"), &other);
    let agents = world.sandbox().agents;
    let graphs = GraphRegistry::new([Arc::new(errand())]).with_source(agents.clone());
    assert_eq!(graphs.offered("errand").await.expect("it is linked").version, None);
    let refused = graphs.offered("clerk").await.expect_err("nobody knows what is in the workspace");
    assert_eq!(*refused.category(), Category::ProviderUnavailable);
    assert_eq!(agents.personas().await.expect("none, beside which others are shown").len(), 0);
    let told = agents.catalog(true).await.expect("a catalog");
    assert!(told.iter().any(|line| line.kind == "problem" && line.name == NAME && !line.enabled), "{told:?}");
    agents.refusal_of("clerk").await.expect_err("it may be there again");
    agents.default_agent().await.expect_err("no agent works in the place of the default one");
    agents.only_talks().await.expect_err("nobody knows that either");
    agents.models().await.expect_err("whoever was lent one is not told that it is gone");
    world.objects.set_away(true);
    let graphs = GraphRegistry::new([Arc::new(errand())]).with_source(world.sandbox().agents);
    graphs.offered("errand").await.expect_err("a store that does not answer is asked again");
}

#[tokio::test]
async fn without_a_publication_there_is_no_such_graph() {
    let world = World::new();
    let TurnOutcome::Errored(error) = world.sandbox().harness.turn(book()).await.outcome else { panic!("refused") };
    assert_eq!(error.category, Category::GraphUnknown);
}

/// A bundle of the agent `clerk` with `files` beside it.
fn bundle_with(files: &[(&str, &str)]) -> Bundle {
    let given = files.iter().map(|(path, text)| ((*path).to_owned(), FileContent::Bytes(text.as_bytes().to_vec())));
    let files = bundle("Be kind.\n").files().into_iter().chain(given).collect();
    Bundle::of_readable(&files).expect("a bundle")
}

#[tokio::test]
async fn what_sleeps_goes_on_once_the_address_of_its_model_is_known_where_it_could_not_be_looked_up() {
    let secrets = Arc::new(Elsewhere::default());
    let world = World { secrets: secrets.clone(), ..World::new() };
    let model = "m:\n  provider: openai-compatible\n  name: tiny\n  url: ${secrets.URL}\n";
    world.publish_bundle(&bundle_with(&[(".openharness/models/m.yaml", model)]));
    world.fetch.answer(asks_for_the_tool()).answer(says("done"));
    let TurnOutcome::Suspended(asleep) = world.sandbox().harness.turn(book()).await.outcome else { panic!("it waits") };
    secrets.0.store(true, Ordering::SeqCst);
    let other = world.sandbox();
    let answer = || {
        let decision = object(json!({ "decision": "approve" }));
        Transmission::callback(asleep.invocation_id.clone(), None, decision)
    };
    let TurnOutcome::Errored(error) = other.harness.turn(answer()).await.outcome else { panic!("it has no model") };
    assert_eq!((error.category, error.bucket), (Category::GraphUnknown, Bucket::RetryableTransient));
    assert!(error.message.contains("the address of model `m`"), "{}", error.message);
    secrets.0.store(false, Ordering::SeqCst);
    world.clock.advance(Duration::from_secs(11));
    let done = other.harness.turn(answer()).await.outcome;
    assert!(matches!(done, TurnOutcome::Completed(_)), "{done:?}");
}

#[tokio::test]
async fn a_persona_names_nobody_who_is_hidden_among_those_that_its_agent_may_ask() {
    let agent = |matter: &str| format!("---\ndescription: Works\nmodel: workspace/m\n{matter}\n---\nYou work.\n");
    let lead = agent("subagents: [scout, ghost]");
    let (scout, ghost) = (agent("mode: subagent"), agent("mode: subagent\nhidden: true"));
    let world = World::new();
    world.publish_bundle(&bundle_with(&[
        (".openharness/agents/lead.md", lead.as_str()),
        (".openharness/agents/scout.md", scout.as_str()),
        (".openharness/agents/ghost.md", ghost.as_str()),
    ]));
    let personas = world.sandbox().agents.personas().await.expect("personas");
    let lead = personas.iter().find(|spec| spec.graph == "lead").expect("its persona");
    assert_eq!(lead.means.agents, ["scout"]);
}

#[tokio::test]
async fn a_served_folder_only_talks_where_its_settings_say_so_and_can_be_read() {
    for (settings, only_talks) in [("kind: chat\n", true), ("kind: Chat\n", false), ("kind: chat\nkinds: x\n", true)] {
        let world = World::new();
        world.publish_bundle(&bundle_with(&[(".openharness/settings.yaml", settings)]));
        let found = world.sandbox().agents.only_talks().await.expect("an answer");
        assert_eq!(found, only_talks, "{settings}");
    }
}

#[tokio::test]
async fn a_hook_that_is_a_command_is_refused_where_none_runs_and_a_person_is_asked_for_every_call() {
    let hook = |name: &str, more: &str| {
        let text = format!("name: {name}\nevents: [before_tool_dispatch]\n{more}\n");
        (format!(".openharness/hooks/{name}.yaml"), text)
    };
    let command = "handler: {type: command, command: ./guard.sh}";
    let http = "handler: {type: http, url: 'http://guard.test/'}";
    let agent = (".openharness/agents/clerk.md", "---\nmodel: workspace/m\n---\nYou book.\n");
    for (guard, is_refused) in [(hook("guard", command), true), (hook("guard", http), false)] {
        let world = World::new();
        world.publish_bundle(&bundle_with(&[(guard.0.as_str(), guard.1.as_str()), agent]));
        let sandbox = world.sandbox();
        let catalog = sandbox.agents.catalog(true).await.expect("a catalog");
        let line = catalog.iter().find(|line| line.kind == "hook" && line.name == "guard").expect("the hook");
        assert_eq!((line.enabled, line.reasons.is_empty()), (!is_refused, !is_refused), "{line:?}");
        assert_eq!(line.reasons.iter().any(|reason| reason.contains("no command can be run here")), is_refused);
        if is_refused {
            world.fetch.answer(asks_for_the_tool());
            let outcome = sandbox.harness.turn(book()).await.outcome;
            assert!(matches!(outcome, TurnOutcome::Suspended(_)), "a person is asked: {outcome:?}");
        }
    }
}
