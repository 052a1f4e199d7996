//! From files to definitions: what is wrong is named with its file and line, and disables one definition at most.

use std::collections::BTreeMap;

use async_trait::async_trait;
use dormouse_agent::bundle::Bundle;
use dormouse_agent::catalog;
use dormouse_agent::workspace::{
    AgentMode, DefinitionKind, FileContent, Files, Platform, Severity, ToolOrigin, Workspace, WorkspaceKind, load, read,
};
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

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
    Platform { models: Some(vec!["large".to_owned()]), native_tools, processes: true, tier: Some(ExecutionTier::Local) }
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
fn with<'t>(path: &'t str, text: &'t str) -> Workspace {
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
    assert!(agent.policy.approval.asks(ToolOrigin::External, &["docs.write_page"], true));
    assert!(!agent.policy.approval.asks(ToolOrigin::External, &["docs.read_page"], false));
    let catalog = catalog(&workspace, &platform());
    assert!(catalog.agents[0].enabled && catalog.models[0].enabled && catalog.tools[0].enabled);
    let shown = serde_json::to_string(&catalog).expect("JSON") + &format!("{workspace:?}");
    assert!(shown.contains("${secrets.KEY}"), "references are shown as they are written");
}

#[test]
fn what_metadata_was_meant_to_say_and_does_not_is_told() {
    let model = "small:\n  provider: openai-compatible\n  name: tiny\n  url: http://127.0.0.1:9/v1\n  metadata:";
    for (metadata, told) in [
        (
            "\n    context_window: 128k\n",
            Some("6: warning: `metadata.context_window` of model `small` must be a whole number"),
        ),
        ("\n    max_output_tokens: 0\n", Some("6: warning: `metadata.max_output_tokens`")),
        (
            "\n    contex_window: 100\n",
            Some("6: warning: `metadata.contex_window` of model `small` has no effect: did you mean `context_window`?"),
        ),
        ("\n    prices: {prompt: 1}\n", Some("6: warning: `metadata.prices` of model `small` must have the numbers")),
        ("\n    prices: {prompt: -1, completion: 2}\n", Some("no cost is counted")),
        (
            "\n    prices: {prompt: 1, completion: 2, cache: 3}\n",
            Some("`metadata.prices.cache` of model `small` has no effect: prices are `prompt`"),
        ),
        ("\n    return_reasoning: maybe\n", Some("must be `true` or `false`")),
        (" 3\n", Some("5: warning: `metadata` of model `small` must be a mapping of fields")),
        ("\n    context_window: 128000\n    prices: {prompt: 1, completion: 2, cached: 0}\n    team: sales\n", None),
        ("\n    return_reasoning: true\n", None),
    ] {
        let workspace = with(MODELS, &format!("{model}{metadata}"));
        let lines = lines(&workspace);
        match told {
            Some(told) => assert!(lines.iter().any(|line| line.contains(told)), "{metadata}: {lines:#?}"),
            None => assert_eq!(lines, [] as [&str; 0], "{metadata}"),
        }
        assert!(workspace.is_sound(), "what sleeps with it goes on: {metadata}");
    }
    let nameless = with(MODELS, "small:\n  provider: openai\n  name: ''\n");
    assert!(lines(&nameless).iter().any(|line| line.contains("model `small` has no `name`")), "{:?}", lines(&nameless));
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
            ":3: error: there is no native tool `read`: did you mean `Read`?",
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
            TOOLS,
            "docs: {http: {url: 'https://a.example', description: d, input_schema: {type: objekt}}}\n",
            ":1: error: `input_schema` of tool `docs` is no JSON Schema",
        ),
        (TOOLS, "read:\n  http: {url: 'https://x'}\n", "error: `read` is the name of a tool of Dormouse: rename it"),
        (
            TOOLS,
            "book small:\n  http: {url: 'https://x'}\n",
            ":2: error: no model can call the HTTP tool `book small`: its name has ' '",
        ),
        (
            TOOLS,
            "docs:\n  http: {url: 'https://{zone}.example.com/'}\n",
            ":2: error: an argument stands in the host of `url` of `docs`: write the host there",
        ),
        (
            TOOLS,
            "docs:\n  http: {url: 'https://x', headers: {Content-Type: application/json}}\n",
            ":2: error: the header `Content-Type` of `docs` cannot be set: remove it",
        ),
        (
            TOOLS,
            "docs:\n  url: https://x/mcp\n  headers: {Accept: text/plain}\n",
            ":2: error: the header `Accept` of `docs` cannot be set: remove it",
        ),
        (
            TOOLS,
            "docs:\n  url: https://x/mcp\n  oauth:\n    token_url: https://x/token\n    client_ID: me\n",
            ":5: error: `oauth` of `docs` has no field `client_ID`: did you mean `client_id`?",
        ),
        (
            TOOLS,
            "docs:\n  url: https://x/mcp\n  oauth: {token_url: x/token, client_id: 7}\n",
            ":3: error: `token_url` of `oauth` of `docs` must begin with `https://` or `http://`, and is `x/token`",
        ),
        (
            TOOLS,
            "docs:\n  url: https://x/mcp\n  oauth: {token_url: 'https://x/token'}\n",
            ":3: error: `oauth` of `docs` has no `client_id`",
        ),
        (
            SETTINGS,
            "defualt_agent: x\n",
            ":1: error: `settings.yaml` has no field `defualt_agent`: did you mean `default_agent`?",
        ),
        (
            MODELS,
            "small:\n  provider: ollama\n  name: x\n",
            ":2: error: `provider` of model `small` must be one of `openai`, `openai-compatible`, `anthropic`, `gemini`, `bedrock`: \
             Ollama is `openai-compatible`, with `url: http://127.0.0.1:11434/v1`",
        ),
        (
            MODELS,
            "small:\n  provider: openai\n  name: x\n  base_url: https://x\n",
            ":4: error: model `small` has no field `base_url`: did you mean `url`?",
        ),
        (
            TOOLS,
            "docs:\n  command: npx\n  args: [docs]\n",
            ":3: error: tool server `docs` has no field `args`: write all of it into `command`, which is one command line",
        ),
        (
            TOOLS,
            "mcpServers:\n  docs: {command: npx docs}\n",
            ":2: error: leave the level `mcpServers` out: servers stand by their names at the top of this file",
        ),
        (
            AGENT,
            "---\nmodel: fast\napproval: manual\n---\nHi\n",
            ":3: error: the front matter has no field `approval`: it stands in `policy`: `policy: {approval: …}`",
        ),
        (SETTINGS, "approval: manual\n", ":1: error: `settings.yaml` has no field `approval`: it stands in `policy`"),
        (SETTINGS, "default_agent: asistant\n", ":1: error: there is no agent `asistant`: did you mean `assistant`?"),
    ] {
        let workspace = with(path, text);
        let found = lines(&workspace);
        assert!(found.iter().any(|one| one.starts_with(path) && one.contains(line)), "{path} {text:?}: {found:#?}");
        assert!(!workspace.is_sound());
    }
}

#[test]
fn names_in_lists_are_told_with_their_lines() {
    let matter = |fields: &str| format!("---\ndescription: Helps\nmodel: fast\n{fields}\n---\nHelp.\n");
    let hook = "name: guard\nevents: [before_tool_dispatch]\nhandler:\n  type: agent\n  agent: asistant\n";
    for (path, text, line) in [
        (AGENT, matter("tools:\n  native:\n    - Read\n    - Bsh"), ":7: error: there is no native tool `Bsh`"),
        (AGENT, matter("tools: {actions: [refnd]}"), ":4: error: there is no action `refnd`"),
        (AGENT, matter("switch:\n  - nobody"), ":5: warning: there is no agent `nobody`"),
        (AGENT, matter("subagents: nobody"), ":4: warning: there is no agent `nobody`"),
        (AGENT, matter("mode: all\nsubagents: [assistant]"), ":5: warning: `assistant` is the agent itself"),
        (AGENT, matter("policy:\n  approval:\n    native: [Bsah]"), ":6: error: `approval` asks for nothing"),
        (
            AGENT,
            matter("tools:\n  external: [docs]\npolicy:\n  approval:\n    native: [docs]"),
            ":8: error: `approval` asks for nothing: there is no native tool `docs`",
        ),
        (AGENT, matter("disallowed:\n  tools:\n    - Raed"), ":6: error: `disallowed` forbids nothing"),
        (SETTINGS, "policy:\n  approval:\n    native: [Bsah]\n".to_owned(), ":3: error: `approval` asks for nothing"),
        (".openharness/hooks/guard.yaml", hook.to_owned(), ":5: warning: there is no agent `asistant`"),
    ] {
        let found = lines(&with(path, &text));
        assert!(found.iter().any(|one| one.starts_with(&format!("{path}{line}"))), "{path} {text:?}: {found:#?}");
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
    assert!(workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "{:?}", workspace.settings);
    assert_eq!(with(SETTINGS, "kind: chatt\n").settings.kind, WorkspaceKind::Chat);
    let broken = with(SETTINGS, "a: b: c\n");
    assert_eq!(broken.settings.kind, WorkspaceKind::Chat);
    assert_eq!(catalog(&broken, &platform()).tools, [], "and a chat workspace has no tools");
}

#[test]
fn a_slip_in_what_is_to_be_asked_for_lets_nothing_run_unasked() {
    let matter = |matter: &str| format!("---\ndescription: Helps\nmodel: fast\n{matter}\n---\nHelp.\n");
    let cases = [
        (matter("policy: {approval: {native: [Bsah]}}"), "there is no native tool `Bsah`: did you mean `Bash`?"),
        (matter("policy: {approval: {actions: [refnd]}}"), "there is no action `refnd`"),
        (matter("policy: {approval: {external: [Bash]}}"), "it belongs under `native`"),
        (
            matter("disallowed: {tools: [Raed]}"),
            "`disallowed` forbids nothing: there is no tool `Raed`: did you mean `Read`?",
        ),
        (format!("\n{}", matter("policy: {approval: manual}")), "they begin in line 1 with `---` alone"),
        ("--\ndescription: Helps\n---\nHelp.\n".to_owned(), "they begin in line 1 with `---` alone"),
        ("description: Helps\npolicy: {approval: manual}\n---\nHelp.\n".to_owned(), "they begin in line 1"),
    ];
    for (text, wanted) in cases {
        let workspace = with(AGENT, text.clone().leak());
        assert!(lines(&workspace).iter().any(|line| line.contains(wanted)), "{text}: {:?}", lines(&workspace));
        assert!(workspace.default_agent().is_none(), "it does not run: {text}");
    }
    for text in ["--- \ndescription: Helps\nmodel: fast\n---  \nHelp.\n", "Help.\n\n---\n\nNote: be kind.\n"] {
        let workspace = with(AGENT, text);
        assert!(!lines(&workspace).iter().any(|line| line.contains("line 1")), "{text}: {:?}", lines(&workspace));
    }
    let slip = with(
        SETTINGS,
        "default_agent: assistant\nmodels: {fast: workspace/small}\npolicy: {approval: {native: [Reed]}}\n",
    );
    assert!(!slip.is_sound() && slip.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "{:?}", lines(&slip));
}

#[test]
fn a_file_that_cannot_be_read_is_told_once() {
    let lead = "---\ndescription: Leads\nmodel: fast\nsubagents: [assistant]\nswitch: [assistant]\n---\nLead.\n";
    for broken in ["---\ndescription: Sorts: invoices\n---\nSort.\n", "# Title\n---\ndescription: Sorts\n---\nSort.\n"]
    {
        let workspace = declared(&[(AGENT, broken), (".openharness/agents/lead.md", lead)]);
        let found = lines(&workspace);
        assert!(found.len() == 1 && found[0].starts_with(AGENT), "{found:#?}");
        assert!(workspace.default_agent().is_none(), "no other one answers in its place");
        assert!(workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true));
    }
}

#[test]
fn what_an_agent_names_and_cannot_be_read_is_to_be_mended_first() {
    let agent = "---\ndescription: Helps\nmodel: fast\ntools: {external: [docs], skills: [review]}\n---\nHelp.\n";
    let review = (REVIEW.0, "# Reviewing\n---\nname: review\n---\nLook.\n");
    for (tools, reason) in
        [("docs:\n\turl: x\n", "this is no valid YAML"), ("docs: {}\n", "has neither `command` nor `url`")]
    {
        let found = lines(&declared(&[(AGENT, agent), (TOOLS, tools), review]));
        let server = format!("{AGENT}:4: error: its tool server `docs` cannot be used: mend `{TOOLS}` first (");
        let skill = format!("{AGENT}:4: error: its skill `review` cannot be used: mend `{}` first (", REVIEW.0);
        for told in [server, skill] {
            assert!(found.iter().any(|line| line.starts_with(&told)), "{told}: {found:#?}");
        }
        assert!(found.iter().any(|line| line.starts_with(TOOLS) && line.contains(reason)), "{found:#?}");
        assert!(!found.iter().any(|line| line.contains("there is no")), "{found:#?}");
    }
}

#[test]
fn an_approval_that_asks_for_nothing_is_told() {
    let agent = |approval: &str| {
        format!("---\ndescription: Helps\nmodel: fast\npolicy:\n  max_steps: 5\n  approval:{approval}\n---\nHelp.\n")
    };
    let settings = |approval: &str| format!("models: {{fast: workspace/small}}\npolicy: {{approval: {approval}}}\n");
    let told = |files: &[(&str, &str)]| {
        lines(&declared(files)).into_iter().filter(|line| line.contains("`approval`")).collect::<Vec<_>>()
    };
    let warning =
        |path: &str, line: usize| format!("{path}:{line}: warning: `approval` asks for nothing, and no call waits");
    for nothing in ["", " {}", " {external: []}", " {deny_after: P7D}", " {manual: false}"] {
        let found = told(&[(AGENT, &agent(nothing))]);
        assert!(found.len() == 1 && found[0].starts_with(&warning(AGENT, 6)), "{nothing}: {found:?}");
    }
    for something in [" manual", " {external: [docs]}", " {native: ['*'], deny_after: P7D}"] {
        assert_eq!(told(&[(AGENT, &agent(something))]), [] as [&str; 0], "{something}");
    }
    let times = agent(" {deny_after: P7D}");
    assert_eq!(told(&[(AGENT, &times), (SETTINGS, &settings("manual"))]), [] as [&str; 0], "what the settings ask for");
    assert_eq!(told(&[(SETTINGS, &settings("{deny_after: P7D}"))]), [] as [&str; 0], "what the agent asks for");
    let found = told(&[(AGENT, &agent("")), (SETTINGS, &settings("{}"))]);
    assert!(found.len() == 2 && found[1].starts_with(&warning(SETTINGS, 2)), "{found:?}");
    for (name, time) in [("deny_after", "P0D"), ("remind_after", "PT0S")] {
        let text = agent(&format!(" {{external: [docs], {name}: {time}}}"));
        let found = lines(&declared(&[(AGENT, &text)]));
        let error =
            format!("{AGENT}:6: error: `{name}` must be a time from one second on, such as `P3D`, and is `{time}`");
        assert!(found.contains(&error), "{found:?}");
    }
}

#[test]
fn a_pattern_of_an_approval_that_matches_nothing_is_told_where_all_names_are_known() {
    let http = "docs:\n  http: {url: 'https://docs.example/read', description: Reads, input_schema: {type: object}}\n";
    let server = "docs:\n  url: https://docs.example/mcp\n";
    let told = |approval: &str, tools: &str| {
        let settings = format!("models: {{fast: workspace/small}}\npolicy:\n  approval:\n    {approval}\n");
        let found = lines(&declared(&[(SETTINGS, &settings), (TOOLS, tools)]));
        found.into_iter().find(|line| line.starts_with(SETTINGS) && line.contains("asks for nothing"))
    };
    for approval in ["external: ['^docs.*']", "external: ['.*docs']", "native: ['Bsh*']"] {
        let line = told(approval, http).expect("a warning");
        assert!(line.starts_with(&format!("{SETTINGS}:4: warning: `approval` asks for nothing with `")), "{line}");
    }
    for approval in ["external: ['doc*']", "external: ['docs.*']", "native: ['Ba?h']", "actions: ['deploy*']"] {
        assert_eq!(told(approval, http), None, "{approval}");
    }
    assert_eq!(told("external: ['^docs.*']", server), None, "nobody knows what it offers");
}

#[test]
fn what_no_server_offers_is_told_where_they_were_asked() {
    let matter = |names: &str| {
        format!("---\ndescription: Helps\nmodel: fast\npolicy:\n  approval: {{external: [{names}]}}\n---\nHelp.\n")
    };
    let told = |names: &str, offered: &[(&str, &[&str])]| {
        let workspace = declared(&[(AGENT, &matter(names))]);
        let tools = |tools: &[&str]| tools.iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>();
        let offered: BTreeMap<_, _> =
            offered.iter().map(|(server, names)| ((*server).to_owned(), tools(names))).collect();
        workspace.unmet_approvals(&offered).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let docs: &[(&str, &[&str])] = &[("docs", &["send_mail", "read"])];
    assert_eq!(told("send_mail, docs, docs.read, 'send*', '*'", docs), [] as [&str; 0]);
    let warning = format!("{AGENT}:5: warning: `approval` asks for nothing with `send_mial`, which no server offers");
    assert_eq!(told("send_mial", docs), [format!("{warning}: did you mean `send_mail`?")]);
    assert_eq!(told("'post*'", docs).len(), 1);
    assert_eq!(told("send_mial, post", &[]), [] as [&str; 0], "nobody knows what it offers");
    let block = "---\ndescription: Helps\nmodel: fast\npolicy:\n  approval:\n    external:\n      - docs\n      - send_mial\n---\n";
    let offered = BTreeMap::from([("docs".to_owned(), vec!["send_mail".to_owned()])]);
    let found = declared(&[(AGENT, block)]).unmet_approvals(&offered);
    assert_eq!(found.iter().map(|found| found.line).collect::<Vec<_>>(), [Some(8)], "the line of the name itself");
}

#[test]
fn settings_that_begin_otherwise_than_settings_do_are_an_error_and_not_instructions() {
    let fields = "description: Helps\npolicy:\n  approval: manual\n";
    let is_told = |path: &str, text: &str| {
        let workspace = with(path, text.to_owned().leak());
        let told = lines(&workspace).iter().any(|line| line.contains("they begin in line 1 with `---` alone"));
        assert_eq!(told, !workspace.is_sound(), "{text:?}: {:?}", lines(&workspace));
        told
    };
    let begins = [
        "—",
        "–",
        "———",
        "```yaml",
        "+++",
        "***",
        "===",
        "- - -",
        "--",
        "--- # comment",
        "---yaml",
        "\\---",
        "\u{200b}---",
        "\u{feff}\u{feff}---",
        "\u{a0}---",
        "# Title\n---",
        "# Title\n\n---",
        "# Title\n—",
        "<!-- a\ncomment -->\n---",
        "# Title",
        "<!-- comment -->",
        "Help people.\n---",
    ];
    for begin in begins {
        assert!(is_told(AGENT, &format!("{begin}\n{fields}---\nHelp.\n")), "{begin}");
        assert!(is_told(REVIEW.0, &format!("{begin}\nname: review\ndescription: Reviews\n---\nLook.\n")), "{begin}");
    }
    for text in [
        "—\nDescription: Helps\nPolicy:\n  approval: manual\n—\nHelp.\n".to_owned(),
        format!("# Title\n---\nname: helper\n{fields}---\nHelp.\n"),
        "# Title\n---\ndescripton: Helps\n\nHelp.\n".to_owned(),
        format!("{fields}\nHelp.\n"),
        "policy:\n  approval: manual\n\nHelp.\n".to_owned(),
        format!("```\n---\n{fields}---\n```\nHelp.\n"),
        "+++\ndescription = \"Helps\"\n+++\nHelp.\n".to_owned(),
    ] {
        assert!(is_told(AGENT, &text), "{text}");
    }
    for text in [
        "# Title\n\n---\n\nBe kind.\n\n---\n\nNote: be short.\n",
        "# Title\n\n---\n\nTools: use them well.\n\nBe kind.\n",
        "Title\n=====\n\nBe kind.\n\n***\n\nmodel: think before you answer, and say so.\nThen answer.\n\n***\n",
        "# Agents\n\nWrite agents like this:\n\n```\n---\ndescription: Helps\n---\nHelp.\n```\n",
        "Rules: be kind.\nTools: use them well.\n",
        "description: say what you see\n\nBe kind.\n",
        "- be kind\n- be short\n",
        "***\nBe kind.\n***\n",
        "---\n---\n# Title\n---\ndescription: Helps\n---\n",
    ] {
        assert!(!is_told(AGENT, text), "{text}");
    }
}

#[test]
fn an_agent_without_a_model_that_others_ask_has_theirs_where_they_have_one_in_common() {
    let models = "small: {provider: openai, name: tiny}\nlarge: {provider: openai, name: big}\n";
    let agent = |name: &str, matter: &str| {
        (format!(".openharness/agents/{name}.md"), format!("---\ndescription: x\n{matter}---\nHelp.\n"))
    };
    let of = |agents: &[(String, String)]| {
        let mut all = vec![(MODELS, models), (SETTINGS, "default_agent: lead\n")];
        all.extend(agents.iter().map(|(path, text)| (path.as_str(), text.as_str())));
        load(&files(&all), &platform())
    };
    let lead = agent("lead", "model: workspace/large\ntemperature: 0.9\nsubagents: [scout]\n");
    let scout = agent("scout", "mode: subagent\ntemperature: 0.2\nsubagents: [digger]\n");
    let digger = agent("digger", "mode: all\nsubagents: [scout]\n");
    let workspace = of(&[lead.clone(), scout.clone(), digger.clone()]);
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    for (name, temperature) in [("scout", Some(0.2)), ("digger", None)] {
        let model = workspace.model_of(&workspace.agents[name]).expect("a model");
        assert_eq!((model.reference.as_str(), model.config.temperature), ("workspace/large", temperature), "{name}");
    }
    let other = agent("other", "model: workspace/small\nsubagents: [scout]\n");
    for agents in [vec![lead.clone(), other, scout.clone()], vec![agent("lead", "model: workspace/large\n"), scout]] {
        let told = lines(&of(&agents));
        assert!(told.iter().any(|line| line.contains("scout.md") && line.contains("names no model")), "{told:?}");
    }
    let talks = agent("scout", "mode: primary\n");
    assert!(!of(&[lead, talks]).is_sound(), "nobody asks it");
}

#[test]
fn of_several_aliases_none_is_the_model_of_an_agent_that_names_none() {
    let models = "small: {provider: openai, name: tiny}\nlarge: {provider: openai, name: big}\n";
    let lead = |model: &str| format!("---\ndescription: x\n{model}subagents: [scout]\n---\nHelp.\n");
    let scout = "---\ndescription: x\nmode: subagent\n---\nHelp.\n";
    let of = |aliases: &str, model: &str| {
        let settings = format!("default_agent: lead\nmodels: {{{aliases}}}\n");
        let lead = lead(model);
        let all = [
            (MODELS, models),
            (SETTINGS, settings.as_str()),
            (".openharness/agents/lead.md", lead.as_str()),
            (".openharness/agents/scout.md", scout),
        ];
        load(&files(&all), &platform())
    };
    let model =
        |workspace: &Workspace, name: &str| workspace.model_of(&workspace.agents[name]).expect("a model").reference;
    let several = "cheap: workspace/small, smart: workspace/large";
    let workspace = of(several, "model: smart\n");
    assert_eq!((lines(&workspace), model(&workspace, "scout")), (Vec::new(), "workspace/large".to_owned()));
    for aliases in ["smart: workspace/large", "cheap: workspace/small, default: workspace/large"] {
        let workspace = of(aliases, "");
        assert_eq!((lines(&workspace), model(&workspace, "lead")), (Vec::new(), "workspace/large".to_owned()));
    }
    let workspace = of(several, "");
    let told = lines(&workspace);
    assert!(!workspace.is_sound() && told.len() == 2, "{told:?}");
    let advice = "it names no model, and there are several: set `model`, or the alias `default` in the settings; until \
                  then it asks the first alias, `cheap`";
    assert!(told.iter().all(|line| line.contains(advice)), "{told:?}");
    assert_eq!(model(&workspace, "lead"), "workspace/small", "what ran goes on");
    assert!(workspace.enabled_agents().any(|agent| agent.name == "lead"));
    for (spare, flaw) in [
        ("workspace/larg", "there is no model `workspace/larg`: did you mean `large`?"),
        ("smart", "alias `spare` stands for `smart`, which is no reference: write `workspace/smart`"),
    ] {
        let workspace = of(&format!("{several}, spare: {spare}"), "model: smart\n");
        let warning = format!("{SETTINGS}:2: warning: alias `spare`: {flaw}");
        assert_eq!((lines(&workspace), workspace.is_sound()), (vec![warning], true), "no agent asks for it");
        let told = lines(&of(&format!("{several}, spare: {spare}"), "model: spare\n"));
        assert!(told.iter().all(|line| line.contains("lead.md") || line.contains("scout.md")), "{told:?}");
    }
}

#[test]
fn until_a_guard_that_may_have_been_meant_is_mended_every_call_is_asked_for() {
    let settings = |more: &str| format!("default_agent: assistant\nmodels: {{fast: workspace/small}}\n{more}\n");
    let everything = |path: &'static str, text: String| {
        let workspace = with(path, text.leak());
        let asks = workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true);
        assert_eq!(asks, !workspace.is_sound(), "{path}: {:?}", lines(&workspace));
        asks
    };
    for more in ["polcy: {approval: manual}", "policy: {aproval: manual}", "approval: manual", "policy: manual"] {
        assert!(everything(SETTINGS, settings(more)), "{more}");
    }
    assert!(!everything(SETTINGS, settings("policy: {approval: {native: [Write]}}")));
    assert!(everything(SETTINGS, settings("").replace("default_agent: assistant", "default_agent: asistant")));
    for lost in ["base: [\n", "base: {file: nope.md}\n", "base: {inline: a, file: b.md}\n"] {
        assert!(everything(".openharness/prompts.yaml", lost.to_owned()), "{lost}");
    }
    let hook = "events: [before_tool_dispatch]\nmatcher: ^Bsh$\nhandler: {type: command, command: x}\n";
    assert!(everything(".openharness/hooks/slip.yaml", hook.to_owned()), "did you mean Bash?");
    for path in [
        ".openharness/hooks/guard.json",
        ".openharness/hooks/sec/guard.yaml",
        ".openharness/hoks/guard.yaml",
        ".openharness/guard.yaml",
    ] {
        assert!(everything(path, hook.replace("Bsh", "Bash")), "{path}");
    }
    assert!(!everything(".openharness/hooks/fine.yaml", hook.replace("Bsh", "Bash")));
    let mut renamed = sound();
    renamed.retain(|(path, _)| *path != SETTINGS);
    renamed.push((".openharness/settings.yml", "policy: {approval: manual}\n"));
    let renamed = load(&files(&renamed), &platform());
    assert!(renamed.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "{:?}", lines(&renamed));
}

#[test]
fn no_other_agent_answers_in_the_place_of_the_default_one_that_cannot() {
    let other = (".openharness/agents/builder.md", "---\ndescription: Builds\nmodel: fast\n---\nBuild.\n");
    let of = |default: &str, assistant: &str| {
        let settings = format!("{default}models: {{fast: workspace/small}}\n");
        let mut all = sound();
        all.retain(|(path, _)| ![AGENT, SETTINGS].contains(path));
        all.extend([(SETTINGS, settings.as_str()), (AGENT, assistant), other]);
        let workspace = load(&files(&all), &platform());
        workspace.default_agent().map(|agent| agent.name.clone())
    };
    let helps = "---\ndescription: Helps\nmodel: fast\n---\nHelp.\n";
    let slip = helps.replace("description", "descripton");
    let asked = helps.replace("model: fast", "model: fast\nmode: subagent");
    let named = "default_agent: assistant\n";
    assert_eq!(of(named, helps).as_deref(), Some("assistant"));
    for cannot in [&slip, &asked, &helps.replace("fast", "nope")] {
        assert_eq!(of(named, cannot), None, "{cannot}");
    }
    assert_eq!(of("default_agent: nobody\n", helps), None);
    assert_eq!(of("", helps).as_deref(), Some("assistant"));
    for cannot in [&slip, &asked] {
        assert_eq!(of("", cannot).as_deref(), Some("builder"), "none was chosen: {cannot}");
    }
}

#[test]
fn what_can_be_known_before_a_run_is_told() {
    let agent = |matter: &str| format!("---\ndescription: Helps\nmodel: fast\n{matter}\n---\nHelp.\n");
    let tool = |http: &str| format!("weather:\n  http: {{method: GET, {http}}}\n");
    let schema = "input_schema: {type: object, properties: {city: {type: string}}";
    for (path, text, told) in [
        (AGENT, agent("policy: {max_cost: 1}"), "`max_cost` limits nothing"),
        (TOOLS, tool("url: api.example.com/x"), "must begin with `https://`"),
        (TOOLS, tool(&format!("url: \"https://h/{{citty}}\", {schema}}}")), "did you mean `city`?"),
        (TOOLS, tool(&format!("url: \"https://h/{{city}}\", {schema}, required: [cty]}}")), "did you mean `city`?"),
        (".openharness/prompts.yaml", "llm_optimized: {models: {workspace/smal: Short.}}".to_owned(), "did you mean"),
        (".openharness/agents/team/a.md", agent(""), "move it into `.openharness/agents` itself"),
        (".openharness/memory/a.txt", "x".to_owned(), "call it `NAME.md`"),
    ] {
        let workspace = with(path, text.clone().leak());
        assert!(lines(&workspace).iter().any(|line| line.contains(told)), "{text}: {:?}", lines(&workspace));
    }
    let order = with(".openharness/prompts.yaml", "base: Be kind.\ncompose: {order: [base, agnt]}\n");
    let told = order.instructions_of(&order.agents["assistant"]);
    assert!(told.contains("Be kind.") && told.contains("Help with the docs."), "the usual order: {told}");
}

#[test]
fn files_that_look_like_definitions_and_are_not_read_are_named() {
    let files_of = |path: &'static str| lines(&with(path, "name: x\n"));
    for (path, advice) in [
        (".openharness/actions/refund/refund.yaml", "call it `ACTION.yaml`"),
        (".openharness/actions/refund.yaml", "a folder with a file `ACTION.yaml`"),
        (".openharness/tools/setting.yaml", "call it `settings.yaml`"),
        (".openharness/skills/pack.md", "a folder with a file `SKILL.md`"),
        (".openharness/agents/other.txt", "call it `NAME.md`"),
        (".openharness/hook/one.yaml", "did you mean `.openharness/hooks`?"),
        (".openharness/AGENTS.md", "move it to `AGENTS.md`, beside `.openharness`"),
        (".openharness/agents.md", "move it to `AGENTS.md`, beside `.openharness`"),
        (".openharness/triage.md", "an agent belongs in `.openharness/agents`"),
        (".openharness/models.yaml", "models belong in `.openharness/models`"),
        (".openharness/tools.yaml", "servers of tools belong in `.openharness/tools/settings.yaml`"),
        (".openharness/settings.yml", "did you mean `.openharness/settings.yaml`?"),
        (".openharness/prompts.yml", "did you mean `.openharness/prompts.yaml`?"),
        (".openharness/tools/settings.yml", "call it `settings.yaml`"),
        (".openharness/actions/refund/ACTION.yml", "call it `ACTION.yaml`"),
        (".openharness/agents/other.yml", "call it `NAME.md`"),
        (".openharness/memory/other.yml", "call it `NAME.md`"),
    ] {
        let told = files_of(path);
        assert!(told.iter().any(|line| line.starts_with(path) && line.contains(advice)), "{path}: {told:?}");
    }
    let model = with(".openharness/models/more.yml", "large: {provider: openai, name: x}\n");
    assert!(model.models.contains_key("large") && lines(&model).is_empty(), "{:?}", lines(&model));
    let hook = "events: [run_completed]\nhandler: {type: command, command: 'true'}\n";
    let hook = with(".openharness/hooks/one.yml", hook);
    assert!(hook.hooks.contains_key("one") && lines(&hook).is_empty(), "{:?}", lines(&hook));
}

#[test]
fn no_model_is_called_as_others_refer_to_one() {
    for space in ["platform", "workspace"] {
        let model = format!("{space}/main: {{provider: openai, name: x}}\n");
        let workspace = with(".openharness/models/more.yaml", model.leak());
        let told = lines(&workspace);
        assert!(!workspace.models.contains_key(&format!("{space}/main")), "{told:?}");
        let expected = format!("a model cannot be called `{space}/main`");
        assert!(told.iter().any(|line| line.contains(&expected)), "{told:?}");
    }
}

#[test]
fn what_has_no_effect_where_agents_only_talk_is_told_where_that_was_chosen() {
    let told = |settings: &'static str| {
        let prompts = "compose: {include_environment: true}\n";
        let tools = "docs: {url: 'https://docs.example.com/mcp'}\n";
        let mut all = sound();
        all.retain(|(path, _)| ![SETTINGS, TOOLS].contains(path));
        all.extend([(SETTINGS, settings), (TOOLS, tools), (".openharness/prompts.yaml", prompts)]);
        lines(&load(&files(&all), &platform())).join("\n")
    };
    let chat = told("kind: chat\nmodels: {fast: workspace/small}\n");
    assert!(chat.contains("`include_environment`, or `environment` in the order, has no effect"), "{chat}");
    assert!(chat.contains("a `chat` workspace only talks"), "{chat}");
    let slip = told("kind: chat\ndefualt_agent: x\n");
    assert!(slip.contains("error") && slip.contains("only talks"), "its kind can be read: {slip}");
    for settings in ["kind: caht\n", "a: [\n"] {
        let wrong = told(settings);
        assert!(wrong.contains("error") && !wrong.contains("only talks") && !wrong.contains("no effect"), "{wrong}");
    }
    let project = told("models: {fast: workspace/small}\n");
    assert!(!project.contains("no effect"), "{project}");
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
    all.push((".openharness/memory/a.md", "x: 1"));
    all.push(("agents.md", "x"));
    let workspace = load(&files(&all), &platform());
    assert!(workspace.problems.iter().all(|problem| problem.severity == Severity::Warning), "{:#?}", lines(&workspace));
    let found = lines(&workspace);
    assert_eq!(workspace.memory["a"], "x: 1");
    for expected in ["did you mean `.openharness/agents`?", "call it `AGENTS.md`"] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn skills_are_read_from_the_folders_of_the_settings_and_the_first_one_counts() {
    let settings = "models: {fast: workspace/small}\nskill_dirs: [./team/skills/, more]\n";
    let skill = |text: &'static str| format!("---\ndescription: {text}\n---\nDo it.\n");
    let own = skill("own");
    let team = skill("of the team");
    let more = skill("more");
    let workspace = declared(&[
        (SETTINGS, settings),
        (".openharness/skills/review/SKILL.md", &own),
        ("team/skills/review/SKILL.md", &team),
        ("team/skills/deploy/SKILL.md", &team),
        ("team/skills/deploy/scripts/a.sh", "echo"),
        ("more/deploy/SKILL.md", &more),
        ("more/test/SKILL.md", &more),
        ("elsewhere/other/SKILL.md", &more),
    ]);
    let told: Vec<_> = workspace.skills.values().map(|one| (one.name.as_str(), one.description.as_str())).collect();
    assert_eq!(told, [("review", "own"), ("deploy", "of the team"), ("test", "more")]);
    assert_eq!(workspace.skills["deploy"].resources.keys().collect::<Vec<_>>(), ["scripts/a.sh"]);
    assert!(workspace.is_sound(), "{:#?}", lines(&workspace));
    let shadowed = "more/deploy/SKILL.md: warning: the skill `deploy` is left out: that of team/skills/deploy/SKILL.md";
    assert!(lines(&workspace).iter().any(|line| line.starts_with(shadowed)), "{:#?}", lines(&workspace));
    for (written, told) in [
        ("../skills", "leads out of the workspace"),
        ("/etc", "leads out of the workspace"),
        (".", "is the workspace itself"),
        (".openharness/agents", "belongs to the workspace"),
        ("nothing", "there is no skill in `nothing`"),
    ] {
        let settings = format!("models: {{fast: workspace/small}}\nskill_dirs: [{written}]\n");
        let found = lines(&declared(&[(SETTINGS, &settings)]));
        assert!(found.iter().any(|line| line.starts_with(SETTINGS) && line.contains(told)), "{written}: {found:#?}");
    }
}

#[test]
fn models_of_the_platform_have_names_of_their_own() {
    let platform_models = (".openharness/platform/models/all.yaml", "small:\n  provider: openai\n  name: theirs\n");
    let settings = (SETTINGS, "models: {fast: workspace/small, theirs: platform/small}\n");
    let agent = |model: &str| format!("---\nmodel: {model}\n---\nHi\n");
    for (model, name) in [("fast", "tiny"), ("theirs", "theirs"), ("platform/small", "theirs")] {
        let workspace = declared(&[platform_models, settings, (AGENT, &agent(model))]);
        assert_eq!(lines(&workspace), [] as [&str; 0], "{model}");
        let resolved = workspace.model_of(workspace.default_agent().expect("an agent")).expect("a model");
        assert_eq!(workspace.model(&resolved.reference).expect("a definition").model, name, "{model}");
        let listed: Vec<_> = catalog(&workspace, &platform()).models.into_iter().map(|one| one.name).collect();
        assert_eq!(listed, ["small", "platform/small"]);
    }
    let missing = declared(&[platform_models, settings, (AGENT, &agent("platform/smal"))]);
    let told = "the platform has no model `smal`: did you mean `small`?";
    assert!(lines(&missing).iter().any(|line| line.contains(told)), "{:#?}", lines(&missing));
    let broken = (".openharness/platform/models/all.yaml", "small:\n  provider: openai\n");
    let workspace = declared(&[broken, settings, (AGENT, &agent("fast"))]);
    assert!(workspace.default_agent().is_some(), "a model of the platform takes none of the workspace along");
}

#[test]
fn an_agent_of_the_platform_stands_behind_the_workspaces_own_and_its_mistakes_name_its_own_place() {
    let mut all = sound();
    let before = declared(&all);
    all.push((".openharness/platform/agents/assistant.md", "---\nmode: 7\n---\nHi\n"));
    all.push((".openharness/platform/agents/lent.md", "---\nmodel: fast\n---\nLent.\n"));
    all.push((".openharness/platform/agents/broken.md", "---\nmode: 7\n---\nHi\n"));
    let workspace = declared(&all);
    assert_eq!(workspace.agents["assistant"], before.agents["assistant"], "the workspace wins");
    assert_eq!(workspace.agents["lent"].prompt, "Lent.");
    let told = lines(&workspace);
    assert_eq!(told.len(), lines(&before).len() + 1, "{told:#?}");
    assert!(told.iter().any(|line| line.starts_with(".openharness/platform/agents/broken.md:2: error")), "{told:#?}");
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

fn declared(extra: &[(&str, &str)]) -> Workspace {
    let mut all: BTreeMap<_, _> = sound().into_iter().collect();
    all.extend(extra.iter().copied());
    load(&files(&all.into_iter().collect::<Vec<_>>()), &platform())
}

const ACTION: (&str, &str) = (
    ".openharness/actions/deploy/ACTION.yaml",
    "name: deploy\ndescription: Deploys.\nentry: {command: ./run.sh, timeout_seconds: 9}\nrecovery: {retry_policy: safe}\n",
);
const REVIEW: (&str, &str) = (".openharness/skills/review/SKILL.md", "# Reviewing\n\nLook twice at everything.\n");
const HOOK: (&str, &str) = (
    ".openharness/hooks/guard.yaml",
    "events: [before_tool_dispatch]\nmatcher: ^Bash$\nhandler: {type: command, command: ./guard.sh}\non_error: closed\n",
);

#[test]
fn actions_skills_and_hooks_are_read() {
    let workspace = declared(&[ACTION, REVIEW, (".openharness/skills/review/a/b.txt", "beside"), HOOK]);
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    let action = &workspace.actions["deploy"];
    assert_eq!(
        (action.entry.folder.as_str(), action.entry.timeout_seconds, action.safe),
        (".openharness/actions/deploy", Some(9), true)
    );
    let skill = &workspace.skills["review"];
    assert_eq!(skill.description, "Look twice at everything.");
    assert_eq!(skill.resources.keys().collect::<Vec<_>>(), ["a/b.txt"]);
    assert_eq!(workspace.hooks["guard"].timeout_seconds, 10);
    let catalog = catalog(&workspace, &platform());
    let names =
        |entries: &[dormouse_agent::CatalogEntry]| entries.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&catalog.actions), names(&catalog.skills)),
        (vec!["deploy".to_owned()], vec!["review".to_owned()])
    );
    assert_eq!(names(&catalog.hooks), ["guard"]);
    let chat = declared(&[ACTION, REVIEW, HOOK, (SETTINGS, "kind: chat\nmodels: {fast: workspace/small}\n")]);
    let catalog = dormouse_agent::catalog(&chat, &platform());
    let empty = [catalog.actions, catalog.skills, catalog.hooks, catalog.tools, catalog.native_tools];
    assert!(empty.iter().all(Vec::is_empty), "a chat workspace offers nothing of them");
}

#[test]
fn actions_can_be_run_where_commands_can() {
    let workspace = declared(&[ACTION]);
    for (processes, tier, can_run) in [
        (true, None, true),
        (false, Some(ExecutionTier::Function), true),
        (false, Some(ExecutionTier::Stored), false),
        (false, None, false),
    ] {
        let listed = catalog(&workspace, &Platform { processes, tier, ..platform() }).actions;
        assert_eq!(listed[0].enabled, can_run, "{processes} {tier:?}: {listed:?}");
    }
}

#[test]
fn mistakes_in_actions_skills_and_hooks_are_named_and_disable_one_definition() {
    for (path, text, told) in [
        (ACTION.0, "name: a b\ndescription: x\nentry: {command: x}\n", "an action cannot be called `a b`"),
        (ACTION.0, "description: x\nentry: {command: x}\n", "has no `name`"),
        (ACTION.0, "name: a\ndescription: x\nentry: {command: x, cwd: ../..}\n", "`cwd` leads out of the workspace"),
        (ACTION.0, "name: a\ndescription: x\nentry: {command: x}\ninput_schema: {type: 7}\n", "is no JSON Schema"),
        (ACTION.0, "name: a\ndescription: x\nentry: {command: x}\nstep: 1\n", "has no field `step`"),
        (REVIEW.0, "---\nname: x\n---\n", "has no instructions"),
        (REVIEW.0, "---\nnmae: x\n---\nbody\n", "did you mean `name`?"),
        (HOOK.0, "events: [run_complete]\nhandler: {type: command, command: x}\n", "did you mean `run_completed`?"),
        (HOOK.0, "events: [run_failed]\nmatcher: '('\nhandler: {type: command, command: x}\n", "no regular expression"),
        (HOOK.0, "events: [run_failed]\nhandler: {type: comand, command: x}\n", "did you mean `command`?"),
        (HOOK.0, "events: [run_failed]\n", "has no `handler`"),
        (
            ACTION.0,
            "name: a\ndescription: x\nentry:\n  command: x\n  environment: {A_1: x, MY-VAR: x}\n",
            ":5: error: the variable `MY-VAR` of `entry` cannot be set: use letters, digits and `_`",
        ),
        (
            HOOK.0,
            "events: [run_failed]\nhandler: {type: command, command: x, environment: {LD_PRELOAD: x}}\n",
            ":2: error: the variable `LD_PRELOAD` of `handler` cannot be set: it changes how programs are loaded",
        ),
    ] {
        let workspace = declared(&[(path, text)]);
        let found = lines(&workspace);
        assert!(found.iter().any(|line| line.starts_with(path) && line.contains(told)), "{told}: {found:#?}");
        assert!(workspace.default_agent().is_some(), "the agent runs all the same");
    }
    let twice = declared(&[ACTION, (".openharness/actions/other/ACTION.yaml", ACTION.1)]);
    assert_eq!(twice.actions["deploy"].file, ACTION.0);
    assert!(twice.is_enabled(DefinitionKind::Action, "deploy"), "the first one counts");
    let told =
        "actions/other/ACTION.yaml:1: error: action `deploy` is declared in .openharness/actions/deploy/ACTION.yaml";
    assert!(lines(&twice).iter().any(|line| line.contains(told)), "{:#?}", lines(&twice));
    let other =
        (".openharness/hooks/other.yaml", "name: guard\nevents: [run_failed]\nhandler: {type: command, command: x}\n");
    let twice = declared(&[HOOK, other]);
    assert_eq!(twice.hooks["guard"].file, HOOK.0);
    let told = "hooks/other.yaml:1: error: hook `guard` is declared in .openharness/hooks/guard.yaml already";
    assert!(lines(&twice).iter().any(|line| line.contains(told)), "{:#?}", lines(&twice));
    assert!(
        twice.settings.approval.asks(ToolOrigin::Native, &["Read"], true),
        "nobody knows what the other one forbids"
    );
    let unread = declared(&[(HOOK.0, "events: [before_tool]\nhandler: {type: command, command: x}\n")]);
    assert!(unread.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "better one question too many");
}

#[test]
fn an_agent_that_names_what_is_not_there_is_disabled() {
    let agent = |selection: &str| format!("---\nmodel: fast\ntools: {{{selection}}}\n---\nHi\n");
    for (selection, told) in [
        ("actions: [deplyo]", "there is no action `deplyo`: did you mean `deploy`?"),
        ("skills: [reveiw]", "there is no skill `reveiw`: did you mean `review`?"),
    ] {
        let workspace = declared(&[ACTION, REVIEW, (AGENT, &agent(selection))]);
        assert!(lines(&workspace).iter().any(|line| line.contains(told)), "{:#?}", lines(&workspace));
        assert!(!workspace.is_enabled(DefinitionKind::Agent, "assistant"));
    }
    let both = "---\nmodel: fast\ntools: {actions: [deploy]}\ndisallowed: {actions: [deploy]}\n---\nHi\n";
    let workspace = declared(&[ACTION, (AGENT, both)]);
    assert!(lines(&workspace).iter().any(|line| line.contains("selected and disallowed")), "{:#?}", lines(&workspace));
}

#[test]
fn instructions_are_composed_in_their_order() {
    let prompts = "base: {inline: Base.}\nllm_optimized:\n  providers: {openai-compatible: Provider.}\n  models: {fast: {file: prompts/fast.md}}\n\
                   compose: {order: [project_agents_md, agent, llm_optimized, base]}\n";
    let place = ".openharness/prompts.yaml";
    let workspace = declared(&[(place, prompts), (".openharness/prompts/fast.md", "Fast.")]);
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    let agent = workspace.default_agent().expect("an agent");
    let expected =
        "<project_instructions>\nBe kind.\n\n</project_instructions>\n\nHelp with the docs.\n\nFast.\n\nBase.";
    assert_eq!(workspace.instructions_of(agent), expected);
    let surrounded = declared(&[(place, "base: B.\ncompose: {order: [agent, environment, base]}\n")]);
    let agent = surrounded.default_agent().expect("an agent");
    assert_eq!(surrounded.instructions_of(agent), "Help with the docs.");
    assert_eq!(surrounded.instructions_behind(agent).as_deref(), Some("B."));
    let told = |prompts: &'static str, settings: &'static str| {
        let workspace = declared(&[(place, prompts), (SETTINGS, settings)]);
        workspace.instructions_behind(workspace.default_agent().expect("an agent"))
    };
    let aliases = "models: {fast: workspace/small}\n";
    assert_eq!(told("compose: {include_environment: true}\n", aliases).as_deref(), Some(""), "at the end");
    assert_eq!(told("base: B.\n", aliases), None);
    assert_eq!(told("compose: {order: [environment], include_environment: false}\n", aliases), None);
    let chat = "kind: chat\nmodels: {fast: workspace/small}\n";
    assert_eq!(told("compose: {include_environment: true}\n", chat), None, "who only talks works nowhere");
    let provider = declared(&[(place, "llm_optimized: {providers: {openai-compatible: Provider.}}\n")]);
    let told = provider.instructions_of(provider.default_agent().expect("an agent"));
    assert!(told.starts_with("Provider.\n\nHelp with the docs."), "{told}");
    for (text, told) in [
        ("base: {inline: a, file: b}\n", "`base` has `inline` and `file`"),
        ("base: {file: nowhere.md}\n", "there is no file `nowhere.md`"),
        ("compose: {order: [agnet]}\n", "did you mean `agent`?"),
        ("compose: {order: [base, base]}\n", "has `base` twice"),
    ] {
        let workspace = declared(&[(place, text)]);
        assert!(lines(&workspace).iter().any(|line| line.contains(told)), "{told}: {:#?}", lines(&workspace));
    }
    let both = declared(&[(place, "base: a\n"), (SETTINGS, "system_prompt: b\nmodels: {fast: workspace/small}\n")]);
    assert!(lines(&both).iter().any(|line| line.contains("leave one of them")), "{:#?}", lines(&both));
}

/// A folder with these files, which are all empty but for those of the sound workspace.
#[derive(Debug)]
struct Crowded(BTreeMap<String, String>);

impl Crowded {
    fn with(more: impl Iterator<Item = String>) -> Self {
        let sound = sound().into_iter().map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self(sound.chain(more.map(|path| (path, String::new()))).collect())
    }
}

#[async_trait]
impl WorkspaceSource for Crowded {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        let is_in = |path: &str, folders: &[String]| {
            folders.iter().any(|folder| path == folder || path.starts_with(&format!("{folder}/")))
        };
        let found = self.0.iter().filter(|(path, _)| {
            is_in(path, &limits.under) && !is_in(path, &limits.except) && path.matches('/').count() <= limits.depth
        });
        let file = |(path, text): (&String, &String)| WorkspaceFile {
            path: path.clone(),
            size: text.len() as u64,
            version: None,
        };
        let found: Vec<_> = found.map(file).collect();
        match found.len() > limits.files {
            true => {
                Err(WorkspaceError::TooLarge { what: "the number of files".to_owned(), limit: limits.files as u64 })
            }
            false => Ok(found),
        }
    }

    async fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, WorkspaceError> {
        self.0.get(path).map(|text| text.clone().into_bytes()).ok_or_else(|| WorkspaceError::NotFound(path.to_owned()))
    }
}

#[test]
fn a_crowded_folder_takes_no_other_along() {
    let crowd = |folder: &str| {
        let folder = folder.to_owned();
        Crowded::with((0..2_100).map(move |number| format!("{folder}/{number}.md")))
    };
    for (folder, error, asks) in [
        (".openharness/node_modules/x", false, false),
        (".openharness/skills/big/assets", true, false),
        (".openharness/hooks", true, true),
    ] {
        let files = futures::executor::block_on(read(&crowd(folder))).expect("files");
        let workspace = load(&files, &platform());
        let told = lines(&workspace).join("; ");
        assert_eq!(workspace.is_sound(), !error, "{folder}: {told}");
        assert!(told.contains("there are more than 2000, and none of them is read"), "{folder}: {told}");
        let named = folder.split('/').take(if error { 2 } else { 1 }).collect::<Vec<_>>().join("/");
        assert!(told.starts_with(&named), "the folder is named: {told}");
        assert!(workspace.default_agent().is_some_and(|agent| agent.name == "assistant"), "{folder}");
        let approval = &workspace.settings.approval;
        assert_eq!(approval.asks(ToolOrigin::Native, &["Read"], true), asks, "{folder}: a hook may have forbidden it");
        assert_eq!(Bundle::of(&files).is_err(), error, "{folder}: what is left out silently is not published");
        assert_eq!(Bundle::of_readable(&files).is_err(), asks, "{folder}");
    }
}

#[test]
fn what_systems_and_editors_leave_behind_is_no_part_of_a_workspace() {
    let read = |more: &[&str]| {
        let folder = Crowded::with(more.iter().map(|path| (*path).to_owned()));
        futures::executor::block_on(read(&folder)).expect("files")
    };
    let (hooks, skill) = (".openharness/hooks", ".openharness/skills/draw");
    let left = [format!("{hooks}/._guard.yaml"), format!("{skill}/.git/config"), ".openharness/.DS_Store".to_owned()];
    let files = read(&left.each_ref().map(String::as_str));
    assert_eq!(files, read(&[]), "neither read nor published");
    // A bundle of before, in which there is such a file.
    let mut before = files;
    before.insert(left[0].clone(), FileContent::Bytes(vec![0, 5, 22, 7, 0xff]));
    let workspace = load(&before, &platform());
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    assert!(
        !workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true),
        "it is no hook that cannot be read"
    );
}

#[test]
fn files_deep_in_skills_and_actions_are_read_and_what_is_too_deep_is_named() {
    let read = |more: &[String]| {
        let files = futures::executor::block_on(read(&Crowded::with(more.iter().cloned()))).expect("files");
        (load(&files, &platform()), files)
    };
    let (skill, action) = (".openharness/skills/draw", ".openharness/actions/deploy");
    let (_, plain) = read(&[]);
    let deep = [format!("{skill}/assets/fonts/a/b/c/x.ttf"), format!("{action}/lib/util/x.sh")];
    let (_, files) = read(&deep);
    for path in &deep {
        assert_eq!(files.get(path), Some(&FileContent::Bytes(Vec::new())), "{path}");
    }
    let too_deep = ["x.ttf", "y.ttf", "g/z.ttf"].map(|name| format!("{skill}/a/b/c/d/e/f/{name}"));
    let (workspace, files) = read(&too_deep);
    let told = lines(&workspace).join("; ");
    let named = format!("{} and 2 more are left out: files of a skill or an action may stand five", too_deep[2]);
    assert!(workspace.is_sound() && told.contains(&named), "{told}");
    assert_eq!(
        Bundle::of(&files).expect("a bundle"),
        Bundle::of(&plain).expect("a bundle"),
        "and nothing else changes"
    );
    assert_eq!(workspace.digest, Bundle::of(&files).expect("a bundle").digest());
    let crowd: Vec<String> = (0..2_100).map(|number| format!("{action}/lib/node_modules/p/{number}.js")).collect();
    let (workspace, files) = read(&crowd);
    let told = lines(&workspace).join("; ");
    assert!(workspace.is_sound() && told.contains("with what stands deep in this folder there are more"), "{told}");
    assert!(Bundle::of(&files).is_ok(), "it is published without");
}

#[test]
fn what_stands_deep_is_left_out_where_the_definitions_would_be_too_large_with_it() {
    let mut folder = Crowded::with(std::iter::empty());
    let large = "x".repeat(200 * 1024);
    let deep = |number: u32| format!(".openharness/actions/deploy/lib/util/{number}.js");
    folder.0.extend((0..30).map(|number| (deep(number), large.clone())));
    let files = futures::executor::block_on(read(&folder)).expect("files");
    let workspace = load(&files, &platform());
    let told = lines(&workspace).join("; ");
    let reason = "lib/util/0.js and 29 more are left out: with it the definitions have more bytes";
    assert!(workspace.is_sound() && told.contains(reason), "{told}");
    assert!(Bundle::of(&files).is_ok(), "{told}");
}

#[test]
fn an_action_with_the_name_of_a_tool_of_dormouse_is_disabled() {
    for name in ["Bash", "subagent", "run_action"] {
        let text = format!("name: {name}\ndescription: Does.\nentry: {{command: ./run.sh}}\n");
        let workspace = declared(&[ACTION, (".openharness/actions/other/ACTION.yaml", &text)]);
        let found: Vec<_> = workspace.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
        let [problem] = found.as_slice() else { panic!("{found:#?}") };
        assert!(problem.message.contains("has the name of a tool of Dormouse"), "{problem}");
        assert!(
            !workspace.is_enabled(DefinitionKind::Action, name)
                && workspace.is_enabled(DefinitionKind::Action, "deploy")
        );
    }
}

#[test]
fn an_address_of_a_model_that_is_none_is_an_error() {
    for (url, is_sound) in [
        ("not a url", false),
        ("api.example.com/v1", false),
        ("https://", false),
        ("https://api.example.com/v1#x", false),
        ("HTTPS://api.example.com/v1?version=x", true),
        ("https://api.example.com/v1", true),
        ("${env.URL}", true),
    ] {
        let text = format!("other: {{provider: openai-compatible, name: x, url: \"{url}\"}}\n");
        let workspace = declared(&[(".openharness/models/other.yaml", &text)]);
        assert_eq!(workspace.is_enabled(DefinitionKind::Model, "other"), is_sound, "{url}: {:#?}", workspace.problems);
    }
}
