//! A state as the Rust type of its graph, so that nodes, routes and checks share one reading of it.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use super::State;
use super::typed::GraphState;

/// A state read as a Rust type. Clones of a state share it; a state that changes takes it over from the others, which
/// read anew if they are asked again.
#[derive(Default)]
pub(super) struct Memo(Mutex<MemoReading>);

#[derive(Default)]
struct MemoReading {
    value: Option<Arc<dyn Any + Send + Sync>>,
    /// Fields that have changed since `value` was read.
    outdated: Vec<Arc<str>>,
    /// Lists that have become longer since then, and have not changed otherwise.
    grown: Vec<Arc<str>>,
}

impl Memo {
    /// `state` as an `S`.
    pub(super) fn read<S: GraphState>(&self, state: &State) -> Result<Arc<S>, String> {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = reading.value.take().and_then(|value| value.downcast::<S>().ok());
        let (outdated, grown) = (std::mem::take(&mut reading.outdated), std::mem::take(&mut reading.grown));
        let value = match known {
            Some(known) => renewed(known, (&outdated, &grown), state)?,
            None => Arc::new(S::read(state)?),
        };
        reading.value = Some(value.clone());
        Ok(value)
    }

    /// Notes in the memo of a state that its `field` is about to change.
    pub(super) fn outdate(memo: &mut Arc<Self>, field: &Arc<str>) {
        let Some(reading) = Self::own(memo) else { return };
        reading.grown.retain(|grown| grown != field);
        if reading.value.is_some() && !reading.outdated.contains(field) {
            reading.outdated.push(field.clone());
        }
    }

    /// The same of a list that is about to become longer.
    pub(super) fn grown(memo: &mut Arc<Self>, field: &Arc<str>) {
        let Some(reading) = Self::own(memo) else { return };
        let is_noted = reading.grown.contains(field) || reading.outdated.contains(field);
        if reading.value.is_some() && !is_noted {
            reading.grown.push(field.clone());
        }
    }

    /// The reading of the memo of a state that is about to change: other states have none then.
    fn own(memo: &mut Arc<Self>) -> Option<&mut MemoReading> {
        if Arc::get_mut(memo).is_none() {
            let taken = std::mem::take(&mut *memo.0.lock().unwrap_or_else(PoisonError::into_inner));
            *memo = Arc::new(Self(Mutex::new(taken)));
        }
        Arc::get_mut(memo).map(|Self(reading)| reading.get_mut().unwrap_or_else(PoisonError::into_inner))
    }
}

/// `known` with the outdated fields read again, and of those that have grown what is new; all of it is read where `known` is
/// still held elsewhere.
fn renewed<S: GraphState>(
    mut known: Arc<S>,
    (outdated, grown): (&[Arc<str>], &[Arc<str>]),
    state: &State,
) -> Result<Arc<S>, String> {
    if outdated.is_empty() && grown.is_empty() {
        return Ok(known);
    }
    let Some(own) = Arc::get_mut(&mut known) else { return S::read(state).map(Arc::new) };
    outdated.iter().try_for_each(|field| own.read_again(field, state))?;
    grown.iter().try_for_each(|field| own.read_more(field, state))?;
    Ok(known)
}
