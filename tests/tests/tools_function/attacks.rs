//! The binary of the function, attacked by the commands that it runs.

use std::path::Path;
use std::time::Duration;

use dormouse_ports::execution::{
    CommandEnd, CommandLimits, CommandOutcome, ExecutionBackend, ExecutionError, FileCondition, FileWrite, GlobRequest,
    ShellCommand,
};
use dormouse_tests::lambda::{self, Lambda, RuntimeApi, function_binary};
use libtest_mimic::Trial;

use crate::runtime;
use crate::world::{HUSH, Objects, World};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("function::nothing_of_the_process_can_be_had_from_inside", || {
        runtime().block_on(from_inside());
        Ok(())
    })]
}

/// The function as Lambda starts it, with secrets all over its environment; its copies are below `folder`.
async fn world(folder: &Path) -> World {
    lambda::build_functions().await;
    let objects = Objects::new();
    let address = objects.serve().await;
    let api = RuntimeApi::start(Duration::from_secs(60)).await;
    let mut command = api.function(&function_binary("dormouse-tools"), &address);
    command.env("AWS_SECRET_ACCESS_KEY", HUSH).env("AWS_SESSION_TOKEN", HUSH).env("DORMOUSE_CALLBACK_SECRET", HUSH);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "1024");
    command.env("TMPDIR", folder);
    World::with_binary(objects, address, Lambda::spawn(api, command))
}

async fn run(backend: &impl ExecutionBackend, command: &str) -> CommandOutcome {
    backend.run(&ShellCommand::new(command)).await.expect("it runs")
}

async fn from_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = world(folder.path()).await;
    let desk = world.backend("desk");
    // Its own environment, and that of the process that started it.
    let looked =
        "env; cat /proc/$PPID/environ /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a -e AWS_ -e DORMOUSE_";
    let said = run(&desk, looked).await;
    for secret in [HUSH, "AWS_SECRET", "AWS_SESSION", "AWS_ACCESS", "DORMOUSE_TABLE", "DORMOUSE_CALLBACK"] {
        let mine = said.stdout.text.lines().find(|line| line.contains(secret));
        assert_eq!(mine, None, "{secret}");
    }
    // Addresses of objects are nowhere: not in its environment, its arguments, its files.
    let looked =
        "cat /proc/$PPID/cmdline /proc/self/environ | tr '\\0' '\\n'; grep -r X-Am[z] . .. 2>/dev/null; ls -A ..";
    let said = run(&desk, looked).await.stdout.text;
    assert!(!said.contains("X-Amz") && !said.contains("http://"), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("copy-")).count(), 1, "{said}");
    // The definitions of the bundle are there, and what is done to them is not kept.
    let ran = run(&desk, "sh .openharness/actions/hi/run.sh; echo changed > AGENTS.md; echo echo no > .openharness/actions/hi/run.sh; echo kept > kept").await;
    assert_eq!(ran.stdout.text, "hi\n");
    assert_eq!(
        run(&desk, "cat AGENTS.md kept; sh .openharness/actions/hi/run.sh").await.stdout.text,
        "# Ruleskept\nhi\n"
    );
    // Another workspace has nothing of it.
    let other = world.backend("other");
    let all = GlobRequest { pattern: "**".to_owned(), folder: String::new(), most: 100 };
    assert_eq!(other.glob(&all).await.expect("found").paths, [".openharness/actions/hi/run.sh", "AGENTS.md"]);
    out_of_the_folder(&desk).await;
    without_end(&desk).await;
    what_runs_away(&desk).await;
    let written: Vec<_> = world.objects.paths().into_iter().filter(|path| path.contains("/files/")).collect();
    assert_eq!(written, ["/bucket/workspaces/desk/files/current"], "nobody wrote for another workspace");
}

/// Links, and paths that lead out.
async fn out_of_the_folder(desk: &impl ExecutionBackend) {
    run(desk, "ln -s /etc/passwd passwd; ln -s .. up; ln -s /proc/self/environ mine; mkdir -p a && ln -s / a/root")
        .await;
    for path in ["passwd", "up/x", "mine", "a/root/etc/passwd", "../x", "/etc/passwd"] {
        let read = desk.read(path, 1 << 20).await;
        assert!(matches!(read, Err(ExecutionError::Confined { .. })), "{path}: {read:?}");
        let write = FileWrite {
            path: path.to_owned(),
            bytes: b"x".to_vec(),
            condition: FileCondition::Absent,
            definitions: Vec::new(),
        };
        let written = desk.write(&write).await;
        let refused = matches!(written, Err(ExecutionError::Confined { .. } | ExecutionError::Changed { .. }));
        assert!(refused, "{path}: {written:?}");
    }
}

/// Output, time, processes and files without end.
async fn without_end(desk: &impl ExecutionBackend) {
    let limited = async |command: &str, limits: CommandLimits| {
        desk.run(&ShellCommand { limits, ..ShellCommand::new(command) }).await.map(|outcome| outcome.end)
    };
    let limits = CommandLimits { most_output: 1 << 20, ..CommandLimits::default() };
    assert_eq!(limited("yes", limits).await, Ok(CommandEnd::TooMuchOutput));
    let limits = CommandLimits { time: Duration::from_secs(1), ..CommandLimits::default() };
    assert_eq!(limited("trap '' TERM; while :; do sleep 1; done", limits).await, Ok(CommandEnd::TimedOut));
    let limits = CommandLimits { processes: 30, ..CommandLimits::default() };
    assert_eq!(
        limited("bomb() { sleep 9 & sleep 0.02; bomb | bomb & }; bomb; sleep 45", limits).await,
        Ok(CommandEnd::TooManyProcesses)
    );
    let flood = limited("head -c 100M /dev/zero > flood", CommandLimits::default()).await;
    let Err(ExecutionError::Denied { reason }) = flood else { panic!("{flood:?}") };
    assert!(reason.contains("nothing of what the command wrote was kept"), "{reason}");
    assert!(matches!(desk.read("flood", 10).await, Err(ExecutionError::NotFound { .. })));
}

/// Processes that leave their group, their session and their environment behind.
async fn what_runs_away(desk: &impl ExecutionBackend) {
    // No other run of the tests on this machine sleeps for as long.
    let nap = format!("4799.{}", std::process::id());
    // Commands see no processes but their own: it is looked for from outside.
    let is_alive = || {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| String::from_utf8_lossy(&line).contains(&nap))
    };
    let away = format!("(setsid env -i sh -c 'cd /; while :; do sleep {nap}; done' >/dev/null 2>&1 &) ; sleep 0.01");
    run(desk, &away).await;
    for _ in 0..1200 {
        if !is_alive() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it runs on");
}
