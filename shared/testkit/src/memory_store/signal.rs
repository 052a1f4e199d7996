use std::collections::BTreeMap;

use dormouse_ports::{
    BufferOutcome, BufferedSignal, Claim, CommitError, PausedInvocation, SignalId, SignalState, SuspendFrom,
};
use jiff::Timestamp;

/// Whether `state` is a parked signal that does not count any more.
pub(super) fn expired(state: &SignalState, now: Timestamp) -> bool {
    matches!(state, SignalState::Buffered(signal) if signal.expires_at <= now)
}

/// Parks `signal` unless something that counts is there.
pub(super) fn buffer(
    signals: &mut BTreeMap<SignalId, SignalState>,
    id: &SignalId,
    signal: &BufferedSignal,
) -> BufferOutcome {
    match signals.get(id).filter(|state| !expired(state, signal.received_at)) {
        Some(SignalState::Waiting { .. }) => BufferOutcome::Changed,
        Some(SignalState::Buffered(parked)) if parked.payload == signal.payload => {
            BufferOutcome::Buffered { expires_at: parked.expires_at }
        }
        Some(SignalState::Buffered(_)) => BufferOutcome::Occupied,
        Some(SignalState::Delivered { .. }) | None => {
            signals.insert(id.clone(), SignalState::Buffered(signal.clone()));
            BufferOutcome::Buffered { expires_at: signal.expires_at }
        }
    }
}

/// Whether `paused` may begin to wait for its signal, of which `state` is known.
pub(super) fn check_wait(
    state: Option<&SignalState>,
    paused: &PausedInvocation,
    from: &SuspendFrom,
    claim: Option<&Claim>,
    now: Timestamp,
) -> Result<(), CommitError> {
    match state.filter(|state| !expired(state, now)) {
        None | Some(SignalState::Delivered { .. }) => Ok(()),
        Some(SignalState::Waiting { invocation_id, generation }) => {
            let own = matches!(from, SuspendFrom::Claimed { previous, .. }
                if previous.invocation_id == *invocation_id
                    && previous.generation == *generation
                    && previous.descriptor.signal_id == paused.descriptor.signal_id);
            if own && paused.invocation_id == *invocation_id {
                return Ok(());
            }
            Err(CommitError::SignalTaken(invocation_id.clone()))
        }
        Some(SignalState::Buffered(parked)) => match claim {
            Some(claim) if claim.payload == parked.payload => Ok(()),
            _ => Err(CommitError::SignalBuffered(parked.clone())),
        },
    }
}
