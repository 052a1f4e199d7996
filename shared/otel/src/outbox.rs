//! Finished spans and log records that have not left the process yet.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::{Context, InstrumentationScope};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogProcessor, SdkLogRecord};
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};

/// The most items that wait; later ones are dropped until there is room again.
const ROOM: usize = 16 * 1024;

/// Sources of log records about sending: sent, they would make new ones for ever.
const OF_SENDING: &[&str] = &["hyper", "opentelemetry", "reqwest"];

/// Spans or log records did not reach the collector; they are gone.
#[derive(Debug)]
pub struct ExportError(pub(crate) String);

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "telemetry did not leave the process: {}", self.0)
    }
}

impl std::error::Error for ExportError {}

/// Keeps finished items until they are taken. Cheap to clone.
pub(crate) struct Outbox<T>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.items().len())
    }
}

impl<T> Outbox<T> {
    fn items(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, item: T) {
        let mut items = self.items();
        if items.len() < ROOM {
            items.push(item);
        }
    }

    /// All items that wait; they wait no more.
    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.items())
    }
}

impl<T: Clone> Outbox<T> {
    pub(crate) fn snapshot(&self) -> Vec<T> {
        self.items().clone()
    }
}

impl SpanProcessor for Outbox<SpanData> {
    fn on_start(&self, _span: &mut Span, _context: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.put(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl LogProcessor for Outbox<(SdkLogRecord, InstrumentationScope)> {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        let target = record.target().map_or("", |target| target.as_ref());
        if !OF_SENDING.iter().any(|sender| target.starts_with(sender)) {
            self.put((record.clone(), scope.clone()));
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}
