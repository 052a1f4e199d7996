//! The content of a list as one digest per length, so that a list can be compared with the beginning of another.

use dormouse_json::Items;
use dormouse_ports::StoreError;
use sha2::{Digest, Sha256};

/// Half of a SHA-256: enough that no two lists can be found that share one.
const BYTES: usize = 16;

/// For each number of first items of a list, a digest of those items and how long they are.
#[derive(Debug)]
pub(super) struct Marks(Vec<([u8; BYTES], usize)>);

impl Marks {
    /// The marks of `items`.
    pub(super) fn of(items: Items<'_>) -> Result<Self, StoreError> {
        Self(vec![([0; BYTES], 0)]).longer(items)
    }

    /// The marks of `items`, which begin with those that these are of.
    pub(super) fn longer(&self, items: Items<'_>) -> Result<Self, StoreError> {
        let mut marks = Vec::with_capacity(items.len() + 1);
        marks.extend_from_slice(&self.0);
        let (mut digest, mut bytes) = self.0[self.count()];
        let mut json = Vec::new();
        for item in items.within(self.count(), items.len()).iter() {
            json.clear();
            serde_json::to_writer(&mut json, item)
                .map_err(|error| StoreError::Invalid(format!("cannot be stored: {error}")))?;
            let hash = Sha256::new().chain_update(digest).chain_update(&json).finalize();
            digest.copy_from_slice(&hash[..BYTES]);
            bytes += json.len();
            marks.push((digest, bytes));
        }
        Ok(Self(marks))
    }

    /// Number of items of the list.
    pub(super) fn count(&self) -> usize {
        self.0.len() - 1
    }

    /// The digest of the first `count` items, if there are as many.
    pub(super) fn digest(&self, count: usize) -> Option<String> {
        self.0.get(count).map(|(digest, _)| hex::encode(digest))
    }

    /// Number of bytes of JSON of the items `from..to`.
    pub(super) fn bytes(&self, from: usize, to: usize) -> usize {
        self.0[to].1 - self.0[from].1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn marks(list: &Value) -> Marks {
        Marks::of(Items::of(list).expect("a list")).expect("marks")
    }

    #[test]
    fn a_beginning_has_the_digest_of_the_shorter_list() {
        let short = marks(&json!([1, "b"]));
        let long = marks(&json!([1, "b", {"c": 1.0}]));
        assert_eq!(long.digest(2), short.digest(2));
        assert_ne!(long.digest(3), short.digest(2));
        assert_eq!((short.digest(3), short.count(), long.bytes(1, 3)), (None, 2, r#""b"{"c":1.0}"#.len()));
        let list = json!([1, "b", {"c": 1.0}]);
        let grown = short.longer(Items::of(&list).expect("a list")).expect("marks");
        assert_eq!((grown.0, short.longer(Items::Plain(&[])).expect("marks").0), (long.0, short.0));
    }

    #[test]
    fn digests_tell_items_apart_wherever_they_differ() {
        for (left, right) in [
            (json!([1]), json!([1.0])),
            (json!(["ab"]), json!(["a", "b"])),
            (json!([1, 2]), json!([12])),
            (json!([{"a": 1, "b": 2}]), json!([{"b": 2, "a": 1}])),
        ] {
            let left = marks(&left);
            let right = marks(&right);
            assert_ne!(left.digest(left.count()), right.digest(right.count()));
        }
    }
}
