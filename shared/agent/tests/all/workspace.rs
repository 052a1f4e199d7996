//! From files to definitions: what is wrong is named with its file and line, and disables one definition at most.

use std::collections::BTreeMap;

use dormouse_agent::catalog;
use dormouse_agent::workspace::{AgentMode, DefinitionKind, FileContent, Files, Platform, ToolOrigin, Workspace, load};
use dormouse_ports::execution::ExecutionTier;

pub(crate) const AGENT: &str = ".openharness/agents/assistant.md";
pub(crate) const MODELS: &str = ".openharness/models/models.yaml";
pub(crate) const TOOLS: &str = ".openharness/tools/settings.yaml";
pub(crate) const SETTINGS: &str = ".openharness/settings.yaml";

pub(crate) fn files(list: &[(&str, &str)]) -> Files {
    let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
    list.iter().map(|(path, text)| ((*path).to_owned(), bytes(text))).collect()
}

pub(crate) fn platform() -> Platform {
    let native_tools = vec!["Read".to_owned(), "Bash".to_owned()];
    Platform {
        models: Some(vec!["large".to_owned()]),
        native_tools,
        processes: true,
        rust_tools: None,
        tier: Some(ExecutionTier::Local),
    }
}

pub(crate) fn sound() -> Vec<(&'static str, &'static str)> {
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
pub(crate) fn with<'t>(path: &'t str, text: &'t str) -> Workspace {
    let mut all: BTreeMap<_, _> = sound().into_iter().collect();
    all.insert(path, text);
    load(&files(&all.into_iter().collect::<Vec<_>>()), &platform())
}

pub(crate) fn declared(extra: &[(&str, &str)]) -> Workspace {
    let mut all: BTreeMap<_, _> = sound().into_iter().collect();
    all.extend(extra.iter().copied());
    load(&files(&all.into_iter().collect::<Vec<_>>()), &platform())
}

pub(crate) fn lines(workspace: &Workspace) -> Vec<String> {
    workspace.problems.iter().map(ToString::to_string).collect()
}

pub(crate) const REVIEW: (&str, &str) =
    (".openharness/skills/review/SKILL.md", "# Reviewing\n\nLook twice at everything.\n");

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
    let keyless = with(MODELS, "small: {provider: openai, name: x, key_header: api-key}\n");
    let told = "1: warning: `key_header` of model `small` has no effect: there is no `key`";
    assert!(lines(&keyless).iter().any(|line| line.contains(told)), "{:?}", lines(&keyless));
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
        (AGENT, "---\nmodel: tiny\n---\nHi\n", ":2: error: there is no model `tiny`: did you mean `workspace/small`?"),
        (
            AGENT,
            "---\nmodel: gpt-5\n---\nHi\n",
            ":2: error: there is no model `gpt-5`; name one of `fast`, `workspace/small`",
        ),
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
        (AGENT, "---\rmodel: fast\r---\rHi\r", ":1: error: lines end with carriage returns alone"),
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
        (TOOLS, "docs: {}\n", ":1: error: tool server `docs` has neither `command` nor `url` nor `http` nor `rust`"),
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
            ":3: error: the header `Accept` of `docs` cannot be set: remove it",
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
            TOOLS,
            "docs:\n  url: https://x/mcp\n  oauth:\n    token_url: https://x/token\n    client_id: me\n    client_secret: \
             ${secrets.s}\n    token_endpoint_auth_method: client_secret_pots\n",
            ":7: error: `token_endpoint_auth_method` of `oauth` of `docs` must be one of `client_secret_basic`, \
             `client_secret_post`: did you mean `client_secret_post`?",
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
            MODELS,
            "small: {provider: openai, name: x, key: '${secrets.K}',\n  key_header: 'api-key: x'}\n",
            ":2: error: `key_header` of model `small` is no name of a header: write `key_header: api-key`, for example",
        ),
        (
            TOOLS,
            "docs:\n  command: npx\n  args: [docs]\n",
            ":3: error: tool server `docs` has no field `args`: write all of it into `command`, which is one command line",
        ),
        (
            TOOLS,
            "docs:\n  type: stdio\n  command: npx docs\n",
            ":2: error: tool server `docs` has no field `type`: leave it out: `command` is a process, `url` an address",
        ),
        (
            TOOLS,
            "docs:\n  command: npx docs\n  cwd: docs\n",
            ":3: error: tool server `docs` has no field `cwd`: it runs in the folder of the workspace: begin",
        ),
        (
            TOOLS,
            "docs:\n  command: npx docs\n  disabled: true\n",
            ":3: error: tool server `docs` has no field `disabled`: did you mean `enabled: false`?",
        ),
        (
            AGENT,
            "---\nmodel: fast\ntools:\n  write: false\n---\nHi\n",
            ":4: error: `tools` has no field `write`: native tools stand in a list of those that the agent may call",
        ),
        (
            AGENT,
            "---\nmodel: fast\npermission: {edit: deny}\n---\nHi\n",
            ":3: error: the front matter has no field `permission`: `policy: {approval: …}` names calls that wait",
        ),
        (
            AGENT,
            "---\nmodel: fast\nschedules: ['0 2 * * *']\n---\nHi\n",
            ":3: error: the front matter has no field `schedules`: nothing here begins a run by the clock",
        ),
        (
            AGENT,
            "---\nmodel: fast\noutput_schema: {type: object}\n---\nHi\n",
            ":3: error: the front matter has no field `output_schema`: say in its instructions what answers look like",
        ),
        (
            AGENT,
            "---\nmodel: fast\nfallback: [small]\n---\nHi\n",
            ":3: error: the front matter has no field `fallback`: an agent has one model, which is asked again",
        ),
        (
            AGENT,
            "---\nmodel: [fast, small]\n---\nHi\n",
            ":2: error: `model` is a list, and an agent has one model: name one, such as `workspace/NAME`",
        ),
        (
            AGENT,
            "---\nmodel: fast\npolicy: {approval: {approvers: 2}}\n---\nHi\n",
            ":3: error: `approval` has no field `approvers`: one person decides about a call",
        ),
        (
            ".openharness/hooks/guard.yaml",
            "hooks: {PreToolUse: []}\n",
            ":1: error: the hook has no field `hooks`: a file has one hook, whose fields stand at its top",
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
        (
            AGENT,
            "---\nmodel: fast\npolicy:\n  max_steps: \"20\"\n---\nHi\n",
            ":4: error: `max_steps` of `policy` must be a whole number from 1 to 1000, without quotes, and is `20`",
        ),
        (
            AGENT,
            "---\nmodel: fast\nhidden: 'true'\n---\nHi\n",
            ":3: error: `hidden` of the front matter must be `true` or `false`, without quotes, and is `true`",
        ),
        (
            AGENT,
            "---\nmodel: fast\ntools: Read, Bash\n---\nHi\n",
            ":3: error: `tools` is a text: lists stand in it by their kinds, `tools: {native: […], external: […]}`",
        ),
        (
            AGENT,
            "---\nmodel: fast\ndisallowed:\n  - Bash\n---\nHi\n",
            ":4: error: `disallowed` is a list: lists stand in it by their kinds, `disallowed: {tools: […]}`",
        ),
        (
            AGENT,
            "---\nname: helper\nmodel: fast\n---\nHi\n",
            ":2: error: the front matter has no field `name`: an agent is called as its file is; leave it out",
        ),
        (
            AGENT,
            "---\nmodel: fast\nmax_steps: 20\n---\nHi\n",
            ":3: error: the front matter has no field `max_steps`: it stands in `policy`",
        ),
        (
            MODELS,
            "models:\n  small: {provider: openai, name: x}\n",
            ":1: error: leave the level `models` out: models stand by their names at the top of this file",
        ),
        (
            MODELS,
            "small:\n  provider: openai\n  model: x\n",
            ":3: error: model `small` has no field `model`: did you mean `name`?",
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
fn a_model_in_a_file_that_cannot_be_read_is_not_said_to_be_missing() {
    let broken = "small:\n\tprovider: openai\n";
    let first = format!("mend `{MODELS}` first (this is no valid YAML");
    for (agent, settings) in [
        ("---\nmodel: workspace/small\n---\nHelp.\n", ""),
        ("---\nmodel: fast\n---\nHelp.\n", "models: {fast: workspace/small}\n"),
        ("---\nmode: all\n---\nHelp.\n", ""),
    ] {
        let found = lines(&declared(&[(AGENT, agent), (MODELS, broken), (SETTINGS, settings)]));
        assert!(found.iter().any(|line| line.starts_with(AGENT) && line.contains(&first)), "{agent}: {found:#?}");
        assert!(!found.iter().any(|line| line.contains("there is no model")), "{agent}: {found:#?}");
    }
    let slip = lines(&declared(&[(AGENT, "---\nmodel: fats\n---\nHelp.\n"), (MODELS, broken)]));
    let told = "there is no model `fats`: did you mean `fast`?";
    assert!(slip.iter().any(|line| line.contains(told)), "an alias is no matter of that file: {slip:#?}");
}

#[test]
fn a_file_of_tools_that_cannot_be_read_is_the_first_error_and_one_of_each_agent() {
    let agent = "---\ndescription: Helps\nmodel: fast\ntools: {external: [docs, mail, map]}\n---\nHelp.\n";
    let found = lines(&declared(&[(AGENT, agent), (TOOLS, "docs:\n\turl: x\n")]));
    assert!(found[0].starts_with(TOOLS), "{found:#?}");
    let of_agent: Vec<_> = found.iter().filter(|line| line.starts_with(AGENT)).collect();
    assert_eq!(of_agent.len(), 1, "{found:#?}");
    assert!(of_agent[0].contains("its tool server `docs` cannot be used: mend"), "{found:#?}");
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
        (".openharness/prompts.yaml", "llm_optimized: {providers: {anthropik: X}}".to_owned(), "`anthropic`?"),
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
fn no_model_is_called_as_others_refer_to_one() {
    for space in ["platform", "workspace"] {
        let model = format!("large: {{provider: openai, name: x}}\n{space}/main: {{provider: openai, name: x}}\n");
        let workspace = with(".openharness/models/more.yaml", model.leak());
        let told = lines(&workspace);
        assert!(!workspace.models.contains_key(&format!("{space}/main")), "{told:?}");
        assert!(workspace.is_enabled(DefinitionKind::Model, "large"), "the one above stays: {told:?}");
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
        all.push((".openharness/agents/lead.md", "---\nmodel: fast\nswitch: [assistant]\n---\nLead.\n"));
        lines(&load(&files(&all), &platform())).join("\n")
    };
    let chat = told("kind: chat\nmodels: {fast: workspace/small}\n");
    assert!(chat.contains("`include_environment`, or `environment` in the order, has no effect"), "{chat}");
    assert!(chat.contains("a `chat` workspace only talks"), "{chat}");
    assert!(chat.contains("agents of a `chat` workspace only talk: they call no others"), "{chat}");
    let is_of_agent = |line: &str| line.starts_with(AGENT) && line.contains("warning: a `chat` workspace only talks");
    assert!(chat.lines().any(is_of_agent), "its agent names tools: {chat}");
    let slip = told("kind: chat\ndefualt_agent: x\n");
    assert!(slip.contains("error") && slip.contains("only talks"), "its kind can be read: {slip}");
    for settings in ["kind: caht\n", "a: [\n"] {
        let wrong = told(settings);
        assert!(wrong.contains("error") && !wrong.contains("only talk") && !wrong.contains("no effect"), "{wrong}");
    }
    let project = told("models: {fast: workspace/small}\n");
    assert!(!project.contains("no effect"), "{project}");
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
