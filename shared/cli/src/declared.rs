//! Agents of a folder, for `dev --workspace` and `chat`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use dormouse_agent::bundle::{BundleStore, BundleStoreError};
use dormouse_agent::graph::{AnswerUnderWay, DeltaSink};
use dormouse_agent::workspace::{ModelDefinition, Workspace, load};
use dormouse_api::{Agents, LiveText, TextDelta};
use dormouse_aws::RequestSigner;
use dormouse_declared::{
    BedrockAccess, DeclaredPorts, LentModels, NoTools, OwnAgentsFrom, PublishedAgents, PublishedFrom, Refresh,
    StoredAgents, agents, models_lent_by,
};
use dormouse_fetch::NetworkFetch;
use dormouse_local::keys::TENANT;
use dormouse_local::{FolderObjects, program};
use dormouse_ports::model::DeltaKind;
use dormouse_ports::tool::{CrateTools, ToolSources};
use dormouse_ports::{Clock, Fetch, WorkspaceError};
use dormouse_system::{EnvironmentSecrets, RandomIds, SystemClock};
use dormouse_tools::mcp::{Asker, NoticeListener};
use dormouse_tools::{DeclaredTools, LocalBackend, Values};
use tokio::sync::Mutex;

use crate::definitions::{NAME, WorkspaceDefinitions};
use crate::target::access;
use crate::terminal::{plain, quoted};
use crate::workspace::{
    FolderFiles, WorkspaceFailure, definitions, loaded, platform, platform_with, tell_problems, unset,
};

/// Reason for which the agents of a folder do not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeclaredFailure {
    #[error(transparent)]
    Workspace(#[from] WorkspaceFailure),
    #[error("no agent of {} can run: `dormouse workspace check` says what is wrong", .0.display())]
    NoAgent(PathBuf),
    #[error(
        "the data folder {} is the workspace, or a folder around it: the keys of the server would be among the files of the agents, \
         or these hidden with them. Leave --data out, or name a folder in the workspace or beside it; what is in that one \
         already can be moved there", .0.display()
    )]
    DataAround(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The agents of a folder.
pub(crate) struct DeclaredAgents {
    /// Those that run. A run goes on with the definitions that it began with; what is changed counts for the next one.
    pub(crate) agents: Agents,
    /// The names of those that can run now, the default one first.
    pub(crate) names: Vec<String>,
    /// The one that works where none is named: that of the settings, also where it cannot run, or the first.
    pub(crate) default: String,
    /// Whether their history is kept beside the folder.
    pub(crate) history: FolderHistory,
}

/// Whether the history of a folder is kept beside it: as the definitions say that new runs begin with. Files of another
/// kind of workspace do not count, as they do for no run.
#[derive(Debug)]
pub(crate) struct FolderHistory {
    store: BundleStore,
    refresh: Arc<WorkspaceDefinitions>,
    /// What the files say where no run has begun yet, or what was found last, with the digest of these definitions.
    known: Mutex<(Option<String>, bool)>,
}

impl FolderHistory {
    /// That of the definitions in `store`; where there are none, what the files say counts.
    fn new(store: BundleStore, refresh: Arc<WorkspaceDefinitions>, files_say: bool) -> Self {
        Self { store, refresh, known: Mutex::new((None, files_say)) }
    }

    /// True if it is kept now.
    pub(crate) async fn is_mirrored(&self) -> bool {
        let mut known = self.known.lock().await;
        match self.looked_up(known.0.as_deref()).await {
            Ok(Some(found)) => *known = found,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "the definitions cannot be looked up; whether the history is kept stays as it was");
            }
        }
        known.1
    }

    /// What the current definitions say, unless they are those of the digest `known`.
    async fn looked_up(&self, known: Option<&str>) -> Result<Option<(Option<String>, bool)>, BundleStoreError> {
        let mut current = self.store.current(NAME).await?;
        if known.is_none() && current.is_some() {
            // They may be those of an earlier start.
            let _ = self.refresh.refresh(NAME).await;
            current = self.store.current(NAME).await?;
        }
        let Some(current) = current.filter(|found| known != Some(&found.digest)) else { return Ok(None) };
        let Some(bundle) = self.store.load(NAME, &current.digest).await? else { return Ok(None) };
        let mirrored = load(&bundle.files(), &platform()).settings.mirrors_history();
        Ok(Some((Some(current.digest), mirrored)))
    }
}

/// A person who sits at the terminal of this process.
#[derive(Clone)]
pub(crate) struct AtTerminal {
    /// Is shown the text of answers while it comes.
    pub(crate) deltas: Arc<dyn DeltaSink>,
    /// Is asked what servers of tools ask in the midst of calls.
    pub(crate) asker: Arc<dyn Asker>,
    /// Is shown what these servers tell beside their answers.
    pub(crate) notices: NoticeListener,
}

/// The agents of `folder`, with their earlier definitions in `data` and the tools `of_crate`; what is wrong with the others is
/// told on the standard error stream. Where nobody sits at the `terminal`, the text of answers goes to the streams of whoever
/// serves them.
pub(crate) async fn declared(
    folder: &Path,
    data: &Path,
    terminal: Option<AtTerminal>,
    of_crate: &CrateTools,
) -> Result<DeclaredAgents, DeclaredFailure> {
    if is_around(data, folder) {
        return Err(DeclaredFailure::DataAround(data.to_owned()));
    }
    let files = definitions(folder).await.map_err(WorkspaceFailure::from)?;
    // Tools in Rust that are missing are told of below, with what else is left out.
    let mut workspace = loaded(&files, folder, &platform());
    let mut err = io::stderr();
    tell_problems(&workspace, &mut err)?;
    let live = LiveText::default();
    let mut tools = tools(folder, data)?.with_crate(of_crate.clone());
    let mut deltas: Arc<dyn DeltaSink> = Arc::new(ShownLive(live.clone()));
    let is_attended = terminal.is_some();
    if let Some(terminal) = terminal {
        tools = tools.attended(terminal.asker, terminal.notices);
        deltas = terminal.deltas;
    }
    let ports = ports(Arc::new(tools), Some(deltas));
    let found = agents(&workspace, &ports).await;
    for sentence in &found.left_out {
        writeln!(err, "{}", plain(sentence))?;
    }
    if !is_attended {
        for note in unset(&workspace).await {
            writeln!(err, "{}", plain(&note))?;
        }
    }
    let store = BundleStore::new(Arc::new(FolderObjects::new(data.join("definitions"))), "");
    let mut names = found.names;
    let started = (!names.is_empty()).then_some(files);
    // What sleeps goes on with what it began with, and is not to wait until a person has mended a file.
    if names.is_empty()
        && !is_attended
        && let Some((earlier, runnable)) = Box::pin(read_last(&store, &ports)).await
    {
        (workspace, names) = (earlier, runnable);
        writeln!(err, "no agent can run as the files are now; the definitions that were read last stay in use")?;
    }
    let Some(first) = names.first() else { return Err(DeclaredFailure::NoAgent(folder.to_owned())) };
    let history = store.clone();
    let refresh = Arc::new(WorkspaceDefinitions::new(folder.to_owned(), store.clone(), started));
    let keeper = refresh.clone();
    let platform = platform_with(of_crate);
    let source = Agents::new().with_tour(tour(first, data)).with_live(live).of_source(move |outside| {
        Arc::new(PublishedAgents::new(PublishedFrom {
            store: store.clone(),
            workspaces: vec![NAME.to_owned()],
            platform: platform.clone(),
            ports: ports.clone(),
            outside: outside.clone(),
            home: Some(TENANT.to_owned()),
            refresh: Some(refresh.clone()),
        }))
    });
    let history = FolderHistory::new(history, keeper, workspace.settings.mirrors_history());
    let default = workspace.settings.default_agent.clone().unwrap_or_else(|| first.clone());
    Ok(DeclaredAgents { agents: source, names, default, history })
}

/// True if `data` is `folder`, or a folder around it, by whatever name. What is not there is around nothing.
fn is_around(data: &Path, folder: &Path) -> bool {
    let both = data.canonicalize().ok().zip(folder.canonicalize().ok());
    both.is_some_and(|(data, folder)| folder.starts_with(data))
}

/// The definitions that were read last, and the names of the agents that can run by them; `None` where there are none.
async fn read_last(store: &BundleStore, ports: &DeclaredPorts) -> Option<(Workspace, Vec<String>)> {
    let current = store.current(NAME).await.ok()??;
    let bundle = store.load(NAME, &current.digest).await.ok()??;
    let workspace = load(&bundle.files(), &platform());
    let names = agents(&workspace, ports).await.names;
    (!names.is_empty()).then_some((workspace, names))
}

/// Shows the text of answers to the streams of this process. Only runs of sessions have any, and what a model thinks is
/// not shown.
struct ShownLive(LiveText);

impl DeltaSink for ShownLive {
    /// The next piece says that the answer begins again.
    fn began(&self, _: &AnswerUnderWay) {}

    fn delta(&self, answer: &AnswerUnderWay, kind: DeltaKind, from: u64, text: &str) {
        let Some(session) = answer.session.as_ref().filter(|_| kind == DeltaKind::Content) else { return };
        self.0.show(&TextDelta {
            session_id: session.as_str().into(),
            task_id: answer.invocation.as_str().into(),
            step: answer.step,
            from,
            text: text.to_owned(),
        });
    }
}

/// The tools of this machine for `folder`: native ones, servers, processes, HTTP requests. They do not see `data`.
pub(crate) fn tools(folder: &Path, data: &Path) -> Result<DeclaredTools, WorkspaceFailure> {
    // On this machine a secret is a variable of the environment.
    let values = Values::new(Arc::new(EnvironmentSecrets), Arc::new(EnvironmentSecrets));
    let place = LocalBackend::open(folder).map_err(|error| WorkspaceError::Denied(error.to_string()))?.hiding(data);
    let clock = Arc::new(SystemClock::default());
    let tools = DeclaredTools::new(Arc::new(NetworkFetch::new()), values).with_processes(folder.to_owned());
    Ok(tools.with_place(Arc::new(place), Arc::new(NetworkFetch::public()), clock))
}

/// Parts that agents on this machine need from outside, besides `tools`.
pub(crate) fn ports(tools: Arc<dyn ToolSources>, deltas: Option<Arc<dyn DeltaSink>>) -> DeclaredPorts {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let bedrock = access(None).ok().map(|access| BedrockAccess {
        sign: Arc::new(RequestSigner::new(&access, "bedrock", clock.clone())),
        region: access.region,
    });
    DeclaredPorts {
        fetch: Arc::new(NetworkFetch::new()),
        clock,
        ids: Arc::new(RandomIds),
        env: Arc::new(EnvironmentSecrets),
        secrets: Arc::new(EnvironmentSecrets),
        tools,
        deltas,
        bedrock,
        lender: None,
    }
}

/// The agents that the files of workspaces declare, beside `agents`; the models of `folder`, where one is served, and of the
/// platform are lent to them.
pub(crate) fn with_own(agents: Agents, folder: Option<PathBuf>) -> Agents {
    let live = agents.live().clone();
    let lent = Arc::new(LentByFolder { folder, known: Mutex::default() });
    agents.of_workspaces(move |outside, files| {
        let public: Arc<dyn Fetch> = Arc::new(NetworkFetch::public());
        let tools = Arc::new(DeclaredTools::over_stored(public.clone(), outside.clock.clone(), true));
        Arc::new(StoredAgents::new(OwnAgentsFrom {
            files,
            lent: Some(lent.clone()),
            lender: ports(Arc::new(NoTools), Some(Arc::new(ShownLive(live.clone())))),
            public,
            tools,
            outside: outside.clone(),
        }))
    })
}

/// The models of the folder that is served, and of the platform.
struct LentByFolder {
    folder: Option<PathBuf>,
    known: Mutex<FolderFiles>,
}

#[async_trait]
impl LentModels for LentByFolder {
    async fn models(&self) -> Result<Vec<ModelDefinition>, String> {
        let files = self.known.lock().await.read(self.folder.as_deref()).await.map_err(|error| error.to_string())?;
        Ok(models_lent_by(&load(&files, &platform())))
    }
}

/// What is printed when the folder is served.
fn tour(agent: &str, data: &Path) -> String {
    let program = program();
    let data = quoted(&data.to_string_lossy());
    format!(
        "\nPaste the indented lines into a second terminal, in this folder.\n\nSay something to `{agent}`, and watch what it \
         does:\n\n    {program} send --data {data} --persona {agent} --follow 'Hello, who are you?'\n\nWhat sleeps, and \
         the commands that answer:\n\n    {program} pending --data {data}\n\nAll routes: curl -s {{address}}/ (Ctrl-C \
         ends this process after the running turns.)\n\n"
    )
}

/// Folder in which the runs of the agents of `folder` are kept.
pub(crate) fn data_of(folder: &Path) -> PathBuf {
    folder.join(".openharness/data/dormouse")
}
