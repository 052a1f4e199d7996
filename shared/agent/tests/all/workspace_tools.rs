//! Tools that a workspace declares: servers, requests, and what its program registers.

use dormouse_agent::catalog;
use dormouse_agent::workspace::{Platform, Severity, ToolSourceDefinition, load};

use crate::workspace::{TOOLS, declared, files, lines, platform, sound};

#[test]
fn a_variable_that_is_written_as_in_a_shell_is_told_where_nothing_replaces_it() {
    let told = |value: &str| {
        let tools = format!("docs:\n  command: python3 docs.py\n  environment:\n    TOKEN: {value}\n");
        lines(&declared(&[(TOOLS, &tools)]))
    };
    let references = "`${secrets.DOCS_TOKEN}` or `${env.DOCS_TOKEN}`";
    let expected =
        format!("{TOOLS}:4: warning: `$DOCS_TOKEN` in `environment.TOKEN` is taken as it stands: write {references}");
    for value in ["$DOCS_TOKEN", "'Bearer $DOCS_TOKEN now'", "'$5 $DOCS_TOKEN'"] {
        assert_eq!(told(value), [expected.as_str()], "{value}");
    }
    for value in ["'${env.DOCS_TOKEN}'", "'$${DOCS}'", "'5 $'", "'$1'", "'a$b'", "'US$'"] {
        assert_eq!(told(value), [] as [&str; 0], "{value}");
    }
}

#[test]
fn a_timeout_of_less_than_a_second_is_told_to_be_milliseconds() {
    let told =
        |timeout: &str| lines(&declared(&[(TOOLS, &format!("docs:\n  command: ./docs\n  timeout: {timeout}\n"))]));
    for timeout in ["15", "999"] {
        let message =
            format!("`timeout` of tool server `docs` is {timeout} milliseconds: for seconds write `{timeout}000`");
        let expected = format!("{TOOLS}:3: warning: {message}");
        assert!(told(timeout).contains(&expected), "{:#?}", told(timeout));
    }
    for timeout in ["1000", "15000"] {
        assert!(!told(timeout).iter().any(|line| line.contains("timeout")), "{:#?}", told(timeout));
    }
}

#[test]
fn a_field_of_another_kind_of_tool_server_is_told_to_have_no_effect() {
    let beside = "  headers: {a: b}\n  environment: {A: b}\n  oauth: {token_url: 'https://x/token', client_id: me}\n";
    let told = |kind: &str, value: &str| {
        let found = lines(&declared(&[(TOOLS, &format!("docs:\n  {kind}: {value}\n{beside}"))]));
        found.into_iter().filter(|line| line.starts_with(TOOLS)).collect::<Vec<_>>()
    };
    for (kind, value, misplaced) in [
        ("command", "./docs", [Some((3, "headers", "url")), None, Some((5, "oauth", "url"))]),
        ("url", "https://docs.example/mcp", [None, Some((4, "environment", "command")), None]),
        (
            "rust",
            "stock",
            [Some((3, "headers", "url")), Some((4, "environment", "command")), Some((5, "oauth", "url"))],
        ),
    ] {
        let expected: Vec<_> = misplaced
            .into_iter()
            .flatten()
            .map(|(line, field, owner)| {
                let why = format!("it goes with `{owner}`, and this entry has `{kind}`");
                format!("{TOOLS}:{line}: warning: `{field}` of tool server `docs` has no effect: {why}")
            })
            .collect();
        assert_eq!(told(kind, value), expected);
    }
    let of_request = told("http", "{url: 'https://docs.example/'}");
    assert!(of_request[0].ends_with("has no effect: those of the request stand in `http`"), "{of_request:#?}");
}

#[test]
fn tools_in_rust_are_those_that_the_program_registers() {
    let tools = "docs:\n  rust: stock\n  timeout: 9000\n  expose: {tool_prefix: shop, include: [count]}\n";
    let all: Vec<_> =
        sound().into_iter().map(|(path, text)| (path, if path == TOOLS { tools } else { text })).collect();
    let words = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (registered, severity, told) in [
        (None, None, ""),
        (Some(words(&["shop", "stock"])), None, ""),
        (Some(words(&[])), Some(Severity::Warning), "run that of the crate which registers `stock`"),
        (Some(words(&["shop"])), Some(Severity::Error), "no tools in Rust are registered as `stock`; there are `shop`"),
    ] {
        let platform = Platform { rust_tools: registered, ..platform() };
        let workspace = load(&files(&all), &platform);
        let found: Vec<_> = workspace.problems.iter().map(|problem| (problem.severity, problem.line)).collect();
        let expected: Vec<_> = severity.map(|severity| (severity, Some(2))).into_iter().collect();
        assert_eq!(found, expected, "{:?}", lines(&workspace));
        assert!(lines(&workspace).iter().all(|line| line.contains(told)), "{:?}", lines(&workspace));
        let entry = &catalog(&workspace, &platform).tools[0];
        assert_eq!((entry.description.as_str(), entry.enabled), ("tools in Rust `stock`", severity.is_none()));
        assert_eq!(entry.reasons.len(), expected.len(), "it is told once: {entry:?}");
        assert!(entry.reasons.iter().all(|reason| reason.contains(told)), "{entry:?}");
        assert_eq!(workspace.is_sound(), severity != Some(Severity::Error));
        let tool = &workspace.tools["docs"];
        assert_eq!(tool.source, ToolSourceDefinition::Rust { tools: "stock".to_owned() });
        let prefix = tool.expose.tool_prefix.as_deref();
        assert_eq!((tool.timeout_ms, prefix, tool.expose.include.len()), (Some(9000), Some("shop"), 1));
    }
    let off = declared(&[(TOOLS, "docs: {rust: stock, enabled: false}\n")]);
    assert_eq!(lines(&off), [] as [&str; 0]);
    for (written, told) in [
        (
            "docs: {rust: stock, url: 'https://docs.example/mcp'}\n",
            "has more than one of `command`, `url`, `http` and `rust`",
        ),
        ("docs: {rust: [stock]}\n", "`rust` of tool server `docs` must be a text"),
    ] {
        let found = lines(&declared(&[(TOOLS, written)]));
        assert!(found.iter().any(|line| line.contains(told)), "{found:?}");
        assert!(!found.iter().any(|line| line.contains("has neither")), "{found:?}");
    }
}
