use std::collections::BTreeMap;

use dormouse_ports::{BufferOutcome, BufferedSignal, CommitError, EarlySignal, SignalId, SignalState, SuspendFrom};
use jiff::Timestamp;

/// True if `state` is a parked signal that does not count any more.
pub(super) fn expired(state: &SignalState, now: Timestamp) -> bool {
    matches!(state, SignalState::Buffered(signal) if signal.expires_at <= now)
}

/// Parks `signal` unless a record that counts is there.
pub(super) fn buffer(
    signals: &mut BTreeMap<SignalId, SignalState>,
    id: &SignalId,
    signal: &BufferedSignal,
) -> BufferOutcome {
    match signals.get(id).filter(|state| !expired(state, signal.received_at)) {
        Some(SignalState::Waiting { .. } | SignalState::Delivered { .. }) => BufferOutcome::Changed,
        Some(SignalState::Buffered(parked)) if parked.payload == signal.payload => {
            BufferOutcome::Buffered { expires_at: parked.expires_at }
        }
        Some(SignalState::Buffered(_)) => BufferOutcome::Occupied,
        None => {
            signals.insert(id.clone(), SignalState::Buffered(signal.clone()));
            BufferOutcome::Buffered { expires_at: signal.expires_at }
        }
    }
}

/// Checks that a pause may begin to wait for the signal `id`, of which `state` is known.
pub(super) fn check_wait(
    state: Option<&SignalState>,
    id: &SignalId,
    from: &SuspendFrom,
    early: &[EarlySignal],
    now: Timestamp,
) -> Result<(), CommitError> {
    match state.filter(|state| !expired(state, now)) {
        None | Some(SignalState::Delivered { .. }) => Ok(()),
        Some(SignalState::Waiting { invocation_id, generation }) => {
            let own = matches!(from, SuspendFrom::Claimed { previous, .. }
                if previous.invocation_id == *invocation_id
                    && previous.generation == *generation
                    && previous.waits().any(|awaited| awaited == *id));
            if own {
                Ok(())
            } else {
                Err(CommitError::SignalTaken { signal_id: id.clone(), holder: invocation_id.clone() })
            }
        }
        Some(SignalState::Buffered(parked)) => {
            let consumed = early.iter().any(|early| early.signal_id == *id && early.payload == parked.payload);
            if consumed { Ok(()) } else { Err(CommitError::SignalBuffered(Box::new(parked.clone()))) }
        }
    }
}
