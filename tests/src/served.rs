use std::sync::Arc;

use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_api::{Agents, Keys, Outside, RecordingEngine, RecordingStore};
use dormouse_harness::{DescriptorWakes, Harness};
use dormouse_http::{Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, Parts};
use dormouse_ports::{Commit, Commits};
use dormouse_protocol::Scope;
use dormouse_testkit::{CountingIds, ManualClock, MemoryBus, MemoryStore, MemorySubscriptions, TokioSpawner};
use jiff::Timestamp;

use crate::called_for;

/// Parts of an application that serves `agents` from memory, to whoever has a key.
///
/// # Panics
/// When an agent has a mistake.
pub fn parts_in_memory(
    store: &Arc<MemoryStore>,
    clock: &Arc<ManualClock>,
    bus: &Arc<MemoryBus>,
    agents: &Agents,
) -> Parts {
    let recording = RecordingStore::new(store.clone(), store.clone(), clock.clone());
    let ids = Arc::new(CountingIds::default());
    Parts {
        engine: RecordingEngine::new(recording, ids, Arc::new(TokioSpawner), Arc::new(DescriptorWakes)),
        agents: agents.compile(&Outside::new(bus.clone(), clock.clone())).expect("agents without a mistake"),
        maintenance: store.clone().into(),
        subscriptions: Arc::new(MemorySubscriptions::default()),
        bus: bus.clone(),
        callbacks: CallbackSigner::new(CallbackSecret::new([7; 32])),
        signal_key: BearerKey::new("open sesame"),
        authorization: Authorization::Keys,
        keys: Keys::new(store.clone()),
        base_url: Some("https://agents.example.com".to_owned()),
        limits: Limits::default(),
        telemetry: None,
    }
}

/// What a key lets `actor` do who may do everything in `tenant`.
pub fn full_grant(actor: &str, tenant: &str) -> Grant {
    let scopes = Scope::ALL.iter().copied().collect();
    Grant { actor: actor.to_owned(), tenant: tenant.to_owned(), workspaces: None, scopes, expires_at: None }
}

/// Makes the key number `number` in `store`, as an operator does, and gives it.
///
/// # Panics
/// When the store does not keep it.
pub async fn make_key(store: &impl Commits, number: u8, grant: Grant, now: Timestamp) -> String {
    let token = KeyToken::generate([number; CHANCE]);
    let journal = Keys::creation(&token, grant, now);
    store.commit(&Commit { journal, ..Commit::new(format!("key {number}"), now) }).await.expect("the key is kept");
    token.reveal()
}

/// Does all work that was called for on `bus`.
///
/// # Panics
/// When a call cannot be read.
pub async fn work_off(harness: &Harness, bus: &MemoryBus) {
    for call in bus.events().into_iter().filter_map(called_for) {
        harness.answer_call(&call, None).await;
    }
}
