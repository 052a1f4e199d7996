//! What it takes to load a large workspace: [`AGENTS`] agents, [`SKILLS`] skills with a file beside each, [`ACTIONS`] actions.
//!
//! Run with `make bench-workspace`. A file that did not change is not read again: more reads than files that changed are an
//! error, and so is a goal that is missed. What is read lies in the cache of the machine.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use dormouse_agent::bundle::Bundle;
use dormouse_agent::workspace::{KnownFiles, Platform, load};
use dormouse_local::WorkspaceFolder;
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

const AGENTS: usize = 50;
const SKILLS: usize = 200;
const ACTIONS: usize = 100;
/// How often each is done; the fastest counts.
const ROUNDS: usize = 10;
const GOAL: Duration = Duration::from_millis(50);

/// The folder, of which it is counted how many files are read.
#[derive(Debug)]
struct Counted {
    folder: WorkspaceFolder,
    reads: AtomicUsize,
}

#[async_trait]
impl WorkspaceSource for Counted {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        self.folder.list(limits).await
    }

    async fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.folder.read(path, limit).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let place = tempfile::tempdir().expect("a folder");
    let files = written(place.path());
    let source =
        Counted { folder: WorkspaceFolder::open(place.path()).expect("it is there"), reads: AtomicUsize::new(0) };
    let native_tools = vec!["Read".to_owned(), "Bash".to_owned()];
    let platform = Platform { native_tools, processes: true, ..Platform::default() };
    println!("{AGENTS} agents, {SKILLS} skills, {ACTIONS} actions: {files} files");
    println!("                              files read      ms");

    let mut known = KnownFiles::default();
    let first = row("all of it, for the first time", &source, files, async || {
        known = KnownFiles::default();
        load(&known.read(&source).await.expect("files"), &platform)
    })
    .await;
    assert!(first.0.is_sound(), "{:#?}", first.0.problems);
    assert_eq!((first.0.agents.len(), first.0.skills.len(), first.0.actions.len()), (AGENTS, SKILLS, ACTIONS));

    let (_, warm) = row("all of it, nothing changed", &source, 0, async || {
        load(&known.read(&source).await.expect("files"), &platform)
    })
    .await;
    row("a look whether it changed", &source, 0, async || {
        let files = known.read(&source).await.expect("files");
        Bundle::of(&files).expect("a bundle").digest().to_owned()
    })
    .await;
    let changed = place.path().join(".openharness/agents/agent-7.md");
    let mut text = fs::read_to_string(&changed).expect("a text");
    row("all of it, one file changed", &source, 1, async || {
        text.push_str("And more.\n");
        fs::write(&changed, &text).expect("a file");
        load(&known.read(&source).await.expect("files"), &platform)
    })
    .await;
    let is_met = warm <= GOAL;
    let verdict = if is_met { "met" } else { "missed" };
    println!("goal: loaded within {} ms where nothing changed: {verdict}", GOAL.as_millis());
    if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Does `work` some times, prints how many files were read and the time of the fastest, and gives its last result.
async fn row<T>(what: &str, source: &Counted, reads: usize, mut work: impl AsyncFnMut() -> T) -> (T, Duration) {
    let mut fastest = Duration::MAX;
    let mut last = None;
    for _ in 0..ROUNDS {
        source.reads.store(0, Ordering::SeqCst);
        let began = Instant::now();
        last = Some(work().await);
        fastest = fastest.min(began.elapsed());
        let read = source.reads.load(Ordering::SeqCst);
        assert_eq!(read, reads, "{what}: so many files were read");
    }
    println!("{what:<30}  {reads:>8}  {:>6.2}", fastest.as_secs_f64() * 1e3);
    (last.expect("it was done"), fastest)
}

/// Writes the workspace, as one that lies there for some time; gives the number of its files.
fn written(root: &Path) -> usize {
    let mut count = 0;
    let mut write = |path: String, text: String| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, text).expect("a file");
        let file = fs::File::options().write(true).open(&path).expect("the file");
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).expect("a time");
        count += 1;
    };
    let prose = "Read what there is before you write, and say what you found.\n".repeat(40);
    write("AGENTS.md".to_owned(), prose.clone());
    write(
        ".openharness/settings.yaml".to_owned(),
        "default_agent: agent-0\nmodels: {default: workspace/main}\n".to_owned(),
    );
    write(
        ".openharness/models/models.yaml".to_owned(),
        "main: {provider: openai, name: m, key: '${env.KEY}'}\n".to_owned(),
    );
    for number in 0..AGENTS {
        let matter = "model: default\ntools: {native: [Read, Bash]}\npolicy: {max_steps: 20}";
        let text = format!("---\ndescription: Does work {number}.\n{matter}\n---\n{prose}");
        write(format!(".openharness/agents/agent-{number}.md"), text);
    }
    for number in 0..SKILLS {
        let text = format!("---\nname: skill-{number}\ndescription: For work {number}.\n---\n{prose}");
        write(format!(".openharness/skills/skill-{number}/SKILL.md"), text);
        write(format!(".openharness/skills/skill-{number}/references/more.md"), prose.clone());
    }
    for number in 0..ACTIONS {
        let schema = "input_schema: {type: object, properties: {branch: {type: string}}, required: [branch]}";
        let text = format!("name: action-{number}\ndescription: Acts.\nentry: {{command: ./run.sh}}\n{schema}\n");
        write(format!(".openharness/actions/action-{number}/ACTION.yaml"), text);
    }
    count
}
