use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Map;

/// An object of JSON that several records hold: cloning it counts references. Whoever changes it copies it first, where others
/// hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedMap(Arc<Map>);

impl SharedMap {
    /// The object, copied where others hold it.
    pub fn into_map(self) -> Map {
        Arc::unwrap_or_clone(self.0)
    }
}

impl Deref for SharedMap {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.0
    }
}

impl DerefMut for SharedMap {
    fn deref_mut(&mut self) -> &mut Map {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Map> for SharedMap {
    fn from(map: Map) -> Self {
        Self(Arc::new(map))
    }
}

impl FromIterator<(String, Value)> for SharedMap {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Map::from_iter(fields).into()
    }
}

impl PartialEq<Map> for SharedMap {
    fn eq(&self, other: &Map) -> bool {
        *self.0 == *other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_changes_it_changes_it_for_nobody_else() {
        let one = SharedMap::from(Map::from_iter([("a".to_owned(), json!(1))]));
        let mut other = one.clone();
        assert!(Arc::ptr_eq(&one.0, &other.0), "nothing is copied");
        other.insert("b".to_owned(), json!(2));
        assert_eq!((one.len(), other.len()), (1, 2));
        assert_eq!(json!(other), json!({ "a": 1, "b": 2 }));
    }
}
