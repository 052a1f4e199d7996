//! Fan-out nodes (conformance-adapter §5.4, pipeline-utilities §9).

use std::sync::Arc;

use dormouse_engine::{Amount, CompiledGraph, ErrorPolicy, FanOut, NodeError, OnEmpty, State};
use serde_json::Value;

use super::Stage;
use super::instance::AroundInstance;
use super::middleware::Layer;
use crate::Failure;
use crate::directives::Directives;

/// A fan-out as a fixture configures it.
#[derive(Clone, Debug)]
pub(super) struct FanOutSpec {
    pub(super) subgraph: String,
    pub(super) items_field: Option<String>,
    item_field: Option<String>,
    count: Option<Number>,
    collect_field: Option<String>,
    target_field: Option<String>,
    /// Absent: the default.
    concurrency: Option<Number>,
    error_policy: ErrorPolicy,
    on_empty: OnEmpty,
    count_field: Option<String>,
    errors_field: Option<String>,
    inputs: Vec<(String, String)>,
    extra_outputs: Vec<(String, String)>,
    layers: Vec<Layer>,
    /// The process ends when this instance is saved as completed.
    pub(super) abort_after: Option<usize>,
}

#[derive(Clone, Debug)]
enum Number {
    Fixed(i64),
    Unbounded,
    /// What stands in a field of the parent's state.
    Field(String),
    /// The length of a list in chunks of that size, at least 1.
    Chunks(String, usize),
}

impl FanOutSpec {
    pub(super) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let mut spec = Self {
            subgraph: given.required_text("subgraph")?.to_owned(),
            items_field: owned(given.text("items_field")?),
            item_field: owned(given.text("item_field")?),
            count: given.get("count").map(|count| Number::read("count", count)).transpose()?,
            collect_field: owned(given.text("collect_field")?),
            target_field: owned(given.text("target_field")?),
            concurrency: given.get("concurrency").map(|bound| Number::read("concurrency", bound)).transpose()?,
            error_policy: error_policy(&mut given)?,
            on_empty: on_empty(&mut given)?,
            count_field: owned(given.text("count_field")?),
            errors_field: owned(given.text("errors_field")?),
            inputs: pairs(given.nested("inputs")?)?,
            extra_outputs: pairs(given.nested("extra_outputs")?)?,
            layers: Layer::read_list(&mut given, "instance_middleware")?,
            abort_after: given.integer("abort_after_instance")?.and_then(|index| usize::try_from(index).ok()),
        };
        match given.text("concurrent_mode")? {
            Some("serial") => spec.concurrency = Some(Number::Fixed(1)),
            None | Some("concurrent") => {}
            Some(other) => return Err(Failure::missing(format!("concurrent_mode `{other}`"))),
        }
        if let Some(mapping) = given.nested("mapping")? {
            spec.read_mapping(mapping)?;
        }
        given.done()?;
        Ok(spec)
    }

    /// The spelling in which the item is an input and the first output is what is collected.
    fn read_mapping(&mut self, mut mapping: Directives<'_>) -> Result<(), Failure> {
        for (field, from) in pairs(mapping.nested("inputs")?)? {
            match from.as_str() {
                "<fan_out_item>" => self.item_field = Some(field),
                _ => self.inputs.push((field, from)),
            }
        }
        for (target, field) in pairs(mapping.nested("outputs")?)? {
            if self.target_field.is_none() {
                (self.target_field, self.collect_field) = (Some(target), Some(field));
            } else {
                self.extra_outputs.push((target, field));
            }
        }
        mapping.done()
    }

    pub(super) fn build(&self, graph: Arc<CompiledGraph>, stage: &Stage) -> FanOut {
        let mut fan_out = FanOut::over(graph).error_policy(self.error_policy).on_empty(self.on_empty);
        if self.items_field.is_some() || (self.count.is_some() && self.item_field.is_some()) {
            // With one of both alone it is not complete, and the engine says so.
            let [items, item] = [&self.items_field, &self.item_field].map(|field| field.as_deref().unwrap_or_default());
            fan_out = fan_out.items(items, item);
        }
        if let Some(count) = &self.count {
            fan_out = fan_out.count(count.amount());
        }
        fan_out = match (&self.collect_field, &self.target_field) {
            (Some(collect), Some(target)) => fan_out.collect(collect.as_str(), target.as_str()),
            (None, Some(target)) => fan_out.target(target.as_str()),
            (_, None) => fan_out,
        };
        fan_out = match &self.concurrency {
            None => fan_out,
            Some(Number::Unbounded) => fan_out.concurrency(None),
            Some(bound) => fan_out.concurrency(Some(bound.amount())),
        };
        if let Some(field) = &self.count_field {
            fan_out = fan_out.count_field(field.as_str());
        }
        if let Some(field) = &self.errors_field {
            fan_out = fan_out.errors_field(field.as_str());
        }
        for (field, from) in &self.inputs {
            fan_out = fan_out.input(field.as_str(), from.as_str());
        }
        for (field, from) in &self.extra_outputs {
            fan_out = fan_out.extra_output(field.as_str(), from.as_str());
        }
        self.wrap(fan_out, stage)
    }

    fn wrap(&self, mut fan_out: FanOut, stage: &Stage) -> FanOut {
        let ledger = stage.ledger.clone();
        let item_field = self.item_field.clone();
        fan_out = fan_out.wrap(Arc::new(AroundInstance { ledger, item_field }));
        for layer in &self.layers {
            fan_out = fan_out.wrap(layer.middleware(stage));
        }
        fan_out
    }
}

impl Number {
    fn read(at: &str, value: &Value) -> Result<Self, Failure> {
        if value.is_null() {
            return Ok(Self::Unbounded);
        }
        if let Some(number) = value.as_i64() {
            return Ok(Self::Fixed(number));
        }
        let mut given = Directives::new(at, value)?;
        let field = given.required_text("field")?.to_owned();
        let read = match given.required_text("callable")? {
            "state_field_read" => Self::Field(field),
            "queue_chunk" => {
                let size = given.integer("chunk_size")?.unwrap_or(1);
                Self::Chunks(field, usize::try_from(size).unwrap_or(1).max(1))
            }
            other => return Err(Failure::missing(format!("{at} function `{other}`"))),
        };
        given.done()?;
        Ok(read)
    }

    fn amount(&self) -> Amount {
        let this = self.clone();
        match self {
            Self::Fixed(number) => Amount::Fixed(*number),
            Self::Unbounded | Self::Field(_) | Self::Chunks(..) => {
                Amount::Computed(Arc::new(move |state| this.compute(state)))
            }
        }
    }

    fn compute(&self, state: &State) -> Result<Option<i64>, NodeError> {
        let length = |field: &str| state.get(field).and_then(Value::as_array).map_or(0, Vec::len);
        match self {
            Self::Fixed(number) => Ok(Some(*number)),
            Self::Unbounded => Ok(None),
            Self::Field(field) => Ok(state.get(field).and_then(Value::as_i64)),
            Self::Chunks(field, size) => Ok(i64::try_from((length(field) / size).max(1)).ok()),
        }
    }
}

pub(super) fn error_policy(given: &mut Directives<'_>) -> Result<ErrorPolicy, Failure> {
    match given.text("error_policy")? {
        None | Some("fail_fast") => Ok(ErrorPolicy::FailFast),
        Some("collect") => Ok(ErrorPolicy::Collect),
        Some(other) => Err(Failure::invalid(format!("error_policy `{other}`"))),
    }
}

fn on_empty(given: &mut Directives<'_>) -> Result<OnEmpty, Failure> {
    match given.text("on_empty")? {
        None | Some("raise") => Ok(OnEmpty::Raise),
        Some("noop") => Ok(OnEmpty::Noop),
        Some(other) => Err(Failure::invalid(format!("on_empty `{other}`"))),
    }
}

/// Pairs of field names in order.
pub(super) fn pairs(from: Option<Directives<'_>>) -> Result<Vec<(String, String)>, Failure> {
    let Some(mut from) = from else { return Ok(Vec::new()) };
    let names = from.unread();
    names.into_iter().map(|to| Ok((to.to_owned(), from.required_text(to)?.to_owned()))).collect()
}
