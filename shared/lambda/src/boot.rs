//! The composition root of the functions on Lambda: the only place where ports meet adapters there.

use std::sync::Arc;

use dormouse_aws::{
    AwsSubscriptions, CallbackSigner, DynamoDbStateStore, EventBridgeBus, RandomIds, RuleConfig, SchedulerConfig,
    StoreConfig, SystemClock, TokioSpawner,
};
use dormouse_engine::{Engine, EngineError, Ports};
use dormouse_harness::DescriptorWakes;
use dormouse_otel::Telemetry;
use dormouse_ports::{Clock, EventBus, limits};

use crate::config::{Config, ConfigError};
use crate::{App, Limits, Parts};

/// Why a function cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The environment is not complete.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A graph that ships does not compile.
    #[error("a graph cannot be used: {0}")]
    Graph(#[from] EngineError),
}

/// The application on AWS, as the environment describes it, with spans and log records for `telemetry`. Clients connect
/// when they are first used.
///
/// # Errors
/// [`BootError`], before anything was asked of AWS.
pub fn boot(telemetry: Option<Telemetry>) -> Result<App, BootError> {
    let config = Config::from_env()?;
    let clients = config.access.clients();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let bus: Arc<dyn EventBus> = Arc::new(EventBridgeBus::new(clients.eventbridge.clone(), config.bus.clone()));
    let graphs = dormouse_app::registry(bus.clone(), clock.clone())?;
    let ports = Ports {
        store: Arc::new(DynamoDbStateStore::new(&clients.dynamodb, config.table, StoreConfig::default())),
        clock: clock.clone(),
        ids: Arc::new(RandomIds),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    };
    let schedules = SchedulerConfig {
        group_name: config.scheduler_group,
        role_arn: config.scheduler_role_arn,
        wakeup_function_arn: config.wakeup_arn,
        dead_letter_arn: config.dead_letter_arn.clone(),
    };
    let rules = RuleConfig {
        bus_name: config.bus,
        signal_function_arn: config.signal_arn,
        dead_letter_arn: config.dead_letter_arn,
        most_rules: limits::PATTERN_RULES,
    };
    let subscriptions = AwsSubscriptions::new(clients.scheduler, schedules, clients.eventbridge, rules, clock);
    Ok(App::new(Parts {
        engine: Engine::new(ports),
        graphs,
        subscriptions: Arc::new(subscriptions),
        bus,
        callbacks: CallbackSigner::new(config.callback_secret),
        signal_key: config.signal_key,
        base_url: config.base_url,
        limits: Limits::default(),
        telemetry,
    }))
}
