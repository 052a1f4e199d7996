//! What is wrong with a workspace never lets something run unasked that a person may have meant to see.

use std::collections::BTreeMap;

use dormouse_agent::catalog;
use dormouse_agent::workspace::{ToolOrigin, WorkspaceKind, load};

use crate::workspace::{AGENT, REVIEW, SETTINGS, TOOLS, declared, files, lines, platform, sound, with};

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
fn channels_of_an_agent_and_of_the_settings_are_no_more_than_a_question_has_steps() {
    let notify = |names: std::ops::Range<usize>| {
        let channels: Vec<String> = names.map(|number| format!("c{number}: PT1S")).collect();
        format!("{{manual: true, notify: {{{}}}}}", channels.join(", "))
    };
    let settings = format!("models: {{fast: workspace/small}}\npolicy: {{approval: {}}}\n", notify(0..6));
    let told = |own: std::ops::Range<usize>| {
        let text = format!("---\ndescription: Helps\nmodel: fast\npolicy:\n  approval: {}\n---\nHelp.\n", notify(own));
        let found = lines(&declared(&[(AGENT, &text), (SETTINGS, &settings)]));
        found.into_iter().filter(|line| line.contains("`notify`")).collect::<Vec<_>>()
    };
    assert_eq!(told(2..8), [] as [&str; 0], "the same ones are told once");
    let error = format!(
        "{AGENT}:5: error: `notify` names 9 channels, those of the settings among them, and a question is told over 8 at most"
    );
    assert!(told(6..9).iter().any(|line| line.starts_with(&error)), "{:?}", told(6..9));
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
