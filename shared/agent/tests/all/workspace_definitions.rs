//! What the definitions of a workspace come to: agents and their models, actions, skills, hooks and instructions.

use dormouse_agent::catalog;
use dormouse_agent::workspace::{DefinitionKind, Platform, Severity, ToolOrigin, Workspace, load};
use dormouse_ports::execution::ExecutionTier;

use crate::workspace::{AGENT, MODELS, REVIEW, SETTINGS, TOOLS, declared, files, lines, platform, sound};

const ACTION: (&str, &str) = (
    ".openharness/actions/deploy/ACTION.yaml",
    "name: deploy\ndescription: Deploys.\nentry: {command: ./run.sh, timeout_seconds: 9}\nrecovery: {retry_policy: safe}\n",
);
const HOOK: (&str, &str) = (
    ".openharness/hooks/guard.yaml",
    "events: [before_tool_dispatch]\nmatcher: ^Bash$\nhandler: {type: command, command: ./guard.sh}\non_error: closed\n",
);

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

/// Whoever writes them may write thousands: the search for a model has an end, and takes no more stack for more of them.
#[test]
fn agents_that_ask_each_other_by_thousands_have_no_model_of_another_and_are_read_all_the_same() {
    let models = "small: {provider: openai, name: tiny}\nlarge: {provider: openai, name: big}\n";
    let path = |number: usize| format!(".openharness/agents/a{number}.md");
    let text = |number: usize| {
        let model = if number == 0 { "model: workspace/large\n" } else { "" };
        format!("---\nmode: all\n{model}subagents: [a{}]\n---\nHelp.\n", number + 1)
    };
    let agents: Vec<_> = (0..1_900).map(|number| (path(number), text(number))).collect();
    let mut all = vec![(MODELS, models)];
    all.extend(agents.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let workspace = load(&files(&all), &platform());
    let has_one = |name: &str| workspace.model_of(&workspace.agents[name]).is_ok();
    assert_eq!(["a0", "a1", "a100", "a1000", "a1899"].map(has_one), [true, true, true, false, false]);
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
        ("smart", "`smart` is no reference to a model; name one of `workspace/small`, `workspace/large`"),
        ("large", "`large` is no reference to a model: did you mean `workspace/large`?"),
    ] {
        let workspace = of(&format!("{several}, spare: {spare}"), "model: smart\n");
        let warning = format!("{SETTINGS}:2: warning: alias `spare`: {flaw}");
        assert_eq!((lines(&workspace), workspace.is_sound()), (vec![warning], true), "no agent asks for it");
        let told = lines(&of(&format!("{several}, spare: {spare}"), "model: spare\n"));
        assert!(told.iter().all(|line| line.contains("lead.md") || line.contains("scout.md")), "{told:?}");
        let place = format!("lead.md:3: error: alias `spare` in line 2 of `{SETTINGS}`: {flaw}");
        assert!(told.iter().any(|line| line.ends_with(&place)), "the mistake is not there: {told:?}");
    }
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
fn a_skill_that_is_longer_than_a_model_is_told_is_named_and_stays() {
    for (words, is_told) in [(6_000, false), (8_000, true)] {
        let text = format!("---\ndescription: Reviews\n---\n{}\n", "Look.".repeat(words));
        let workspace = declared(&[(REVIEW.0, &text)]);
        let line = format!("{}:4: warning: the skill `review` has {} bytes of instructions", REVIEW.0, 5 * words);
        assert_eq!(lines(&workspace).iter().any(|found| found.starts_with(&line)), is_told, "{:?}", lines(&workspace));
        assert!(workspace.is_sound() && workspace.skills.contains_key("review"), "{words}");
    }
}

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
        (
            HOOK.0,
            "events: [run_failed]\nmatcher: '\\w{9}'\nhandler: {type: command, command: x}\n",
            ":2: error: `matcher` of hook `guard` becomes larger than 131072 bytes",
        ),
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
fn a_mistake_in_another_definition_of_a_name_disables_none_that_counts() {
    let skill = (".openharness/skills/review/SKILL.md", "# Reviewing\n\nLook twice.\n");
    for (kind, name, good, bad) in [
        (
            DefinitionKind::Model,
            "main",
            (".openharness/models/models.yaml", "main: {provider: openai, name: tiny}\n"),
            (".openharness/models/again.yaml", "main: {provider: opnai, name: tiny}\n"),
        ),
        (
            DefinitionKind::Action,
            "deploy",
            ACTION,
            (".openharness/actions/other/ACTION.yaml", "name: deploy\ndescription: Deploys.\nentry: {comand: x}\n"),
        ),
        (
            DefinitionKind::Hook,
            "guard",
            HOOK,
            (
                ".openharness/hooks/other.yaml",
                "name: guard\nevents: [run_fails]\nhandler: {type: command, command: x}\n",
            ),
        ),
        (DefinitionKind::Skill, "review", skill, (".openharness/skills/second/SKILL.md", "---\nname: review\n---\n")),
    ] {
        let workspace = declared(&[good, bad]);
        assert!(workspace.is_enabled(kind, name), "{name}: {:#?}", workspace.problems);
        let told = lines(&workspace);
        assert!(told.iter().any(|line| line.starts_with(bad.0) && line.contains("error")), "{told:#?}");
        assert!(!workspace.is_enabled(kind, bad.0), "what is wrong is told of the file");
        assert!(!declared(&[bad]).is_enabled(kind, name), "{name}: where none counts");
    }
}

/// What is compiled of them is kept in memory, and may be a thousand times as long as it is written.
#[test]
fn a_workspace_has_so_many_hooks_and_where_there_are_more_a_person_sees_every_call() {
    let hook =
        "events: [before_tool_dispatch]\nmatcher: ^\\w+_\\w+$\nhandler: {type: http, url: 'https://h.example/'}\n";
    let paths: Vec<String> = (0..65).map(|at| format!(".openharness/hooks/h{at:02}.yaml")).collect();
    let hooks: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), hook)).collect();
    let most = declared(&hooks[..64]);
    assert!(most.hooks.len() == 64 && lines(&most).is_empty(), "{:#?}", lines(&most));
    let more = declared(&hooks);
    let told = ".openharness/hooks/h64.yaml: error: a workspace has up to 64 hooks: put some of them together";
    assert!(more.hooks.len() == 64 && lines(&more).iter().any(|line| line == told), "{:#?}", lines(&more));
    assert!(more.settings.approval.manual && !most.settings.approval.manual);
}

#[test]
fn a_mistake_is_told_once_and_with_its_own_line() {
    let prompts = ".openharness/prompts.yaml";
    let action = "name: a\ndescription: x\nentry: {command: x}\n";
    let handler = "handler: {type: command, command: x}\n";
    for (path, text, told) in [
        (
            HOOK.0,
            format!("name: guard\n{handler}events:\n  - run_failed\n  - PreToolUse\n"),
            ":5: error: `events` has no",
        ),
        (
            HOOK.0,
            format!("{handler}events: [run_complete]\n"),
            ":2: error: `events` has no `run_complete`: did you mean",
        ),
        (
            HOOK.0,
            format!("events: [run_failed]\n{handler}matcher: '*'\n"),
            ":3: error: `matcher` of hook `guard` is no",
        ),
        (
            ACTION.0,
            "name: a\ndescription: x\nentry: ./run.sh\n".to_owned(),
            ":3: error: `entry` is a text: the command",
        ),
        (
            ACTION.0,
            format!("{action}input_schema: {{type: 7}}\n"),
            ":4: error: `input_schema` of action `a` is no JSON",
        ),
        (
            TOOLS,
            "docs: npx docs\n".to_owned(),
            ":1: error: tool server `docs` must be a mapping of fields, and is a text",
        ),
        (
            TOOLS,
            "docs:\n  command: [npx, docs]\n".to_owned(),
            ":2: error: `command` of tool server `docs` must be a text",
        ),
        (
            TOOLS,
            "docs:\n  http:\n    description: x\n    url: docs.example\n".to_owned(),
            ":4: error: `url` of `docs` must begin with `https://` or `http://`, and is `docs.example`",
        ),
        (".openharness/models/more.yaml", "more: gpt-5\n".to_owned(), ":1: error: model `more` must be a mapping of"),
        (
            prompts,
            "base: x\ncompose:\n  order:\n    - base\n    - agnt\n".to_owned(),
            ":5: error: `order` has no `agnt`",
        ),
        (
            prompts,
            "llm_optimized:\n  providers:\n    anthropik: x\n".to_owned(),
            ":3: warning: `llm_optimized.providers`",
        ),
        (
            prompts,
            "llm_optimized:\n  models:\n    workspace/smal: x\n".to_owned(),
            ":3: warning: `llm_optimized.models`",
        ),
    ] {
        let mut all = sound();
        all.retain(|(other, _)| ![AGENT, path].contains(other));
        let agent = "---\nmodel: fast\n---\nHelp.\n";
        all.extend([(AGENT, agent), (path, text.as_str())]);
        let found = lines(&load(&files(&all), &platform()));
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert!(found[0].starts_with(&format!("{path}{told}")), "{told}: {found:#?}");
    }
    let settings = "models: {fast: workspace/small}\nimports:\n  skills: [draw]\n";
    let found = lines(&declared(&[(SETTINGS, settings)]));
    let told = format!("{SETTINGS}:3: warning: there is no skill `draw` here");
    assert!(found.len() == 1 && found[0].starts_with(&told), "{found:#?}");
    let costly = "---\nmodel: fast\npolicy:\n  max_steps: 3\n  max_cost: 2\n---\nHelp.\n";
    let found = lines(&declared(&[(AGENT, costly)]));
    let told = format!("{AGENT}:5: error: `max_cost` limits nothing");
    assert!(found.len() == 1 && found[0].starts_with(&told), "{found:#?}");
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

/// Whoever writes them may write as many as he likes: each is looked up, and not held against all that was found before.
#[test]
fn thousands_of_names_that_nothing_has_are_told_of_each_agent_that_has_them() {
    let names: Vec<String> = (0..15_000).map(|number| format!("a{number}")).collect();
    let agent = format!("---\nmodel: fast\ntools: {{actions: [{}]}}\n---\nHi\n", names.join(","));
    let paths = ["a", "b", "c", "d"].map(|name| format!(".openharness/agents/{name}.md"));
    let agents: Vec<_> = paths.iter().map(|path| (path.as_str(), agent.as_str())).collect();
    let workspace = declared(&agents);
    assert_eq!(workspace.problems.len(), paths.len() * names.len());
    assert!(workspace.is_enabled(DefinitionKind::Agent, "assistant"), "one that names none of them");
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
