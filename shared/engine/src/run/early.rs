//! Signals that came before their wait.

use std::sync::Arc;

use dormouse_ports::{
    BufferedSignal, EarlySignal, FanIn, Map, PartAnswer, PausedInvocation, SignalRecord, SignalState, StoreError,
};

use super::answer::admit_answer;
use super::engine::Engine;
use crate::CompiledGraph;

/// What a pause takes up at its beginning.
pub(super) struct TakenUp {
    /// With what it goes on at once; `None` where more signals are needed.
    pub(super) payload: Option<Map>,
    /// The signals, which are consumed.
    pub(super) early: Vec<EarlySignal>,
}

/// Takes up what is there already: `found`, or every one of several signals that is parked. Those of several that have
/// come are noted in `paused`.
pub(super) async fn take_up(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    paused: &mut PausedInvocation,
    found: BufferedSignal,
) -> Result<TakenUp, StoreError> {
    let Some(fan_in) = paused.fan_in.clone() else {
        let early = EarlySignal { signal_id: paused.descriptor.signal_id.clone(), payload: found.payload.clone() };
        return Ok(TakenUp { payload: Some(found.payload), early: vec![early] });
    };
    let mut fan_in = FanIn { answers: Vec::new(), ..fan_in };
    let mut early = Vec::new();
    for (part, SignalRecord { signal_id, state }) in parked(engine, &fan_in).await? {
        let SignalState::Buffered(signal) = state else { continue };
        let answer = PartAnswer { part, payload: signal.payload.clone(), at: signal.received_at };
        let with_it = fan_in.clone().with(answer);
        // What does not fit is consumed all the same: whoever sent it was told that it is kept, and may send another.
        let fits = admit_answer(paused, signal.payload.clone()).and_then(|_| graph.takes(paused, &with_it.payload()));
        match fits {
            Ok(()) => fan_in = with_it,
            Err(error) => tracing::warn!(%signal_id, reason = error.message(), "an early signal was dropped"),
        }
        early.push(EarlySignal { signal_id, payload: signal.payload });
    }
    let payload = fan_in.decision().is_some().then(|| fan_in.payload());
    paused.fan_in = Some(fan_in);
    Ok(TakenUp { payload, early })
}

/// The parts whose signals are parked, with these, in the order in which they came.
async fn parked(engine: &Engine, fan_in: &FanIn) -> Result<Vec<(String, SignalRecord)>, StoreError> {
    let ports = engine.ports();
    let mut parked = Vec::new();
    for expected in &fan_in.expected {
        let known = ports.store.load_signal(&expected.signal_id, ports.clock.now()).await?;
        if let Some(record) = known
            && let SignalState::Buffered(signal) = &record.state
        {
            parked.push((signal.received_at, expected.part.clone(), record));
        }
    }
    parked.sort_by_key(|(received_at, ..)| *received_at);
    Ok(parked.into_iter().map(|(_, part, record)| (part, record)).collect())
}
