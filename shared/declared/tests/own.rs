//! Agents that files of workspaces declare: what is kept of them, and for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::workspace::{FileContent, Files, ModelDefinition, Platform, load};
use dormouse_api::{NotKept, Outside, OwnAgents, WorkspaceAgents, WorkspaceFiles};
use dormouse_declared::{DeclaredPorts, LentModels, NoTools, OwnAgentsFrom, StoredAgents, models_lent_by};
use dormouse_ports::tool::ToolSources;
use dormouse_ports::{
    ClaimOutcome, ClaimRequest, Commit, CommitError, Commits, Counters, Document, DocumentKey, FeedPage, FeedRequest,
    FeedRow, ListRequest, Page, Records, Secret, SecretError, Secrets, StoreError, StreamEntry, StreamTip, TextFiles,
};
use dormouse_protocol::id::WorkspaceId;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, ScriptedFetch};
use jiff::Timestamp;

const AGENT: (&str, &str) = (".openharness/agents/mine.md", "---\nmodel: workspace/m\n---\nWork.\n");
const MODEL: (&str, &str) = (
    ".openharness/models/m.yaml",
    "m: {provider: openai-compatible, name: tiny, url: 'https://models.example.com/v1'}\n",
);
const SETTINGS: &str = ".openharness/settings.yaml";

/// Counts what is written, and what is read of documents.
struct Counted {
    store: Arc<MemoryStore>,
    commits: AtomicUsize,
    reads: AtomicUsize,
}

#[async_trait]
impl Records for Counted {
    async fn document(&self, key: &DocumentKey, now: Timestamp) -> Result<Option<Document>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.store.document(key, now).await
    }

    async fn counters(&self, key: &DocumentKey) -> Result<Option<Counters>, StoreError> {
        self.store.counters(key).await
    }

    async fn documents(&self, request: &ListRequest) -> Result<Page<Document>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.store.documents(request).await
    }

    async fn entries(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<StreamEntry>, StoreError> {
        self.store.entries(stream, after, limit).await
    }

    async fn tip(&self, stream: &str) -> Result<StreamTip, StoreError> {
        self.store.tip(stream).await
    }

    async fn append_of(&self, stream: &str, position: u64) -> Result<Option<FeedRow>, StoreError> {
        self.store.append_of(stream, position).await
    }

    async fn feed(&self, request: &FeedRequest) -> Result<FeedPage, StoreError> {
        self.store.feed(request).await
    }

    fn settled(&self, now: Timestamp) -> Timestamp {
        self.store.settled(now)
    }
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
        let counted = Arc::new(Counted { store, commits: AtomicUsize::default(), reads: AtomicUsize::default() });
        let files = WorkspaceFiles {
            records: counted.clone(),
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
        self.process_with(Arc::new(Secret::new("none")), None)
    }

    /// The same, with the `secrets` of the server and what it lends.
    fn process_with(&self, secrets: Arc<dyn Secrets>, lent: Option<Arc<dyn LentModels>>) -> StoredAgents {
        let fetch = Arc::new(ScriptedFetch::default());
        let lender = DeclaredPorts {
            fetch: fetch.clone(),
            clock: self.clock.clone(),
            ids: Arc::new(CountingIds::default()),
            env: Arc::new(Secret::new("none")),
            secrets,
            tools: Arc::new(NoTools),
            deltas: None,
            bedrock: None,
            lender: None,
        };
        StoredAgents::new(OwnAgentsFrom {
            files: self.files.clone(),
            lent,
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

/// Each holds all to which its runs may come: of hundreds in a circle the memory of a server would be full.
#[tokio::test]
async fn agents_that_hand_over_to_each_other_are_there_as_far_as_there_is_room() {
    let world = World::new();
    world.write(MODEL).await;
    let count = 120;
    for number in 0..count {
        let path = format!(".openharness/agents/a{number}.md");
        let text = format!("---\nmodel: workspace/m\nswitch: [a{}]\n---\nWork.\n", (number + 1) % count);
        world.write((path.as_str(), text.as_str())).await;
    }
    let own = world.of(&world.process()).await;
    let there = own.personas.len();
    assert!((10..count).contains(&there), "{there}");
    assert_eq!(own.refused.len(), count - there);
    assert!(own.refused.values().all(|reason| reason.contains("let fewer of them hand over")), "{:?}", own.refused);
}

#[tokio::test]
async fn a_workspace_that_declares_no_agent_is_read_in_one_query() {
    let world = World::new();
    let process = world.process();
    let reads = async || {
        world.counted.reads.store(0, Ordering::SeqCst);
        assert_eq!(world.of(&process).await, OwnAgents::default());
        world.counted.reads.load(Ordering::SeqCst)
    };
    assert_eq!(reads().await, 1);
    world.write((".openharness/memory/MEMORY.md", "Of an agent of the server.\n")).await;
    assert_eq!(reads().await, 2, "behind what is there is nothing more");
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

/// Secrets that cannot be had before they are there.
#[derive(Default)]
struct Late(AtomicBool);

#[async_trait]
impl Secrets for Late {
    async fn resolve(&self, _: &str) -> Result<Secret, SecretError> {
        match self.0.load(Ordering::SeqCst) {
            true => Ok(Secret::new("https://models.example.com/v1")),
            false => Err(SecretError::Unavailable("too many requests".to_owned())),
        }
    }
}

/// A model that is lent, whose address is a secret.
struct Lent;

#[async_trait]
impl LentModels for Lent {
    async fn models(&self) -> Result<Vec<ModelDefinition>, String> {
        let model = b"m:\n  provider: openai-compatible\n  name: tiny\n  url: ${secrets.URL}\n";
        let files = Files::from_iter([(MODEL.0.to_owned(), FileContent::Bytes(model.to_vec()))]);
        Ok(models_lent_by(&load(&files, &Platform::default())))
    }
}

#[tokio::test]
async fn an_agent_is_there_once_the_address_of_a_model_that_is_lent_can_be_looked_up() {
    let world = World::new();
    world.write((AGENT.0, "---\nmodel: platform/m\n---\nWork.\n")).await;
    let late = Arc::new(Late::default());
    let process = world.process_with(late.clone(), Some(Arc::new(Lent)));
    let own = world.of(&process).await;
    assert!(own.personas.is_empty() && own.refused["mine"].contains("the address of model"), "{own:?}");
    late.0.store(true, Ordering::SeqCst);
    assert!(world.of(&process).await.personas.is_empty(), "it is not looked up for each request");
    world.clock.advance(Duration::from_secs(11));
    let own = world.of(&process).await;
    assert_eq!(own.personas.len(), 1, "{own:?}");
}
