//! Calls of models, told to the observers of the invocation in which they are made (observability §5.5): each attempt as an
//! operation, which has a span, and the whole call as a typed event.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use dormouse_engine::{GIVEN_UP, Operation, OperationError, operation_ended, operations_are_observed};
use dormouse_ports::Clock;
use dormouse_ports::model::{
    BackgroundJob, BackgroundProvider, BackgroundStatus, CallEvent, CallObserver, CallOptions, CompletionRequest,
    ModelError, ModelIdentity, ModelProvider, Response, StartedJob,
};
use jiff::Timestamp;

use crate::telemetry::{Attributes, SPAN_NAME, TelemetryOptions, begun, ended, said_of};
use crate::told::ToldCall;

/// A model each attempt at which is told as an operation of the node that asks it, so that there is a span of it; observers that
/// read calls get typed events besides. Where nothing observes the invocation it costs nothing.
pub struct Reported<P: ?Sized> {
    inner: Arc<P>,
    identity: ModelIdentity,
    clock: Arc<dyn Clock>,
    options: TelemetryOptions,
}

impl<P: ?Sized> std::fmt::Debug for Reported<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reported").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl<P: ?Sized> Reported<P> {
    /// `inner`, the calls of which are told with what `options` say.
    pub fn new(inner: Arc<P>, identity: ModelIdentity, clock: Arc<dyn Clock>, options: TelemetryOptions) -> Self {
        Self { inner, identity, clock, options }
    }

    /// Tells of the only attempt at a call.
    fn tell(&self, request: &CompletionRequest, started: Timestamp, result: Result<&Response, &ModelError>) {
        let begun = begun(&self.identity, (0, None), request, self.options);
        tell((begun, started), result, self.options, self.clock.now());
    }
}

#[async_trait]
impl<P: ModelProvider + ?Sized> ModelProvider for Reported<P> {
    fn identity(&self) -> ModelIdentity {
        self.identity.clone()
    }

    async fn ready(&self) -> Result<(), ModelError> {
        self.inner.ready().await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        if !operations_are_observed() {
            return self.inner.complete(request, options).await;
        }
        let reporter = SpanReporter {
            identity: self.identity.clone(),
            clock: self.clock.clone(),
            options: self.options,
            beside: options.observer.clone(),
            running: Mutex::default(),
            told: ToldCall::begin(&self.identity, request, &self.clock),
        };
        let reporter = Arc::new(reporter);
        let options = CallOptions { observer: reporter.clone(), ..options.clone() };
        let result = self.inner.complete(request, &options).await;
        if let Some(told) = &reporter.told {
            told.ended(result.as_ref());
        }
        result
    }
}

/// The attempt is told when its outcome comes.
#[async_trait]
impl<P: BackgroundProvider + ?Sized> BackgroundProvider for Reported<P> {
    async fn start(&self, request: &CompletionRequest, key: &str) -> Result<StartedJob, ModelError> {
        let began = self.clock.now();
        let started = self.inner.start(request, key).await;
        if operations_are_observed() {
            match &started {
                Ok(StartedJob { job, status }) => self.tell_status(job, status, request, began),
                Err(error) => {
                    self.tell(request, began, Err(error));
                    if let Some(told) = ToldCall::begin(&self.identity, request, &self.clock) {
                        told.took(None, Err(error));
                    }
                }
            }
        }
        started
    }

    async fn poll(&self, job: &BackgroundJob, request: &CompletionRequest) -> Result<BackgroundStatus, ModelError> {
        let asked = self.clock.now();
        let status = self.inner.poll(job, request).await?;
        if operations_are_observed() {
            self.tell_status(job, &status, request, asked);
        }
        Ok(status)
    }

    async fn cancel(&self, job: &BackgroundJob) -> Result<(), ModelError> {
        self.inner.cancel(job).await
    }
}

impl<P: ?Sized> Reported<P> {
    /// Tells of a job that has ended. It began when its provider says so, else when it was asked for.
    fn tell_status(
        &self,
        job: &BackgroundJob,
        status: &BackgroundStatus,
        request: &CompletionRequest,
        asked: Timestamp,
    ) {
        let (result, created) = match status {
            BackgroundStatus::Completed(response) => {
                let created = response.raw.get("created_at").and_then(serde_json::Value::as_i64);
                (Ok(&**response), created.and_then(|seconds| Timestamp::from_second(seconds).ok()))
            }
            BackgroundStatus::Failed(error) => (Err(&**error), None),
            BackgroundStatus::Running | BackgroundStatus::Canceled => return,
        };
        self.tell(request, created.map_or(asked, |created| created.min(asked)), result);
        if let Some(told) = ToldCall::of_job(&self.identity, request, &self.clock, job) {
            let took = created.and_then(|created| self.clock.now().duration_since(created).try_into().ok());
            told.took(took, result);
        }
    }
}

/// Tells of the attempts of one call.
struct SpanReporter {
    identity: ModelIdentity,
    clock: Arc<dyn Clock>,
    options: TelemetryOptions,
    /// Is told everything as well.
    beside: Arc<dyn CallObserver>,
    /// What is known of the attempt that is under way, and when it began.
    running: Mutex<Option<(Attributes, Timestamp)>>,
    /// The whole call, where somebody reads of it.
    told: Option<ToldCall>,
}

impl SpanReporter {
    fn ended(&self, result: Result<&Response, &ModelError>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            tell(running, result, self.options, self.clock.now());
        }
    }
}

/// An attempt that is under way when its call is given up is told then.
impl Drop for SpanReporter {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            let message = "the call was given up: its run was canceled, or had no more time".to_owned();
            let error = OperationError { kind: GIVEN_UP.to_owned(), category: None, message };
            told(running, Some(error), self.clock.now());
        }
    }
}

impl CallObserver for SpanReporter {
    fn observe(&self, event: CallEvent<'_>) {
        match event {
            CallEvent::AttemptStarted { attempt, reason, request } => {
                let begun = begun(&self.identity, (attempt, reason), request, self.options);
                let running = Some((begun, self.clock.now()));
                *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
            }
            CallEvent::Token { kind, text } => {
                if let Some(told) = &self.told {
                    told.token(kind, text);
                }
            }
            CallEvent::AttemptSucceeded { response, .. } => self.ended(Ok(response)),
            CallEvent::AttemptFailed { error, .. } => self.ended(Err(error)),
        }
        self.beside.observe(event);
    }
}

fn tell(
    (begun, started): (Attributes, Timestamp),
    result: Result<&Response, &ModelError>,
    options: TelemetryOptions,
    now: Timestamp,
) {
    let error = result.err().map(|error| {
        let category = error.category.category();
        let message = said_of(error, options);
        OperationError { kind: category.as_str().to_owned(), category: Some(category), message }
    });
    told((ended(begun, result, options), started), error, now);
}

fn told((attributes, started): (Attributes, Timestamp), error: Option<OperationError>, ended: Timestamp) {
    operation_ended(Operation { name: SPAN_NAME, is_remote: true, attributes, error, started, ended });
}
