//! Ends of invocations, for good or until somebody has them tried again.

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_ports::{Cancellation, FailureRecord, Map, Owner, PausedInvocation, SharedMap, StoreError};
use jiff::Timestamp;

use super::{
    ABSENT, CANCELED, COMPLETED, ERRORED, RESUMING, UNCLAIMED_OWNER, UNCLAIMED_UNTIL, asleep, base, claimed, unmoved,
};
use crate::dynamodb::encode::{Encoder, home_of};
use crate::dynamodb::item::{Item, number_value, text_value, time_value, ttl_value};
use crate::dynamodb::keys::{
    CANCELLATION, CLAIM_OWNER, CLAIM_UNTIL, FAILURE, FINAL_STATE, Key, LIST_REFS, NOTED_FROM, NOTED_IN, PAUSE_STATE,
    TTL, aside_lane_of, claim_lane_of,
};
use crate::dynamodb::write::ItemWrite;

/// End of an invocation.
#[derive(Clone, Copy, Debug)]
pub(in crate::dynamodb) enum End<'a> {
    Completed(&'a Map),
    /// Without ever having slept.
    Concluded(&'a Map),
    Errored(&'a FailureRecord),
    Canceled(&'a Cancellation),
    /// Before anything of it was stored.
    Forestalled(&'a Cancellation),
}

impl End<'_> {
    /// The phase, and the attributes of the end.
    fn attributes(self, encoder: &mut Encoder<'_>, home: &str) -> Result<(&'static str, Item), StoreError> {
        Ok(match self {
            Self::Completed(state) | Self::Concluded(state) => {
                (COMPLETED, encoder.state("the final state", FINAL_STATE, home, state)?)
            }
            Self::Errored(failure) => {
                (ERRORED, Item::from([(FAILURE.to_owned(), encoder.body("the failure", failure)?)]))
            }
            Self::Canceled(cancellation) | Self::Forestalled(cancellation) => {
                let cancellation = encoder.body("the cancellation", cancellation)?;
                (CANCELED, Item::from([(CANCELLATION.to_owned(), cancellation)]))
            }
        })
    }
}

/// Writes the end of an invocation over its pause; the state of the pause is not kept.
pub(in crate::dynamodb) fn end_write(
    encoder: &mut Encoder<'_>,
    paused: &PausedInvocation,
    owner: Option<&Owner>,
    end: End<'_>,
    commit_id: AttributeValue,
    forget_at: Timestamp,
) -> Result<ItemWrite, StoreError> {
    let (phase, result) = end.attributes(encoder, &home_of(paused))?;
    let mut item = base(paused, phase, commit_id);
    item.extend(result);
    item.insert(TTL.to_owned(), ttl_value(forget_at));
    encoder.pause(&mut item, &without_state(paused))?;
    let put = ItemWrite::put(&Key::invocation(&paused.invocation_id), item);
    Ok(match (end, owner) {
        (End::Forestalled(_) | End::Concluded(_), _) => put.when(ABSENT),
        (End::Canceled(_), _) => {
            let alive = "phase = :suspended OR phase = :resuming OR (phase = :errored AND claim_lane = :aside)";
            let put = put.when(alive).with(":resuming", text_value(RESUMING)).with(":errored", text_value(ERRORED));
            unmoved(put.with(":aside", text_value(aside_lane_of(&paused.invocation_id))), paused)
        }
        (End::Completed(_) | End::Errored(_), Some(owner)) => claimed(put, owner, paused.generation),
        (End::Completed(_) | End::Errored(_), None) => asleep(put, paused),
    })
}

/// Puts an invocation aside that is claimed: leaves the rest of it as it is, or `rewrites` its pause, so that no steps are noted
/// of it.
pub(in crate::dynamodb) fn put_aside_write(
    encoder: &mut Encoder<'_>,
    (paused, owner, rewrites): (&PausedInvocation, &Owner, bool),
    failure: &FailureRecord,
    commit_id: AttributeValue,
    now: Timestamp,
) -> Result<ItemWrite, StoreError> {
    let mut pause = Item::new();
    let mut gone = vec![CLAIM_OWNER, CLAIM_UNTIL];
    if rewrites {
        encoder.pause(&mut pause, paused)?;
        let apart = [PAUSE_STATE, LIST_REFS].into_iter().filter(|name| !pause.contains_key(*name));
        gone.extend(apart.chain([NOTED_IN, NOTED_FROM]));
    }
    let set: String = pause.keys().map(|name| format!(", {name} = :{name}")).collect();
    let change = format!(
        "SET phase = :errored, failure = :failure, claim_lane = :lane, claim_until = :aside, commit_id = :commit{set} \
         REMOVE {}",
        gone.join(", ")
    );
    let update = ItemWrite::update(&Key::invocation(&paused.invocation_id), change);
    let update = pause.into_iter().fold(update, |update, (name, value)| update.with(&format!(":{name}"), value));
    let update = update
        .with(":errored", text_value(ERRORED))
        .with(":failure", encoder.body("the failure", failure)?)
        .with(":lane", text_value(aside_lane_of(&paused.invocation_id)))
        .with(":aside", time_value(now))
        .with(":commit", commit_id);
    Ok(claimed(update, owner, paused.generation))
}

/// Leaves an invocation that was put aside to the worker that takes its claim over.
pub(in crate::dynamodb) fn retry_write(
    paused: &PausedInvocation,
    commit_id: AttributeValue,
    now: Timestamp,
) -> ItemWrite {
    let id = &paused.invocation_id;
    let change = "SET phase = :resuming, claim_owner = :nobody, held_until = :over, claim_until = :since, \
                  claim_lane = :lane, commit_id = :commit REMOVE failure, attempts";
    ItemWrite::update(&Key::invocation(id), change)
        .with(":since", time_value(now))
        .with(":lane", text_value(claim_lane_of(id)))
        .when("phase = :errored AND generation = :generation AND claim_lane = :aside")
        .with(":resuming", text_value(RESUMING))
        .with(":errored", text_value(ERRORED))
        .with(":nobody", text_value(UNCLAIMED_OWNER))
        .with(":over", time_value(UNCLAIMED_UNTIL))
        .with(":generation", number_value(paused.generation))
        .with(":aside", text_value(aside_lane_of(id)))
        .with(":commit", commit_id)
}

fn without_state(paused: &PausedInvocation) -> PausedInvocation {
    PausedInvocation {
        state: SharedMap::default(),
        parent_states: Vec::new(),
        completed_positions: Vec::new(),
        ..paused.clone()
    }
}
