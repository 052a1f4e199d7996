//! Agents that files of workspaces declare: what is kept of them, and for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use dormouse_api::{NotKept, Outside, OwnAgents, WorkspaceAgents, WorkspaceFiles};
use dormouse_declared::{DeclaredPorts, NoTools, OwnAgentsFrom, StoredAgents};
use dormouse_ports::tool::ToolSources;
use dormouse_ports::{ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Secret, StoreError, TextFiles};
use dormouse_protocol::id::WorkspaceId;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, ScriptedFetch};

const AGENT: (&str, &str) = (".openharness/agents/mine.md", "---\nmodel: workspace/m\n---\nWork.\n");
const MODEL: (&str, &str) = (
    ".openharness/models/m.yaml",
    "m: {provider: openai-compatible, name: tiny, url: 'https://models.example.com/v1'}\n",
);
const SETTINGS: &str = ".openharness/settings.yaml";

/// Counts what is written.
struct Counted {
    store: Arc<MemoryStore>,
    commits: AtomicUsize,
}

#[async_trait]
impl Commits for Counted {
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimOutcome, StoreError> {
        self.store.claim(request).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.store.commit(commit).await
    }
}

struct World {
    counted: Arc<Counted>,
    files: WorkspaceFiles,
    clock: Arc<ManualClock>,
    workspace: WorkspaceId,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::default());
        let counted = Arc::new(Counted { store: store.clone(), commits: AtomicUsize::default() });
        let files = WorkspaceFiles {
            records: store,
            commits: counted.clone(),
            ids: Arc::new(CountingIds::default()),
            clock: clock.clone(),
        };
        Self { counted, files, clock, workspace: WorkspaceId::from("workspace_1".to_owned()) }
    }

    async fn write(&self, (path, text): (&str, &str)) {
        let files = self.files.of("tenant", &self.workspace);
        let before = files.file(path).await.expect("an answer").map_or(0, |file| file.version);
        files.write(path, text, before).await.expect("it is written");
    }

    /// A process that serves the workspace.
    fn process(&self) -> StoredAgents {
        let fetch = Arc::new(ScriptedFetch::default());
        let lender = DeclaredPorts {
            fetch: fetch.clone(),
            clock: self.clock.clone(),
            ids: Arc::new(CountingIds::default()),
            env: Arc::new(Secret::new("none")),
            secrets: Arc::new(Secret::new("none")),
            tools: Arc::new(NoTools),
            deltas: None,
            bedrock: None,
            lender: None,
        };
        StoredAgents::new(OwnAgentsFrom {
            files: self.files.clone(),
            lent: None,
            lender,
            public: fetch,
            tools: Arc::new(|_| Arc::new(NoTools) as Arc<dyn ToolSources>),
            outside: Outside::new(Arc::new(MemoryBus::default()), self.clock.clone()),
        })
    }

    async fn of(&self, process: &StoredAgents) -> OwnAgents {
        process.of("tenant", &self.workspace).await.expect("agents")
    }

    async fn keep(&self, process: &StoredAgents, version: &str) -> Result<(), NotKept> {
        process.keep("tenant", &self.workspace, version).await
    }

    fn commits(&self) -> usize {
        self.counted.commits.load(Ordering::SeqCst)
    }
}

fn version(own: &OwnAgents) -> String {
    own.personas[0].version.clone().expect("a version")
}

#[tokio::test]
async fn definitions_are_kept_for_the_run_that_begins_and_not_for_who_looks() {
    let world = World::new();
    for file in [AGENT, MODEL] {
        world.write(file).await;
    }
    let process = world.process();
    let before = world.commits();
    let own = world.of(&process).await;
    assert_eq!(own, world.of(&process).await);
    assert_eq!(own.personas.len(), 1);
    assert_eq!(world.commits(), before, "nothing is written for who looks");
    world.keep(&process, &version(&own)).await.expect("it is kept");
    let kept = world.commits();
    assert!(kept > before);
    world.keep(&process, &version(&own)).await.expect("it is kept");
    let other = world.process();
    let again = world.of(&other).await;
    world.keep(&other, &version(&again)).await.expect("it is kept");
    assert_eq!(world.commits(), kept, "once, whoever begins");
    let unknown = world.keep(&process, "workspace_1@0").await;
    assert!(matches!(unknown, Err(NotKept::Away(_))), "{unknown:?}");
}

#[tokio::test]
async fn the_kind_that_a_run_began_with_stays() {
    let world = World::new();
    for file in [AGENT, MODEL] {
        world.write(file).await;
    }
    let process = world.process();
    let project = world.of(&process).await;
    world.write((SETTINGS, "kind: chat\n")).await;
    let chat = world.of(&process).await;
    assert!(chat.only_talks && chat.refused_whole.is_none(), "nobody began anything yet: {chat:?}");
    world.keep(&process, &version(&chat)).await.expect("it is kept");
    let late = world.keep(&process, &version(&project)).await;
    assert!(matches!(&late, Err(NotKept::Refused(reason)) if reason.contains("stays one")), "{late:?}");
    world.write((SETTINGS, "kind: project\n")).await;
    let own = world.of(&process).await;
    assert!(own.only_talks && own.personas.is_empty(), "{own:?}");
    assert!(own.refused_whole.is_some_and(|reason| reason.contains("set `kind: chat`")));
}

#[tokio::test]
async fn settings_whose_kind_cannot_be_read_lock_no_workspace() {
    let world = World::new();
    for file in [AGENT, MODEL] {
        world.write(file).await;
    }
    let process = world.process();
    for slip in ["default_agent: [x\n", "kind: Project\n", "kind: chat\nkind: chat\n", "kind: chatt\n"] {
        world.write((SETTINGS, slip)).await;
        let only_talks = process.only_talks("tenant", &world.workspace).await.expect("an answer");
        assert_eq!(only_talks, Some(false), "{slip}: somebody has to mend it");
        assert!(world.of(&process).await.only_talks, "{slip}: until then nothing acts");
    }
    for said in ["kind: chat\n", "kind: chat\nmodles: {}\n", "kind: chat\ndefault_agent: nobody\n"] {
        world.write((SETTINGS, said)).await;
        let only_talks = process.only_talks("tenant", &world.workspace).await.expect("an answer");
        assert_eq!(only_talks, Some(true), "{said}: that word can be read");
    }
}

#[tokio::test]
async fn a_run_of_a_workspace_that_says_its_kind_keeps_it_whatever_else_is_wrong() {
    let world = World::new();
    for file in [AGENT, MODEL, (SETTINGS, "kind: chat\nmodles: {}\n")] {
        world.write(file).await;
    }
    let process = world.process();
    let chat = world.of(&process).await;
    world.keep(&process, &version(&chat)).await.expect("it is kept");
    world.write((SETTINGS, "kind: project\n")).await;
    let own = world.of(&process).await;
    assert!(own.only_talks && own.personas.is_empty(), "{own:?}");
}

#[tokio::test]
async fn what_agents_write_into_their_memory_keeps_none_from_running() {
    let world = World::new();
    for file in [AGENT, MODEL] {
        world.write(file).await;
    }
    let note = "x".repeat(200 * 1024);
    for number in 0..6 {
        let path = format!(".openharness/memory/{number}.md");
        world.write((path.as_str(), note.as_str())).await;
    }
    let process = world.process();
    let own = world.of(&process).await;
    assert_eq!((own.personas.len(), &own.refused_whole), (1, &None));
    world.keep(&process, &version(&own)).await.expect("it is kept");
}

#[tokio::test]
async fn more_files_than_anybody_looks_at_are_not_read_to_their_end() {
    let world = World::new();
    for file in [AGENT, MODEL] {
        world.write(file).await;
    }
    for number in 0..4_100 {
        let path = format!(".openharness/skills/{number}");
        world.write((path.as_str(), "")).await;
    }
    let own = world.of(&world.process()).await;
    let told = own.refused_whole.expect("a reason");
    assert!(told.contains("the number of files in `.openharness/` is larger than the limit of 4000"), "{told}");
}
