//! Counters: amounts that many writers take from at the same time, in the transactions in which they use something.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{DocumentKey, StoreError};

/// The longest name of a counter, in bytes.
const LONGEST_NAME: usize = 32;

/// A change of the counters of one name. Each counter says what is left.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterWrite {
    /// Names the counters: they share the id space of documents, and no document has this name.
    pub key: DocumentKey,
    /// Change of the counters.
    pub change: CounterChange,
}

/// Change of counters.
#[derive(Clone, Debug, PartialEq)]
pub enum CounterChange {
    /// Takes what is used; fails unless the counters are there, their period has not ended, and of each of `needs` as
    /// much is left before.
    Take {
        /// Amounts that have to be left.
        needs: BTreeMap<String, i64>,
        /// Amounts that are taken, whether or not they were needed.
        amounts: BTreeMap<String, i64>,
    },
    /// Adds to what is left, or takes from it where the amount is negative. Never fails: what is left may be below zero.
    Add {
        /// Amounts.
        amounts: BTreeMap<String, i64>,
    },
    /// Makes the counters, or begins their next period; fails unless their period ends when `ending` says.
    Begin {
        /// End of the period before; `None` where the counters have none, or are not there.
        ending: Option<Timestamp>,
        /// Amounts that are left of each from then on. Others stay as they are.
        left: BTreeMap<String, i64>,
        /// End of the new period.
        ends_at: Option<Timestamp>,
        /// Instant from which on the counters may be forgotten; `None` keeps them for good.
        forget_at: Option<Timestamp>,
    },
}

/// Counters as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Amount that is left of each.
    pub left: BTreeMap<String, i64>,
    /// End of their period.
    pub ends_at: Option<Timestamp>,
}

impl CounterWrite {
    /// The amounts by the names of their counters.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match &self.change {
            CounterChange::Take { needs, amounts } => (needs, Some(amounts)),
            CounterChange::Add { amounts } => (amounts, None),
            CounterChange::Begin { left, .. } => (left, None),
        };
        first.keys().chain(second.into_iter().flat_map(BTreeMap::keys)).map(String::as_str)
    }

    /// Checks that a store can name its counters.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] with the first name that has another form than `a-z` and `_`.
    pub fn check(&self) -> Result<(), StoreError> {
        let is_word = |name: &str| {
            (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        match self.names().find(|name| !is_word(name)) {
            Some(name) => Err(StoreError::Invalid(format!("a counter cannot be called {name:?}"))),
            None => Ok(()),
        }
    }
}

impl Counters {
    /// The counters after `change` at `now`, if it may happen.
    pub fn after(&self, change: &CounterChange, now: Timestamp) -> Option<Self> {
        let mut after = self.clone();
        match change {
            CounterChange::Take { needs, amounts } => {
                let has = |(name, amount): (&String, &i64)| self.left.get(name).is_some_and(|left| left >= amount);
                if self.ends_at.is_some_and(|end| end <= now) || !needs.iter().all(has) {
                    return None;
                }
                amounts.iter().for_each(|(name, amount)| *after.left.entry(name.clone()).or_default() -= amount);
            }
            CounterChange::Add { amounts } => {
                amounts.iter().for_each(|(name, amount)| *after.left.entry(name.clone()).or_default() += amount);
            }
            CounterChange::Begin { ending, left, ends_at, forget_at: _ } => {
                if self.ends_at != *ending {
                    return None;
                }
                after.left.extend(left.clone());
                after.ends_at = *ends_at;
            }
        }
        Some(after)
    }
}
