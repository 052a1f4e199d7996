//! The agents of published bundles.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_agent::bundle::{Bundle, BundleStore, BundleStoreError, sound_workspace_name};
use dormouse_agent::workspace::{ModelDefinition, Platform, Workspace, WorkspaceKind, load};
use dormouse_api::{AgentSource, CatalogLine, Outside, PersonaSpec, ToolInfo};
use dormouse_engine::{CompiledGraph, EngineError};
use dormouse_harness::{GraphSource, VersionedGraph};
use dormouse_ports::{Category, ObjectError};
use futures::future::join_all;
use indexmap::IndexMap;
use jiff::Timestamp;

use crate::hooks::without_commands;
use crate::offer::Offer;
use crate::own::LentModels;
use crate::reach::reaching;
use crate::{DeclaredPorts, agents};

/// Time for which a process takes a bundle for the current one before it looks again, and leaves out what could not be looked up.
pub(crate) const FRESH: Duration = Duration::from_secs(10);
/// Bundles that a process keeps beside one of each workspace; the one that was used longest ago goes first.
const KEPT: usize = 8;

/// The folder of definitions, by which a problem with all of them is named.
const DEFINITIONS: &str = ".openharness";

/// Parts of which published agents are made.
#[derive(Clone, Debug)]
pub struct PublishedFrom {
    /// Store of the bundles.
    pub store: BundleStore,
    /// Workspaces with agents that are served; of two agents with one name that of the first workspace.
    pub workspaces: Vec<String>,
    /// Models, tools and abilities that the platform brings to every workspace.
    pub platform: Platform,
    /// Ports that agents need from outside.
    pub ports: DeclaredPorts,
    /// Clock, ids and other ports that their graphs need from outside.
    pub outside: Outside,
    /// The tenant whose folder they work in, where they do: agents that reach it, unless its settings say that they are
    /// `shared`, are found by that tenant alone.
    pub home: Option<String>,
    /// Publishes what changed before it is asked which bundle is current; without it others publish, and a process looks
    /// again after ten seconds.
    pub refresh: Option<Arc<dyn Refresh>>,
}

/// Publishes a workspace when its definitions change where it is served.
#[async_trait]
pub trait Refresh: fmt::Debug + Send + Sync {
    /// Makes the definitions of `workspace` as they are now the current bundle.
    ///
    /// # Errors
    /// The reason for which that cannot be done, and the bundle stays that was current. The operator has been told; the
    /// catalog tells it to clients.
    async fn refresh(&self, workspace: &str) -> Result<(), String>;
}

/// The agents of published bundles. Nothing is loaded before it is asked for; what was loaded stays in the process.
///
/// The version of a graph is `WORKSPACE@DIGEST`. A new run begins with the current bundle, which a process looks up
/// again after ten seconds; a run that sleeps goes on with the bundle that it began with, for which no process has to
/// look anything up but the bundle itself, once.
pub struct PublishedAgents {
    from: PublishedFrom,
    current: Mutex<BTreeMap<String, Seen>>,
    broken: Mutex<BTreeMap<String, SeenBroken>>,
    loaded: Mutex<IndexMap<String, Arc<LoadedBundle>>>,
    prepare: OnceLock<PrepareGraph>,
}

/// What a process does with a graph before it serves it.
type PrepareGraph = Box<dyn Fn(&CompiledGraph) + Send + Sync>;

/// The digest of a current bundle, none where nothing is published, and when it was looked up.
#[derive(Clone, Debug)]
struct Seen {
    digest: Option<String>,
    /// The kind that the workspace keeps, whatever is wrong in its settings by now.
    kind: Option<WorkspaceKind>,
    at: Timestamp,
    /// Why definitions that were changed since are not in it.
    stayed: Option<String>,
}

/// Why the current bundle of a workspace could not be loaded, and when that was found.
#[derive(Clone, Debug)]
struct SeenBroken {
    reason: String,
    at: Timestamp,
}

/// A bundle with its compiled graphs.
#[derive(Debug)]
struct LoadedBundle {
    version: String,
    graphs: Vec<Arc<CompiledGraph>>,
    personas: Vec<PersonaSpec>,
    models: Vec<ModelDefinition>,
    offer: Offer,
    /// When it is made again, where an agent is left out that may be there then.
    until: Option<Timestamp>,
}

impl LoadedBundle {
    fn graph(&self, name: &str) -> Option<&Arc<CompiledGraph>> {
        self.graphs.iter().find(|graph| graph.name() == name)
    }
}

impl PublishedAgents {
    /// The agents that `from` describes.
    pub fn new(from: PublishedFrom) -> Self {
        let (current, broken, loaded) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { from, current, broken, loaded, prepare: OnceLock::new() }
    }

    /// The ports that its agents need from outside.
    pub fn ports(&self) -> &DeclaredPorts {
        &self.from.ports
    }

    /// The digest of the current bundle of `workspace`; `None` where none is published.
    async fn current_of(&self, workspace: &str) -> Result<Option<String>, BundleStoreError> {
        let now = self.from.ports.clock.now();
        let seen = locked(&self.current).get(workspace).cloned();
        let mut stayed = None;
        if let Some(refresh) = &self.from.refresh {
            stayed = refresh.refresh(workspace).await.err();
        } else if let Some(seen) = &seen
            && now.duration_since(seen.at).unsigned_abs() < FRESH
        {
            return Ok(seen.digest.clone());
        }
        let (digest, kind) = match self.from.store.current(workspace).await {
            Ok(found) => found.map(|current| (current.digest, current.kind)).unzip(),
            // A role that may not list a bucket is not told that there is no such object.
            Err(BundleStoreError::Objects(ObjectError::Denied(reason))) if seen.is_none() => {
                tracing::warn!(
                    workspace,
                    reason,
                    "nothing is published of the workspace, or the role may not read it; publish it or allow that"
                );
                (None, None)
            }
            Err(error) => match seen {
                Some(seen) => {
                    tracing::warn!(workspace, %error, "the current bundle cannot be looked up; the last one counts");
                    (seen.digest, Some(seen.kind))
                }
                None => return Err(error),
            },
        };
        let looked = Seen { digest: digest.clone(), kind: kind.flatten(), at: now, stayed };
        locked(&self.current).insert(workspace.to_owned(), looked);
        Ok(digest)
    }

    /// The bundle `digest` of `workspace`.
    async fn bundle(&self, workspace: &str, digest: &str) -> Result<Arc<LoadedBundle>, Unloaded> {
        let version = format!("{workspace}@{digest}");
        if let Some(found) = self.kept(&version) {
            return Ok(found);
        }
        let found = self.from.store.load(workspace, digest).await?;
        let gone = || Unloaded::Broken(format!("there is no bundle {version}; publish it again"));
        let bundle = found.ok_or_else(gone)?;
        let made = Arc::new(self.make(version.clone(), &bundle).await?);
        let mut loaded = locked(&self.loaded);
        // Each request asks for the current ones of all workspaces: with less room than for these each would be loaded anew.
        while loaded.len() >= KEPT + self.from.workspaces.len() {
            loaded.shift_remove_index(0);
        }
        // Of two that were made at the same time the first one stays: its graphs may run already.
        Ok(loaded.entry(version).or_insert(made).clone())
    }

    /// A bundle that was loaded before; it counts as used.
    fn kept(&self, version: &str) -> Option<Arc<LoadedBundle>> {
        let now = self.from.ports.clock.now();
        let mut loaded = locked(&self.loaded);
        if loaded.get(version)?.until.is_some_and(|until| until <= now) {
            loaded.shift_remove(version);
            return None;
        }
        let at = loaded.get_index_of(version)?;
        let last = loaded.len() - 1;
        loaded.move_index(at, last);
        loaded.get(version).cloned()
    }

    async fn make(&self, version: String, bundle: &Bundle) -> Result<LoadedBundle, Unloaded> {
        let mut ports = self.from.ports.clone();
        let of_bundle = version.split_once('@').and_then(|(name, digest)| ports.tools.of_bundle(name, digest));
        if let Some(tools) = of_bundle {
            ports.tools = tools;
        }
        let workspace = without_commands(load(&bundle.files(), &self.from.platform), &*ports.tools);
        let models = models_lent_by(&workspace);
        let declared = agents(&workspace, &ports).await;
        for reason in &declared.left_out {
            tracing::warn!(version, reason, "a part of a published workspace does not run here");
        }
        let until = declared.may_pass.then(|| ports.clock.now() + FRESH);
        let mut offer = Offer::of(&workspace, &self.from.platform, &declared);
        if self.from.home.is_some() && !workspace.settings.shared {
            offer.at_home = reaching(&workspace, &declared.parts);
        }
        if declared.names.is_empty() {
            return Ok(LoadedBundle { version, graphs: Vec::new(), personas: Vec::new(), models, offer, until });
        }
        let compiled = declared.agents.compile(&self.from.outside);
        let compiled = compiled.map_err(|error| Unloaded::Broken(error.to_string()))?;
        let graphs: Vec<_> = compiled.graphs.iter().cloned().collect();
        if let Some(prepare) = self.prepare.get() {
            graphs.iter().for_each(|graph| prepare(graph));
        }
        tracing::info!(version, agents = graphs.len(), "a published workspace was loaded");
        // Whoever found one of them takes the graph of this bundle, and does not ask which one is current once more.
        let described = |spec: &PersonaSpec| {
            let at_home = offer.at_home.contains(&spec.graph);
            PersonaSpec { at_home, ..spec.clone() }.of_version(&version)
        };
        let personas = compiled.personas.linked().iter().map(described).collect();
        Ok(LoadedBundle { version, graphs, personas, models, offer, until })
    }

    /// The current bundle of `workspace`; `None` where none is published.
    async fn current_bundle(&self, workspace: &str) -> Result<Option<Arc<LoadedBundle>>, Unloaded> {
        match self.current_of(workspace).await? {
            Some(digest) => self.bundle(workspace, &digest).await.map(Some),
            None => Ok(None),
        }
    }

    /// The same. What is broken is looked at again after ten seconds: each request for the agents of the others asks for it.
    async fn current_or_broken(&self, workspace: &str) -> Result<Option<Arc<LoadedBundle>>, Unloaded> {
        let now = self.from.ports.clock.now();
        let seen = locked(&self.broken).get(workspace).cloned();
        let seen = seen.filter(|seen| now.duration_since(seen.at).unsigned_abs() < FRESH);
        // What is published from here is another one at once.
        if let Some(SeenBroken { reason, .. }) = seen.filter(|_| self.from.refresh.is_none()) {
            return Err(Unloaded::Broken(reason));
        }
        let found = self.current_bundle(workspace).await;
        if let Err(Unloaded::Broken(reason)) = &found {
            tracing::error!(workspace, reason, "the agents of a workspace are not served: publish it again");
            let seen = SeenBroken { reason: reason.clone(), at: now };
            locked(&self.broken).insert(workspace.to_owned(), seen);
        }
        found
    }

    /// The current bundles, in the order of the workspaces. One that is broken takes no other along; where the store does not
    /// answer, none is known.
    async fn bundles(&self) -> Result<CurrentBundles, EngineError> {
        let mut found = CurrentBundles::default();
        for workspace in &self.from.workspaces {
            match self.current_or_broken(workspace).await {
                Ok(bundle) => found.loaded.extend(bundle),
                Err(Unloaded::Away(error)) => return Err(error),
                Err(Unloaded::Broken(reason)) => {
                    found.is_first_broken |= found.loaded.is_empty();
                    found.broken.push((workspace.clone(), away(&reason)));
                }
            }
        }
        Ok(found)
    }
}

/// Why a bundle is not there.
enum Unloaded {
    /// The store does not answer: it may later.
    Away(EngineError),
    /// It is so until somebody publishes the workspace again, or allows that it is read.
    Broken(String),
}

impl From<BundleStoreError> for Unloaded {
    fn from(error: BundleStoreError) -> Self {
        match &error {
            BundleStoreError::Objects(ObjectError::Transient(_)) => Self::Away(away(&error)),
            BundleStoreError::Name(_)
            | BundleStoreError::Bundle(_)
            | BundleStoreError::Pointer(_, _)
            | BundleStoreError::Kind { .. }
            | BundleStoreError::Raced(_)
            | BundleStoreError::Objects(
                ObjectError::Conflict(_)
                | ObjectError::TooLarge { .. }
                | ObjectError::Denied(_)
                | ObjectError::Rejected(_),
            ) => Self::Broken(error.to_string()),
        }
    }
}

impl From<Unloaded> for EngineError {
    fn from(unloaded: Unloaded) -> Self {
        match unloaded {
            Unloaded::Away(error) => error,
            Unloaded::Broken(reason) => away(&reason),
        }
    }
}

/// The current bundles of all workspaces.
#[derive(Default)]
struct CurrentBundles {
    /// Those that could be loaded, in the order of the workspaces.
    loaded: Vec<Arc<LoadedBundle>>,
    /// The other workspaces, and what is wrong with each.
    broken: Vec<(String, EngineError)>,
    /// True where one of these comes before all that could be loaded.
    is_first_broken: bool,
}

impl CurrentBundles {
    /// These, unless all that there are could not be loaded.
    fn or_all_broken(mut self) -> Result<Self, EngineError> {
        match self.loaded.is_empty() && !self.broken.is_empty() {
            true => Err(self.broken.remove(0).1),
            false => Ok(self),
        }
    }

    /// `found`, or the reason for which it may be in what could not be loaded.
    fn or_broken<T>(mut self, found: Option<T>) -> Result<Option<T>, EngineError> {
        match found {
            None if !self.broken.is_empty() => Err(self.broken.remove(0).1),
            Some(_) | None => Ok(found),
        }
    }
}

/// The models of `workspace` that can be used, by their names alone; of two with one name that of the platform.
pub fn models_lent_by(workspace: &Workspace) -> Vec<ModelDefinition> {
    let mut lent: Vec<ModelDefinition> = Vec::new();
    let of_platform = workspace.platform_models.keys().map(|name| (name, format!("platform/{name}")));
    let own = workspace.models.keys().map(|name| (name, format!("workspace/{name}")));
    for (name, reference) in of_platform.chain(own) {
        if let Some(model) = workspace.model(&reference)
            && lent.iter().all(|known| known.name != *name)
        {
            lent.push(ModelDefinition { name: name.clone(), ..model.clone() });
        }
    }
    lent
}

#[async_trait]
impl LentModels for PublishedAgents {
    /// Of two with one name that of the first workspace.
    async fn models(&self) -> Result<Vec<ModelDefinition>, String> {
        let mut lent: Vec<ModelDefinition> = Vec::new();
        let bundles = self.bundles().await.and_then(CurrentBundles::or_all_broken);
        for bundle in bundles.map_err(|error| error.to_string())?.loaded {
            for model in &bundle.models {
                if lent.iter().all(|known| known.name != model.name) {
                    lent.push(model.clone());
                }
            }
        }
        Ok(lent)
    }
}

/// The line that tells why changed definitions are not in use.
fn stayed_line(reason: String) -> CatalogLine {
    CatalogLine {
        kind: "problem",
        name: DEFINITIONS.to_owned(),
        description: "The definitions that were read last stay in use.".to_owned(),
        enabled: false,
        reasons: vec![reason],
    }
}

/// The line that tells that a workspace is not served.
fn broken_line(workspace: &str, error: &EngineError) -> CatalogLine {
    CatalogLine {
        kind: "problem",
        name: workspace.to_owned(),
        description: "The agents of this workspace are not served.".to_owned(),
        enabled: false,
        reasons: vec![error.to_string()],
    }
}

impl fmt::Debug for PublishedAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishedAgents").field("workspaces", &self.from.workspaces).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A bundle that cannot be had now: the work is to be tried again.
fn away(reason: &dyn fmt::Display) -> EngineError {
    EngineError::new(Category::ProviderUnavailable, format!("a published workspace cannot be loaded: {reason}"))
}

/// The error of an agent of `version` that is left out for `reason`.
pub(crate) fn left_out(version: &str, reason: &str) -> EngineError {
    EngineError::new(Category::GraphUnknown, format!("in {version}: {reason}"))
}

#[async_trait]
impl GraphSource for PublishedAgents {
    async fn current(&self, name: &str, is_linked: bool) -> Result<Option<VersionedGraph>, EngineError> {
        let bundles = self.bundles().await?;
        let found = bundles.loaded.iter().find_map(|bundle| {
            let graph = bundle.graph(name)?.clone();
            Some(VersionedGraph { graph, version: Some(bundle.version.clone()) })
        });
        // One of them may be in what is broken, which takes no other along: as those of other workspaces what is linked goes on.
        if is_linked { Ok(found) } else { bundles.or_broken(found) }
    }

    fn has(&self, version: &str) -> bool {
        version.split_once('@').is_some_and(|(workspace, _)| sound_workspace_name(workspace))
    }

    async fn of_version(&self, name: &str, version: &str) -> Result<Arc<CompiledGraph>, EngineError> {
        let unknown = || EngineError::new(Category::GraphUnknown, format!("there is no graph `{name}` in {version}"));
        let (workspace, digest) = version.split_once('@').ok_or_else(unknown)?;
        let bundle = self.bundle(workspace, digest).await?;
        let why = bundle.offer.refused.get(name);
        bundle.graph(name).cloned().ok_or_else(|| why.map_or_else(unknown, |reason| left_out(version, reason)))
    }

    fn made(&self) -> Vec<Arc<CompiledGraph>> {
        locked(&self.loaded).values().flat_map(|bundle| bundle.graphs.iter().cloned()).collect()
    }
}

#[async_trait]
impl AgentSource for PublishedAgents {
    async fn personas(&self) -> Result<Vec<PersonaSpec>, String> {
        let mut personas: Vec<PersonaSpec> = Vec::new();
        for bundle in self.bundles().await.map_err(|error| error.to_string())?.loaded {
            for spec in &bundle.personas {
                match personas.iter().any(|known| known.graph == spec.graph) {
                    true => tracing::warn!(
                        agent = spec.graph,
                        bundle = bundle.version,
                        "an agent of this name is in a workspace before; this one is not served"
                    ),
                    false => personas.push(spec.clone()),
                }
            }
        }
        Ok(personas)
    }

    fn home(&self) -> Option<&str> {
        self.from.home.as_deref()
    }

    async fn tools(&self, at_home: bool) -> Result<Vec<ToolInfo>, String> {
        let bundles = self.bundles().await.map_err(|error| error.to_string())?;
        let tools = join_all(bundles.loaded.iter().map(|bundle| bundle.offer.tools(at_home))).await;
        Ok(tools.into_iter().flatten().collect())
    }

    async fn catalog(&self, at_home: bool) -> Result<Vec<CatalogLine>, String> {
        let bundles = self.bundles().await.map_err(|error| error.to_string())?;
        let declared = bundles.loaded.iter().flat_map(|bundle| bundle.offer.catalog(at_home).cloned());
        let seen = locked(&self.current);
        let stayed = self.from.workspaces.iter().filter_map(|name| seen.get(name)?.stayed.clone());
        let broken = bundles.broken.iter().map(|(workspace, error)| broken_line(workspace, error));
        Ok(declared.chain(stayed.map(stayed_line)).chain(broken).collect())
    }

    /// That of the first of the workspaces.
    async fn default_agent(&self) -> Result<Option<String>, String> {
        let bundles = self.bundles().await.map_err(|error| error.to_string())?;
        match bundles.is_first_broken {
            true => bundles.or_broken(None).map_err(|error| error.to_string()),
            false => Ok(bundles.loaded.first().and_then(|bundle| bundle.offer.default_agent.clone())),
        }
    }

    async fn refusal_of(&self, name: &str) -> Result<Option<String>, String> {
        let bundles = self.bundles().await.map_err(|error| error.to_string())?;
        let refused = bundles.loaded.iter().find_map(|bundle| bundle.offer.refused.get(name).cloned());
        bundles.or_broken(refused).map_err(|error| error.to_string())
    }

    async fn only_talks(&self) -> Result<bool, String> {
        let bundles = self.bundles().await.and_then(CurrentBundles::or_all_broken);
        let bundles = bundles.map_err(|error| error.to_string())?;
        let seen = locked(&self.current);
        let kind = |version: &str| seen.get(version.split_once('@')?.0)?.kind;
        let talks = |bundle: &Arc<LoadedBundle>| {
            bundle.offer.is_said_to_talk || kind(&bundle.version) == Some(WorkspaceKind::Chat)
        };
        let all_talk = !bundles.loaded.is_empty() && bundles.loaded.iter().all(talks);
        match all_talk {
            // A broken one may do more.
            true => bundles.or_broken(None::<bool>).map(|_| true).map_err(|error| error.to_string()),
            false => Ok(false),
        }
    }

    fn prepare(&self, prepare: PrepareGraph) {
        if self.prepare.set(prepare).is_err() {
            tracing::warn!(
                "graphs of published workspaces are prepared already; the second preparation does not count"
            );
        }
    }
}
