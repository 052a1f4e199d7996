//! Servers that are processes: they cannot be started, write something else, end or hang.

use std::time::Duration;

use dormouse_ports::tool::{ToolErrorKind, ToolSource};
use dormouse_tools::McpConfig;
use dormouse_tools::mcp::McpTransport;
use libtest_mimic::Trial;
use serde_json::json;

use crate::trial;
use crate::world::{call, server, template, text};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("trouble::a_process_that_cannot_be_started", no_process),
        trial("trouble::a_process_that_writes_something_else", chatty),
        trial("trouble::a_process_that_does_not_write_messages_in_lines", unframed),
        trial("trouble::a_process_that_ends_at_a_method_that_it_does_not_know", ends_at_the_newest),
        trial("trouble::a_process_that_has_to_be_installed_first", starts_late),
        trial("trouble::a_process_that_answers_with_half_a_character", halved),
        trial("trouble::a_process_that_answers_in_other_forms_than_the_sdk_reads", in_other_forms),
        trial("trouble::a_process_that_answers_too_much_and_ends", says_too_much),
        trial("trouble::a_process_that_ends_behind_an_answer_without_an_end_of_its_line", ends_the_line),
        trial("trouble::a_process_that_ends_or_hangs_in_a_call", ends_in_a_call),
        trial("trouble::what_a_process_has_started_ends_with_it", leaves_nothing_behind),
    ]
}

async fn no_process() {
    let (server, _) = server(McpConfig::stdio("peer", "echo 'no key is set' >&2; exit 4"));
    let error = server.list().await.expect_err("it ends at once");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, false), "{error}");
    assert!(error.message.contains("no key is set"), "{error}");
}

async fn chatty() {
    let config = McpConfig::stdio("peer", "echo 'Welcome to the server!'; cat > /dev/null");
    let (server, _) = server(McpConfig { connect_timeout: Duration::from_secs(4), ..config });
    let error = server.list().await.expect_err("it never answers");
    assert!(!error.uncertain, "{error}");
    assert!(error.message.ends_with("has: Welcome to the server!"), "{error}");
    server.close().await;
}

/// What a process writes is quoted, without its secrets, where it is no message in a line of its own.
async fn unframed() {
    for (script, quoted) in [
        (r#"echo '{'; echo "  \"key\": \"$KEY\""; echo '}'"#, "has: {\n  \"key\": \"[secret]\"\n}"),
        (r#"printf 'Content-Length: 17\r\n\r\n{"jsonrpc":"2.0"}'"#, "has: Content-Length: 17"),
        ("echo \"loading with $KEY\" >&2", "It wrote last: loading with [secret]"),
        ("true", "It wrote nothing"),
    ] {
        let command = format!("{script}; cat > /dev/null");
        let McpTransport::Stdio { command, folder, .. } = McpConfig::stdio("peer", command).transport else {
            panic!("a process")
        };
        let environment = vec![("KEY".to_owned(), template("${secrets.key}"))];
        let config = McpConfig::new("peer", McpTransport::Stdio { command, environment, folder });
        let (server, _) = server(McpConfig { connect_timeout: Duration::from_secs(4), ..config });
        let error = server.list().await.expect_err("it never answers");
        assert_eq!(error.kind, ToolErrorKind::TimedOut, "{error}");
        assert!(error.message.contains("one line of JSON, and flushes it"), "{error}");
        assert!(error.message.contains(quoted) && !error.message.contains("s3cret"), "{script}: {error}");
        server.close().await;
    }
}

/// A server in shell that lists the tool `a`, and does `on_call` when it is called.
fn in_shell(on_call: &str) -> McpConfig {
    let answer = |result: &str| format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" '{result}'"#);
    let script = format!(
        r#"while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
            *'"method":"initialize"'*) {initialized} ;;
            *'"method":"tools/list"'*) {listed} ;;
            *'"method":"tools/call"'*) {on_call} ;;
            *'"method":"server/discover"'*)
                printf '{{"jsonrpc":"2.0","id":%s,"error":{{"code":-32601,"message":"no"}}}}\n' "$id" ;;
            esac
        done"#,
        initialized = answer(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
        ),
        listed = answer(r#"{"tools":[{"name":"a","inputSchema":{}}]}"#),
    );
    McpConfig { connect_timeout: Duration::from_secs(20), ..McpConfig::stdio("peer", script) }
}

/// It is started again, and spoken to in the older way.
async fn ends_at_the_newest() {
    let McpConfig { transport: McpTransport::Stdio { command, .. }, .. } = in_shell("exit 1") else {
        panic!("a process")
    };
    let newest = r#"*'"method":"server/discover"'*)"#;
    let ending = command.replace(newest, &format!("{newest} exit 1 ;; 'nothing else')"));
    assert_ne!(ending, command);
    let (server, _) = server(McpConfig::stdio("peer", ending));
    assert_eq!(server.list().await.expect("a list").len(), 1);
    server.close().await;
}

/// It answers the newest way to begin when the older one has been tried, too.
async fn starts_late() {
    let McpConfig { transport: McpTransport::Stdio { command, .. }, .. } = in_shell("exit 1") else {
        panic!("a process")
    };
    let config = McpConfig::stdio("peer", format!("sleep 11; {command}"));
    let (server, _) = server(McpConfig { connect_timeout: Duration::from_secs(60), ..config });
    assert_eq!(server.list().await.expect("a list").len(), 1);
    server.close().await;
}

async fn halved() {
    let result = r#"{"content":[{"type":"text","text":"\\ud83d\\ude00 \\ud83d"}]}"#;
    let (server, _) = server(in_shell(&format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{result}}}\n' "$id""#)));
    assert_eq!(text(server.call(&call("a", json!({}))).await), "😀 \u{fffd}");
    server.close().await;
}

/// With an error that is null beside the result; in a batch; with what is no number; and nested too deeply, which is told at
/// once.
async fn in_other_forms() {
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let answer = |outcome: &str| format!(r#"{{"jsonrpc":"2.0","id":%s,{outcome}}}"#);
    let done = answer(r#""result":{"content":[{"type":"text","text":"done"}]},"error":null"#);
    let line = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    for (written, told) in [
        (done.clone(), "done"),
        (format!("[{done},{line}]"), "done"),
        (answer(r#""result":{"structuredContent":{"n":NaN}}"#), r#"{"n":null}"#),
        (answer(&format!(r#""result":{{"content":{deep}}}"#)), "nested too deeply"),
    ] {
        let (server, _) = server(in_shell(&format!(r#"printf '{written}\n' "$id""#)));
        let said = text(server.call(&call("a", json!({}))).await);
        assert!(said.contains(told), "{said}");
        server.close().await;
    }
}

/// The call was made, and nobody needs to ask whether it was.
async fn says_too_much() {
    let much = r#"{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}"#;
    let much = format!(r#"printf '{much}\n' "$id" "$(head -c 9000 /dev/zero | tr '\0' x)"; exit 0"#);
    // What is heard first of the answer and the end is chance.
    for _ in 0..6 {
        let (server, _) = server(McpConfig { most_bytes: 4096, ..in_shell(&much) });
        let said = text(server.call(&call("a", json!({}))).await);
        assert!(said.starts_with("The call was made, and the answer is larger than 4096 bytes"), "{said}");
        server.close().await;
    }
}

async fn ends_the_line() {
    let result = r#"{"content":[{"type":"text","text":"done"}]}"#;
    let script = format!(r#"printf '{{"jsonrpc":"2.0","id":%s,"result":{result}}}' "$id"; exit 0"#);
    let (server, _) = server(in_shell(&script));
    assert_eq!(text(server.call(&call("a", json!({}))).await), "done");
    server.close().await;
}

async fn ends_in_a_call() {
    let (server, _) = server(in_shell("echo 'Traceback: no such city' >&2; exit 1"));
    assert_eq!(server.list().await.expect("a list").len(), 1);
    let error = server.call(&call("a", json!({}))).await.expect_err("it ends");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::Transient, true), "{error}");
    assert!(error.message.ends_with("It wrote last: Traceback: no such city"), "{error}");
    let config = McpConfig { timeout: Duration::from_secs(6), ..in_shell("echo 'it takes a while' >&2") };
    let (server, _) = crate::world::server(config);
    assert_eq!(server.list().await.expect("a list").len(), 1);
    let error = server.call(&call("a", json!({}))).await.expect_err("it hangs");
    assert_eq!((error.kind, error.uncertain), (ToolErrorKind::TimedOut, true), "{error}");
    assert!(error.message.ends_with("It wrote last: it takes a while"), "{error}");
    server.close().await;
}

/// What a server has started ends with it, though it heeds neither the end of its input nor a signal.
async fn leaves_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("started");
    let McpConfig { transport: McpTransport::Stdio { command, .. }, .. } = in_shell("exit 1") else {
        panic!("a process")
    };
    let heedless = format!("(trap '' TERM; exec sleep 300) <&- & echo $! > {}; {command}", file.display());
    let is_there = || {
        let process = std::fs::read_to_string(&file).expect("it was started");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    for closes in [true, false] {
        let (server, _) = server(McpConfig::stdio("peer", heedless.clone()));
        assert_eq!(server.list().await.expect("a list").len(), 1);
        assert!(is_there());
        if closes {
            server.close().await;
        } else {
            drop(server);
        }
        crate::world::until("it ends", || async { !is_there() }).await;
    }
}
