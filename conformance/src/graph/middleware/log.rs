use std::sync::Arc;

use async_trait::async_trait;
use dormouse_engine::{Middleware, Next, NodeError, State, Update, suspend};
use dormouse_ports::SignalDescriptor;

use super::super::{Stage, descriptor};
use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Ledger;

/// A layer that logs markers and may suspend, which it must not (conformance-adapter §6.7).
#[derive(Clone, Debug, Default)]
pub(in crate::graph) struct Logging {
    pre_log: Option<String>,
    post_log: Option<String>,
    pre_suspend: Option<SignalDescriptor>,
    post_suspend: Option<SignalDescriptor>,
}

impl Logging {
    pub(super) fn read(mut layer: Directives<'_>) -> Result<Self, Failure> {
        layer.text("name")?;
        let read = Self {
            pre_log: layer.text("pre_log")?.map(str::to_owned),
            post_log: layer.text("post_log")?.map(str::to_owned),
            pre_suspend: layer.nested("pre_next_calls_suspend_with_descriptor")?.map(descriptor).transpose()?,
            post_suspend: layer.nested("post_next_calls_suspend_with_descriptor")?.map(descriptor).transpose()?,
        };
        layer.done()?;
        Ok(read)
    }

    pub(super) fn middleware(&self, stage: &Stage) -> Arc<dyn Middleware> {
        Arc::new(Logger { layer: self.clone(), ledger: stage.ledger.clone() })
    }
}

struct Logger {
    layer: Logging,
    ledger: Arc<Ledger>,
}

impl Logger {
    fn log(&self, marker: Option<&String>) {
        self.ledger.write(|pages| pages.middleware.extend(marker.cloned()));
    }
}

#[async_trait]
impl Middleware for Logger {
    async fn around(&self, state: State, next: Next<'_>) -> Result<Update, NodeError> {
        self.log(self.layer.pre_log.as_ref());
        if let Some(descriptor) = &self.layer.pre_suspend {
            return Err(suspend(descriptor.clone()).await);
        }
        let result = next.run(state).await;
        self.log(self.layer.post_log.as_ref());
        if let Some(descriptor) = &self.layer.post_suspend {
            return Err(suspend(descriptor.clone()).await);
        }
        result
    }
}
