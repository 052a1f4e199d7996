//! Local mode: joins the application to the store, bus, scheduler and gateway of this process.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::middleware;
use dormouse_api::identity::{Issuers, IssuersError};
use dormouse_api::keys::KeyToken;
use dormouse_api::{
    Agents, AgentsError, AppendNotifier, Keys, Outside, Receipts, RecordingEngine, RecordingStore, StoredImages,
    StreamLimits, WebhookKeys, WebhookParts, WorkspaceFiles, Writes, webhook_graph,
};
use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_fetch::NetworkFetch;
use dormouse_harness::{DescriptorWakes, HarnessConfig, Mode, TraceExporter};
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, ConfigError, Limits, Notifications,
    NotificationsError, NotifierParts, NotifyingBus, Origins, Parts, ProtocolConfig, Quotas, Server, SignalAddresses,
};
use dormouse_otel::Telemetry;
use dormouse_ports::{
    Clock, Commits, Fetch, Records, Secrets, SignalSubscriptions, Sleepers, Spawner, StoreError, TurnStore,
};
use dormouse_protocol::Scope;
use dormouse_protocol::cursor::Cursors;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner, VaultEnvironment};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::bus::{LocalBus, PendingDeliveries};
use crate::dispatcher::{Dispatcher, Functions};
use crate::end::EndSignals;
use crate::folder::{DataFolder, FolderError, SIGNAL_KEY};
use crate::functions::Served;
use crate::gate::Gate;
use crate::gateway::{Gateway, meant_for_us};
use crate::hosts::Hosts;
use crate::inherited;
use crate::keys::{self, KeyError};
use crate::lane::Turns;
use crate::leases::ServedSessions;
use crate::listen;
use crate::program::program;
use crate::receipts::new_ring;
use crate::scheduler::LocalScheduler;
use crate::shutdown::{RunningGuard, Shutdown};
use crate::sign_in::SignIn;
use crate::store::{self, Door, EmbeddedDynamoDb, EmbeddedError, StoreLocation};
use crate::subscriptions::LocalSubscriptions;
use crate::sweeper;
use crate::tour::{self, Tour};
use crate::vault::{SealedVault, VaultError};

/// The data folder where none is named.
pub const FOLDER: &str = ".dormouse";
/// The table of a data folder's store.
pub const TABLE: &str = "dormouse";
/// Part of a data folder in which its store is made.
const UNFINISHED: &str = "store-unfinished";
/// Interval at which the store removes what has expired.
const FORGET_EVERY: Duration = Duration::from_secs(600);
/// Time that turns and connections that have begun may take when the process is asked to end. The asker, a supervisor
/// for example, often waits for ten seconds only.
const TIME_TO_END: Duration = Duration::from_millis(3500);
/// Time that observers may take then.
const TIME_TO_TELL: Duration = Duration::from_millis(500);
/// Interval at which spans and log records are sent.
const SEND_SPANS_EVERY: Duration = Duration::from_secs(2);

/// The variable that describes where notifications go.
const NOTIFICATIONS: &str = "DORMOUSE_NOTIFICATIONS";
/// The variable that describes the issuers of accepted tokens.
const ISSUERS: &str = "DORMOUSE_ISSUERS";

/// Options of local mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevOptions {
    /// The port on 127.0.0.1; 0 picks a free one.
    pub port: u16,
    /// Folder of all data.
    pub data: PathBuf,
    /// After which time the claims of a killed process are free; more than 5 seconds. A turn may compute 5 seconds
    /// less.
    pub lease: Duration,
    /// True if the guided tour is printed.
    pub tour: bool,
    /// Names beside those of loopback to which requests may be sent, also by pages of these names.
    pub hosts: Vec<String>,
    /// The port on 127.0.0.1 where tools may ask the store; without it there is none.
    pub store_port: Option<u16>,
    /// Proof of identity that callers who begin turns and send messages have to give.
    pub authorization: Authorization,
    /// True if a part of this process follows the events of the server: it has a key of its own
    /// ([`follower_key`](crate::follower_key)), so that it spends nothing of what others may ask.
    pub follower: bool,
    /// The folder of definitions whose agents are served, where there is one.
    pub workspace: Option<PathBuf>,
}

/// Reason for which local mode does not run. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The data folder cannot be had.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The port belongs to another process.
    #[error("port {0} is in use; stop what listens there, or choose another port: --port {next}, or --port 0 for any", next = .0.saturating_add(1))]
    PortTaken(u16),
    /// The operating system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The store cannot run.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The table cannot be made.
    #[error("the table cannot be opened: {0}")]
    Table(#[from] StoreError),
    /// An agent is wrong.
    #[error("the agents cannot be served: {0}")]
    Agents(#[from] AgentsError),
    /// The development key cannot be made, or is spoilt.
    #[error("the development key cannot be used: {0}; remove `api-key` from the data folder for a new one")]
    Key(String),
    /// A limit in the environment is malformed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The channels of notifications in the environment are malformed.
    #[error("{NOTIFICATIONS}: {0}")]
    Notifications(#[from] NotificationsError),
    /// The issuers of tokens in the environment are malformed.
    #[error("{ISSUERS}: {0}")]
    Issuers(#[from] IssuersError),
    /// The file of sealed secrets cannot be used.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Serves `agents`, with spans and log records for `telemetry`, until SIGINT or SIGTERM, or until its terminal is closed;
/// then ends in order: no new requests, running turns finished, observers notified.
///
/// # Errors
/// [`DevError`] when it cannot start.
pub async fn dev(agents: &Agents, options: DevOptions, telemetry: Option<Telemetry>) -> Result<(), DevError> {
    run(agents, options, telemetry, RunUntil::Signaled).await
}

/// Serves `agents` for a program that talks with them in this very process: prints nothing, reports through `ready`
/// where it listens, and ends in order when `ends` completes.
///
/// # Errors
/// [`DevError`] when it cannot start.
pub async fn serve(
    agents: &Agents,
    options: DevOptions,
    ready: oneshot::Sender<ServedAt>,
    ends: oneshot::Receiver<()>,
) -> Result<(), DevError> {
    run(agents, options, None, RunUntil::Told { ready, ends }).await
}

/// Address at which local mode listens.
#[derive(Clone)]
pub struct ServedAt {
    /// Its address.
    pub address: String,
    /// The key that may do everything.
    pub api_key: String,
}

impl std::fmt::Debug for ServedAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedAt").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Event that ends local mode.
enum RunUntil {
    Signaled,
    Told { ready: oneshot::Sender<ServedAt>, ends: oneshot::Receiver<()> },
}

async fn run(
    agents: &Agents,
    options: DevOptions,
    telemetry: Option<Telemetry>,
    until: RunUntil,
) -> Result<(), DevError> {
    let started = Instant::now();
    let folder = DataFolder::open(&options.data)?;
    let listener = listen(options.port).await?;
    if let Some(workspace) = &options.workspace
        && let Some(before) = folder.keep_workspace(workspace)?
    {
        tracing::warn!(
            before = %before.display(), now = %workspace.display(),
            "the data folder has the runs of another workspace: what sleeps of it goes on in this one, its commands and \
             files, too; name another folder with --data where that is not meant"
        );
    }
    if !options.hosts.is_empty() && options.authorization == Authorization::None {
        tracing::warn!(
            hosts = %options.hosts.join(", "),
            "whoever reaches it by this name may begin turns and chats at /graphs and /chat: start it with \
             `--authorization keys` where that is not meant"
        );
    }
    // None of them is made for a store that is older than it.
    let key = folder.secret(SIGNAL_KEY, "whoever sends signals has it")?;
    let secret = folder.secret("callback-secret", "the addresses that were given out are signed with it")?;
    let secret = CallbackSecret::new(secret);
    let store_key = folder.keep_store_key()?;
    let receipts = Receipts::of(&folder.receipt_ring(&new_ring()?)?);
    let address = format!("http://{}", listener.local_addr()?);
    tracing::info!(folder = %options.data.display(), "opening the store…");
    let store = open_store(&folder).await?;
    let client = store.client();
    ensure_table(&client, TABLE).await?;
    tracing::info!(elapsed = ?started.elapsed(), "the store is open");

    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let (bus, deliveries) = LocalBus::open(folder.path(), clock.clone(), Arc::new(RandomIds))?;
    let scheduler = LocalScheduler::new(clock.clone());
    folder.forget_timers()?;
    // The harness claims for the turn's budget and this margin.
    let turn = options.lease.saturating_sub(HarnessConfig::new(Mode::Sessioned).lease_margin);
    let quotas = Quotas::from_variables(|name| std::env::var(name).ok())?;
    let limits = Limits { turn, signals_of_tenants: true, ..quotas.limits };
    // Nobody else serves the table: what this process counts is all.
    let streams = StreamLimits::default();
    let streams = StreamLimits { of_tenant: quotas.streams_of_tenant.unwrap_or(streams.of_tenant), ..streams };
    let config = StoreConfig { wakes_by_index: true, ..StoreConfig::default() };
    let table = Arc::new(DynamoDbStateStore::new(&client, TABLE, config));
    if folder.was_complete() {
        let turns = TurnStore::from(table.clone());
        match inherited::free(&turns, &*table, &RandomIds, clock.now(), folder.path()).await {
            Ok(0) => {}
            Ok(freed) => tracing::info!(freed, "what the last process had begun goes on"),
            Err(error) => tracing::warn!(%error, "what the last process had claimed ends by itself, after its lease"),
        }
    }
    let notifier = AppendNotifier::default();
    let api_key = development_key(&folder, &*table, table.clone()).await?;
    if options.follower {
        follower_key(&folder, &*table, table.clone()).await?;
    }
    let served = TurnStore {
        sessions: Arc::new(ServedSessions::new(table.clone(), &RandomIds)),
        ..TurnStore::from(table.clone())
    };
    let recording = RecordingStore::new(served, table.clone(), clock.clone())
        .with_notifier(notifier.clone())
        .with_receipts(Some(receipts))
        .calling(Arc::new(bus.clone()));
    let subscriptions: Arc<dyn SignalSubscriptions> = Arc::new(LocalSubscriptions::new(bus.clone(), scheduler.clone()));
    let timed: Arc<dyn Sleepers> = table.clone();
    let signer = CallbackSigner::new(secret.clone());
    let callbacks = SignalAddresses::new(&address, signer.clone(), clock.clone(), limits.address);
    let images = StoredImages::new(table.clone(), table.clone(), Arc::new(RandomIds), clock.clone());
    let outside = Outside::new(Arc::new(bus.clone()), clock.clone())
        .with_callbacks(Arc::new(callbacks))
        .with_images(Arc::new(images));
    let compiled = agents.compile(&outside)?;
    if options.workspace.is_none() {
        agents.warn_of_idle_tools("name one with `--workspace FOLDER`");
    }
    let files = WorkspaceFiles {
        records: table.clone(),
        commits: table.clone(),
        ids: Arc::new(RandomIds),
        clock: clock.clone(),
    };
    let compiled = match agents.own(&outside, files) {
        Some(own) => compiled.with_own(own),
        None => compiled,
    };
    let tour = agents.tour().map_or_else(|| tour::plain(&compiled.graphs, &program()), str::to_owned);
    let webhooks = WebhookKeys::new(vec![secret.to_secret()], true);
    let delivery = WebhookParts {
        records: table.clone(),
        fetch: Arc::new(NetworkFetch::new()),
        clock: clock.clone(),
        keys: webhooks.clone(),
    };
    let compiled = compiled.with_inner(webhook_graph(delivery).map_err(AgentsError::from)?);
    let parts = NotifierParts {
        channels: notifications()?,
        invocations: table.clone(),
        fetch: Arc::new(NetworkFetch::new()),
        email: None,
        callbacks: signer.clone(),
        base_url: address.clone(),
        valid: limits.address,
        clock: clock.clone(),
    };
    let notifying = Arc::new(NotifyingBus::new(Arc::new(bus.clone()), parts));
    let app = App::new(Parts {
        engine: engine(recording).limited(quotas.invocation),
        agents: compiled,
        maintenance: table.clone().into(),
        subscriptions,
        bus: notifying,
        callbacks: signer,
        signal_key: BearerKey::new(&key),
        authorization: options.authorization,
        keys: callers(table.clone())?.under(quotas.access, false),
        base_url: Some(address.clone()),
        limits: limits.clone(),
        telemetry: telemetry.clone().map(|telemetry| Arc::new(telemetry) as Arc<dyn TraceExporter>),
    });
    let wire = ProtocolConfig {
        base_url: Some(address.clone()),
        notifier,
        streams,
        live: agents.live().clone(),
        origins: Origins::loopback(),
        may_repair: true,
        sockets: true,
        a2a: true,
        webhooks: Some(webhooks),
        secrets: vaults()?,
        templates: agents.templates().cloned(),
        ..ProtocolConfig::new(table, Cursors::new(secret.as_bytes()))
    };
    let server = Server::new(app.clone(), wire);

    let shutdown = Shutdown::new();
    let running = shutdown.running();
    let processor = store.processor();
    let gate = Gate::new(processor.clone(), clock.clone());
    let hosts = Hosts::new(&options.hosts);
    let door = store.door(&store_key);
    let (sign_in, code) = SignIn::new(&api_key).map_err(spoilt)?;
    let gateway = Gateway {
        sign_in,
        server,
        bus,
        key: BearerKey::new(&key),
        body_limit: limits.body,
        running,
        gate,
        hosts: hosts.clone(),
        door: door.clone(),
    };
    let serving = tokio::spawn(gateway.serve(listener));
    start_triggers(&app, deliveries, (scheduler, timed), (processor, &clock), options.lease, &shutdown);
    let store = Arc::new(store);
    tokio::spawn(forget(store.clone(), shutdown.running()));
    if telemetry.is_some() {
        tokio::spawn(send_spans(app.clone(), shutdown.running()));
    }
    folder.note_address(&address)?;
    let store_address = match options.store_port {
        Some(port) => Some(open_door(port, door, hosts, shutdown.running()).await?),
        None => None,
    };
    match until {
        RunUntil::Told { ready, ends } => {
            // Without a receiver there is no caller to serve.
            let _ = ready.send(ServedAt { address: address.clone(), api_key: api_key.clone() });
            tokio::select! {
                _ = ends => {}
                lost = folder.lost() => return Err(lost.into()),
            }
        }
        RunUntil::Signaled => {
            let authorization = options.authorization;
            let tour = Tour { address: &address, key: &key, api_key: &api_key, authorization, text: &tour };
            let announced = Announced { tour, tells_tour: options.tour, code: &code };
            let store = store_address.as_deref().map(|address| (address, store_key.as_str()));
            // Who reads that it is ready may ask it to end at once.
            let mut signals = EndSignals::listen()?;
            if let Err(error) = announced.print(store, started) {
                // Whoever has read enough of it, as `head` has, is served all the same.
                tracing::info!(%error, "nobody reads what is printed at the start");
            }
            tokio::select! {
                () = signals.asked() => {}
                lost = folder.lost() => return Err(lost.into()),
            }
            tracing::info!("ending after the running turns; Ctrl-C again ends at once");
            tokio::spawn(signals.end_at_once());
        }
    }
    match timeout(TIME_TO_END, shutdown.end()).await {
        Ok(()) => serving.await.map_err(io::Error::other)??,
        // A turn that is cut is taken over after the next start, when its claim has ended.
        Err(_) => tracing::warn!("some turns and connections did not end and are cut"),
    }
    let drained = app.drain(Some(TIME_TO_TELL)).await;
    if drained.undelivered_count > 0 {
        tracing::warn!(
            undelivered = drained.undelivered_count,
            "observers did not take every event before the process ended; the rest is lost"
        );
    }
    // Another process may listen there from now on.
    folder.note_address("")?;
    if let Some(store) = Arc::into_inner(store) {
        store.stop().await?;
    }
    tracing::info!("ended; everything is in the data folder");
    Ok(())
}

/// Opens the store of `folder`. A new one is made aside and put in its place when it is whole: of one that a kill left half
/// made, nothing could be made any more.
async fn open_store(folder: &DataFolder) -> Result<EmbeddedDynamoDb, DevError> {
    let place = folder.path();
    let aside = place.join(UNFINISHED);
    match fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    if folder.was_complete() {
        return Ok(EmbeddedDynamoDb::existing(place).await?);
    }
    if store::is_missing(place)? {
        store::make_private(&aside)?;
        let made = EmbeddedDynamoDb::start(&StoreLocation::Folder(aside.clone())).await?;
        ensure_table(&made.client(), TABLE).await?;
        made.stop().await?;
        fs::rename(aside.join(store::FILE), place.join(store::FILE))?;
        fs::remove_dir_all(&aside)?;
    }
    Ok(EmbeddedDynamoDb::start(&StoreLocation::Folder(place.to_owned())).await?)
}

async fn listen(port: u16) -> Result<TcpListener, DevError> {
    let bound = TcpListener::bind(("127.0.0.1", port)).await;
    bound.map_err(
        |error| if error.kind() == io::ErrorKind::AddrInUse { DevError::PortTaken(port) } else { error.into() },
    )
}

/// Providers of the secrets of vaults: on this machine the environment, and a sealed file where one is named.
fn vaults() -> Result<BTreeMap<String, Arc<dyn Secrets>>, VaultError> {
    let environment: Arc<dyn Secrets> = Arc::new(VaultEnvironment);
    let file = SealedVault::from_variables(|name| std::env::var(name).ok())?;
    let file = file.map(|file| ("file".to_owned(), Arc::new(file) as Arc<dyn Secrets>));
    Ok(BTreeMap::from_iter([("env".to_owned(), environment)].into_iter().chain(file)))
}

/// Channels of notifications; on this machine none by e-mail.
fn notifications() -> Result<Notifications, DevError> {
    let text = std::env::var(NOTIFICATIONS).ok().filter(|text| !text.trim().is_empty());
    let Some(text) = text else { return Ok(Notifications::default()) };
    let channels = Notifications::read(&text, true)?;
    if channels.has_email() {
        tracing::warn!("{NOTIFICATIONS}: e-mail is sent by deployments on AWS; here it is logged as not taken");
    }
    Ok(channels)
}

/// Issuers of the keys and tokens that are accepted.
fn callers(table: Arc<DynamoDbStateStore>) -> Result<Keys, IssuersError> {
    let fetch: Arc<dyn Fetch> = Arc::new(NetworkFetch::new());
    let spawner: Arc<dyn Spawner> = Arc::new(TokioSpawner);
    let issuers = Issuers::described(std::env::var(ISSUERS).ok().as_deref(), &fetch, &spawner)?;
    let keys = Keys::new(table.clone()).writing(Writes { commits: table, ids: Arc::new(RandomIds) });
    Ok(issuers.into_iter().fold(keys, Keys::trusting))
}

/// The engine on `store`, with the chance and the tasks of this machine.
pub fn engine(store: RecordingStore) -> RecordingEngine {
    RecordingEngine::new(store, Arc::new(RandomIds), Arc::new(TokioSpawner), Arc::new(DescriptorWakes))
}

/// Starts everything that calls functions by itself.
fn start_triggers(
    app: &App,
    deliveries: PendingDeliveries,
    (scheduler, store): (LocalScheduler, Arc<dyn Sleepers>),
    (processor, clock): (Turns, &Arc<dyn Clock>),
    lease: Duration,
    shutdown: &Shutdown,
) {
    let functions: Arc<dyn Functions> = Arc::new(Served(app.clone()));
    let dispatcher = Arc::new(Dispatcher::new(functions.clone(), processor, clock.clone(), shutdown.running()));
    tokio::spawn(deliveries.run(dispatcher.clone()));
    tokio::spawn(scheduler.run(store, dispatcher));
    tokio::spawn(sweeper::run(functions, clock.clone(), lease, shutdown.running()));
}

/// The key of the folder that may do everything: made at the first start, and let in again by a store that forgot it.
async fn development_key(
    folder: &DataFolder,
    store: &dyn Commits,
    records: Arc<dyn Records>,
) -> Result<String, DevError> {
    let made = keys::generate().map_err(spoilt)?.reveal();
    let key = folder.development_key(made)?;
    let token = KeyToken::parse(&key).ok_or_else(|| DevError::Key("it has not the form of a key".to_owned()))?;
    let grant = (keys::DEVELOPER, Scope::ALL);
    keys::admit(store, &Keys::new(records), &token, grant, Timestamp::now()).await.map_err(spoilt)?;
    Ok(key)
}

/// The key of the part of this process that follows its events. It is made when it is missing.
async fn follower_key(folder: &DataFolder, store: &dyn Commits, records: Arc<dyn Records>) -> Result<(), DevError> {
    let made = keys::generate().map_err(spoilt)?.reveal();
    let key = folder.keep_follower_key(made)?;
    let token = KeyToken::parse(&key).ok_or_else(|| DevError::Key("it has not the form of a key".to_owned()))?;
    let grant: (&str, &[Scope]) = (keys::FOLLOWER, &[Scope::EventsRead]);
    keys::admit(store, &Keys::new(records), &token, grant, Timestamp::now()).await.map_err(spoilt)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn spoilt(error: KeyError) -> DevError {
    DevError::Key(error.to_string())
}

/// Serves the store alone, for tools that speak DynamoDB, until it is time to end.
async fn open_door(port: u16, door: Door, hosts: Hosts, running: RunningGuard) -> Result<String, DevError> {
    let listener = listen(port).await?;
    let address = format!("http://{}", listener.local_addr()?);
    let routes = door.at("/").layer(middleware::from_fn_with_state(hosts, meant_for_us));
    tokio::spawn(async move {
        if let Err(error) = listen::serve(listener, routes, running).await {
            tracing::error!(%error, "the port of the store is closed");
        }
    });
    Ok(address)
}

/// Announcement that is printed when everything runs.
struct Announced<'a> {
    tour: Tour<'a>,
    tells_tour: bool,
    /// Signs in at the console once.
    code: &'a str,
}

impl Announced<'_> {
    fn print(&self, store: Option<(&str, &str)>, started: Instant) -> io::Result<()> {
        let Tour { address, key, api_key, .. } = self.tour;
        tracing::info!(address, elapsed = ?started.elapsed(), "ready");
        let mut out = io::stdout().lock();
        writeln!(out, "console: {address}/console#code={} (signs in once)", self.code)?;
        writeln!(out, "dormouse is ready at {address}")?;
        writeln!(out, "signal key: {key}")?;
        writeln!(out, "api key: {api_key}")?;
        if let Some((address, secret)) = store {
            let access = "AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local";
            writeln!(
                out,
                "store: {access} AWS_SESSION_TOKEN={secret} aws dynamodb --endpoint-url {address} list-tables"
            )?;
        }
        if self.tells_tour {
            write!(out, "{}", self.tour.filled())?;
        }
        out.flush()
    }
}

async fn forget(store: Arc<EmbeddedDynamoDb>, running: RunningGuard) {
    loop {
        if let Err(error) = store.sweep().await {
            tracing::warn!(%error, "the store could not forget what has expired");
        }
        tokio::select! {
            () = tokio::time::sleep(FORGET_EVERY) => {}
            () = running.stopping() => return,
        }
    }
}

/// Sends spans now and then: nothing freezes this process after a request.
pub(crate) async fn send_spans(app: App, running: RunningGuard) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SEND_SPANS_EVERY) => app.flush(SEND_SPANS_EVERY).await,
            () = running.stopping() => return,
        }
    }
}
