use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use async_trait::async_trait;
use dormouse_ports::{Object, ObjectCondition, ObjectError, ObjectVersion, Objects};

use crate::lock;

/// Objects in memory. Everything that was asked of it is remembered, and it can be told to be away.
#[derive(Default)]
pub struct MemoryObjects(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    objects: BTreeMap<String, Object>,
    written: u64,
    asked: Vec<String>,
    away: bool,
}

impl MemoryObjects {
    /// No objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// The requests since the last call: `get KEY` and `put KEY`.
    pub fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0).asked)
    }

    /// Keys of all objects.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.0).objects.keys().cloned().collect()
    }

    /// Replaces the content of `key` without a condition.
    pub fn overwrite(&self, key: &str, bytes: &[u8]) {
        lock(&self.0).write(key, bytes.to_vec());
    }

    /// From now on every request fails for a while, or none does.
    pub fn set_away(&self, away: bool) {
        lock(&self.0).away = away;
    }
}

impl Shelf {
    fn write(&mut self, key: &str, bytes: Vec<u8>) {
        self.written += 1;
        let version = ObjectVersion::new(format!("v{}", self.written));
        self.objects.insert(key.to_owned(), Object { bytes, version });
    }

    fn ask(&mut self, what: &str, key: &str) -> Result<(), ObjectError> {
        self.asked.push(format!("{what} {key}"));
        match self.away {
            true => Err(ObjectError::Transient("it is away".to_owned())),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for MemoryObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryObjects").field("keys", &self.keys()).finish()
    }
}

#[async_trait]
impl Objects for MemoryObjects {
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Object>, ObjectError> {
        let mut shelf = lock(&self.0);
        shelf.ask("get", key)?;
        match shelf.objects.get(key) {
            Some(object) if u64::try_from(object.bytes.len()).is_ok_and(|size| size > limit) => {
                Err(ObjectError::TooLarge { key: key.to_owned(), limit })
            }
            found => Ok(found.cloned()),
        }
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: ObjectCondition) -> Result<(), ObjectError> {
        let mut shelf = lock(&self.0);
        shelf.ask("put", key)?;
        let found = shelf.objects.get(key).map(|object| &object.version);
        let holds = match &condition {
            ObjectCondition::Absent => found.is_none(),
            ObjectCondition::Unchanged(version) => found == Some(version),
        };
        if !holds {
            return Err(ObjectError::Conflict(key.to_owned()));
        }
        shelf.write(key, bytes);
        Ok(())
    }
}
