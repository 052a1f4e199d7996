use std::fmt;
use std::sync::Arc;

use dormouse_ports::Category;

use super::CompiledGraph;
use crate::node::Middleware;
use crate::{EngineError, Field, FieldType, NodeError, State, StateSchema};

/// Effect of an error in one concurrent part of a node on the node (pipeline-utilities §9.5, §11.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The first error cancels the other parts and is raised.
    #[default]
    FailFast,
    /// All parts run; errors are recorded in the errors field, not raised. Where none is named they are gone, also where all parts
    /// failed. A part may not suspend.
    Collect,
}

impl ErrorPolicy {
    /// The specification's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FailFast => "fail_fast",
            Self::Collect => "collect",
        }
    }
}

/// Behavior of a fan-out without instances (§9.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnEmpty {
    /// Raises `fan_out_empty`.
    #[default]
    Raise,
    /// Nothing.
    Noop,
}

/// Computes a number from the parent state; it must depend on nothing else.
pub type Compute = Arc<dyn Fn(&State) -> Result<Option<i64>, NodeError> + Send + Sync>;

/// A number that is fixed or computed from the parent state at entry.
#[derive(Clone)]
pub enum Amount {
    /// Always this.
    Fixed(i64),
    /// Computed once; `None` means unbounded, where that makes sense.
    Computed(Compute),
}

impl fmt::Debug for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(number) => write!(f, "{number}"),
            Self::Computed(_) => f.write_str("computed"),
        }
    }
}

impl Amount {
    pub(crate) fn resolve(&self, state: &State) -> Result<Option<i64>, NodeError> {
        match self {
            Self::Fixed(number) => Ok(Some(*number)),
            Self::Computed(compute) => compute(state),
        }
    }
}

/// A node that runs a subgraph once per item or a number of times, several at once (pipeline-utilities §9).
///
/// Exactly one of [`items`](Self::items) and [`count`](Self::count) must be called.
#[derive(Clone)]
#[must_use = "a fan-out does nothing until it is added to a graph"]
pub struct FanOut {
    pub(crate) graph: Arc<CompiledGraph>,
    pub(crate) items_field: Option<Arc<str>>,
    pub(crate) item_field: Option<Arc<str>>,
    pub(crate) count: Option<Amount>,
    pub(crate) collect_field: Option<Arc<str>>,
    pub(crate) target_field: Option<Arc<str>>,
    pub(crate) concurrency: Option<Amount>,
    pub(crate) error_policy: ErrorPolicy,
    pub(crate) on_empty: OnEmpty,
    pub(crate) count_field: Option<Arc<str>>,
    pub(crate) errors_field: Option<Arc<str>>,
    pub(crate) inputs: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) extra_outputs: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut")
            .field("graph", &self.graph.name())
            .field("error_policy", &self.error_policy)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

impl FanOut {
    /// A fan-out over `graph`: ten instances at once, failing fast, raising when there is nothing to do.
    pub fn over(graph: Arc<CompiledGraph>) -> Self {
        Self {
            graph,
            items_field: None,
            item_field: None,
            count: None,
            collect_field: None,
            target_field: None,
            concurrency: Some(Amount::Fixed(10)),
            error_policy: ErrorPolicy::default(),
            on_empty: OnEmpty::default(),
            count_field: None,
            errors_field: None,
            inputs: Vec::new(),
            extra_outputs: Vec::new(),
            middleware: Vec::new(),
        }
    }

    /// One instance per item of the parent's list `items_field`, which starts with the item in its `item_field`.
    pub fn items(mut self, items_field: impl Into<Arc<str>>, item_field: impl Into<Arc<str>>) -> Self {
        self.items_field = Some(items_field.into());
        self.item_field = Some(item_field.into());
        self
    }

    /// This many instances: none to 100,000.
    pub fn count(mut self, count: Amount) -> Self {
        self.count = Some(count);
        self
    }

    /// Collects the subgraph's `collect_field` of all instances, in their order, into the parent's `target_field`. Under
    /// [`ErrorPolicy::Collect`] those of failed instances are left out, so that places are not those of the items: let the field
    /// tell which item it is of.
    pub fn collect(mut self, collect_field: impl Into<Arc<str>>, target_field: impl Into<Arc<str>>) -> Self {
        self.collect_field = Some(collect_field.into());
        self.target_field = Some(target_field.into());
        self
    }

    /// Merges the list of collected values into the parent's `target_field`, without a field to collect from.
    pub fn target(mut self, target_field: impl Into<Arc<str>>) -> Self {
        self.target_field = Some(target_field.into());
        self
    }

    /// Sets the number of instances that run at once; `None` means all of them.
    pub fn concurrency(mut self, concurrency: Option<Amount>) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets the effect of an error.
    pub fn error_policy(mut self, policy: ErrorPolicy) -> Self {
        self.error_policy = policy;
        self
    }

    /// Sets the behavior without instances.
    pub fn on_empty(mut self, on_empty: OnEmpty) -> Self {
        self.on_empty = on_empty;
        self
    }

    /// The parent's field that receives the number of instances.
    pub fn count_field(mut self, field: impl Into<Arc<str>>) -> Self {
        self.count_field = Some(field.into());
        self
    }

    /// The parent's field that receives the errors of failed instances, under [`ErrorPolicy::Collect`]: a list with a reducer
    /// that extends it. Its items have two texts, `fan_out_index` (the place of the item, from `"0"`) and `category`.
    pub fn errors_field(mut self, field: impl Into<Arc<str>>) -> Self {
        self.errors_field = Some(field.into());
        self
    }

    /// Copies the parent's `from` into every instance's `field`.
    pub fn input(mut self, field: impl Into<Arc<str>>, from: impl Into<Arc<str>>) -> Self {
        self.inputs.push((field.into(), from.into()));
        self
    }

    /// Merges every instance's `from` into the parent's `field`.
    pub fn extra_output(mut self, field: impl Into<Arc<str>>, from: impl Into<Arc<str>>) -> Self {
        self.extra_outputs.push((field.into(), from.into()));
        self
    }

    /// Wraps each instance as a whole, inside of its present middleware (§9.7).
    pub fn wrap(mut self, middleware: Arc<dyn Middleware>) -> Self {
        self.middleware.push(middleware);
        self
    }

    pub(super) fn check(&self, node: &str, parent: &StateSchema) -> Result<(), EngineError> {
        let refuse = |category, message: String| Err(EngineError::new(category, format!("node `{node}`: {message}")));
        if self.items_field.is_some() == self.count.is_some() || self.item_field.is_some() != self.items_field.is_some()
        {
            let message =
                "a fan-out runs over items (with an item_field) or a count (without one), not both or neither";
            return refuse(Category::FanOutCountModeAmbiguous, message.to_owned());
        }
        self.check_fields(node, parent)?;
        if self.error_policy == ErrorPolicy::Collect {
            super::check_waits_nowhere(node, self.graph.waiting_node())?;
        }
        if let Some((field, declared)) = self.items_field.as_ref().and_then(|field| parent.get(field))
            && !is_list(declared)
        {
            return refuse(Category::FanOutFieldNotList, format!("`{field}` is not a list"));
        }
        let mut degraded = self.middleware.iter().filter_map(|m| m.static_degraded_update());
        if let Some(collect) = &self.collect_field
            && degraded.any(|update| update.get(collect).is_none())
        {
            let message = format!("the degraded update of an instance must set `{collect}`");
            return refuse(Category::FanOutDegradedUpdateMissingCollectField, message);
        }
        Ok(())
    }

    fn check_fields(&self, node: &str, parent: &StateSchema) -> Result<(), EngineError> {
        let inner = self.graph.schema();
        let outer_fields = [&self.items_field, &self.target_field, &self.count_field, &self.errors_field];
        let outer = outer_fields.into_iter().flatten().chain(self.inputs.iter().map(|(_, from)| from));
        let outer = outer.chain(self.extra_outputs.iter().map(|(field, _)| field)).map(|field| (parent, field));
        let inward = [&self.item_field, &self.collect_field].into_iter().flatten();
        let inward = inward.chain(self.inputs.iter().map(|(field, _)| field));
        let inward = inward.chain(self.extra_outputs.iter().map(|(_, from)| from)).map(|field| (inner, field));
        super::check_declared(node, outer.chain(inward))?;
        if let Some((field, declared)) = self.errors_field.as_ref().and_then(|field| parent.get(field)) {
            let refuse = |category, what: &str| {
                Err(EngineError::new(category, format!("node `{node}`: the errors field `{field}` {what}")))
            };
            if !is_list(declared) {
                return refuse(Category::FanOutFieldNotList, "must be a list");
            }
            if !declared.reducer.extends_lists() {
                let what =
                    "must have a reducer that extends it: with this one errors replace those before, or none is kept";
                return refuse(Category::ReducerConfigurationInvalid, what);
            }
            super::check_takes_errors(node, parent, field, "fan_out_index")?;
        }
        match self.count_field.as_ref().and_then(|field| parent.get(field)) {
            Some((field, declared))
                if ![FieldType::Int, FieldType::Any].contains(&declared.field_type)
                    || parent.refusal_of(field, 0).is_some() =>
            {
                let message = format!("node `{node}`: the count field `{field}` must be an integer");
                Err(EngineError::new(Category::MappingReferencesUndeclaredField, message))
            }
            _ => Ok(()),
        }
    }

    /// Parent fields that go into the instances and come back into a reducer that would merge them again (§9.3).
    pub(super) fn round_trips(&self, parent: &StateSchema) -> Vec<Arc<str>> {
        let through =
            |target: &Arc<str>, field: &Arc<str>| self.inputs.iter().any(|(f, from)| f == field && from == target);
        let mapped =
            self.extra_outputs.iter().filter(|(target, field)| through(target, field)).map(|(target, _)| target);
        let collected = match (&self.collect_field, &self.target_field) {
            (Some(collect), Some(target)) => {
                let spread = self.item_field.as_ref() == Some(collect) && self.items_field.as_ref() == Some(target);
                (spread || through(target, collect)).then_some(target)
            }
            (None, _) | (_, None) => None,
        };
        let doubled = mapped.chain(collected).filter(|target| super::doubles(parent, target));
        doubled.cloned().collect()
    }
}

fn is_list(field: &Field) -> bool {
    field.field_type.is_list() || (field.field_type == FieldType::Any && field.default.is_array())
}
