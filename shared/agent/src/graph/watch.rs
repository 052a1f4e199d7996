use std::pin::pin;
use std::time::Duration;

use dormouse_engine::{NodeError, cancellation};
use dormouse_ports::{Cancellation, Category, Clock};
use futures::future::{Either, select};

/// Time after which a call that is under way begins to look for a cancellation, which costs a read each second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `work`, and drops it when the invocation is canceled: connections close, processes end.
///
/// # Errors
/// When it was canceled. The run ends behind the node, even if that returns an update.
pub(crate) async fn unless_canceled<T>(clock: &dyn Clock, work: impl Future<Output = T>) -> Result<T, NodeError> {
    let told = async {
        clock.sleep(PATIENCE).await;
        match cancellation() {
            Some(watch) => watch.canceled().await,
            None => futures::future::pending().await,
        }
    };
    match select(pin!(work), pin!(told)).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right((cancellation, _)) => Err(canceled(&cancellation)),
    }
}

/// The end of a node whose invocation was canceled.
pub(crate) fn canceled(cancellation: &Cancellation) -> NodeError {
    NodeError::new(cancellation.message()).with_category(Category::InvocationCanceled)
}
