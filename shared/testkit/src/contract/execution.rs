//! What every execution backend promises. Workspaces are prepared with writes and commands of the backend itself, and these
//! run on the machine of the tests, which look there for what they leave.

use std::sync::Arc;
use std::time::Duration;

use dormouse_ports::execution::{
    CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, ExecutionError, FileCondition, FileVersion, FileWrite,
    GlobRequest, GrepRequest, Shell, ShellCommand,
};
use futures::future::join_all;

type BackendUnderTest = Arc<dyn ExecutionBackend>;

/// More than any of these files has.
const ENOUGH: u64 = 1 << 20;

async fn run(backend: &BackendUnderTest, command: &str) -> CommandOutcome {
    run_within(backend, command, CommandLimits::default()).await
}

async fn run_within(backend: &BackendUnderTest, command: &str, limits: CommandLimits) -> CommandOutcome {
    let command = ShellCommand { limits, ..ShellCommand::new(command) };
    backend.run(&command).await.expect("the command runs")
}

/// Runs a command that prepares something.
async fn prepared(backend: &BackendUnderTest, command: &str) {
    let outcome = run(backend, command).await;
    assert!(outcome.end.is_success(), "{command}: {outcome:?}");
}

/// Writes files that are not there.
async fn filled(backend: &BackendUnderTest, files: &[(&str, &str)]) {
    for (path, content) in files {
        let written = write(backend, path, content, FileCondition::Absent).await;
        assert!(written.is_ok(), "{path}: {written:?}");
    }
}

fn file(path: &str, bytes: Vec<u8>, condition: FileCondition) -> FileWrite {
    FileWrite { path: path.to_owned(), bytes, condition, definitions: vec!["kept".to_owned()] }
}

async fn write(
    backend: &BackendUnderTest,
    path: &str,
    text: &str,
    condition: FileCondition,
) -> Result<FileVersion, ExecutionError> {
    backend.write(&file(path, text.as_bytes().to_vec(), condition)).await
}

async fn text(backend: &BackendUnderTest, path: &str) -> String {
    let read = backend.read(path, ENOUGH).await.expect("the file is read");
    String::from_utf8(read.bytes).expect("a text")
}

fn glob(pattern: &str) -> GlobRequest {
    GlobRequest { pattern: pattern.to_owned(), folder: String::new(), most: 100 }
}

fn grep(expression: &str) -> GrepRequest {
    GrepRequest { expression: expression.to_owned(), ignore_case: false, path: String::new(), files: None, most: 100 }
}

pub(super) async fn a_file_is_written_and_read_whole(backend: BackendUnderTest) {
    let version = write(&backend, "a/b/c.txt", "one\n", FileCondition::Absent).await.expect("it is written");
    let read = backend.read("a/b/c.txt", ENOUGH).await.expect("it is read");
    assert_eq!((read.bytes.as_slice(), &read.version), (&b"one\n"[..], &version));
    assert_eq!(text(&backend, "./a//b/c.txt").await, "one\n");
    assert!(matches!(backend.read("nothing", ENOUGH).await, Err(ExecutionError::NotFound { .. })));
    assert!(matches!(backend.read("a/b/c.txt/d", ENOUGH).await, Err(ExecutionError::NotFound { .. })));
}

pub(super) async fn a_file_has_any_bytes(backend: BackendUnderTest) {
    let bytes: Vec<u8> = (0..=255).collect();
    let write = file("bytes", bytes.clone(), FileCondition::Absent);
    backend.write(&write).await.expect("it is written");
    assert_eq!(backend.read("bytes", 256).await.expect("it is read").bytes, bytes);
}

/// Of a backend whose files are texts.
pub(super) async fn what_is_no_text_is_not_written(backend: BackendUnderTest) {
    let write = file("bytes", vec![0xff], FileCondition::Absent);
    assert!(matches!(backend.write(&write).await, Err(ExecutionError::InvalidRequest { .. })));
    assert!(matches!(backend.read("bytes", ENOUGH).await, Err(ExecutionError::NotFound { .. })));
}

/// Of a backend without commands.
pub(super) async fn no_command_runs(backend: BackendUnderTest) {
    assert!(!backend.runs_commands());
    let ran = backend.run(&ShellCommand::new("true")).await;
    assert!(matches!(ran, Err(ExecutionError::Denied { .. })), "{ran:?}");
}

pub(super) async fn a_write_holds_to_its_condition(backend: BackendUnderTest) {
    let first = write(&backend, "f", "one", FileCondition::Absent).await.expect("it is written");
    let again = write(&backend, "f", "two", FileCondition::Absent).await;
    assert_eq!(again, Err(ExecutionError::Changed { path: "f".to_owned() }));
    let second = write(&backend, "f", "two", FileCondition::Is(first.clone())).await.expect("it is written");
    assert_ne!(first, second);
    let late = write(&backend, "f", "three", FileCondition::Is(first.clone())).await;
    assert!(matches!(late, Err(ExecutionError::Changed { .. })), "{late:?}");
    let gone = write(&backend, "g", "x", FileCondition::Is(first)).await;
    assert!(matches!(gone, Err(ExecutionError::Changed { .. })), "{gone:?}");
    assert_eq!(text(&backend, "f").await, "two");
    write(&backend, "f", "four", FileCondition::Is(second)).await.expect("it is written");
}

pub(super) async fn rights_stay_and_nothing_is_left_beside(backend: BackendUnderTest) {
    let first = write(&backend, "f", "one", FileCondition::Absent).await.expect("it is written");
    prepared(&backend, "chmod 750 f").await;
    write(&backend, "f", "two", FileCondition::Is(first)).await.expect("it is written");
    assert!(
        run(&backend, "test -x f && ! ls -a | grep -q part$").await.end.is_success(),
        "rights stay, nothing is left beside"
    );
}

pub(super) async fn of_many_writers_one_wins(backend: BackendUnderTest) {
    let first = write(&backend, "f", "0", FileCondition::Absent).await.expect("it is written");
    let texts: Vec<String> = (1..=8).map(|n| n.to_string()).collect();
    let writes = texts.iter().map(|text| write(&backend, "f", text, FileCondition::Is(first.clone())));
    let won: Vec<bool> = join_all(writes).await.into_iter().map(|written| written.is_ok()).collect();
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    let winner = won.iter().position(|won| *won).map(|at| texts[at].clone());
    assert_eq!(Some(text(&backend, "f").await), winner);
}

pub(super) async fn no_path_leaves_the_workspace(backend: BackendUnderTest) {
    filled(&backend, &[("d/f", "x\n")]).await;
    for path in ["/etc/passwd", "../x", "d/../../x", "d\0f"] {
        let read = backend.read(path, ENOUGH).await;
        assert!(matches!(read, Err(ExecutionError::Confined { .. })), "{path}: {read:?}");
        for condition in [FileCondition::Absent, FileCondition::Is(FileVersion("0".to_owned()))] {
            let written = write(&backend, path, "x", condition).await;
            assert!(matches!(written, Err(ExecutionError::Confined { .. })), "{path}: {written:?}");
        }
    }
    for folder in ["/etc", "..", "d/../.."] {
        let found = backend.glob(&GlobRequest { folder: folder.to_owned(), ..glob("*") }).await;
        assert!(matches!(found, Err(ExecutionError::Confined { .. })), "{folder}: {found:?}");
        let found = backend.grep(&GrepRequest { path: folder.to_owned(), ..grep("root") }).await;
        assert!(matches!(found, Err(ExecutionError::Confined { .. })), "{folder}: {found:?}");
    }
}

pub(super) async fn a_folder_is_no_file(backend: BackendUnderTest) {
    filled(&backend, &[("folder/f", "x")]).await;
    for path in ["folder", "."] {
        let read = backend.read(path, ENOUGH).await;
        assert!(matches!(read, Err(ExecutionError::NoFile { .. })), "{path}: {read:?}");
        let written = write(&backend, path, "x", FileCondition::Absent).await;
        assert!(matches!(written, Err(ExecutionError::NoFile { .. })), "{path}: {written:?}");
    }
    let below = write(&backend, "folder/f/g", "x", FileCondition::Absent).await;
    assert!(below.is_err(), "{below:?}");
    assert_eq!(backend.read("folder/f", 1).await.expect("it is read").bytes, b"x");
    assert!(matches!(backend.read("folder/f", 0).await, Err(ExecutionError::TooLarge { size: 1, .. })));
}

pub(super) async fn definitions_are_not_written(backend: BackendUnderTest) {
    for path in [".openharness/agents/b.md", ".openharness/settings.yaml", ".OpenHarness/x", ".openharness/data/x"] {
        let written = write(&backend, path, "x", FileCondition::Absent).await;
        assert!(matches!(written, Err(ExecutionError::Confined { .. })), "{path}: {written:?}");
    }
    filled(&backend, &[(".openharness/memory/MEMORY.md", "key")]).await;
    let read = backend.read(".openharness/data/secret", ENOUGH).await;
    assert!(matches!(read, Err(ExecutionError::Confined { .. })), "{read:?}");
    let found = backend.grep(&grep("key")).await.expect("it is searched");
    let paths: Vec<_> = found.lines.iter().map(|line| line.path.as_str()).collect();
    assert_eq!(paths, [".openharness/memory/MEMORY.md"]);
}

pub(super) async fn nothing_leaves_the_workspace(backend: BackendUnderTest) {
    prepared(&backend, "ln -s /etc etc; ln -s /etc/passwd passwd; ln -s ../.. up; ln -s loop loop; mkdir d; ln -s d inside; echo x > d/f").await;
    for path in ["/etc/passwd", "../x", "d/../../x", "etc/passwd", "passwd", "up/x", "up", "loop", "d\0f"] {
        let read = backend.read(path, ENOUGH).await;
        assert!(matches!(read, Err(ExecutionError::Confined { .. })), "{path}: {read:?}");
        for condition in [FileCondition::Absent, FileCondition::Is(FileVersion("0".to_owned()))] {
            let written = write(&backend, path, "x", condition).await;
            let refused = matches!(written, Err(ExecutionError::Confined { .. } | ExecutionError::Changed { .. }));
            assert!(refused, "{path}: {written:?}");
        }
    }
    let new = write(&backend, "etc/dormouse-was-here", "x", FileCondition::Absent).await;
    assert!(matches!(new, Err(ExecutionError::Confined { .. })), "{new:?}");
    prepared(&backend, "! test -e /etc/dormouse-was-here").await;
    assert_eq!(text(&backend, "inside/f").await, "x\n", "a link that stays inside is followed");
    let found = backend.glob(&glob("**")).await.expect("it is searched");
    assert_eq!(found.paths, ["d/f"], "links are not searched");
    for folder in ["/etc", "..", "etc", "up"] {
        let found = backend.glob(&GlobRequest { folder: folder.to_owned(), ..glob("*") }).await;
        assert!(matches!(found, Err(ExecutionError::Confined { .. })), "{folder}: {found:?}");
        let found = backend.grep(&GrepRequest { path: folder.to_owned(), ..grep("root") }).await;
        assert!(matches!(found, Err(ExecutionError::Confined { .. })), "{folder}: {found:?}");
        let ran = backend.run(&ShellCommand { folder: folder.to_owned(), ..ShellCommand::new("true") }).await;
        assert!(matches!(ran, Err(ExecutionError::Confined { .. })), "{folder}: {ran:?}");
    }
}

pub(super) async fn what_is_no_file_is_not_opened(backend: BackendUnderTest) {
    prepared(&backend, "mkdir folder; mkfifo pipe; ln -s pipe link").await;
    for path in ["folder", "pipe", "link", "."] {
        let read = backend.read(path, ENOUGH).await;
        assert!(matches!(read, Err(ExecutionError::NoFile { .. })), "{path}: {read:?}");
        let written = write(&backend, path, "x", FileCondition::Absent).await;
        assert!(matches!(written, Err(ExecutionError::NoFile { .. })), "{path}: {written:?}");
    }
    let found = backend.grep(&grep("x")).await.expect("it is searched");
    assert!(found.lines.is_empty(), "a pipe is not waited for");
}

pub(super) async fn a_file_that_is_too_large_is_not_read(backend: BackendUnderTest) {
    large_files(&backend, 20 << 20).await;
    assert_eq!(backend.read("ten", 10).await.expect("it is read").bytes, b"0123456789");
    assert!(matches!(backend.read("ten", 9).await, Err(ExecutionError::TooLarge { size: 10, .. })));
    let found = backend.grep(&grep("0")).await.expect("it is searched");
    assert_eq!((found.lines.len(), found.skipped), (1, vec!["huge".to_owned()]));
}

pub(super) async fn a_file_of_a_gigabyte_is_not_read(backend: BackendUnderTest) {
    large_files(&backend, 1 << 30).await;
}

/// Nothing of a file of `size` bytes is read, and the search leaves it out.
async fn large_files(backend: &BackendUnderTest, size: u64) {
    prepared(backend, &format!("truncate -s {size} huge; printf 0123456789 > ten")).await;
    let read = backend.read("huge", ENOUGH).await;
    assert_eq!(read, Err(ExecutionError::TooLarge { path: "huge".to_owned(), size, limit: ENOUGH }));
}

pub(super) async fn what_runs_keep_is_not_seen(backend: BackendUnderTest) {
    prepared(&backend, "mkdir -p .openharness/data .openharness/memory; echo key > .openharness/data/secret; echo key > .openharness/memory/m.md; ln -s .openharness/data/secret s; ln -s .openharness/data d").await;
    for path in [".openharness/data/secret", "s", "d/secret", ".openharness/data"] {
        let read = backend.read(path, ENOUGH).await;
        assert!(matches!(read, Err(ExecutionError::Confined { .. })), "{path}: {read:?}");
    }
    let found = backend.grep(&grep("key")).await.expect("it is searched");
    let paths: Vec<_> = found.lines.iter().map(|line| line.path.as_str()).collect();
    assert_eq!(paths, [".openharness/memory/m.md"]);
    assert_eq!(backend.glob(&glob("**/secret")).await.expect("it is searched").paths, [""; 0]);
}

pub(super) async fn definitions_are_not_changed(backend: BackendUnderTest) {
    prepared(&backend, "mkdir -p .openharness/agents; echo a > .openharness/agents/a.md; ln -s .openharness/agents/a.md alias; ln -s .openharness o").await;
    for path in [".openharness/agents/b.md", ".openharness/settings.yaml", "o/settings.yaml"] {
        let written = write(&backend, path, "x", FileCondition::Absent).await;
        let refused = matches!(written, Err(ExecutionError::Confined { .. } | ExecutionError::Changed { .. }));
        assert!(refused, "{path}: {written:?}");
    }
    let version = backend.read("alias", ENOUGH).await.expect("definitions are read").version;
    let written = write(&backend, "alias", "x", FileCondition::Is(version)).await;
    assert!(matches!(written, Err(ExecutionError::Confined { .. })), "{written:?}");
    write(&backend, ".openharness/memory/MEMORY.md", "x", FileCondition::Absent).await.expect("memory is written");
    prepared(&backend, "! test -e .openharness/settings.yaml && ! test -e .openharness/agents/b.md").await;
}

pub(super) async fn files_are_found_by_pattern(backend: BackendUnderTest) {
    let files = ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt", ".git/e.rs"].map(|path| (path, ""));
    filled(&backend, &files).await;
    let found = async |pattern: &str, folder: &str, most: usize| {
        let request = GlobRequest { pattern: pattern.to_owned(), folder: folder.to_owned(), most };
        backend.glob(&request).await.expect("it is searched")
    };
    assert_eq!(found("**/*.rs", "", 9).await.paths, ["a.rs", "src/b.rs", "src/deep/c.rs"]);
    assert_eq!(found("*.rs", "", 9).await.paths, ["a.rs"]);
    assert_eq!(found("*.{rs,txt}", "src", 9).await.paths, ["src/b.rs", "src/d.txt"]);
    let few = found("**/*.rs", "", 2).await;
    assert_eq!((few.paths.len(), few.cut), (2, true));
    let all = found("**/*.rs", "", 3).await;
    assert_eq!((all.paths.len(), all.cut), (3, false));
    assert!(matches!(backend.glob(&glob("a[")).await, Err(ExecutionError::InvalidRequest { .. })));
    let nowhere = backend.glob(&GlobRequest { folder: "nowhere".to_owned(), ..glob("*") }).await;
    assert!(matches!(nowhere, Err(ExecutionError::NotFound { .. })), "{nowhere:?}");
}

pub(super) async fn lines_are_found_by_expression(backend: BackendUnderTest) {
    let files = [("src/a.txt", "one\nTwo\nthree\n"), ("b.md", "two\r\n"), ("binary", "two\0")];
    filled(&backend, &files).await;
    let found = async |request: GrepRequest| {
        let found = backend.grep(&request).await.expect("it is searched");
        let lines: Vec<_> =
            found.lines.iter().map(|line| format!("{}:{}:{}", line.path, line.line, line.text)).collect();
        (lines, found.cut)
    };
    assert_eq!(found(grep("^t.o$")).await.0, ["b.md:1:two"], "binary files are left out, ends of lines are no text");
    let any_case = GrepRequest { ignore_case: true, ..grep("two") };
    assert_eq!(found(any_case.clone()).await.0, ["b.md:1:two", "src/a.txt:2:Two"]);
    assert_eq!(found(GrepRequest { files: Some("*.txt".to_owned()), ..any_case.clone() }).await.0, ["src/a.txt:2:Two"]);
    assert_eq!(found(GrepRequest { path: "src".to_owned(), ..grep("e$") }).await.0.len(), 2);
    assert_eq!(found(GrepRequest { path: "src/a.txt".to_owned(), ..grep("one") }).await.0, ["src/a.txt:1:one"]);
    assert!(found(GrepRequest { most: 1, ..any_case }).await.1, "there is more");
    assert!(matches!(backend.grep(&grep("(")).await, Err(ExecutionError::InvalidRequest { .. })));
    let many = backend.grep(&grep("((a{100}){100}){100}")).await;
    assert!(matches!(many, Err(ExecutionError::InvalidRequest { .. })), "{many:?}");
}

pub(super) async fn a_command_says_what_came_of_it(backend: BackendUnderTest) {
    let outcome = run(&backend, "echo out; echo err >&2; exit 3").await;
    assert_eq!(outcome.end, CommandEnd::Exited { status: 3 });
    assert_eq!((outcome.stdout.text.as_str(), outcome.stderr.text.as_str()), ("out\n", "err\n"));
    prepared(&backend, "mkdir d").await;
    let inside = ShellCommand {
        folder: "d".to_owned(),
        input: b"hello".to_vec(),
        ..ShellCommand::new("cat > f; cat f; cat f | wc -c")
    };
    let outcome = backend.run(&inside).await.expect("it runs");
    assert!(outcome.stdout.text.starts_with("hello") && outcome.stdout.text.trim_end().ends_with('5'), "{outcome:?}");
    assert_eq!(text(&backend, "d/f").await, "hello");
    let ignored = ShellCommand { input: vec![b'x'; 1 << 20], ..ShellCommand::new("true") };
    assert!(backend.run(&ignored).await.expect("it runs").end.is_success(), "input that is not read is no error");
    let killed = run(&backend, "kill -9 $$").await;
    assert_eq!(killed.end, CommandEnd::Signalled { signal: 9 });
    let bytes = run(&backend, "printf 'a\\377b'").await;
    assert_eq!((bytes.stdout.text.as_str(), bytes.stdout.bytes), ("a\u{fffd}b", 3));
}

pub(super) async fn a_command_has_an_environment_of_its_own(backend: BackendUnderTest) {
    let mut command = ShellCommand::new("env | cut -d= -f1 | sort");
    command.environment = vec![("GIVEN".to_owned(), "value".into())];
    let outcome = backend.run(&command).await.expect("it runs");
    let known = ["DORMOUSE_COMMAND", "GIVEN", "HOME", "LANG", "OLDPWD", "PATH", "PWD", "SHLVL", "TMPDIR", "_"];
    let roots = ["DORMOUSE_WORKSPACE_ROOT", "OPENHARNESS_WORKSPACE_ROOT"];
    let is_known = |name: &&str| known.contains(name) || roots.contains(name);
    let others: Vec<&str> = outcome.stdout.text.lines().filter(|name| !is_known(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(outcome.stdout.text.contains("GIVEN"));
    assert!(!format!("{command:?}").contains("value"), "values are not shown");
}

pub(super) async fn a_command_is_read_by_the_shell_that_it_is_for(backend: BackendUnderTest) {
    let named = run(&backend, "echo \"${0##*/}\"").await;
    assert_eq!(named.stdout.text, "sh\n", "without a word it is /bin/sh");
    let line = "set -o pipefail; [[ abc == a* ]] && diff <(echo {1..3}) <(echo 1 2 3) && echo \"${0##*/}\"";
    let command = ShellCommand { shell: Shell::Bash, ..ShellCommand::new(line) };
    let outcome = backend.run(&command).await.expect("it runs");
    match backend.shell() {
        Shell::Bash => {
            assert_eq!((outcome.end.is_success(), outcome.stdout.text.as_str()), (true, "bash\n"), "{outcome:?}");
        }
        Shell::Sh => assert!(outcome.stdout.text != "bash\n", "it says that it has none"),
    }
}

pub(super) async fn output_without_end_is_ended(backend: BackendUnderTest) {
    let limits = CommandLimits { kept_output: 1000, most_output: 1 << 20, ..CommandLimits::default() };
    let outcome = run_within(&backend, "yes", limits).await;
    assert_eq!(outcome.end, CommandEnd::TooMuchOutput);
    assert!(outcome.stdout.text.len() < 1100 && outcome.stdout.bytes > 1 << 20, "{}", outcome.stdout.bytes);
    let many = run_within(&backend, "seq 1 10000; echo end >&2", limits).await;
    assert!(many.stdout.text.starts_with("1\n2\n") && many.stdout.text.ends_with("\n10000\n"), "{}", many.stdout.text);
    assert_eq!((many.end, many.stderr.text.as_str()), (CommandEnd::Exited { status: 0 }, "end\n"));
}

pub(super) async fn a_command_that_ignores_signals_is_ended(backend: BackendUnderTest) {
    let limits = CommandLimits { time: Duration::from_secs(3), ..CommandLimits::default() };
    let nap = nap(4710);
    let stubborn = format!("trap '' TERM INT HUP; echo begun; (trap '' TERM; sleep {nap}) & while :; do sleep 1; done");
    let outcome = run_within(&backend, &stubborn, limits).await;
    assert_eq!((outcome.end, outcome.stdout.text.as_str()), (CommandEnd::TimedOut, "begun\n"));
    ends(&nap).await;
    let polite = "trap 'echo cleaned > cleaned; exit' TERM; while :; do sleep 0.05; done";
    // Half a second is left to it, which may go by on a busy machine before it is its turn.
    for _ in 0..5 {
        let outcome = run_within(&backend, polite, limits).await;
        assert_eq!(outcome.end, CommandEnd::TimedOut);
        let cleaned = backend.read("cleaned", ENOUGH).await;
        if cleaned.is_ok_and(|cleaned| cleaned.bytes == b"cleaned\n") {
            return;
        }
    }
    panic!("whoever heeds the signal may clean up");
}

/// For how long the command `number` sleeps: no other run of the tests on this machine has one of these.
fn nap(number: u32) -> String {
    format!("{number}.{}", std::process::id())
}

/// Processes of this machine whose command line tells of that `nap`. The backend is not asked: its commands may see no
/// processes but their own, and would find nothing whatever there is.
fn alive(nap: &str) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(nap)).count()
}

/// Waits until no process tells of that `nap` any more, which would last for more than an hour by itself.
async fn ends(nap: &str) {
    for _ in 0..1200 {
        if alive(nap) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("sleep {nap} runs on");
}

pub(super) async fn nothing_of_a_command_is_left(backend: BackendUnderTest) {
    let naps = [4711, 4712, 4713, 4714].map(nap);
    let [one, other, inner, last] = &naps;
    let command =
        format!("sleep {one} & setsid sleep {other} & (setsid sh -c 'sleep {inner} & sleep {last}' &) ; echo done");
    let outcome = run(&backend, &command).await;
    assert_eq!((outcome.end, outcome.stdout.text.as_str()), (CommandEnd::Exited { status: 0 }, "done\n"));
    for nap in &naps {
        ends(nap).await;
    }
}

pub(super) async fn a_dropped_command_is_ended(backend: BackendUnderTest) {
    let naps = [4715, 4716].map(nap);
    let command = ShellCommand::new(format!("echo $$ > id; sleep {} & sleep {}", naps[0], naps[1]));
    let can_look = std::path::Path::new("/proc/self/cmdline").exists();
    let waits = async {
        while backend.read("id", ENOUGH).await.map_or(true, |read| read.bytes.is_empty())
            || (can_look && naps.iter().any(|nap| alive(nap) == 0))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        outcome = backend.run(&command) => panic!("it runs on: {outcome:?}"),
        () = waits => {}
    }
    for nap in &naps {
        ends(nap).await;
    }
}

pub(super) async fn a_fork_bomb_is_ended(backend: BackendUnderTest) {
    // A command runs behind everything else on a busy machine.
    let limits = CommandLimits { processes: 40, time: Duration::from_secs(100), ..CommandLimits::default() };
    let naps = [4717, 4718].map(nap);
    let bomb = format!("bomb() {{ sleep {} & sleep 0.01; bomb | bomb & }}; bomb; sleep 90", naps[0]);
    let outcome = run_within(&backend, &bomb, limits).await;
    assert_eq!(outcome.end, CommandEnd::TooManyProcesses, "{outcome:?}");
    ends(&naps[0]).await;
    // As fast as it can, and no more than that many: it cannot start them, or is ended.
    let fast = format!("i=0; while [ $i -lt 200 ]; do sleep {} & i=$((i+1)); done; wait", naps[1]);
    let outcome = run_within(&backend, &fast, limits).await;
    assert!(!outcome.end.is_success() && outcome.end != CommandEnd::TimedOut, "{outcome:?}");
    ends(&naps[1]).await;
}

pub(super) async fn memory_without_end_is_ended(backend: BackendUnderTest) {
    let limits = CommandLimits { memory: 64 << 20, time: Duration::from_secs(100), ..CommandLimits::default() };
    let outcome = run_within(&backend, "head -c 1G /dev/zero | tr '\\0' x | sort > /dev/null || exit 9; x=$(head -c 200M /dev/zero | tr '\\0' x); echo ${#x}", limits).await;
    assert!(!outcome.end.is_success(), "{outcome:?}");
    assert_ne!(outcome.end, CommandEnd::TimedOut);
}

pub(super) async fn a_command_that_makes_no_sense_is_refused(backend: BackendUnderTest) {
    let invalid = |ran: Result<CommandOutcome, ExecutionError>| {
        assert!(matches!(ran, Err(ExecutionError::InvalidRequest { .. })), "{ran:?}");
    };
    invalid(backend.run(&ShellCommand::new("a\0b")).await);
    for name in ["", "A=B", "LD_PRELOAD", "a b"] {
        let environment = vec![(name.to_owned(), "x".into())];
        invalid(backend.run(&ShellCommand { environment, ..ShellCommand::new("true") }).await);
    }
    invalid(backend.run(&ShellCommand::new("x".repeat(4 << 20))).await);
    let nowhere = backend.run(&ShellCommand { folder: "nowhere".to_owned(), ..ShellCommand::new("true") }).await;
    assert!(matches!(nowhere, Err(ExecutionError::NotFound { .. })), "{nowhere:?}");
    assert!(!run(&backend, "no-such-program").await.end.is_success());
}
