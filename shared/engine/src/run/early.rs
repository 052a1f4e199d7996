//! Signals that came before their wait.

use std::sync::Arc;

use dormouse_ports::{
    BufferedSignal, EarlySignal, FanIn, Map, PartAnswer, PausedInvocation, SignalId, SignalRecord, SignalState,
    StoreError,
};

use super::answer::admit_answer;
use super::engine::Engine;
use crate::CompiledGraph;

/// Input that a pause takes up at its beginning.
pub(super) struct TakenUp {
    /// Payload with which it goes on at once; `None` where more signals are needed.
    pub(super) payload: Option<Map>,
    /// The signals, which are consumed.
    pub(super) early: Vec<EarlySignal>,
}

/// Takes up what is there already: every one of its signals that is parked. Of a pause for one signal the first that
/// fits stands, or the first where none does; those of several that have come are noted in `paused`.
pub(super) async fn take_up(
    engine: &Engine,
    graph: &Arc<CompiledGraph>,
    paused: &mut PausedInvocation,
) -> Result<TakenUp, StoreError> {
    let parked = parked(engine, paused).await?;
    let Some(fan_in) = paused.fan_in.clone() else {
        let answer = |(_, signal): &(SignalId, BufferedSignal)| signal.answer_to(&paused.descriptor);
        let fits = |parked: &&(SignalId, BufferedSignal)| graph.takes(paused, &answer(parked)).is_ok();
        let chosen = parked.iter().find(fits).or(parked.first()).map(answer);
        return Ok(TakenUp { payload: chosen, early: consumed(parked) });
    };
    let mut fan_in = FanIn { answers: Vec::new(), ..fan_in };
    for (signal_id, signal) in &parked {
        let Some(part) = fan_in.part_of(&signal_id.origin().1).map(str::to_owned) else { continue };
        let payload = signal.answer_to(&paused.descriptor);
        let answer = PartAnswer { part, payload: payload.clone(), at: signal.received_at };
        let with_it = fan_in.clone().with(answer);
        // What does not fit is consumed all the same: its sender was promised that it is kept, and may send another.
        let fits = admit_answer(paused, payload).and_then(|_| graph.takes(paused, &with_it.payload()));
        match fits {
            Ok(()) => fan_in = with_it,
            Err(error) => {
                tracing::warn!(
                    %signal_id, reason = error.message(),
                    "an early signal was dropped: its payload does not fit the wait"
                );
            }
        }
    }
    let payload = fan_in.decision().is_some().then(|| fan_in.payload());
    paused.fan_in = Some(fan_in);
    Ok(TakenUp { payload, early: consumed(parked) })
}

fn consumed(parked: Vec<(SignalId, BufferedSignal)>) -> Vec<EarlySignal> {
    let early = |(signal_id, signal): (SignalId, BufferedSignal)| EarlySignal { signal_id, payload: signal.payload };
    parked.into_iter().map(early).collect()
}

/// The parked ones of its signals, in the order in which they came.
async fn parked(engine: &Engine, paused: &PausedInvocation) -> Result<Vec<(SignalId, BufferedSignal)>, StoreError> {
    let ports = engine.ports();
    let mut parked = Vec::new();
    for id in paused.waits() {
        let known = ports.store.signals.load_signal(&id, ports.clock.now()).await?;
        if let Some(SignalRecord { signal_id, state: SignalState::Buffered(signal) }) = known {
            parked.push((signal_id, signal));
        }
    }
    parked.sort_by_key(|(_, signal)| signal.received_at);
    Ok(parked)
}
