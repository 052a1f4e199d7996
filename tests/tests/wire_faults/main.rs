//! Whole turns on the real adapter, with a fault proxy on the wire: in front of the embedded store, and of the DynamoDB
//! of an emulator of AWS.
//!
//! Where `store_faults` spoils single answers within the client, here connections break, answers are cut, and requests
//! take effect after everybody has given them up. `make test-faults` runs it: `DORMOUSE_MICROBURST` and
//! `DORMOUSE_MINISTACK` name the two programs, and what has no program is reported as ignored. `RULES` names a file with
//! rules of the proxy, a JSON list, to tell every story under; `ROUNDS` says how often each is told among faults that
//! come by chance.

mod proxy;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use dormouse_aws::{DynamoDbStateStore, RetryPolicy, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::{Clock, StateStore};
use dormouse_tests::stories::{Attempt, STORIES, Story};
use dormouse_tests::{STORE_SECRET, Stage, open_door};
use jiff::Timestamp;
use libtest_mimic::{Arguments, Trial};
use proxy::{Emulator, Proxy};
use serde_json::Value;
use table::{FAULTS, Fault};
use tempfile::TempDir;

/// The longest that an attempt at a request may take. What the proxy holds back longer takes effect afterwards.
const REQUEST: Duration = Duration::from_secs(1);
/// How long an attempt at a step may take. Nothing is proved by it being short.
const STEP: Duration = Duration::from_secs(120);
/// How often a patient client sends a request.
const PATIENT: u32 = 10;
/// How likely each fault is among faults that come by chance.
const CHANCE: f64 = 0.02;

/// The stories that are told under each fault by itself: a session, a sweep, a cancellation and accepted work.
const BRIEF: [&str; 4] = ["approval in a session", "reminder", "cancellation", "task"];

/// What is told in a trial.
#[derive(Clone)]
enum Plan {
    /// A few stories, and the client gives up over each request that the fault meets: [`Fault::everywhere`].
    One(Fault),
    /// Each story so many times among all faults, by chance; the client is patient.
    Chance(usize),
    /// Each story under these rules; the client is patient.
    Rules(Vec<Value>),
}

fn main() {
    let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let program = |name: &str| given(name).map(PathBuf::from);
    let microburst = program("DORMOUSE_MICROBURST");
    let ministack = program("DORMOUSE_MINISTACK");
    let rounds = given("ROUNDS").map_or(1, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let mut plans: Vec<_> = FAULTS.into_iter().map(|fault| (fault.name.to_owned(), Plan::One(fault))).collect();
    plans.push(("all faults by chance".to_owned(), Plan::Chance(rounds)));
    if let Some(file) = program("RULES") {
        let rules = std::fs::read(&file).expect("RULES names a file");
        let rules = serde_json::from_slice(&rules).expect("RULES names a JSON list");
        plans.push((format!("the rules of {}", file.display()), Plan::Rules(rules)));
    }
    let embedded = plans.iter().map(|(name, plan)| {
        let plan = plan.clone();
        let proxy = microburst.clone();
        trial(format!("embedded::{name}"), proxy, async move |proxy| Bench::on_embedded(&proxy).await.run(plan).await)
    });
    // What happens on the wire is the same there; that its answers can be lived with is what is asked.
    let emulator = plans.iter().filter(|(_, plan)| !matches!(plan, Plan::One(_))).map(|(name, plan)| {
        let plan = plan.clone();
        let programs = microburst.clone().zip(ministack.clone());
        trial(format!("emulator::{name}"), programs, async move |(proxy, emulator)| {
            Bench::on_emulator(&proxy, &emulator).await.run(plan).await;
        })
    });
    libtest_mimic::run(&Arguments::from_args(), embedded.chain(emulator).collect()).exit();
}

/// A trial that is ignored without what it `needs`.
fn trial<T: Send + 'static>(name: String, needs: Option<T>, run: impl AsyncFnOnce(T) + Send + 'static) -> Trial {
    let ignored = needs.is_none();
    let trial = Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(needs.ok_or("it needs a program that is not here")?));
        Ok(())
    });
    trial.with_ignored_flag(ignored)
}

/// A store behind the proxy.
struct Bench {
    proxy: Proxy,
    upstream: Upstream,
    /// Stands for all stages: what is behind the proxy remembers commits by their ids.
    stage: Stage,
    tables: AtomicUsize,
}

/// What the proxy forwards to.
enum Upstream {
    Embedded(#[expect(dead_code, reason = "it stops when it is dropped")] EmbeddedDynamoDb, String),
    Emulator(Emulator, #[expect(dead_code, reason = "it goes when it is dropped")] TempDir),
}

impl Bench {
    async fn on_embedded(proxy: &Path) -> Self {
        let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
        let endpoint = open_door(&embedded).await;
        Self::on(Upstream::Embedded(embedded, endpoint), proxy).await
    }

    async fn on_emulator(proxy: &Path, program: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::on(Upstream::Emulator(Emulator::start(program, folder.path()).await, folder), proxy).await
    }

    async fn on(upstream: Upstream, proxy: &Path) -> Self {
        let proxy = Proxy::before(&upstream.endpoint(), proxy).await;
        Self { proxy, upstream, stage: Stage::default(), tables: AtomicUsize::new(0) }
    }

    async fn run(&self, plan: Plan) {
        let is_story = |name: &&str| STORIES.iter().any(|story| story.name == *name);
        assert!(BRIEF.iter().all(is_story), "a story of each fault is none that there is");
        let mut met = 0;
        for story in &STORIES {
            match &plan {
                Plan::One(_) if !BRIEF.contains(&story.name) => {}
                Plan::One(fault) => {
                    let struck = self.tell(story, 1, &fault.everywhere()).await;
                    assert!(struck.iter().sum::<u64>() >= 2, "{}: two requests at least are broken", story.name);
                    met += struck.iter().sum::<u64>();
                }
                Plan::Chance(rounds) => {
                    let rules: Vec<_> = FAULTS.iter().flat_map(|fault| fault.by_chance(CHANCE)).collect();
                    for _ in 0..*rounds {
                        met += self.tell(story, PATIENT, &rules).await.iter().sum::<u64>();
                    }
                }
                Plan::Rules(rules) => met += self.tell(story, PATIENT, rules).await.iter().sum::<u64>(),
            }
        }
        assert!(met > 0, "no request of any story met a fault: nothing was tried");
    }

    /// Tells `story` on a table of its own, and checks its end. How often each of the rules has struck.
    async fn tell(&self, story: &Story, attempts: u32, rules: &[Value]) -> Vec<u64> {
        let table = format!("dormouse-{}", self.tables.fetch_add(1, Ordering::Relaxed));
        let direct = client(&self.upstream.endpoint());
        ensure_table(&direct, &table).await.expect("the table is made");
        let retry = RetryPolicy { attempts, ..RetryPolicy::default() };
        let config = StoreConfig { retry, attempt_timeout: REQUEST, ..StoreConfig::default() };
        let wired: Arc<dyn StateStore> =
            Arc::new(DynamoDbStateStore::new(&client(&self.proxy.endpoint()), &table, config));
        let sound: Arc<dyn StateStore> = Arc::new(DynamoDbStateStore::new(&direct, &table, StoreConfig::default()));
        let stage = self.stage.another();
        // The emulator forgets what has expired by its own clock.
        stage
            .clock
            .advance(Duration::try_from(Timestamp::now().duration_since(stage.clock.now())).expect("it lies behind"));
        self.proxy.set(rules).await;
        story.tell(&stage, &wired, &WithinReason).await;
        let struck = self.proxy.struck().await;
        // What was given up may have taken effect since: at rest all is well.
        self.proxy.settle().await;
        self.proxy.set(&[]).await;
        story.rest(&stage, &sound).await;
        story.check(&stage, &sound).await;
        direct.delete_table().table_name(&table).send().await.expect("the table goes");
        struck
    }
}

impl Upstream {
    fn endpoint(&self) -> String {
        match self {
            Self::Embedded(_, endpoint) => endpoint.clone(),
            Self::Emulator(emulator, _) => emulator.endpoint(),
        }
    }
}

fn client(endpoint: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder().behavior_version(BehaviorVersion::latest());
    let config = config.region(Region::new("us-east-1")).endpoint_url(endpoint);
    let credentials = Credentials::new("local", "local", Some(STORE_SECRET.to_owned()), None, "test");
    Client::from_conf(config.credentials_provider(credentials).build())
}

/// Time stands still, and requests take theirs.
struct WithinReason;

impl Attempt for WithinReason {
    async fn run(&self, step: impl Future<Output = bool>) -> Option<bool> {
        Some(tokio::time::timeout(STEP, step).await.expect("each request ends"))
    }
}
