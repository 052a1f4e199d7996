use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use dormouse_ports::{ChildError, ChildRuns, ChildStanding, ChildStart, InvocationId};

/// Children of a harness that is made later than the graphs that begin them. Cheap to clone.
#[derive(Clone, Default)]
pub struct HarnessChildren(Arc<OnceLock<Arc<dyn ChildRuns>>>);

impl fmt::Debug for HarnessChildren {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HarnessChildren")
    }
}

impl HarnessChildren {
    /// Makes `runs` what runs them. The first one counts.
    pub(crate) fn bind(&self, runs: Arc<dyn ChildRuns>) {
        if self.0.set(runs).is_err() {
            tracing::debug!("these graphs are run by an earlier harness, which also runs what they begin");
        }
    }

    fn bound(&self) -> Result<&Arc<dyn ChildRuns>, ChildError> {
        let nobody = || ChildError { message: "nobody runs other agents here".to_owned(), transient: false };
        self.0.get().ok_or_else(nobody)
    }
}

#[async_trait]
impl ChildRuns for HarnessChildren {
    async fn begin(&self, start: ChildStart) -> Result<(), ChildError> {
        self.bound()?.begin(start).await
    }

    async fn look(&self, id: &InvocationId) -> Result<ChildStanding, ChildError> {
        self.bound()?.look(id).await
    }

    async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<(), ChildError> {
        self.bound()?.cancel(id, reason).await
    }
}
