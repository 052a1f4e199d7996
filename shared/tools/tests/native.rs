//! The native tools over a folder, as a session calls them one after the other.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use dormouse_json::Schema;
use dormouse_ports::tool::{
    Effect, NotedEffects, TIME_TO_TELL, ToolCall, ToolContent, ToolError, ToolErrorKind, ToolOutput, ToolReply,
    ToolSource,
};
use dormouse_ports::{FetchError, Map};
use dormouse_testkit::{ManualClock, ScriptedAnswer, ScriptedFetch};
use dormouse_tools::{LocalBackend, NativeTools};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A session: its notes go from call to call.
struct Session {
    folder: TempDir,
    tools: NativeTools,
    notes: Map,
    clock: Arc<ManualClock>,
    /// What its last call did outside.
    effects: NotedEffects,
}

impl Session {
    fn new() -> Self {
        Self::browsing(ScriptedFetch::default())
    }

    fn browsing(web: ScriptedFetch) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = Arc::new(LocalBackend::open(folder.path()).expect("it opens"));
        let clock = Arc::new(ManualClock::default());
        let tools = NativeTools::new(backend, Arc::new(web), clock.clone());
        Self { folder, tools, notes: Map::new(), clock, effects: NotedEffects::default() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        if let Some(folder) = Path::new(name).parent() {
            fs::create_dir_all(self.path(&folder.to_string_lossy())).expect("folders");
        }
        fs::write(self.path(name), content).expect("a file");
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a text")
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Result<(String, bool), ToolError> {
        let mut call = ToolCall::new("1", tool, arguments.as_object().cloned().expect("an object"));
        call.notes = self.notes.clone();
        let reply = self.tools.call(&call).await;
        self.effects = call.effects.noted();
        let ToolReply::Done(output) = reply? else { panic!("it is done") };
        for (name, value) in &output.notes {
            let noted = self.notes.entry(name.clone()).or_insert_with(|| json!({}));
            match (noted.as_object_mut(), value.as_object()) {
                (Some(noted), Some(value)) => noted.extend(value.clone()),
                (_, _) => *noted = value.clone(),
            }
        }
        let [ToolContent::Text { text }] = output.content.as_slice() else { panic!("one text") };
        Ok((text.clone(), output.is_error))
    }

    async fn done(&mut self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments).await.expect("the call is made");
        assert!(!is_error, "{text}");
        text
    }

    async fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let error = self.call(tool, arguments).await.expect_err("it is refused");
        assert_eq!(error.kind, ToolErrorKind::InvalidArguments, "{error}");
        assert!(!error.uncertain, "{error}");
        error.message
    }
}

#[tokio::test]
async fn tools_say_what_they_are() {
    let session = Session::new();
    let specs = session.tools.list().await.expect("a list");
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, dormouse_ports::tool::NATIVE_TOOLS);
    let manual: Vec<&str> =
        specs.iter().filter(|spec| spec.effect == Effect::Manual).map(|spec| spec.name.as_str()).collect();
    assert_eq!(manual, ["Bash", "Write", "Edit"]);
    for spec in specs {
        Schema::new(&Value::Object(spec.input_schema.clone())).expect("a schema");
    }
}

#[tokio::test]
async fn a_file_is_read_with_numbers_and_in_parts() {
    let mut session = Session::new();
    session.put("a.txt", "one\ntwo\nthree\n");
    assert_eq!(
        session.done("Read", json!({ "file_path": "a.txt" })).await,
        "     1\tone\n     2\ttwo\n     3\tthree\n"
    );
    let part = session.done("Read", json!({ "file_path": "./a.txt", "offset": 2, "limit": 1 })).await;
    assert_eq!(part, "     2\ttwo\n[1 more lines: read on with offset 3]\n");
    let behind = session.refused("Read", json!({ "file_path": "a.txt", "offset": 9 })).await;
    assert!(behind.contains("has 3 lines"), "{behind}");
    session.put("empty", "");
    assert_eq!(session.done("Read", json!({ "file_path": "empty" })).await, "`empty` is empty");
    session.put("long", "x".repeat(5000));
    assert!(session.done("Read", json!({ "file_path": "long" })).await.ends_with(" [cut]\n"));
    let many: String = (1..=3000).map(|n| format!("{n}\n")).collect();
    session.put("many", many);
    assert!(
        session
            .done("Read", json!({ "file_path": "many" }))
            .await
            .ends_with("[1000 more lines: read on with offset 2001]\n")
    );
}

#[tokio::test]
async fn a_file_with_more_in_its_lines_than_a_model_is_told_is_read_on_where_it_ended() {
    let mut session = Session::new();
    session.put("wide", format!("{}\n", "x".repeat(1_990)).repeat(100));
    let mut next = 1;
    while next <= 100 {
        let shown = session.done("Read", json!({ "file_path": "wide", "offset": next })).await;
        assert!(shown.len() <= 32 << 10 && shown.starts_with(&format!("{next:>6}\tx")), "{}", shown.len());
        let behind = shown.rsplit_once("read on with offset ").map(|(_, offset)| offset.trim_end_matches("]\n"));
        next = behind.map_or(101, |offset| offset.parse().expect("a number"));
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_what_to_do() {
    let mut session = Session::new();
    session.put("binary", [0x89, b'P', b'N', b'G', 0]);
    session.put("zero", "a\0b");
    fs::File::create(session.path("huge")).expect("a file").set_len(1 << 30).expect("it grows");
    fs::create_dir(session.path("folder")).expect("a folder");
    symlink("/etc/passwd", session.path("link")).expect("a link");
    for (path, expected) in [
        ("binary", "is no text: 5 bytes"),
        ("zero", "is no text"),
        ("huge", "1073741824 bytes, and files up to 8388608 can be read and searched"),
        ("folder", "is no file but a folder"),
        ("nothing", "there is no `nothing`"),
        ("link", "leads out of the workspace"),
        ("/etc/passwd", "outside of the workspace"),
        ("a/../../b", "contains `..`"),
        ("/dev/zero", "outside of the workspace"),
    ] {
        let message = session.refused("Read", json!({ "file_path": path })).await;
        assert!(message.contains(expected), "{path}: {message}");
    }
}

#[tokio::test]
async fn a_file_is_written_over_only_as_it_was_read() {
    let mut session = Session::new();
    let told = session.done("Write", json!({ "file_path": "src/new.txt", "content": "one\n" })).await;
    assert_eq!(told, "`src/new.txt` is written: 1 line");
    assert_eq!(session.text("src/new.txt"), "one\n");
    let told = session.done("Write", json!({ "file_path": "src/new.txt", "content": "two\nthree\n" })).await;
    assert_eq!(told, "`src/new.txt` is written over: 2 lines");
    session.put("old.txt", "old");
    let unread = session.refused("Write", json!({ "file_path": "old.txt", "content": "x" })).await;
    assert!(unread.contains("read it before"), "{unread}");
    fs::File::create(session.path("disk")).expect("a file").set_len(1 << 36).expect("it grows");
    let unread = session.refused("Write", json!({ "file_path": "disk", "content": "x" })).await;
    assert!(unread.contains("read it before"), "nobody has to read 64 GiB for that: {unread}");
    session.done("Read", json!({ "file_path": "old.txt" })).await;
    session.put("old.txt", "changed by somebody else");
    let changed = session.refused("Write", json!({ "file_path": "old.txt", "content": "x" })).await;
    assert!(changed.contains("read it again"), "{changed}");
    assert_eq!(session.text("old.txt"), "changed by somebody else", "nothing is lost");
    session.done("Read", json!({ "file_path": "old.txt" })).await;
    session.done("Write", json!({ "file_path": "old.txt", "content": "x" })).await;
    assert_eq!(session.text("old.txt"), "x");
    fs::remove_file(session.path("old.txt")).expect("it goes");
    session.refused("Write", json!({ "file_path": "old.txt", "content": "y" })).await;
    let gone = session.call("Read", json!({ "file_path": "old.txt" })).await.expect("an answer");
    assert!(gone.1 && gone.0.contains("no file `old.txt` any more"), "{gone:?}");
    session.refused("Read", json!({ "file_path": "old.txt" })).await;
    session.done("Write", json!({ "file_path": "old.txt", "content": "y" })).await;
    assert_eq!(session.text("old.txt"), "y", "what is gone and known to be is written anew");
    let own = session
        .refused("Write", json!({ "file_path": ".openharness/settings.yaml", "content": "kind: project" }))
        .await;
    assert!(own.contains("changed by people"), "{own}");
}

#[tokio::test]
async fn skills_in_a_folder_that_the_settings_name_and_the_instructions_are_changed_by_people() {
    let mut session = Session::new();
    session.tools = session.tools.keeping(&["docs/skills".to_owned()]);
    session.put("docs/skills/z/SKILL.md", "theirs");
    session.put("AGENTS.md", "theirs");
    session.put("docs/free.md", "mine");
    std::os::unix::fs::symlink("skills/z", session.path("docs/link")).expect("a link");
    for path in ["docs/skills/z/SKILL.md", "./docs//skills/z/SKILL.md", "docs/link/SKILL.md", "AGENTS.md"] {
        session.done("Read", json!({ "file_path": path })).await;
        let written = session.refused("Write", json!({ "file_path": path, "content": "mine" })).await;
        let edit = json!({ "file_path": path, "old_string": "theirs", "new_string": "mine" });
        let edited = session.refused("Edit", edit).await;
        assert!(written.contains("changed by people") && edited.contains("changed by people"), "{written} {edited}");
    }
    session.refused("Write", json!({ "file_path": "docs/skills/new/SKILL.md", "content": "mine" })).await;
    assert_eq!([session.text("docs/skills/z/SKILL.md"), session.text("AGENTS.md")], ["theirs", "theirs"]);
    session.done("Read", json!({ "file_path": "docs/free.md" })).await;
    session.done("Write", json!({ "file_path": "docs/free.md", "content": "changed" })).await;
}

#[tokio::test]
async fn an_edit_that_would_make_a_file_too_large_is_refused_before_it_is_made() {
    let mut session = Session::new();
    session.put("a.txt", "a".repeat(4 << 20));
    session.done("Read", json!({ "file_path": "a.txt" })).await;
    let edit = |new: String| json!({ "file_path": "a.txt", "old_string": "a", "new_string": new, "replace_all": true });
    let refused = session.refused("Edit", edit("b".repeat(100_000))).await;
    assert!(refused.contains("would have 419430400000 bytes, and may have 8388608"), "{refused}");
    session.refused("Edit", edit("bbb".to_owned())).await;
    session.done("Edit", edit("bb".to_owned())).await;
    assert_eq!(session.text("a.txt").len(), 8 << 20);
}

#[tokio::test]
async fn a_list_of_things_to_do_that_a_session_cannot_keep_is_refused() {
    let mut session = Session::new();
    let list = |entries: usize| {
        let entry = json!({ "content": "話".repeat(300), "status": "pending" });
        json!({ "todos": vec![entry; entries] })
    };
    session.done("TodoWrite", list(20)).await;
    let before = session.notes.clone();
    let refused = session.refused("TodoWrite", list(60)).await;
    assert!(refused.contains("stays as it was"), "{refused}");
    assert_eq!(session.notes, before);
}

#[tokio::test]
async fn patterns_and_expressions_that_cost_too_much_are_refused() {
    let mut session = Session::new();
    session.put("a.txt", "aaa\n");
    for braces in [1000, 100_000] {
        let nested = format!("{}a{}", "{".repeat(braces), "}".repeat(braces));
        session.refused("Glob", json!({ "pattern": nested })).await;
        session.refused("Grep", json!({ "pattern": "a", "glob": nested })).await;
    }
    session.refused("Grep", json!({ "pattern": "((a{100}){100}){100}" })).await;
    session.refused("Grep", json!({ "pattern": "a|".repeat(10_000) })).await;
    assert_eq!(session.done("Glob", json!({ "pattern": "{{a,b},c}.txt" })).await, "a.txt");
}

#[tokio::test]
async fn an_edit_replaces_exactly_what_is_meant() {
    let mut session = Session::new();
    session.put("a.rs", "let a = 1;\nlet b = 1;\n");
    let edit = |old: &str, new: &str| json!({ "file_path": "a.rs", "old_string": old, "new_string": new });
    let unread = session.refused("Edit", edit("a", "b")).await;
    assert!(unread.contains("was not read"), "{unread}");
    session.done("Read", json!({ "file_path": "a.rs" })).await;
    let twice = session.refused("Edit", edit("= 1;", "= 2;")).await;
    assert!(twice.contains("2 times, in lines 1, 2"), "{twice}");
    session.put("a.rs", "aaa\n");
    session.done("Read", json!({ "file_path": "a.rs" })).await;
    let overlapping = session.refused("Edit", edit("aa", "b")).await;
    assert!(overlapping.contains("overlap"), "{overlapping}");
    session.put("a.rs", "let a = 1;\nlet b = 1;\n");
    session.done("Read", json!({ "file_path": "a.rs" })).await;
    let blanks = session.refused("Edit", edit("let  a = 1;", "x")).await;
    assert!(blanks.contains("other blanks"), "{blanks}");
    session.refused("Edit", edit("nothing like it", "x")).await;
    session.refused("Edit", edit("a", "a")).await;
    session.done("Edit", edit("a = 1", "a = 2")).await;
    session.done("Edit", edit("b = 1", "b = $1")).await;
    assert_eq!(session.text("a.rs"), "let a = 2;\nlet b = $1;\n", "one edit after the other, and nothing is expanded");
    let mut all = edit("let", "var");
    all["replace_all"] = json!(true);
    assert_eq!(session.done("Edit", all).await, "`a.rs` is changed in 2 places");
    session.put("a.rs", "somebody else was here: var a");
    let changed = session.refused("Edit", edit("var a", "x")).await;
    assert!(changed.contains("read it again"), "{changed}");
    session.put("a.rs", "one\r\ntwo\r\n");
    session.done("Read", json!({ "file_path": "a.rs" })).await;
    let ends = session.refused("Edit", edit("one\ntwo", "x")).await;
    assert!(ends.contains("carriage return"), "{ends}");
}

#[tokio::test]
async fn files_and_lines_are_found() {
    let mut session = Session::new();
    session.put("src/a.rs", "fn one() {}\nfn two() {}\n");
    session.put("b.md", "fn three\n");
    assert_eq!(session.done("Glob", json!({ "pattern": "**/*.rs" })).await, "src/a.rs");
    assert_eq!(session.done("Glob", json!({ "pattern": "*.zip" })).await, "no file matches");
    assert_eq!(session.done("Grep", json!({ "pattern": "fn t", "glob": "*.rs" })).await, "src/a.rs:2:fn two() {}");
    let files = session.done("Grep", json!({ "pattern": "^FN", "ignore_case": true, "output_mode": "files" })).await;
    assert_eq!(files, "b.md\nsrc/a.rs");
    assert!(session.refused("Grep", json!({ "pattern": "(" })).await.contains("no regular expression"));
    session.refused("Glob", json!({ "pattern": "*", "path": "../" })).await;
    for n in 0..120 {
        session.put(&format!("many/{n}"), "");
    }
    assert!(
        session.done("Glob", json!({ "pattern": "many/*" })).await.ends_with("[there are more: narrow the pattern]")
    );
}

#[tokio::test]
async fn a_model_is_promised_the_shell_of_every_machine_and_has_bash_where_there_is_one() {
    let mut session = Session::new();
    let specs = session.tools.list().await.expect("tools");
    let bash = specs.iter().find(|spec| spec.name == "Bash").expect("a tool");
    let argument = bash.input_schema["properties"]["command"]["description"].as_str().unwrap_or_default().to_owned();
    assert_eq!(argument, "A command line for /bin/sh");
    let has_bash = ["/usr/bin/bash", "/bin/bash"].iter().any(|path| Path::new(path).exists());
    if has_bash {
        let line = "set -o pipefail; false | true || [[ ok == o? ]] && echo {1..3}";
        assert_eq!(session.done("Bash", json!({ "command": line })).await, "1 2 3");
    }
}

#[tokio::test]
async fn a_command_ends_in_time_to_tell_of_it() {
    let mut session = Session::new();
    assert_eq!(session.done("Bash", json!({ "command": "echo out; echo err >&2" })).await, "out\n[stderr]\nerr");
    let (failed, is_error) = session.call("Bash", json!({ "command": "echo no; exit 3" })).await.expect("it runs");
    assert_eq!((failed.as_str(), is_error), ("the command ended with status 3\nno", true));
    let (timed, _) = session
        .call("Bash", json!({ "command": "echo begun; sleep 60", "timeout_seconds": 5 }))
        .await
        .expect("it runs");
    assert_eq!(timed, "the command was ended after 5 seconds\nbegun");
    use dormouse_ports::Clock;
    let mut call = ToolCall::new("1", "Bash", Map::from_iter([("command".to_owned(), json!("sleep 60"))]));
    call.deadline = Some(session.clock.now() + std::time::Duration::from_secs(1));
    let ToolReply::Done(output) = session.tools.call(&call).await.expect("it runs") else { panic!("it is done") };
    assert!(output.is_error, "it ends before nobody waits any more: {output:?}");
    call.deadline = Some(session.clock.now() + TIME_TO_TELL + std::time::Duration::from_millis(20));
    let ToolReply::Done(output) = session.tools.call(&call).await.expect("it runs") else { panic!("it is done") };
    assert_eq!(output, ToolOutput::error("the command was ended after 1 second"), "half of the time is the command's");
    call.deadline = Some(session.clock.now());
    assert!(session.tools.call(&call).await.is_err(), "there is no time left");
}

#[tokio::test]
async fn a_list_of_things_to_do_stays_in_the_session() {
    let mut session = Session::new();
    let todos = json!([{ "content": "look", "status": "completed" }, { "content": "act", "status": "in_progress" }]);
    assert_eq!(session.done("TodoWrite", json!({ "todos": todos })).await, "[x] look\n[~] act");
    assert_eq!(session.notes["todos"], todos);
    assert_eq!(session.done("TodoWrite", json!({ "todos": [] })).await, "the list is empty");
}

#[tokio::test]
async fn a_page_is_fetched_as_text() {
    let web = ScriptedFetch::default();
    let html = "<html><script>alert(1)</script><h1>Title</h1><p>Some <b>text</b>.</p></html>";
    web.answer(ScriptedAnswer::pieces(302, [""]).header("location", "/page?key=1"))
        .answer(ScriptedAnswer::pieces(200, [html]).header("content-type", "text/html"))
        .answer(ScriptedAnswer::pieces(200, ["x"]).header("content-type", "image/png"));
    let mut session = Session::browsing(web.clone());
    let page = session.done("WebFetch", json!({ "url": "https://a.example/" })).await;
    assert_eq!(page, "https://a.example/page\n\n# Title\n\nSome **text**.");
    assert_eq!(web.requests()[1].url, "https://a.example/page?key=1");
    let image = session.call("WebFetch", json!({ "url": "https://a.example/image" })).await.expect("an answer");
    assert!(image.1 && image.0.contains("is no text"), "{image:?}");
    let (west, said) =
        (b"<p>caf\xe9 \x96 5 \x80</p>".to_vec(), b"<meta charset=\"ISO-8859-1\"><p>caf\xe9</p>".to_vec());
    web.answer(ScriptedAnswer::pieces(200, [west]).header("content-type", "text/html; charset=windows-1252"))
        .answer(ScriptedAnswer::pieces(200, [said]).header("content-type", "text/html"));
    for expected in ["café – 5 €", "café"] {
        let page = session.done("WebFetch", json!({ "url": "https://a.example/alt" })).await;
        assert_eq!(page, format!("https://a.example/alt\n\n{expected}"));
    }
    for _ in 0..6 {
        web.answer(ScriptedAnswer::pieces(301, [""]).header("location", "/circle"));
    }
    let circle = session.call("WebFetch", json!({ "url": "https://a.example/circle" })).await.expect_err("no end");
    assert!(circle.message.contains("leads on more than"), "{circle}");
}

/// SHA-256 of `a`, `b` and `c`.
const HASHES: [&str; 3] = [
    "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
    "sha256:3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
    "sha256:2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6",
];

#[tokio::test]
async fn what_was_written_and_asked_is_noted_and_nothing_that_was_not() {
    let web = ScriptedFetch::default();
    web.answer(ScriptedAnswer::pieces(302, [""]).header("location", "https://b.example/x?key=hush"));
    web.fail(FetchError::Connect("it is down".to_owned()));
    let mut session = Session::browsing(web);
    session.done("Write", json!({ "file_path": "./notes//a", "content": "a" })).await;
    let noted = |session: &Session| serde_json::to_value(&session.effects).expect("JSON");
    let created = json!({ "path": "notes/a", "operation": "create", "after_sha256": HASHES[0] });
    assert_eq!(noted(&session), json!({ "files": [created] }));
    session.done("Edit", json!({ "file_path": "notes/a", "old_string": "a", "new_string": "b" })).await;
    let edited =
        json!({ "path": "notes/a", "operation": "modify", "before_sha256": HASHES[0], "after_sha256": HASHES[1] });
    assert_eq!(noted(&session), json!({ "files": [edited] }));
    session.done("Write", json!({ "file_path": "notes/a", "content": "c" })).await;
    let over =
        json!({ "path": "notes/a", "operation": "modify", "before_sha256": HASHES[1], "after_sha256": HASHES[2] });
    assert_eq!(noted(&session), json!({ "files": [over] }));
    session.put("notes/a", "by another");
    session.refused("Write", json!({ "file_path": "notes/a", "content": "d" })).await;
    assert_eq!(noted(&session), json!({}), "it was not written");
    session.call("WebFetch", json!({ "url": "https://ada:hush@A.example:8443/?q=hush" })).await.expect_err("down");
    assert_eq!(noted(&session), json!({ "hosts": ["a.example:8443", "b.example"] }), "also that it was led to");
}
