//! Counting the requests to DynamoDB and the units that it charges.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::operation::{
    batch_get_item, delete_item, get_item, put_item, query, scan, transact_write_items, update_item,
};
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::{
    AfterDeserializationInterceptorContextRef, BeforeSerializationInterceptorContextMut,
    BeforeTransmitInterceptorContextRef, Input, Output,
};
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::config_bag::ConfigBag;

/// Usage of one kind of request so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestUsage {
    /// Number of requests that were sent, repeated ones included.
    pub requests: u64,
    /// Capacity units that the answers reported: write units for changes, read units for the rest. Refused requests
    /// report none, although they are charged.
    pub units: f64,
}

/// An interceptor that counts requests and, when asked to, capacity units per operation. Clones share their counts.
///
/// ```
/// let meter = dormouse_aws::Meter::with_units();
/// let config = aws_sdk_dynamodb::Config::builder().interceptor(meter.clone());
/// # let _ = config;
/// assert!(meter.snapshot().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Meter {
    units: bool,
    counts: Arc<Mutex<BTreeMap<String, RequestUsage>>>,
}

impl Meter {
    /// Counts requests only and leaves them as they are.
    pub fn requests_only() -> Self {
        Self::default()
    }

    /// Also asks every request to report the units that it consumed.
    pub fn with_units() -> Self {
        Self { units: true, ..Self::default() }
    }

    /// The counts since the last [`reset`](Self::reset), by name of the operation.
    pub fn snapshot(&self) -> BTreeMap<String, RequestUsage> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to count anew.
    pub fn reset(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn count(&self, cfg: &ConfigBag, requests: u64, units: f64) {
        let name = cfg.load::<Metadata>().map_or("unknown", Metadata::name);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let usage = counts.entry(name.to_owned()).or_default();
        usage.requests += requests;
        usage.units += units;
    }
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "Meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if self.units {
            ask(context.input_mut());
        }
        Ok(())
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.count(cfg, 1, 0.0);
        Ok(())
    }

    fn read_after_deserialization(
        &self,
        context: &AfterDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Ok(output) = context.output_or_error() {
            let units = consumed(output).iter().filter_map(ConsumedCapacity::capacity_units).sum();
            self.count(cfg, 0, units);
        }
        Ok(())
    }
}

macro_rules! metered {
    (one: [$($one:ident :: $one_input:ident / $one_output:ident),+], many: [$($many:ident :: $many_input:ident / $many_output:ident),+]) => {
        /// Asks the request to report its consumption.
        fn ask(input: &mut Input) {
            let total = Some(ReturnConsumedCapacity::Total);
            $(if let Some(input) = input.downcast_mut::<$one::$one_input>() { input.return_consumed_capacity = total; return; })+
            $(if let Some(input) = input.downcast_mut::<$many::$many_input>() { input.return_consumed_capacity = total; return; })+
        }

        /// The consumption that the answer reports.
        fn consumed(output: &Output) -> Vec<ConsumedCapacity> {
            $(if let Some(output) = output.downcast_ref::<$one::$one_output>() { return output.consumed_capacity.clone().into_iter().collect(); })+
            $(if let Some(output) = output.downcast_ref::<$many::$many_output>() { return output.consumed_capacity.clone().unwrap_or_default(); })+
            Vec::new()
        }
    };
}

metered! {
    one: [
        get_item::GetItemInput / GetItemOutput,
        put_item::PutItemInput / PutItemOutput,
        update_item::UpdateItemInput / UpdateItemOutput,
        delete_item::DeleteItemInput / DeleteItemOutput,
        query::QueryInput / QueryOutput,
        scan::ScanInput / ScanOutput
    ],
    many: [
        batch_get_item::BatchGetItemInput / BatchGetItemOutput,
        transact_write_items::TransactWriteItemsInput / TransactWriteItemsOutput
    ]
}
