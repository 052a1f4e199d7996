//! The agents that the files of workspaces declare.
//!
//! Whoever may write a file of a workspace may declare an agent in it. Such an agent works in that workspace alone, in its
//! stored files, and is given nothing of the server's but models by their names
//! ([`load_guest`](dormouse_agent::workspace::load_guest)).

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use dormouse_agent::bundle::{Bundle, BundleStore, BundleStoreError, Publication};
use dormouse_agent::workspace::{
    FileContent, Files, MEMORY, MEMORY_FIRST, ModelDefinition, Platform, WorkspaceKind, load_guest, read,
};
use dormouse_api::{
    CatalogLine, FilesOf, NotKept, Outside, OwnAgents, PersonaSpec, ToolInfo, WorkspaceAgents, WorkspaceFiles,
};
use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_harness::{GraphSource, VersionedGraph};
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::tool::{NATIVE_TOOLS, ToolSources};
use dormouse_ports::{
    Category, Fetch, ListLimits, TextFile, TextFiles, TextFilesError, WorkspaceError, WorkspaceFile, WorkspaceSource,
};
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::WorkspaceId;
use indexmap::IndexMap;
use jiff::Timestamp;

use crate::keys::NothingLent;
use crate::offer::Offer;
use crate::published::{FRESH, left_out};
use crate::{DeclaredPorts, agents};

/// Definitions that a process keeps compiled; those that were used longest ago go first.
const KEPT: usize = 64;
/// Bytes, about, that what is kept holds.
const KEPT_BYTES: usize = 128 << 20;
/// Bytes of all definitions of a workspace together, without what agents wrote into its memory.
const LARGEST: usize = 1024 * 1024;
/// Files of a folder that are read, more than are looked at, and those of the memory.
const MOST_FILES: usize = 4_000;
const MOST_OF_MEMORY: usize = 1_000;
/// Attempts at keeping definitions while others keep theirs.
const ATTEMPTS: usize = 8;
/// The name of the definitions among what is kept of a workspace.
const NAME: &str = "own";
/// The folder of all definitions but one, and that of agents in it.
const ALL: &str = ".openharness/";
const AGENTS: &str = ".openharness/agents/";
/// The file that says of which kind the workspace is.
const SETTINGS: &str = ".openharness/settings.yaml";
/// Names of the one file beside it, as it is written and miswritten.
const INSTRUCTIONS: [&str; 3] = ["AGENTS.md", "Agents.md", "agents.md"];

/// Models that the server lends to agents of workspaces.
#[async_trait]
pub trait LentModels: Send + Sync {
    /// The models, by their names alone.
    ///
    /// # Errors
    /// A sentence where they cannot be had.
    async fn models(&self) -> Result<Vec<ModelDefinition>, String>;
}

type MakesTools = dyn Fn(Arc<dyn TextFiles>) -> Arc<dyn ToolSources> + Send + Sync;

/// Parts of which the agents of workspaces are made.
#[derive(Clone)]
pub struct OwnAgentsFrom {
    /// The files of all workspaces.
    pub files: WorkspaceFiles,
    /// What is lent.
    pub lent: Option<Arc<dyn LentModels>>,
    /// Ports by which what is lent is asked.
    pub lender: DeclaredPorts,
    /// HTTP out for everything else: it reaches no private address.
    pub public: Arc<dyn Fetch>,
    /// Makes the tools over the files of one workspace.
    pub tools: Arc<MakesTools>,
    /// Clock, ids and other ports that their graphs need from outside.
    pub outside: Outside,
}

impl fmt::Debug for OwnAgentsFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnAgentsFrom")
    }
}

/// The agents that the files of workspaces declare. Files are read when work is to be done by an agent of them; what was
/// made of them is kept with the workspace, under the name of its content, for the runs that began with it.
///
/// The version of a graph is `WORKSPACE_ID@DIGEST`.
pub struct StoredAgents {
    from: OwnAgentsFrom,
    made: Mutex<IndexMap<String, Arc<MadeAgents>>>,
    prepare: OnceLock<PrepareGraph>,
}

type PrepareGraph = Box<dyn Fn(&CompiledGraph) + Send + Sync>;

/// What files of a workspace declare.
enum FoundAgents {
    /// Nothing.
    None,
    /// What is refused as a whole.
    Refused(OwnAgents),
    /// Agents, of which some may be refused.
    Made(Arc<MadeAgents>),
}

/// The agents of one version, with the models that were lent when they were made.
struct MadeAgents {
    lent: Vec<ModelDefinition>,
    graphs: Vec<Arc<CompiledGraph>>,
    own: OwnAgents,
    /// What asks for their tools.
    offer: Offer,
    /// The definitions, until they are kept for the runs that begin with them.
    unkept: Mutex<Option<Arc<Bundle>>>,
    /// When they are made again, where one is left out that may be there then.
    until: Option<Timestamp>,
    /// Bytes, about, that they hold.
    held: usize,
}

impl MadeAgents {
    fn graph(&self, name: &str) -> Option<Arc<CompiledGraph>> {
        self.graphs.iter().find(|graph| graph.name() == name).cloned()
    }

    /// Why the agent `name` of the `version` is not there, where it is refused.
    fn left_out(&self, name: &str, version: &str) -> Option<EngineError> {
        self.own.refused.get(name).map(|reason| left_out(version, reason))
    }
}

impl fmt::Debug for StoredAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredAgents")
    }
}

/// Models, tools and abilities that there are for them.
fn platform() -> Platform {
    let native = NATIVE_TOOLS.iter().filter(|name| **name != "Bash");
    Platform {
        models: Some(Vec::new()),
        native_tools: native.map(|name| (*name).to_owned()).collect(),
        processes: false,
        // They are refused whatever they are called.
        rust_tools: None,
        tier: Some(ExecutionTier::Stored),
    }
}

impl StoredAgents {
    /// The agents that `from` describes.
    pub fn new(from: OwnAgentsFrom) -> Self {
        Self { from, made: Mutex::default(), prepare: OnceLock::new() }
    }

    async fn lent(&self) -> Result<Vec<ModelDefinition>, String> {
        match &self.from.lent {
            Some(lent) => lent.models().await,
            None => Ok(Vec::new()),
        }
    }

    fn ports(&self, files: &FilesOf) -> DeclaredPorts {
        let lender = &self.from.lender;
        DeclaredPorts {
            fetch: self.from.public.clone(),
            env: Arc::new(NothingLent),
            secrets: Arc::new(NothingLent),
            tools: (self.from.tools)(Arc::new(files.clone())),
            bedrock: None,
            lender: Some(Arc::new(lender.clone())),
            ..lender.clone()
        }
    }

    /// The agents of `bundle`, which is `kept` or not; made once for each version and the models that are lent.
    async fn made_of(&self, files: &FilesOf, bundle: Bundle, kept: bool) -> Result<Arc<MadeAgents>, String> {
        let version = format!("{}@{}", files.workspace(), bundle.digest());
        let lent = self.lent().await?;
        if let Some(found) = self.known(&version, &lent) {
            return Ok(found);
        }
        let workspace = load_guest(&bundle.files(), &platform(), &lent);
        let declared = agents(&workspace, &self.ports(files)).await;
        let mut offer = Offer::of(&workspace, &platform(), &declared);
        let (catalog, refused) = (std::mem::take(&mut offer.catalog), std::mem::take(&mut offer.refused));
        let (mut graphs, mut personas) = (Vec::new(), Vec::new());
        if !declared.names.is_empty() {
            let compiled = declared.agents.compile(&self.from.outside).map_err(|error| error.to_string())?;
            graphs.extend(compiled.graphs.iter().cloned());
            let of_version = |spec: &PersonaSpec| spec.clone().of_version(&version);
            personas.extend(compiled.personas.linked().iter().map(of_version));
        }
        if let Some(prepare) = self.prepare.get() {
            graphs.iter().for_each(|graph| prepare(graph));
        }
        let default_agent = offer.default_agent.take();
        let own =
            OwnAgents { personas, catalog, refused, refused_whole: None, default_agent, only_talks: offer.only_talks };
        let unkept = Mutex::new((!kept).then(|| Arc::new(bundle)));
        let until = declared.may_pass.then(|| self.from.lender.clock.now() + FRESH);
        let held = declared.held;
        let made = Arc::new(MadeAgents { lent, graphs, own, offer, unkept, until, held });
        let mut all = locked(&self.made);
        let is_full = |all: &IndexMap<String, Arc<MadeAgents>>| {
            all.len() >= KEPT || all.values().map(|one| one.held).sum::<usize>() + held > KEPT_BYTES
        };
        while !all.is_empty() && is_full(&all) {
            all.shift_remove_index(0);
        }
        all.insert(version, made.clone());
        Ok(made)
    }

    /// What is made of `files` as they are now.
    async fn found(&self, files: &FilesOf) -> Result<FoundAgents, String> {
        let refused = |reason: &dyn fmt::Display| Ok(FoundAgents::Refused(none_for(reason.to_string())));
        let found = match definitions(files).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(FoundAgents::None),
            Err(error @ WorkspaceError::TooLarge { .. }) => return refused(&error),
            Err(error) => return Err(error.to_string()),
        };
        // What agents wrote themselves is bounded where it is read.
        let definitions = found.iter().filter(|(path, _)| !path.starts_with(MEMORY));
        let bytes = definitions.map(|(_, content)| match content {
            FileContent::Bytes(bytes) => bytes.len(),
            FileContent::TooLarge(_) | FileContent::Unreadable(_) | FileContent::LeftOut(_) => 0,
        });
        let whole: usize = bytes.sum();
        if whole > LARGEST {
            return refused(&format!("the definitions have {whole} bytes, and may have {LARGEST}"));
        }
        let bundle = match Bundle::of_readable(&found) {
            Ok(bundle) => bundle,
            Err(error) => return refused(&error),
        };
        let made = self.made_of(files, bundle, false).await?;
        let unkept = locked(&made.unkept).clone();
        let Some(bundle) = unkept.filter(|_| !made.own.personas.is_empty()) else { return Ok(FoundAgents::Made(made)) };
        match store_of(files).fits(NAME, &bundle).await {
            Ok(()) => Ok(FoundAgents::Made(made)),
            Err(BundleStoreError::Kind { kind, found, .. }) => {
                let none = none_for(other_kind(kind, found));
                Ok(FoundAgents::Refused(OwnAgents { only_talks: kind == WorkspaceKind::Chat, ..none }))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// What was made of that version and these models before; it counts as used.
    fn known(&self, version: &str, lent: &[ModelDefinition]) -> Option<Arc<MadeAgents>> {
        let now = self.from.lender.clock.now();
        let mut all = locked(&self.made);
        if all.get(version)?.until.is_some_and(|until| until <= now) {
            all.shift_remove(version);
            return None;
        }
        let at = all.get_index_of(version)?;
        let last = all.len() - 1;
        all.move_index(at, last);
        all.get(version).filter(|made| made.lent == lent).cloned()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `bundle` for the runs that begin with it.
async fn keep(files: &FilesOf, bundle: &Bundle) -> Result<(), BundleStoreError> {
    let store = store_of(files);
    for _ in 0..ATTEMPTS {
        let current = store.current(NAME).await?;
        match store.publish(NAME, bundle, current.as_ref()).await {
            Ok(Publication::Published | Publication::Unchanged) => return Ok(()),
            // Somebody changed a file meanwhile, and began with that.
            Err(BundleStoreError::Raced(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(BundleStoreError::Raced(files.workspace().to_string()))
}

fn store_of(files: &FilesOf) -> BundleStore {
    BundleStore::new(Arc::new(files.clone()), "")
}

/// An agent that stands for all of the workspace: none of them can run.
fn none_for(reason: String) -> OwnAgents {
    let line = CatalogLine {
        kind: "agent",
        name: "all".to_owned(),
        description: String::new(),
        enabled: false,
        reasons: vec![reason],
    };
    OwnAgents { refused_whole: line.reasons.first().cloned(), catalog: vec![line], ..OwnAgents::default() }
}

/// Why the definitions of a workspace of `kind` may not be of the kind `found`.
fn other_kind(kind: WorkspaceKind, found: WorkspaceKind) -> String {
    let (kind, found) = (kind.as_str(), found.as_str());
    format!(
        "the workspace is a `{kind}` workspace and stays one, and its files are of a `{found}` workspace: set \
         `kind: {kind}` in `.openharness/settings.yaml`"
    )
}

/// The definitions among `files`; `None` where there are neither agents nor settings.
///
/// # Errors
/// [`WorkspaceError`].
async fn definitions(files: &FilesOf) -> Result<Option<Files>, WorkspaceError> {
    let definitions = under(files, ALL).await?;
    let is_agent = |path: &str| path.starts_with(AGENTS) && path.ends_with(".md");
    if !definitions.iter().any(|file| is_agent(&file.path) || file.path == SETTINGS) {
        return Ok(None);
    }
    let known = definitions.into_iter().chain(memory(files).await?);
    let known = known.map(|file| (file.path.clone(), file)).collect();
    read(&StoredDefinitions { files, known }).await.map(Some)
}

#[async_trait]
impl WorkspaceAgents for StoredAgents {
    async fn of(&self, tenant: &str, workspace: &WorkspaceId) -> Result<OwnAgents, String> {
        Ok(match self.found(&self.from.files.of(tenant, workspace)).await? {
            FoundAgents::None => OwnAgents::default(),
            FoundAgents::Refused(own) => own,
            FoundAgents::Made(made) => made.own.clone(),
        })
    }

    async fn tools(&self, tenant: &str, workspace: &WorkspaceId) -> Result<Vec<ToolInfo>, String> {
        match self.found(&self.from.files.of(tenant, workspace)).await? {
            FoundAgents::None | FoundAgents::Refused(_) => Ok(Vec::new()),
            FoundAgents::Made(made) => Ok(made.offer.tools(true).await),
        }
    }

    async fn keep(&self, tenant: &str, workspace: &WorkspaceId, version: &str) -> Result<(), NotKept> {
        let lent = self.lent().await.map_err(NotKept::Away)?;
        let Some(made) = self.known(version, &lent) else {
            return Err(NotKept::Away(format!("the agents of {version} were changed at the same instant")));
        };
        let unkept = locked(&made.unkept).clone();
        let Some(bundle) = unkept else { return Ok(()) };
        match keep(&self.from.files.of(tenant, workspace), &bundle).await {
            Ok(()) => {
                locked(&made.unkept).take();
                Ok(())
            }
            Err(BundleStoreError::Kind { kind, found, .. }) => Err(NotKept::Refused(other_kind(kind, found))),
            Err(error) => Err(NotKept::Away(error.to_string())),
        }
    }

    async fn only_talks(&self, tenant: &str, workspace: &WorkspaceId) -> Result<Option<bool>, String> {
        let files = self.from.files.of(tenant, workspace);
        // A workspace of which something was kept stays of its kind.
        let kept = store_of(&files).current(NAME).await.map_err(|error| error.to_string())?;
        if let Some(kind) = kept.and_then(|kept| kept.kind) {
            return Ok(Some(kind == WorkspaceKind::Chat));
        }
        let Some(settings) = files.file(SETTINGS).await.map_err(|error| error.to_string())? else { return Ok(None) };
        let settings = Files::from([(SETTINGS.to_owned(), FileContent::Bytes(settings.text.into_bytes()))]);
        Ok(Some(load_guest(&settings, &platform(), &[]).is_said_to_talk()))
    }

    fn prepare(&self, prepare: PrepareGraph) {
        if self.prepare.set(prepare).is_err() {
            tracing::warn!("graphs of workspaces are prepared already; the second preparation does not count");
        }
    }
}

#[async_trait]
impl GraphSource for StoredAgents {
    /// None: who begins a run of one names its version.
    async fn current(&self, _: &str, _: bool) -> Result<Option<VersionedGraph>, EngineError> {
        Ok(None)
    }

    fn has(&self, version: &str) -> bool {
        version.split_once('@').is_some_and(|(workspace, _)| {
            workspace.strip_prefix(WorkspaceId::OBJECT).is_some_and(|rest| rest.starts_with('_'))
        })
    }

    async fn of_version(&self, name: &str, version: &str) -> Result<Arc<CompiledGraph>, EngineError> {
        let unknown = || EngineError::new(Category::GraphUnknown, format!("there is no graph `{name}` in {version}"));
        let (workspace, digest) = version.split_once('@').ok_or_else(unknown)?;
        let lent = self.lent().await.map_err(|error| away(&error))?;
        if let Some(made) = self.known(version, &lent) {
            return made.graph(name).ok_or_else(|| made.left_out(name, version).unwrap_or_else(unknown));
        }
        let files = self.from.files.find(&WorkspaceId::from(workspace.to_owned())).await;
        let files = files.map_err(|error| away(&error))?.ok_or_else(unknown)?;
        let bundle = store_of(&files).load(NAME, digest).await.map_err(|error| away(&error))?.ok_or_else(unknown)?;
        let made = self.made_of(&files, bundle, true).await.map_err(|error| away(&error))?;
        made.graph(name).ok_or_else(|| made.left_out(name, version).unwrap_or_else(unknown))
    }

    fn made(&self) -> Vec<Arc<CompiledGraph>> {
        locked(&self.made).values().flat_map(|made| made.graphs.iter().cloned()).collect()
    }
}

/// Definitions that cannot be had now: the work is to be tried again.
fn away(reason: &dyn fmt::Display) -> EngineError {
    let message = format!("the agents of a workspace cannot be loaded: {reason}");
    EngineError::new(Category::ProviderUnavailable, message)
}

/// The files of a workspace as a source of definitions: those of the folder of definitions are read at once, others when
/// they are asked for.
#[derive(Debug)]
struct StoredDefinitions<'f> {
    files: &'f FilesOf,
    known: IndexMap<String, TextFile>,
}

/// The files with paths that begin with `prefix`, but for those of the memory, however many there are of them.
async fn under(files: &FilesOf, prefix: &str) -> Result<Vec<TextFile>, WorkspaceError> {
    let too_large = |what: String, limit: usize| {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        Err(WorkspaceError::TooLarge { what, limit })
    };
    let (mut found, mut size, mut after) = (Vec::new(), 0, None::<String>);
    loop {
        let page = files.behind(prefix, after.as_deref()).await.map_err(unread)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(match last.path.starts_with(MEMORY) {
            true => format!("{MEMORY}{}", char::MAX),
            false => last.path.clone(),
        });
        let definitions = page.into_iter().filter(|file| !file.path.starts_with(MEMORY));
        found.extend(definitions.inspect(|file: &TextFile| size += file.text.len()));
        if size > LARGEST {
            return too_large(format!("`{prefix}` with its files"), LARGEST);
        }
        if found.len() > MOST_FILES {
            return too_large(format!("the number of files in `{prefix}`"), MOST_FILES);
        }
    }
}

/// What agents have written down for later, the first file first, and no more of it than may be looked at: what they write keeps
/// none of them from running.
async fn memory(files: &FilesOf) -> Result<Vec<TextFile>, WorkspaceError> {
    let mut found: Vec<TextFile> = files.file(MEMORY_FIRST).await.map_err(unread)?.into_iter().collect();
    let (mut size, mut after) = (0, None::<String>);
    while size <= LARGEST && found.len() < MOST_OF_MEMORY {
        let page = files.behind(MEMORY, after.as_deref()).await.map_err(unread)?;
        let Some(last) = page.last() else { break };
        after = Some(last.path.clone());
        size += page.iter().map(|file| file.text.len()).sum::<usize>();
        found.extend(page.into_iter().filter(|file| file.path != MEMORY_FIRST));
    }
    Ok(found)
}

fn unread(error: TextFilesError) -> WorkspaceError {
    WorkspaceError::Transient(error.to_string())
}

fn listed(file: &TextFile) -> WorkspaceFile {
    let size = u64::try_from(file.text.len()).unwrap_or(u64::MAX);
    WorkspaceFile { path: file.path.clone(), size, version: None }
}

#[async_trait]
impl WorkspaceSource for StoredDefinitions<'_> {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        let is_in = |path: &str, folder: &String| {
            path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let mut found: IndexMap<String, WorkspaceFile> = IndexMap::new();
        for folder in &limits.under {
            if format!("{folder}/").starts_with(ALL) {
                let known = self.known.values().filter(|file| is_in(&file.path, folder));
                found.extend(known.map(|file| (file.path.clone(), listed(file))));
                continue;
            }
            // The instructions are a file, whatever else is named here a folder.
            let files = match INSTRUCTIONS.contains(&folder.as_str()) {
                true => self.files.file(folder).await.map_err(unread)?.into_iter().collect(),
                false => under(self.files, &format!("{folder}/")).await?,
            };
            found.extend(files.iter().map(|file| (file.path.clone(), listed(file))));
        }
        let is_spared = |path: &str| limits.except.iter().any(|folder| is_in(path, folder));
        found.retain(|path, _| !is_spared(path) && path.matches('/').count() <= limits.depth);
        found.sort_unstable_keys();
        if found.len() > limits.files {
            let limit = u64::try_from(limits.files).unwrap_or(u64::MAX);
            return Err(WorkspaceError::TooLarge { what: "the number of files".to_owned(), limit });
        }
        Ok(found.into_values().collect())
    }

    async fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
        let text = match self.known.get(path) {
            Some(file) => file.text.clone(),
            None => match self.files.file(path).await.map_err(unread)? {
                Some(file) => file.text,
                None => return Err(WorkspaceError::NotFound(path.to_owned())),
            },
        };
        match u64::try_from(text.len()).unwrap_or(u64::MAX) > limit {
            true => Err(WorkspaceError::TooLarge { what: path.to_owned(), limit }),
            false => Ok(text.into_bytes()),
        }
    }
}
