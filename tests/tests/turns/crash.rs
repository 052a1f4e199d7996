//! Every await on the store is a place where the process may die, fail before or after the effect: each is tried.

use std::sync::Arc;

use dormouse_ports::StateStore;
use dormouse_testkit::{Fault, FaultyStore};
use dormouse_tests::Stage;
use dormouse_tests::stories::{Attempt, STORIES, Story};
use futures::FutureExt;

/// Time stands still and the store answers at once: an attempt that is pending belongs to a dead process.
struct AtOnce;

impl Attempt for AtOnce {
    async fn run(&self, step: impl Future<Output = bool>) -> Option<bool> {
        step.now_or_never()
    }
}

/// Tells `story` on a store of which one call breaks. Whether it did.
async fn survives(story: &Story, broken: impl Fn(Arc<dyn StateStore>) -> FaultyStore) -> bool {
    let stage = Stage::default();
    let sound: Arc<dyn StateStore> = stage.store.clone();
    let faulty = Arc::new(broken(sound.clone()));
    let store: Arc<dyn StateStore> = faulty.clone();
    story.tell(&stage, &store, &AtOnce).await;
    story.check(&stage, &sound).await;
    faulty.has_struck()
}

#[tokio::test]
async fn every_story_ends_well_without_faults() {
    for story in &STORIES {
        assert!(!survives(story, FaultyStore::sound).await);
    }
}

#[tokio::test]
async fn every_story_ends_well_whichever_call_breaks_in_whichever_way() {
    for story in &STORIES {
        for fault in Fault::ALL {
            let mut call = 0;
            while survives(story, |store| FaultyStore::broken_at(store, call, fault)).await {
                call += 1;
            }
            assert!(call >= 3, "a story has at least three calls, not {call}");
        }
    }
}
