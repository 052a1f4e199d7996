use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Values that are kept at most.
const MOST_KEPT: usize = 512;

/// What was made of values of JSON, each made once: where the same values come again and again, as the schemas of tools do.
/// Clones share it.
#[derive(Debug)]
pub struct Made<V>(Arc<Mutex<BTreeMap<String, Arc<V>>>>);

impl<V> Made<V> {
    /// What was made of `value`, or what `make` makes of it now. Of many values all are forgotten.
    ///
    /// # Errors
    /// That of `make`, or that `value` has no JSON form.
    pub fn of(&self, value: &impl Serialize, make: impl FnOnce() -> Result<V, String>) -> Result<Arc<V>, String> {
        let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
        if let Some(known) = self.lock().get(&text) {
            return Ok(known.clone());
        }
        let made = Arc::new(make()?);
        let mut kept = self.lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(text, made.clone());
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> Default for Made<V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<V> Clone for Made<V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_not_made_again_and_a_failure_is_not_kept() {
        let made = Made::default();
        assert_eq!(made.of(&1, || Err("no".to_owned())), Err::<Arc<u32>, _>("no".to_owned()));
        let first = made.of(&1, || Ok(7)).expect("it is made");
        assert!(Arc::ptr_eq(&first, &made.clone().of(&1, || Ok(8)).expect("it is known")));
        for value in 0..=MOST_KEPT {
            made.of(&(value + 2), || Ok(0)).expect("it is made");
        }
        assert!(made.lock().len() <= MOST_KEPT);
        assert_eq!(made.of(&1, || Ok(9)).as_deref(), Ok(&9), "it was forgotten");
    }
}
