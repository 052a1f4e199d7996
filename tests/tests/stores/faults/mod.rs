//! An interceptor that spoils answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextMut,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpResponse, Metadata};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::ConfigBag;
use serde_json::{Value, json};

/// What happens to one request.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    reaches_the_table: bool,
    status: u16,
    body: Value,
}

impl Fault {
    /// Refused with `code`; nothing was done.
    pub(crate) fn refused(code: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self { reaches_the_table: false, status: 400, body: json!({"__type": kind, "message": "injected"}) }
    }

    /// Throttled; nothing was done.
    pub(crate) fn throttled() -> Self {
        Self::refused("ThrottlingException")
    }

    /// An error of the service; nothing was done.
    pub(crate) fn unavailable() -> Self {
        Self { status: 503, ..Self::refused("InternalServerError") }
    }

    /// Done, but the answer says that nobody knows.
    pub(crate) fn lost() -> Self {
        Self { reaches_the_table: true, ..Self::unavailable() }
    }

    /// A transaction canceled for these reasons; nothing was done.
    pub(crate) fn canceled(codes: &[&str]) -> Self {
        let mut fault = Self::refused("TransactionCanceledException");
        let reasons: Vec<Value> = codes.iter().map(|code| json!({"Code": code})).collect();
        fault.body["CancellationReasons"] = json!(reasons);
        fault
    }
}

/// Spoils the next requests of one operation, in the order of its script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    script: Arc<Mutex<(String, VecDeque<Fault>)>>,
}

impl Faults {
    /// From now on requests of `operation` meet `faults`, one each.
    pub(crate) fn script(&self, operation: &str, faults: impl IntoIterator<Item = Fault>) {
        *self.script.lock().expect("no panic") = (operation.to_owned(), faults.into_iter().collect());
    }

    /// How many faults were not met yet.
    pub(crate) fn left(&self) -> usize {
        self.script.lock().expect("no panic").1.len()
    }

    fn next(&self, cfg: &ConfigBag) -> Option<Fault> {
        let script = self.script.lock().expect("no panic");
        let concerned = cfg.load::<Metadata>().is_some_and(|metadata| metadata.name() == script.0);
        script.1.front().filter(|_| concerned).cloned()
    }
}

impl Intercept for Faults {
    fn name(&self) -> &'static str {
        "Faults"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.next(cfg).is_some_and(|fault| !fault.reaches_the_table) {
            // No store knows this operation, so that it does nothing.
            context.request_mut().headers_mut().insert("x-amz-target", "DynamoDB_20120810.Nothing");
        }
        Ok(())
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(fault) = self.next(cfg) {
            let body = SdkBody::from(fault.body.to_string());
            *context.response_mut() = HttpResponse::new(fault.status.try_into()?, body);
            self.script.lock().expect("no panic").1.pop_front();
        }
        Ok(())
    }
}
