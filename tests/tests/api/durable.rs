//! The same on DynamoDB, where transactions really collide.

use std::sync::Arc;

use dormouse_aws::{DynamoDbStateStore, StoreConfig, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};

use crate::deletion::gone_with_everything;
use crate::events::writers_at_once;
use crate::forks::{forked_and_cut, worker};
use crate::idempotency::twenty_submits;
use crate::interruptions::{heard_once, looking};
use crate::noted_keys::{submitted_and_approved, twenty_approvals};
use crate::overlaps::helper;
use crate::parts::{answers_at_once, two_of_three};
use crate::quotas::{at_once, step_by_step};
use crate::recorded::{finding, long_text};
use crate::tasks::{approval, cancel_and_complete};
use crate::webhooks::told_of;
use crate::world::{MakesAgent, World};

const TABLE: &str = "dormouse";

async fn world(more: &[MakesAgent]) -> (Arc<World>, EmbeddedDynamoDb) {
    let embedded = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&embedded.client(), TABLE).await.unwrap();
    let store = Arc::new(DynamoDbStateStore::new(&embedded.client(), TABLE, StoreConfig::default()));
    (World::serving((store.clone(), store, None), None, more), embedded)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_workspace_is_deleted_there() {
    let (world, embedded) = world(&[]).await;
    world.while_time_passes(gone_with_everything(&world)).await;
    embedded.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_conversation_in_pieces_is_forked_and_cut_there() {
    let model = worker();
    let (world, embedded) = world(&[helper(&model)]).await;
    world.while_time_passes(async { forked_and_cut(&world, &world.session().await, &model).await }).await;
    embedded.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_holds_in_memory_holds_there() {
    let (looker, heard) = looking();
    let (world, embedded) = world(&[finding(), looker]).await;
    world
        .while_time_passes(async {
            Box::pin(twenty_submits(&world, &world.session().await)).await;
            world.work().await;
            Box::pin(submitted_and_approved(&world, &world.session().await)).await;
            Box::pin(twenty_approvals(&world, &world.session().await)).await;
            Box::pin(writers_at_once(&world, &world.session().await)).await;
            Box::pin(approval(&world, &world.session().await)).await;
            Box::pin(two_of_three(&world, &world.session().await)).await;
            Box::pin(at_once(&world)).await;
            Box::pin(told_of(&world)).await;
            Box::pin(long_text(&world, &world.session().await)).await;
            Box::pin(step_by_step(&world)).await;
            Box::pin(heard_once(&world, &world.session().await, heard)).await;
            Box::pin(answers_at_once(&world, &world.session().await)).await;
            for _ in 0..5 {
                Box::pin(cancel_and_complete(&world, &world.session().await)).await;
            }
        })
        .await;
    embedded.stop().await.unwrap();
}
