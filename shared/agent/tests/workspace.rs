//! From files to definitions: what is wrong is named with its file and line, and disables one definition at most.

use std::collections::BTreeMap;

use dormouse_agent::catalog;
use dormouse_agent::workspace::{
    AgentMode, DefinitionKind, FileContent, Files, Platform, Severity, ToolOrigin, Workspace, WorkspaceKind, load,
};

const AGENT: &str = ".openharness/agents/assistant.md";
const MODELS: &str = ".openharness/models/models.yaml";
const TOOLS: &str = ".openharness/tools/settings.yaml";
const SETTINGS: &str = ".openharness/settings.yaml";

fn files(list: &[(&str, &str)]) -> Files {
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    list.iter().map(|(path, text)| ((*path).to_owned(), bytes(text))).collect()
}

fn platform() -> Platform {
    let native_tools = vec!["Read".to_owned(), "Bash".to_owned()];
    Platform { models: Some(vec!["large".to_owned()]), native_tools, processes: true }
}

fn sound() -> Vec<(&'static str, &'static str)> {
    vec![
        ("AGENTS.md", "Be kind.\n"),
        (SETTINGS, "default_agent: assistant\nmodels:\n  fast: {ref: workspace/small, temperature: 0.1}\n"),
        (
            MODELS,
            "small:\n  provider: openai-compatible\n  name: tiny\n  url: http://127.0.0.1:9/v1\n  key: ${secrets.KEY}\n",
        ),
        (TOOLS, "docs:\n  url: https://docs.example/mcp\n  headers: {authorization: 'Bearer ${env.TOKEN}'}\n"),
        (
            AGENT,
            "---\ndescription: Helps\nmodel: fast\ntemperature: 0.4\ntools:\n  external: [docs]\n  native: [Read]\n\
             policy:\n  max_steps: 5\n  approval:\n    external: ['docs.write*']\n---\nHelp with the docs.\n",
        ),
    ]
}

/// The sound workspace with one file replaced.
fn with(path: &'static str, text: &'static str) -> Workspace {
    let mut all: BTreeMap<_, _> = sound().into_iter().collect();
    all.insert(path, text);
    load(&files(&all.into_iter().collect::<Vec<_>>()), &platform())
}

fn lines(workspace: &Workspace) -> Vec<String> {
    workspace.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_sound_workspace_has_no_problems() {
    let workspace = load(&files(&sound()), &platform());
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    let agent = workspace.default_agent().expect("an agent");
    assert_eq!((agent.name.as_str(), agent.mode, agent.policy.max_steps), ("assistant", AgentMode::Primary, Some(5)));
    assert_eq!(agent.prompt, "Help with the docs.");
    let model = workspace.model_of(agent).expect("a model");
    assert_eq!((model.reference.as_str(), model.config.temperature), ("workspace/small", Some(0.4)));
    assert!(agent.policy.approval.asks(ToolOrigin::External, "docs.write_page", true));
    assert!(!agent.policy.approval.asks(ToolOrigin::External, "docs.read_page", false));
    let catalog = catalog(&workspace, &platform());
    assert!(catalog.agents[0].enabled && catalog.models[0].enabled && catalog.tools[0].enabled);
    let shown = serde_json::to_string(&catalog).expect("JSON") + &format!("{workspace:?}");
    assert!(shown.contains("${secrets.KEY}"), "references are shown as they are written");
}

#[test]
fn each_mistake_is_named_with_its_line_and_what_to_do() {
    for (path, text, line) in [
        (
            AGENT,
            "---\nmodle: fast\n---\nHi\n",
            ":2: error: the front matter has no field `modle`: did you mean `model`?",
        ),
        (AGENT, "---\nmodel: fats\n---\nHi\n", ":2: error: there is no model `fats`: did you mean `fast`?"),
        (
            AGENT,
            "---\nmodel: workspace/smal\n---\nHi\n",
            ":2: error: there is no model `workspace/smal`: did you mean `small`?",
        ),
        (
            AGENT,
            "---\nmodel: platform/Large\n---\nHi\n",
            ":2: error: the platform has no model `Large`: did you mean `large`?",
        ),
        (
            AGENT,
            "---\nmodel: small\n---\nHi\n",
            ":2: error: there is no alias `small`; the model of that name is `workspace/small`",
        ),
        (
            AGENT,
            "---\nmode: primry\n---\nHi\n",
            ":2: error: `mode` of the front matter must be one of `primary`, `subagent`, `all`: did you mean `primary`?",
        ),
        (
            AGENT,
            "---\npolicy:\n  max_steps: 0\n---\nHi\n",
            ":3: error: `max_steps` of `policy` must be a whole number from 1 to 1000, and is 0",
        ),
        (AGENT, "---\nmodel: fast\nHi\n", ":1: error: the front matter is not closed: end it with a line `---`"),
        (
            AGENT,
            "---\nmodel: fast\n---\n\n",
            ":4: error: the agent has no instructions: write them below the front matter",
        ),
        (
            AGENT,
            "---\nmodel: fast\nmodel: fast\n---\nHi\n",
            ":3: error: `model` is set twice, first on line 2: leave one",
        ),
        (AGENT, "---\na: [\n---\nHi\n", "error: this is no valid YAML"),
        (
            AGENT,
            "---\ntools:\n  native: [read]\n---\nHi\n",
            "error: there is no native tool `read`: did you mean `Read`?",
        ),
        (MODELS, "small:\n  provider: opnai\n  name: x\n", ":2: error: `provider` of model `small` must be one of"),
        (MODELS, "small:\n  provider: openai\n", ":2: error: model `small` has no `name`"),
        (
            MODELS,
            "small:\n  provider: openai\n  name: x\n  key: ${vault.X}\n",
            ":4: error: `${vault.X}` is no reference",
        ),
        (TOOLS, "docs:\n  command: run\n  url: https://x\n", ":2: error: tool server `docs` has more than one of"),
        (TOOLS, "docs: {}\n", ":1: error: tool server `docs` has neither `command` nor `url` nor `http`"),
        (
            SETTINGS,
            "defualt_agent: x\n",
            ":1: error: `settings.yaml` has no field `defualt_agent`: did you mean `default_agent`?",
        ),
        (SETTINGS, "default_agent: asistant\n", ":1: error: there is no agent `asistant`: did you mean `assistant`?"),
    ] {
        let workspace = with(path, text);
        let found = lines(&workspace);
        assert!(found.iter().any(|one| one.starts_with(path) && one.contains(line)), "{path} {text:?}: {found:#?}");
        assert!(!workspace.is_sound());
    }
}

#[test]
fn one_bad_definition_disables_that_one() {
    let mut all = sound();
    all.push((".openharness/agents/broken.md", "---\nmode: 7\n---\nHi\n"));
    all.push((".openharness/models/more.yaml", "odd:\n  provider: openai\n"));
    let workspace = load(&files(&all), &platform());
    let enabled: Vec<_> = workspace.enabled_agents().map(|agent| agent.name.as_str()).collect();
    assert_eq!(enabled, ["assistant"]);
    assert!(!workspace.is_enabled(DefinitionKind::Agent, "broken"));
    let catalog = catalog(&workspace, &platform());
    let odd = catalog.models.iter().find(|model| model.name == "odd").expect("it is listed");
    assert!(!odd.enabled && odd.reasons[0].contains("has no `name`"), "{odd:?}");
}

#[test]
fn what_cannot_be_read_never_widens_what_may_be_done() {
    let workspace = with(SETTINGS, "policy:\n  approval: manul\n");
    assert!(workspace.settings.approval.asks(ToolOrigin::Native, "Read", true), "{:?}", workspace.settings);
    assert_eq!(with(SETTINGS, "kind: chatt\n").settings.kind, WorkspaceKind::Chat);
    let broken = with(SETTINGS, "a: b: c\n");
    assert_eq!(broken.settings.kind, WorkspaceKind::Chat);
    assert_eq!(catalog(&broken, &platform()).tools, [], "and a chat workspace has no tools");
}

#[test]
fn bombs_cycles_and_giants_are_refused() {
    let bomb = with(MODELS, "a: &a [x]\nb: [*a, *a]\n");
    assert!(lines(&bomb).iter().any(|line| line.contains("an anchor")), "{:?}", lines(&bomb));
    let include = with(SETTINGS, "models: !include settings.yaml\n");
    assert!(lines(&include).iter().any(|line| line.contains("nothing is included")), "{:?}", lines(&include));
    let mut giant = files(&sound());
    giant.insert("AGENTS.md".to_owned(), FileContent::TooLarge(5_000_000));
    let giant = load(&giant, &platform());
    assert_eq!(
        giant.problems[0].to_string(),
        "AGENTS.md: error: the file has 5000000 bytes, and may have 262144: shorten it"
    );
    assert_eq!(giant.enabled_agents().count(), 1, "the agents go on without it");
    let mut odd = files(&sound());
    odd.insert("AGENTS.md".to_owned(), FileContent::Bytes(b"a\nb\xff\xfe".to_vec()));
    assert_eq!(load(&odd, &platform()).problems[0].line, Some(2));
}

#[test]
fn names_that_collide_are_told() {
    let mut all = sound();
    all.push((".openharness/agents/Assistant.md", "---\nmodel: fast\n---\nHi\n"));
    all.push((".openharness/models/other.yaml", "small:\n  provider: openai\n  name: x\n"));
    all.push((".openharness/agents/böse name.md", "---\nmodel: fast\n---\nHi\n"));
    let workspace = load(&files(&all), &platform());
    let found = lines(&workspace);
    for expected in
        ["differ only in their case", "is declared in .openharness/models/models.yaml already", "cannot be called"]
    {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(workspace.models["small"].provider, "openai-compatible", "the first counts");
}

#[test]
fn what_is_not_read_is_named() {
    let mut all = sound();
    all.push((".openharness/agent/x.md", "x"));
    all.push((".openharness/hooks/a.yaml", "x: 1"));
    all.push(("agents.md", "x"));
    let workspace = load(&files(&all), &platform());
    assert!(workspace.problems.iter().all(|problem| problem.severity == Severity::Warning), "{:#?}", lines(&workspace));
    let found = lines(&workspace);
    for expected in ["did you mean `.openharness/agents`?", ".openharness/hooks: warning", "call it `AGENTS.md`"] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn the_digest_is_that_of_the_definitions() {
    let digest = |list: &[(&str, &str)]| load(&files(list), &platform()).digest;
    let mut all = sound();
    let before = digest(&all);
    all.push((".openharness/data/history.db", "x"));
    all.push(("src/main.rs", "x"));
    assert_eq!(digest(&all), before, "a run's own data and other files do not count");
    all.reverse();
    assert_eq!(digest(&all), before);
    all.retain(|(path, _)| *path != "AGENTS.md");
    all.push(("AGENTS.md", "Be kinder.\n"));
    assert_ne!(digest(&all), before);
}
