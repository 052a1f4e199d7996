//! The composition root of the functions on Lambda: the only place where ports meet adapters there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dormouse_api::identity::{IssuerConfig, Issuers};
use dormouse_api::{
    Agents, AgentsError, Keys, Outside, Receipts, RecordingEngine, RecordingStore, StoredImages, StreamLimits,
    StreamSeats, WebhookKeys, WebhookParts, WorkspaceFiles, WorkspaceTemplates, Writes, webhook_graph,
};
use dormouse_aws::{
    ApiGatewayConnections, AwsAccess, AwsSubscriptions, Clients, DynamoDbStateStore, EventBridgeBus, KmsKey, KmsSigner,
    ParameterSecrets, Parameters, RequestSigner, RuleConfig, SchedulerConfig, StoreConfig,
};
use dormouse_declared::ServedTemplates;
use dormouse_fetch::NetworkFetch;
use dormouse_harness::{DescriptorWakes, RulePolicy, TraceExporter};
use dormouse_http::{
    App, CallbackSecret, CallbackSigner, CommandsElsewhere, ConfigError, HeldParts, HeldSockets, Limits, NotifierParts,
    NotifyingBus, Parts, ProtocolConfig, Server, SignalAddresses,
};
use dormouse_otel::Telemetry;
use dormouse_ports::{Clock, EventBus, Fetch, Secrets, Sign, SignalSubscriptions, Sleepers, Spawner};
use dormouse_protocol::cursor::Cursors;
use dormouse_system::{RandomIds, SystemClock, TokioSpawner};

use crate::Function;
use crate::config::{Config, SecretsError};
use crate::machine::LookedFor;
use crate::sockets::FunctionCalls;
use crate::workers::WorkerCalls;
use crate::workspaces::{JoinsWorkspaces, WorkspaceParts, joined_by};

/// Time for which a request for a stream waits for its first event where responses are sent whole.
const WHOLE_STREAM_LIFE: Duration = Duration::from_secs(20);
/// Life of a stream that is followed for a socket: longer than API Gateway keeps any open. Its follower ends before.
const SOCKET_LIFE: Duration = Duration::from_secs(3 * 3600);
/// Bytes up to which the record of a socket, and the seats of a tenant, live inside their items: each is written often, and
/// a blob would be left behind each time.
const SOCKET_RECORD: usize = 300 * 1024;
/// Number of bytes of a stream that are sent whole: a response of Lambda has 6 MB, in JSON.
const WHOLE_STREAM: usize = 2 * 1024 * 1024;

/// Reason for which a function cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The environment is not complete.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration is one of another function than that for sockets.
    #[error("the configuration says nothing of sockets: it is one of another function")]
    NoSockets,
    /// A secret cannot be had.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    /// An agent is wrong.
    #[error("the agents cannot be served: {0}")]
    Agents(#[from] AgentsError),
}

/// The server of `agents` that `function` runs on AWS, as the environment describes it, with spans and log records for
/// `telemetry`.
///
/// # Errors
/// [`BootError`]. Nothing is asked of AWS before the whole environment was read.
pub async fn boot(function: Function, agents: &Agents, telemetry: Option<Telemetry>) -> Result<Server, BootError> {
    compose(function, Config::from_env(function)?, telemetry, agents).await
}

/// The server of `agents` that `function` runs on AWS with `config`. Their graphs are made while the answer of
/// Parameter Store is on its way; where all secrets are in `config` it is not asked. The other clients connect when
/// they are first used.
///
/// # Errors
/// If a secret cannot be had, or an agent is wrong.
pub async fn compose(
    function: Function,
    config: Config,
    telemetry: Option<Telemetry>,
    agents: &Agents,
) -> Result<Server, BootError> {
    let Joined { app, wire, .. } = joined(shape_of_turns(function, &config), config, telemetry, agents).await?;
    Ok(Server::new(app, wire))
}

/// The application that `function` runs on AWS, as the environment describes it, without a server of the protocol over it.
pub(crate) async fn boot_app(
    function: Function,
    agents: &Agents,
    telemetry: Option<Telemetry>,
) -> Result<App, BootError> {
    let config = Config::from_env(function)?;
    Ok(joined(shape_of_turns(function, &config), config, telemetry, agents).await?.app)
}

/// The sockets of `agents` that the function `socket` holds on AWS, as the environment describes it.
///
/// # Errors
/// [`BootError`]. Nothing is asked of AWS before the whole environment was read.
pub(crate) async fn boot_sockets(agents: &Agents, telemetry: Option<Telemetry>) -> Result<HeldSockets, BootError> {
    compose_sockets(Config::from_env(Function::Socket)?, telemetry, agents).await
}

/// The sockets of `agents` that the function `socket` holds on AWS with `config`.
///
/// # Errors
/// If `config` is one of another function, a secret cannot be had, or an agent is wrong.
pub async fn compose_sockets(
    config: Config,
    telemetry: Option<Telemetry>,
    agents: &Agents,
) -> Result<HeldSockets, BootError> {
    let own = config.sockets.clone().ok_or(BootError::NoSockets)?;
    let shape = shape(Function::Socket, &config);
    let fetch = shape.fetch.clone();
    let access = config.access.clone();
    let table = config.table.clone();
    let Joined { app, wire, dynamodb, .. } = joined(shape, config, telemetry, agents).await?;
    let cursors = wire.cursors.clone();
    let server = Server::new(app, wire);
    let clock = Arc::new(SystemClock::default());
    let kept = StoreConfig { inline_limit: SOCKET_RECORD, ..StoreConfig::default() };
    let store = Arc::new(DynamoDbStateStore::new(&dynamodb, table, kept));
    let itself =
        FunctionCalls(dormouse_aws::Function::unqualified(&access, &own.function, fetch.clone(), clock.clone()));
    Ok(HeldSockets::new(HeldParts {
        server,
        records: store.clone(),
        commits: store,
        cursors,
        connections: Arc::new(ApiGatewayConnections::new(&access, &own.stage_url, fetch, clock)),
        calls: Arc::new(itself),
        limits: StreamLimits::default(),
    }))
}

/// The shape of the server that `function` runs, which makes turns: with agents of workspaces where published ones are served.
/// Without these there is no model to lend, and nothing is asked of the files of others.
fn shape_of_turns(function: Function, config: &Config) -> ServerShape {
    let workspaces = config.workspaces.as_ref().map(|_| joined_by as JoinsWorkspaces);
    ServerShape { workspaces, templates: Some(templates()), ..shape(function, config) }
}

/// The shape of the server that `function` runs, which makes no turns and no workspaces.
fn shape(function: Function, config: &Config) -> ServerShape {
    let clients = config.access.clone().clients();
    let bus = Arc::new(EventBridgeBus::new(clients.eventbridge.clone(), config.bus.clone()));
    let fetch: Arc<dyn Fetch> = Arc::new(NetworkFetch::new());
    let clock = Arc::new(SystemClock::default());
    let bus = Arc::new(WorkerCalls::new(bus, &config.wakeup_arn, &config.access, fetch.clone(), clock));
    let reads_only = function == Function::Socket;
    let streams = streams(function);
    ServerShape { streams, reads_only, workspaces: None, templates: None, clients, bus, fetch }
}

/// The templates that ship.
pub(crate) fn templates() -> Arc<dyn WorkspaceTemplates> {
    Arc::new(ServedTemplates::shipped())
}

/// Differences between the functions, and between them and a machine of one's own.
pub(crate) struct ServerShape {
    pub(crate) streams: StreamLimits,
    pub(crate) reads_only: bool,
    /// Adds the agents of workspaces, where there are any. Who has none holds no code of models, tools and workspaces.
    pub(crate) workspaces: Option<JoinsWorkspaces>,
    /// What workspaces are begun with, where any are.
    pub(crate) templates: Option<Arc<dyn WorkspaceTemplates>>,
    pub(crate) clients: Clients,
    pub(crate) bus: Arc<dyn EventBus>,
    /// All that is sent over HTTP by this process shares its connections, and the roots that it has read.
    pub(crate) fetch: Arc<dyn Fetch>,
}

/// An application, and what a server of it and others need. Who makes no [`Server`] of it holds no code of the protocol.
pub(crate) struct Joined {
    pub(crate) app: App,
    pub(crate) wire: ProtocolConfig,
    /// Its store, as one that knows what falls due.
    pub(crate) sleepers: Arc<dyn Sleepers>,
    /// The client of its store.
    dynamodb: aws_sdk_dynamodb::Client,
}

/// The application that the environment describes.
pub(crate) async fn joined(
    ServerShape { streams, reads_only, workspaces, templates, clients, bus, fetch }: ServerShape,
    config: Config,
    telemetry: Option<Telemetry>,
    agents: &Agents,
) -> Result<Joined, BootError> {
    let published = config.workspaces.map(|workspaces| (workspaces, config.access.clone()));
    if workspaces.is_some() && published.is_none() {
        agents.warn_of_idle_tools("name published ones in `DORMOUSE_WORKSPACES`");
    }
    let of_crate = agents.crate_tools().clone();
    let ses = config.access.clone();
    let kms = config.access.clone();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    // Where the scheduler is not told of a wake-up, the table has to be able to tell.
    let schedules = SchedulerConfig {
        group_name: config.scheduler_group,
        role_arn: config.scheduler_role_arn,
        wakeup_function_arn: config.wakeup_arn,
        dead_letter_arn: config.dead_letter_arn.clone(),
    };
    let kept = StoreConfig {
        wakes_by_index: !config.registers,
        registered_at: config.registers.then(|| schedules.place(&config.table)),
        ..StoreConfig::default()
    };
    let store = Arc::new(DynamoDbStateStore::new(&clients.dynamodb, config.table, kept));
    let images = StoredImages::new(store.clone(), store.clone(), Arc::new(RandomIds), clock.clone());
    let outside = Outside::new(bus.clone(), clock.clone()).with_images(Arc::new(images));
    let making = async { agents.compile(&outside) };
    let (secrets, agents) = futures::join!(Box::pin(config.secrets.load(&clients.parameters)), making);
    let secrets = secrets?;
    let agents = agents?;
    let signs = secrets.signs;
    let webhooks = (config.webhooks && signs && !reads_only).then(|| {
        let both = std::iter::once(&secrets.callback_secret).chain(&secrets.second_callback_secret);
        WebhookKeys::new(both.map(CallbackSecret::to_secret).collect(), false)
    });
    let (callbacks, cursors) = signers(secrets.callback_secret, secrets.second_callback_secret);
    // An address that this function could not sign would be given out in vain.
    let outside = match config.base_url.as_ref().filter(|_| signs) {
        Some(url) => {
            let valid = config.quotas.limits.address;
            outside.with_callbacks(Arc::new(SignalAddresses::new(url, callbacks.clone(), clock.clone(), valid)))
        }
        None => outside,
    };
    let agents = match workspaces {
        None => agents,
        Some(join) => {
            let files = WorkspaceFiles {
                records: store.clone(),
                commits: store.clone(),
                ids: Arc::new(RandomIds),
                clock: clock.clone(),
            };
            let (parameters, fetch, outside) = (clients.parameters.clone(), fetch.clone(), outside.clone());
            join(agents, WorkspaceParts { published, parameters, of_crate, files, fetch, outside })
        }
    };
    let agents = match &webhooks {
        Some(keys) => agents.with_inner(
            webhook_graph(WebhookParts {
                records: store.clone(),
                // Who names an address is no reason to reach what only this network can.
                fetch: Arc::new(NetworkFetch::public()),
                clock: clock.clone(),
                keys: keys.clone(),
            })
            .map_err(AgentsError::from)?,
        ),
        None => agents,
    };
    let receipts = secrets.receipt_keys.as_ref().map(|ring| {
        Receipts::by(ring, |ring| {
            let key = KmsKey::new(&kms, ring.key(), fetch.clone(), clock.clone());
            Arc::new(KmsSigner::new(key, &ring.public().id))
        })
    });
    let recording =
        RecordingStore::new(store.clone(), store.clone(), clock.clone()).with_receipts(receipts).calling(bus.clone());
    let ids = Arc::new(RandomIds);
    let spawner = Arc::new(TokioSpawner);
    let planner = Arc::new(DescriptorWakes);
    let rules = RuleConfig {
        bus_name: config.bus,
        signal_function_arn: config.signal_arn,
        dead_letter_arn: config.dead_letter_arn,
    };
    let subscriptions: Arc<dyn SignalSubscriptions> = match config.registers {
        true => {
            Arc::new(AwsSubscriptions::new(clients.scheduler, schedules, clients.eventbridge, rules, clock.clone()))
        }
        false => Arc::new(LookedFor::default()),
    };
    let bus: Arc<dyn EventBus> = match (&config.base_url, signs && !secrets.notifications.is_empty()) {
        (Some(base_url), true) => {
            let email = secrets.notifications.has_email().then(|| email(&ses, &clock));
            Arc::new(NotifyingBus::new(
                bus,
                NotifierParts {
                    channels: secrets.notifications,
                    invocations: store.clone(),
                    fetch: fetch.clone(),
                    email,
                    callbacks: callbacks.clone(),
                    base_url: base_url.clone(),
                    valid: config.quotas.limits.address,
                    clock: clock.clone(),
                },
            ))
        }
        (_, _) => bus,
    };
    // Who sends whole answers has no stream open for longer than a request.
    let seats = config.quotas.streams_of_tenant.filter(|_| streams.whole.is_none()).map(|of_tenant| StreamSeats {
        records: store.clone(),
        documents: store.clone(),
        ids: ids.clone(),
        clock: clock.clone(),
        spawner: spawner.clone(),
        of_tenant,
    });
    let wire = ProtocolConfig {
        seats,
        base_url: config.base_url.clone(),
        stream_url: config.stream_url,
        socket_url: config.socket_url,
        commands: config.sockets.map(|own| CommandsElsewhere::new(fetch.clone(), &own.api_url)),
        streams,
        origins: config.origins,
        reads_only,
        a2a: !reads_only,
        webhooks,
        secrets: vaults(config.vaults, &clients.parameters, &clock),
        templates,
        ..ProtocolConfig::new(store.clone(), cursors)
    };
    let limits = config.quotas.limits;
    let keys = Keys::new(wire.records.clone());
    // A function that may only read writes nothing about its callers.
    let keys = match reads_only {
        true => keys,
        false => keys.writing(Writes { commits: store.clone(), ids: ids.clone() }),
    };
    let app = App::new(Parts {
        engine: RecordingEngine::new(recording, ids, spawner, planner).limited(config.quotas.invocation),
        agents,
        maintenance: store.clone().into(),
        subscriptions,
        bus,
        callbacks,
        signal_key: secrets.signal_key,
        authorization: config.authorization,
        keys: callers(keys, config.issuers, &fetch).under(config.quotas.access, true),
        base_url: config.base_url,
        limits: Limits {
            turn: config.turn,
            rules: RulePolicy { settling: config.rule_settling, ..limits.rules },
            ..limits
        },
        telemetry: telemetry.map(|telemetry| Arc::new(telemetry) as Arc<dyn TraceExporter>),
    });
    Ok(Joined { app, wire, sleepers: store, dynamodb: clients.dynamodb })
}

/// Providers of the secrets of vaults: encrypted parameters below `path`, each named after its tenant, a dot and itself.
fn vaults(path: Option<String>, parameters: &Parameters, clock: &Arc<dyn Clock>) -> BTreeMap<String, Arc<dyn Secrets>> {
    let provider = |path| Arc::new(ParameterSecrets::new(parameters.clone(), path, clock.clone())) as Arc<dyn Secrets>;
    path.map(|path| ("ssm".to_owned(), provider(path))).into_iter().collect()
}

/// Signer of requests to Amazon SES, and its address.
fn email(access: &AwsAccess, clock: &Arc<dyn Clock>) -> (Arc<dyn Sign>, String) {
    (Arc::new(RequestSigner::new(access, "ses", clock.clone())), dormouse_aws::email_address(access))
}

/// Issuers of the keys and tokens that are accepted.
pub(crate) fn callers(keys: Keys, issuers: Vec<IssuerConfig>, fetch: &Arc<dyn Fetch>) -> Keys {
    let spawner: Arc<dyn Spawner> = Arc::new(TokioSpawner);
    if issuers.is_empty() { keys } else { keys.trusting(Issuers::new(issuers, fetch, &spawner)) }
}

/// Signer and reader of addresses and of cursors: both sign with `secret`, and accept what `second` signed.
fn signers(secret: CallbackSecret, second: Option<CallbackSecret>) -> (CallbackSigner, Cursors) {
    let cursors = Cursors::new(secret.as_bytes());
    let callbacks = CallbackSigner::new(secret);
    match second {
        Some(second) => {
            let cursors = cursors.accepting(second.as_bytes());
            (callbacks.accepting(second), cursors)
        }
        None => (callbacks, cursors),
    }
}

/// Limits of streams. Behind API Gateway a stream yields what there is and ends; its clients come back for more.
fn streams(function: Function) -> StreamLimits {
    match function {
        Function::Socket => StreamLimits { life: SOCKET_LIFE, ..StreamLimits::default() },
        Function::Inbound | Function::Signal | Function::Wakeup => {
            StreamLimits { life: WHOLE_STREAM_LIFE, whole: Some(WHOLE_STREAM), ..StreamLimits::default() }
        }
    }
}
