//! Tools that the SDK takes out of a list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// The field of a schema with which an argument of a tool is a header, too (version 2026-07-28). Where it is not as the protocol
/// has it the SDK takes the tool out of the list, as that demands, and says so in the log alone.
const AS_HEADER: &str = "x-mcp-header";
/// Names that are remembered.
const MOST_NAMES: usize = 512;

/// Tools with such a field in the lists that came, the same for all that have a clone of it.
#[derive(Clone, Debug, Default)]
pub(in crate::mcp) struct AnnotatedTools(Arc<Mutex<Vec<String>>>);

impl AnnotatedTools {
    /// Remembers those in `message`.
    pub(super) fn note(&self, message: &[u8]) {
        if !std::str::from_utf8(message).is_ok_and(|text| text.contains(AS_HEADER)) {
            return;
        }
        let message: Value = serde_json::from_slice(message).unwrap_or_default();
        let listed = message.pointer("/result/tools").and_then(Value::as_array).into_iter().flatten();
        let annotated = listed.filter(|tool| tool["inputSchema"].to_string().contains(AS_HEADER));
        let names = annotated.filter_map(|tool| tool["name"].as_str().map(str::to_owned));
        let mut known = self.names();
        let room = MOST_NAMES.saturating_sub(known.len());
        known.extend(names.take(room));
    }

    /// Those that came since they were last taken.
    pub(in crate::mcp) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.names())
    }

    fn names(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
