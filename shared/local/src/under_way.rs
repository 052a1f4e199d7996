//! What is being done in this process, so that it is not begun a second time meanwhile.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pieces of work that are under way, by what names them. Clones are of the same.
pub(crate) struct UnderWay<K>(Arc<Mutex<BTreeSet<K>>>);

/// A piece of work that is under way until this is dropped.
pub(crate) struct Begun<K: Ord> {
    all: UnderWay<K>,
    pub(crate) key: K,
}

impl<K> Clone for UnderWay<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K> fmt::Debug for UnderWay<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnderWay").finish_non_exhaustive()
    }
}

impl<K: Ord> UnderWay<K> {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> UnderWay<K> {
    /// Begins the work that `key` names; `None` where it is under way already.
    pub(crate) fn begin(&self, key: K) -> Option<Begun<K>> {
        let is_new = self.keys().insert(key.clone());
        is_new.then(|| Begun { all: self.clone(), key })
    }
}

#[cfg(test)]
impl<K: Ord> UnderWay<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys().is_empty()
    }
}

impl<K: Ord> Drop for Begun<K> {
    fn drop(&mut self) {
        self.all.keys().remove(&self.key);
    }
}
