//! The contracts of the state store and of the checkpointer, on memory and on DynamoDB, and that of files over those that
//! are stored there.

#[path = "store_contract/tasks.rs"]
mod tasks;

use std::sync::Arc;

use dormouse_api::WorkspaceFiles;
use dormouse_aws::{DynamoDbCheckpointer, DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_engine::BatchedSaves;
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_ports::execution::ExecutionBackend;
use dormouse_ports::{Commits, Records};
use dormouse_system::{RandomIds, SystemClock};
use dormouse_testkit::{MemoryCheckpointer, MemoryStore, contract};
use dormouse_tools::StoredBackend;
use libtest_mimic::{Arguments, Failed, Trial};
use tasks::Tasks;

/// So small that every listing of the contract takes several pages.
const PAGE: usize = 3;

fn main() {
    let mut trials = Vec::new();
    for &(name, check) in contract::ALL {
        trials.push(trial(&format!("memory::{name}"), move || on_memory(check)));
        trials.push(trial(&format!("dynamodb::{name}"), move || on_dynamodb(check, StoreConfig::default())));
        let apart = StoreConfig { inline_limit: 0, ..StoreConfig::default() };
        trials.push(trial(&format!("dynamodb_blobs::{name}"), move || on_dynamodb(check, apart)));
    }
    for &(name, check) in contract::JOURNALS {
        trials.push(trial(&format!("memory::{name}"), move || block_on(check(Arc::new(MemoryStore::default())))));
        trials.push(trial(&format!("dynamodb::{name}"), move || journals_on_dynamodb(check, StoreConfig::default())));
        let apart = StoreConfig { inline_limit: 0, ..StoreConfig::default() };
        trials.push(trial(&format!("dynamodb_blobs::{name}"), move || journals_on_dynamodb(check, apart)));
    }
    for &(name, check) in contract::RECORDINGS {
        trials.push(trial(&format!("memory::{name}"), move || {
            block_on(async { check(Tasks::on(Arc::new(MemoryStore::default()))).await });
        }));
        trials.push(trial(&format!("dynamodb::{name}"), move || {
            block_on(async {
                let (_embedded, client, config) = table(StoreConfig::default()).await;
                check(Tasks::on(Arc::new(DynamoDbStateStore::new(&client, "dormouse", config)))).await;
            });
        }));
    }
    for &(name, check) in contract::CHECKPOINTS {
        trials.push(trial(&format!("memory::{name}"), move || {
            block_on(check(Arc::new(MemoryCheckpointer::with_page_size(PAGE))));
        }));
        let batched = move || BatchedSaves::every(3, Arc::new(MemoryCheckpointer::with_page_size(PAGE)));
        trials.push(trial(&format!("batched::{name}"), move || block_on(check(Arc::new(batched())))));
        trials
            .push(trial(&format!("dynamodb::{name}"), move || checkpoints_on_dynamodb(check, StoreConfig::default())));
        let apart = StoreConfig { inline_limit: 0, ..StoreConfig::default() };
        trials.push(trial(&format!("dynamodb_blobs::{name}"), move || checkpoints_on_dynamodb(check, apart)));
    }
    for &(name, check) in contract::EXECUTION_FILES.iter().chain(contract::EXECUTION_STORED) {
        trials.push(trial(&format!("memory_files::{name}"), move || {
            block_on(check(files_in(Arc::new(MemoryStore::default()))));
        }));
        trials.push(trial(&format!("dynamodb_files::{name}"), move || {
            block_on(async {
                let (_embedded, client, config) = table(StoreConfig::default()).await;
                check(files_in(Arc::new(DynamoDbStateStore::new(&client, "dormouse", config)))).await;
            });
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The files of a workspace that are stored in `store`, as tools work in them.
fn files_in(store: Arc<impl Records + Commits + 'static>) -> Arc<dyn ExecutionBackend> {
    let files = WorkspaceFiles {
        records: store.clone(),
        commits: store,
        ids: Arc::new(RandomIds),
        clock: Arc::new(SystemClock::default()),
    };
    Arc::new(StoredBackend::new(Arc::new(files.of("acme", &"workspace_1".into()))))
}

fn trial(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    Trial::test(name, move || -> Result<(), Failed> {
        run();
        Ok(())
    })
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future);
}

fn on_memory(check: contract::Check) {
    block_on(check(Arc::new(MemoryStore::with_page_size(PAGE))));
}

fn on_dynamodb(check: contract::Check, config: StoreConfig) {
    block_on(async {
        let (_embedded, client, config) = table(config).await;
        check(Arc::new(DynamoDbStateStore::new(&client, "dormouse", config))).await;
    });
}

fn journals_on_dynamodb(check: contract::JournalCheck, config: StoreConfig) {
    block_on(async {
        let (_embedded, client, config) = table(config).await;
        check(Arc::new(DynamoDbStateStore::new(&client, "dormouse", config))).await;
    });
}

fn checkpoints_on_dynamodb(check: contract::CheckpointCheck, config: StoreConfig) {
    block_on(async {
        let (_embedded, client, config) = table(config).await;
        check(Arc::new(DynamoDbCheckpointer::new(&client, "dormouse", config))).await;
    });
}

async fn table(config: StoreConfig) -> (EmbeddedDynamoDb, aws_sdk_dynamodb::Client, StoreConfig) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.expect("the store starts");
    let client = embedded.client();
    ensure_table(&client, "dormouse").await.expect("the table is made");
    let config = StoreConfig { page_size: i32::try_from(PAGE).expect("a small number"), ..config };
    (embedded, client, config)
}
