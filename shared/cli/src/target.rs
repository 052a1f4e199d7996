//! The store that the commands look into: that of a data folder, whether or not `dormouse dev` runs on it, or a table.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use aws_sdk_dynamodb::config::Credentials;
use dormouse_api::{Agents, AgentsError, Outside, Receipts, RecordingStore, WEBHOOK_GRAPH, queued_behind};
use dormouse_aws::{
    AwsAccess, DynamoDbStateStore, Endpoints, Eraser, EventBridgeBus, KmsKey, KmsSigner, ParameterError, Parameters,
    StoreConfig,
};
use dormouse_fetch::NetworkFetch;
use dormouse_harness::{Harness, HarnessConfig, Mode, TurnError};
use dormouse_local::{
    EmbeddedError, FOLDER, OpenError, OpenedFolder, RECEIPT_RING, ServedBus, TABLE, engine, receipt_ring,
};
use dormouse_maintenance::doctor::{Diagnosis, Doctor, RulesSeen};
use dormouse_ports::{
    BusError, Clock, Event, EventBus, EventRule, EventRules, InvocationId, ListedRule, MaintenanceStore, Records,
    Registration, RuleName, SignalSubscriptions, StateStore, Subscription, SubscriptionError, Timers,
};
use dormouse_receipts::{InvalidRing, Ring};
use dormouse_system::SystemClock;

pub(crate) use dormouse_local::Purpose;

use crate::declared::data_of;
use crate::terminal::quoted;

/// The data folder that a command means where none is named.
pub(crate) fn usual_data() -> PathBuf {
    usual_data_in(Path::new(""))
}

/// The data folder in `current`: `.dormouse`, or else, where it is there, that of the workspace which `current` is.
fn usual_data_in(current: &Path) -> PathBuf {
    let of_workspace = data_of(current);
    match !current.join(FOLDER).exists() && of_workspace.is_dir() {
        true => of_workspace,
        false => current.join(FOLDER),
    }
}

/// Says where a command changes something that was told of no folder, and takes that of the workspace in the current one.
pub(crate) fn tell_of_workspace(data: &Path) {
    if is_of_workspace(data, std::env::args_os()) {
        // A terminal that is gone shows no note.
        let _ = writeln!(io::stderr(), "note: this is done in {}, the data of this workspace", data.display());
    }
}

/// True if `data` is that of a workspace, and none of the `arguments` names it.
fn is_of_workspace(data: &Path, arguments: impl IntoIterator<Item = OsString>) -> bool {
    let names = |argument: OsString| argument.to_string_lossy().split('=').next() == Some("--data");
    data == data_of(Path::new("")) && !arguments.into_iter().any(names)
}

/// Store to look into.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreTarget {
    /// Data folder of local mode; a running `dormouse dev` may have it. Where there is no `.dormouse`, it is that of the
    /// workspace in the current folder.
    #[arg(long, default_value_os_t = usual_data(), value_name = "FOLDER", conflicts_with = "table")]
    data: PathBuf,
    /// DynamoDB table to look into instead; credentials come from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
    /// `AWS_SESSION_TOKEN`, the region from `AWS_REGION`. With `DORMOUSE_BUS` graphs can publish, and the doctor sees
    /// the rules of the bus; with `DORMOUSE_RECEIPT_KEYS` what is ended from here gets its receipts.
    #[arg(long, value_name = "TABLE")]
    table: Option<String>,
    /// Address of DynamoDB, if not that of the region.
    #[arg(long, value_name = "URL", requires = "table", conflicts_with = "data", value_parser = endpoint)]
    endpoint_url: Option<String>,
}

/// The address of an endpoint of AWS, or of what stands in for one.
pub(crate) fn endpoint(text: &str) -> Result<String, String> {
    let begins = |scheme: &str| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty());
    match begins("http://") || begins("https://") {
        true => Ok(text.to_owned()),
        false => Err("it begins with http:// or https://".to_owned()),
    }
}

/// The variable with the keys that receipts of a table's tasks are signed with.
const RECEIPT_KEYS: &str = "DORMOUSE_RECEIPT_KEYS";

/// Reason for which there is nothing to look into. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(transparent)]
    Folder(#[from] OpenError),
    #[error(
        "{0} is not set: what is on AWS is asked with the region and the credentials of the environment. Set AWS_REGION, and \
         take the credentials of a profile with eval \"$(aws configure export-credentials --format env)\""
    )]
    NoVariable(&'static str),
    #[error("DORMOUSE_RECEIPT_KEYS: {0}")]
    ReceiptKeys(InvalidRing),
    #[error("DORMOUSE_RECEIPT_KEYS: the parameter {name} cannot be read: {reason}")]
    NoReceiptKeys { name: String, reason: String },
    #[error("{0}; what is ended or answered from here would leave no receipt: put the file back from a copy")]
    DamagedReceiptKeys(io::Error),
    #[error("a graph cannot be compiled: {0}")]
    Agents(#[from] AgentsError),
}

/// A store with a harness on it.
pub(crate) struct OpenedStore {
    pub(crate) harness: Harness,
    store: Arc<DynamoDbStateStore>,
    pub(crate) maintenance: MaintenanceStore,
    rules: RuleSource,
}

/// Source of the rules of the event bus.
enum RuleSource {
    /// In a folder, which has to stay open as long.
    Folder(OpenedFolder),
    /// On EventBridge.
    EventBridge(EventBridgeBus),
    /// None: no bus is configured.
    Nowhere,
}

impl fmt::Debug for OpenedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("harness", &self.harness).finish_non_exhaustive()
    }
}

impl OpenedStore {
    /// The store as it is, which publishes nothing to clients.
    pub(crate) fn store(&self) -> &dyn StateStore {
        &*self.store
    }

    /// What erases from its table.
    pub(crate) fn eraser(&self) -> Eraser {
        self.store.eraser()
    }

    /// True if wake-ups can be registered from here. Elsewhere that is left to the sweep of those who serve the store.
    pub(crate) fn registers(&self) -> bool {
        matches!(&self.rules, RuleSource::Folder(folder) if folder.subscriptions.is_some())
    }

    /// A doctor who knows which rules the event bus has, as far as that can be seen from here.
    pub(crate) async fn doctor(&self) -> Doctor<'_> {
        Doctor::new(&self.harness, &self.maintenance, self.see_rules().await).beside(WEBHOOK_GRAPH)
    }

    /// The diagnosis of the invocation `id`, which knows whether that waits in the queue of its session.
    ///
    /// # Errors
    /// As those of [`Doctor::diagnose`].
    pub(crate) async fn diagnose(&self, id: &InvocationId) -> Result<Diagnosis, TurnError> {
        let mut diagnosis = self.doctor().await.diagnose(id).await?;
        let now = self.harness.engine().ports().clock.now();
        let ahead = queued_behind(&*self.store, &diagnosis.record, now).await;
        if let Some(ahead) = ahead {
            diagnosis.wait_behind(ahead.as_str());
        }
        Ok(diagnosis)
    }

    /// The process that serves the folder, where there is one.
    pub(crate) fn served(&self) -> Option<&ServedBus> {
        match &self.rules {
            RuleSource::Folder(folder) => folder.served.as_deref(),
            RuleSource::EventBridge(_) | RuleSource::Nowhere => None,
        }
    }

    async fn see_rules(&self) -> RulesSeen {
        let at = self.harness.engine().ports().clock.now();
        if self.registers() {
            return RulesSeen::look(&self.harness).await;
        }
        let rules = match &self.rules {
            RuleSource::Folder(folder) => match folder.rules() {
                Ok(names) => Ok(names.into_iter().map(ListedRule::enabled).collect()),
                Err(error) => Err(error.to_string()),
            },
            RuleSource::EventBridge(bus) => bus.rules().await.map_err(|error| error.to_string()),
            RuleSource::Nowhere => Err("DORMOUSE_BUS does not name the event bus".to_owned()),
        };
        RulesSeen::new(at, rules)
    }

    /// Reader of the documents of the store.
    pub(crate) fn records(&self) -> Arc<dyn Records> {
        self.store.clone()
    }

    /// Closes the store, where it is this process's.
    pub(crate) async fn close(self) -> Result<(), EmbeddedError> {
        drop((self.harness, self.store, self.maintenance));
        match self.rules {
            RuleSource::Folder(folder) => folder.close().await,
            RuleSource::EventBridge(_) | RuleSource::Nowhere => Ok(()),
        }
    }
}

impl StoreTarget {
    /// The data folder `data`.
    pub(crate) fn folder(data: PathBuf) -> Self {
        Self { data, table: None, endpoint_url: None }
    }

    /// True if it is a table, which is served from elsewhere.
    pub(crate) fn is_table(&self) -> bool {
        self.table.is_some()
    }

    /// The options of a command that name the same place again, each behind a blank.
    pub(crate) fn options(&self) -> String {
        let data = self.data.to_string_lossy();
        let option = |name: &str, value: &str| format!(" {name} {}", quoted(value));
        match (&self.table, &self.endpoint_url) {
            (Some(table), None) => option("--table", table),
            (Some(table), Some(url)) => option("--table", table) + &option("--endpoint-url", url),
            (None, _) if data == FOLDER => String::new(),
            (None, _) => option("--data", &data),
        }
    }

    /// Warns the user who is about to end or answer something in a table without the keys that this leaves no receipt.
    pub(crate) fn tell_of_receipts(&self) {
        if self.table.is_some() && std::env::var_os(RECEIPT_KEYS).is_none() {
            // A terminal that is gone shows no warning.
            let _ = writeln!(
                io::stderr(),
                "note: {RECEIPT_KEYS} is not set, so what is ended or answered from here leaves no receipt, even where \
                 the functions issue some. Set it to the keys, or to the name of the parameter that holds them, such as \
                 /dormouse/STAGE/receipt-keys"
            );
        }
    }

    /// Opens the store for `purpose`, and for what `agents` left there.
    pub(crate) async fn open(&self, agents: &Agents, purpose: Purpose) -> Result<OpenedStore, TargetError> {
        self.open_by(agents, purpose, StoreConfig::default().page_size).await
    }

    /// As [`open`](Self::open); listings read `page_size` items at once.
    pub(crate) async fn open_by(
        &self,
        agents: &Agents,
        purpose: Purpose,
        page_size: i32,
    ) -> Result<OpenedStore, TargetError> {
        let config = StoreConfig { page_size, ..StoreConfig::default() };
        match &self.table {
            Some(table) => {
                let access = access(self.endpoint_url.clone())?;
                let clients = access.clone().clients();
                let (bus, rules): (Arc<dyn EventBus>, _) = match std::env::var("DORMOUSE_BUS") {
                    Ok(bus) => {
                        let bus = EventBridgeBus::new(clients.eventbridge, bus);
                        (Arc::new(bus.clone()), RuleSource::EventBridge(bus))
                    }
                    Err(_) => (Arc::new(NoBus), RuleSource::Nowhere),
                };
                let store = DynamoDbStateStore::new(&clients.dynamodb, table, config);
                let receipts = receipts_of(&clients.parameters, &access).await?;
                opened(agents, store, bus, Arc::new(LeftToTheSweep), (rules, receipts))
            }
            None => self.open_folder(agents, purpose, config).await,
        }
    }

    async fn open_folder(
        &self,
        agents: &Agents,
        purpose: Purpose,
        config: StoreConfig,
    ) -> Result<OpenedStore, TargetError> {
        let receipts = match purpose {
            Purpose::Look => None,
            Purpose::Change => receipts_in(&self.data)?,
        };
        let folder = OpenedFolder::open(&self.data, purpose).await?;
        match purpose {
            Purpose::Look => {}
            Purpose::Change => tell_of_workspace(&self.data),
        }
        // The process that serves a folder wakes by its index.
        let config = StoreConfig { wakes_by_index: true, ..config };
        let store = DynamoDbStateStore::new(&folder.client, TABLE, config);
        let bus = folder.bus.clone().unwrap_or_else(|| Arc::new(NoBus));
        let subscriptions = folder.subscriptions.clone().unwrap_or_else(|| Arc::new(LeftToTheSweep));
        opened(agents, store, bus, subscriptions, (RuleSource::Folder(folder), receipts))
    }
}

fn opened(
    agents: &Agents,
    store: DynamoDbStateStore,
    bus: Arc<dyn EventBus>,
    subscriptions: Arc<dyn SignalSubscriptions>,
    (rules, receipts): (RuleSource, Option<Receipts>),
) -> Result<OpenedStore, TargetError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let graphs = agents.compile(&Outside::new(bus.clone(), clock.clone()))?.graphs;
    let store = Arc::new(store);
    let recording = RecordingStore::new(store.clone(), store.clone(), clock).with_receipts(receipts);
    let engine = engine(recording);
    let harness =
        Harness::new(engine.engine().clone(), graphs, subscriptions, bus, HarnessConfig::new(Mode::Sessioned));
    Ok(OpenedStore { harness, maintenance: store.clone().into(), store, rules })
}

/// Issuer of the receipts of the tasks in the data folder `data`.
fn receipts_in(data: &Path) -> Result<Option<Receipts>, TargetError> {
    // A folder of an earlier version has no key yet.
    if !data.join(RECEIPT_RING).exists() {
        return Ok(None);
    }
    Ok(match receipt_ring(data).map_err(TargetError::DamagedReceiptKeys)? {
        Ring::Held(ring) => Some(Receipts::of(&ring)),
        // No process serves such a folder.
        Ring::Kms(_) => None,
    })
}

/// Issuer of the receipts of a table's tasks.
async fn receipts_of(parameters: &Parameters, access: &AwsAccess) -> Result<Option<Receipts>, TargetError> {
    let Ok(text) = std::env::var(RECEIPT_KEYS) else { return Ok(None) };
    let text = if text.starts_with('/') { kept(parameters, text).await? } else { text };
    let ring = Ring::parse(&text).map_err(TargetError::ReceiptKeys)?;
    Ok(Some(Receipts::by(&ring, |ring| Arc::new(KmsSigner::new(kms_key(access, ring.key()), &ring.public().id)))))
}

/// The key of AWS KMS with the ARN `key`.
pub(crate) fn kms_key(access: &AwsAccess, key: &str) -> KmsKey {
    KmsKey::new(access, key, Arc::new(NetworkFetch::new()), Arc::new(SystemClock::default()))
}

/// Value of the parameter `name`.
async fn kept(parameters: &Parameters, name: String) -> Result<String, TargetError> {
    let found = parameters.secure(&[&name]).await;
    let reason = match found.map(|mut found| found.pop().flatten()) {
        Ok(Some(text)) => return Ok(text.reveal().to_owned()),
        Ok(None) => "there is none of that name".to_owned(),
        Err(ParameterError::Plain(_)) => "it is not encrypted: make it a SecureString".to_owned(),
        Err(ParameterError::Denied(reason) | ParameterError::Unavailable(reason) | ParameterError::Refused(reason)) => {
            reason
        }
    };
    Err(TargetError::NoReceiptKeys { name, reason })
}

/// Access to AWS as the environment describes it, with DynamoDB at `endpoint` if that is given.
pub(crate) fn access(endpoint: Option<String>) -> Result<AwsAccess, TargetError> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let needed = |name| variable(name).ok_or(TargetError::NoVariable(name));
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.ok_or(TargetError::NoVariable("AWS_REGION"))?;
    let key = needed("AWS_ACCESS_KEY_ID")?;
    let secret = needed("AWS_SECRET_ACCESS_KEY")?;
    let credentials = Credentials::new(key, secret, variable("AWS_SESSION_TOKEN"), None, "environment");
    let endpoints = Endpoints {
        all: variable("AWS_ENDPOINT_URL"),
        dynamodb: endpoint.or_else(|| variable("AWS_ENDPOINT_URL_DYNAMODB")),
        eventbridge: variable("AWS_ENDPOINT_URL_EVENTBRIDGE"),
        scheduler: None,
        ssm: None,
        s3: variable("AWS_ENDPOINT_URL_S3"),
        lambda: variable("AWS_ENDPOINT_URL_LAMBDA"),
        kms: variable("AWS_ENDPOINT_URL_KMS"),
    };
    Ok(AwsAccess { region, credentials, endpoints })
}

/// A bus that cannot be reached from here.
#[derive(Debug)]
struct NoBus;

#[async_trait]
impl EventBus for NoBus {
    async fn publish(&self, _event: Event) -> Result<(), BusError> {
        Err(BusError::Unavailable("this command has no event bus; let a worker go on instead".to_owned()))
    }
}

/// Wake-ups of pauses that begin while a command goes on with an invocation: the sweep of those who serve the store
/// registers what is not noted as registered.
#[derive(Debug)]
struct LeftToTheSweep;

#[async_trait]
impl Timers for LeftToTheSweep {
    async fn schedule(&self, _subscription: &Subscription) -> Result<Registration, SubscriptionError> {
        Ok(Registration::Known)
    }

    async fn cancel(&self, _subscription: &Subscription) -> Result<(), SubscriptionError> {
        Ok(())
    }
}

#[async_trait]
impl EventRules for LeftToTheSweep {
    async fn put_rule(&self, _rule: &EventRule) -> Result<(), SubscriptionError> {
        Ok(())
    }

    async fn list_rules(&self) -> Result<Vec<ListedRule>, SubscriptionError> {
        Ok(Vec::new())
    }

    async fn remove_rule(&self, _name: &RuleName) -> Result<(), SubscriptionError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn the_data_of_the_workspace_is_meant_where_there_is_no_other() {
        let place = tempfile::tempdir().expect("a folder");
        let (own, of_workspace) = (place.path().join(FOLDER), data_of(place.path()));
        assert_eq!(usual_data_in(place.path()), own, "what is missing is called by its usual name");
        create_dir_all(&of_workspace).expect("a folder");
        assert_eq!(usual_data_in(place.path()), of_workspace);
        create_dir_all(&own).expect("a folder");
        assert_eq!(usual_data_in(place.path()), own);
        assert_eq!(usual_data_in(Path::new("")), Path::new(FOLDER), "none of these is here");
    }

    #[test]
    fn who_has_no_credentials_is_told_where_they_come_from() {
        let told = TargetError::NoVariable("AWS_ACCESS_KEY_ID").to_string();
        assert!(told.starts_with("AWS_ACCESS_KEY_ID is not set") && told.contains("export-credentials"), "{told}");
        assert!(!told.contains("--table"), "letters and publish have no such option: {told}");
    }

    #[test]
    fn an_endpoint_is_a_whole_address() {
        assert_eq!(endpoint("http://127.0.0.1:8000").as_deref(), Ok("http://127.0.0.1:8000"));
        for wrong in ["", "127.0.0.1:8000", "localhost:8000", "https://"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn damaged_keys_of_receipts_are_told_of_and_missing_ones_are_none() {
        let place = tempfile::tempdir().expect("a folder");
        assert!(matches!(receipts_in(place.path()), Ok(None)));
        write(place.path().join(RECEIPT_RING), "{").expect("a file");
        let told = receipts_in(place.path()).expect_err("they are damaged").to_string();
        assert!(told.contains(RECEIPT_RING) && told.contains("from a copy"), "{told}");
    }

    #[test]
    fn a_workspace_is_told_of_where_nobody_has_named_it() {
        let data = data_of(Path::new(""));
        let is_told = |data: &Path, words: &[&str]| is_of_workspace(data, words.iter().map(OsString::from));
        assert!(is_told(&data, &["dormouse", "cancel", "order-4711"]));
        assert!(!is_told(Path::new(FOLDER), &["dormouse", "cancel", "order-4711"]));
        for named in [&["cancel", "--data", "there"][..], &["cancel", "--data=there"]] {
            assert!(!is_told(&data, named), "{named:?}");
        }
    }
}
