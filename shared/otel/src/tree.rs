//! The open spans of one call of `invoke()`, and the events that open and close them (observability §4.1 to §4.3, §6).

mod detached;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use dormouse_engine::{
    FailureIsolated, Identity, InvocationEnd, InvocationResult, InvocationStart, MetadataAugmented, NodeEvent,
    ObservedError, OperationEnded, Phase,
};
use opentelemetry::trace::{Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use crate::attributes::{self, OUTCOME};
use crate::place::{EnteredNode, SpanPlace};
use crate::trace::{self, ChosenIds};

pub use detached::Detached;

/// The spans of one call. Dropped, it ends those that are open.
pub(crate) struct Tree {
    /// Identity of the call.
    pub(crate) identity: Arc<Identity>,
    tracer: SdkTracer,
    root: Span,
    at: SpanContext,
    /// Attributes of the spans that open now.
    everywhere: Vec<KeyValue>,
    /// Identity that saw the event before, when that is not the one with which the call began.
    view: Option<Arc<Identity>>,
    detached: Arc<Detached>,
    /// In the order in which they were opened: a container comes before its contents.
    open: Vec<OpenSpan>,
    /// The ids of node spans so far.
    used: BTreeSet<[u8; 8]>,
}

struct OpenSpan {
    place: SpanPlace,
    span: Span,
    /// Place in a trace of its own: the root of that trace and, of a subgraph, the span that is linked to it. They end
    /// as `span` ends.
    around: Vec<Span>,
    /// Instant at which a span inside ended last, and its error.
    last: Option<(SystemTime, Option<ObservedError>)>,
    /// True if it is the span of a node that has parts, which all see it.
    shared: bool,
    /// The branches of a parallel-branches node, in order, and those of them that are a plain call.
    branches: Option<Arc<dormouse_engine::ParallelBranchesConfig>>,
}

impl Tree {
    /// Opens the invocation span (§5.1), linked to the one that suspended (§4.3).
    pub(crate) fn begin(tracer: &SdkTracer, detached: &Arc<Detached>, start: &InvocationStart) -> Self {
        let parent = start.surrounding_trace.as_deref().and_then(trace::parse);
        let at = start.identity.trace_context.as_deref().and_then(trace::parse);
        let at = at.unwrap_or_else(|| trace::fresh(parent.as_ref()));
        let suspended = start.resumed.as_ref().and_then(|resumed| trace::parse(resumed.trace_context.as_deref()?));
        let everywhere = attributes::cross_cutting(&start.identity);
        let builder = SpanBuilder::from_name("openarmature.invocation")
            .with_start_time(SystemTime::from(start.at))
            .with_attributes(
                attributes::invocation(&start.identity, &start.entry_node)
                    .into_iter()
                    .chain(everywhere.iter().cloned()),
            )
            .with_links(suspended.map(|context| Link::new(context, Vec::new(), 0)).into_iter().collect());
        let root = ChosenIds::choose(&at, || tracer.build_with_context(builder, &inside(parent.as_ref())));
        Self {
            identity: start.identity.clone(),
            tracer: tracer.clone(),
            root,
            at,
            everywhere,
            view: None,
            detached: detached.clone(),
            open: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// Sees the next events as `identity` does: metadata differ between lines of execution (§3.4).
    pub(crate) fn seen_by(&mut self, identity: &Arc<Identity>) {
        if !Arc::ptr_eq(self.view.as_ref().unwrap_or(&self.identity), identity) {
            self.everywhere = attributes::cross_cutting(identity);
            self.view = (!Arc::ptr_eq(&self.identity, identity)).then(|| identity.clone());
        }
    }

    /// Takes in one event of a node.
    pub(crate) fn node(&mut self, event: &NodeEvent) {
        let place = self.place_of(event);
        let at = SystemTime::from(event.at);
        match event.phase {
            Phase::Started => {
                self.leave_for(&place);
                for depth in 1..=place.around().len() {
                    self.enter(&place.around()[..depth], at);
                }
                self.start(place, event, at);
            }
            Phase::Completed | Phase::Suspended => self.finish(&place, event, at),
        }
    }

    /// Adds metadata to the open spans on the way to the work that added it: not to spans that run beside that, nor to
    /// a span that both share (§3.4).
    pub(crate) fn augmented(&mut self, event: &MetadataAugmented) {
        let added = attributes::user(&event.entries);
        let at = SpanPlace::of_origin(&event.origin);
        let on_the_way = |open: &&mut OpenSpan| !open.shared && open.place.is_on_the_way_to(&at);
        for open in self.open.iter_mut().filter(on_the_way) {
            for span in open.around.iter_mut().chain([&mut open.span]) {
                span.set_attributes(added.clone());
            }
        }
        if !at.is_in_a_part() {
            self.root.set_attributes(added);
        }
    }

    /// Takes in that a failure was caught: the parts around it go on, as if nothing in them had failed.
    pub(crate) fn isolated(&mut self, event: &FailureIsolated) {
        let place = SpanPlace::of_origin(&event.origin);
        for around in self.open.iter_mut().filter(|around| around.place.contains(&place)) {
            if let Some((_, error)) = &mut around.last {
                *error = None;
            }
        }
    }

    /// Makes the span of an operation that has ended, inside of the innermost open span on the way to it (§5.5).
    pub(crate) fn operated(&mut self, event: &OperationEnded) {
        let place = SpanPlace::of_origin(&event.origin);
        let started = SystemTime::from(event.operation.started);
        // A middleware may work before the first node of a part begins.
        self.leave_for(&place);
        for depth in 1..=place.around().len() {
            self.enter(&place.around()[..depth], started);
        }
        let around = self.open.iter().rev().find(|open| open.place.is_on_the_way_to(&place));
        let parent = around.map_or_else(|| &self.root, |open| &open.span).span_context().clone();
        let operation = &event.operation;
        let own = attributes::operation(operation);
        let ids = trace::fresh(Some(&parent));
        let kind = if operation.is_remote { SpanKind::Client } else { SpanKind::Internal };
        let builder = SpanBuilder::from_name(operation.name).with_kind(kind);
        let mut span = self.built(builder, &ids, Some(&parent), own, started);
        match &operation.error {
            None => span.set_status(Status::Ok),
            Some(error) => {
                span.set_status(Status::error(error.kind.clone()));
                record_exception(&mut span, &error.kind, &error.message, SystemTime::from(operation.ended));
            }
        }
        span.end_with_timestamp(SystemTime::from(operation.ended));
    }

    /// Closes everything, the invocation span last.
    pub(crate) fn end(mut self, end: &InvocationEnd) {
        let at = SystemTime::from(end.at);
        while !self.open.is_empty() {
            self.close_with_contents(0, at);
        }
        let outcome = match &end.result {
            InvocationResult::Completed => "completed",
            InvocationResult::Suspended => "suspended",
            InvocationResult::Errored(_) => "errored",
            InvocationResult::Abandoned => "abandoned",
        };
        self.root.set_attribute(KeyValue::new(OUTCOME, outcome));
        match &end.result {
            InvocationResult::Completed | InvocationResult::Suspended => self.root.set_status(Status::Ok),
            InvocationResult::Errored(error) => fail(&mut self.root, error.category.as_str(), error, at),
            InvocationResult::Abandoned => self.root.set_status(Status::error("the call was dropped")),
        }
        self.root.end_with_timestamp(at);
    }

    /// The place of `event`: a node, or a branch that is a plain call.
    fn place_of(&self, event: &NodeEvent) -> SpanPlace {
        let node = SpanPlace::of_node(event);
        let branch = SpanPlace::Inside(node.around().to_vec());
        let calls =
            |open: &OpenSpan| open.branches.as_ref().is_some_and(|config| config.calls.contains(&event.node_name));
        let of_call = self.open.iter().any(|open| open.place.is_parent_of(&branch) && calls(open));
        let last = node.around().last().and_then(|entered| entered.branch.as_ref());
        if of_call && last == Some(&event.node_name) { branch } else { node }
    }

    /// Closes the subgraphs that execution has left when it comes to `next`.
    fn leave_for(&mut self, next: &SpanPlace) {
        while let Some(index) = self.open.iter().position(|open| open.place.is_left_at(next)) {
            let at = self.open[index].last.as_ref().map_or(SystemTime::UNIX_EPOCH, |(at, _)| *at);
            self.close_with_contents(index, at);
        }
    }

    /// Opens the span of the part that was entered last on the way `path`, unless it is open.
    fn enter(&mut self, path: &[EnteredNode], at: SystemTime) {
        let (place, Some(entered)) = (SpanPlace::Inside(path.to_vec()), path.last()) else { return };
        if self.open.iter().any(|open| open.place == place) {
            return;
        }
        let own = attributes::entered(entered);
        match self.detached.begins(entered) {
            Some(graph) => self.detach(place.clone(), entered, graph, own, at),
            None => {
                let name = entered.branch.as_ref().unwrap_or(&entered.node);
                self.open(place, name, trace::fresh(Some(&self.at)), own, at);
            }
        }
    }

    fn start(&mut self, place: SpanPlace, event: &NodeEvent, at: SystemTime) {
        let mut own = attributes::node(event);
        if let (SpanPlace::Inside(path), Some(_)) = (&place, &event.branch_name) {
            own.extend(path.last().map(attributes::entered).unwrap_or_default());
        }
        let mut ids = trace::of_node(&self.at, &event.namespace, event.step, event.attempt_index);
        // A middleware that calls on twice makes two spans of one position.
        if !self.used.insert(ids.span_id().to_bytes()) {
            ids = trace::fresh(Some(&self.at));
        }
        let open = self.open(place, &event.node_name, ids, own, at);
        open.shared = event.fan_out_config.is_some() || event.parallel_branches_config.is_some();
        open.branches = event.parallel_branches_config.clone();
    }

    fn open(
        &mut self,
        place: SpanPlace,
        name: &str,
        ids: SpanContext,
        own: Vec<KeyValue>,
        at: SystemTime,
    ) -> &mut OpenSpan {
        let parent = self.parent_of(&place).clone();
        let span = self.span(name, &ids, Some(&parent), own, at);
        self.open.push_mut(OpenSpan { place, span, around: Vec::new(), last: None, shared: false, branches: None })
    }

    fn parent_of(&self, place: &SpanPlace) -> &SpanContext {
        let parent = self.open.iter().rev().find(|open| open.place.is_parent_of(place));
        parent.map_or_else(|| &self.root, |open| &open.span).span_context()
    }

    fn span(
        &self,
        name: &str,
        ids: &SpanContext,
        parent: Option<&SpanContext>,
        own: Vec<KeyValue>,
        at: SystemTime,
    ) -> Span {
        self.built(SpanBuilder::from_name(name.to_owned()), ids, parent, own, at)
    }

    fn built(
        &self,
        builder: SpanBuilder,
        ids: &SpanContext,
        parent: Option<&SpanContext>,
        own: Vec<KeyValue>,
        at: SystemTime,
    ) -> Span {
        let builder =
            builder.with_start_time(at).with_attributes(own.into_iter().chain(self.everywhere.iter().cloned()));
        ChosenIds::choose(ids, || self.tracer.build_with_context(builder, &inside(parent)))
    }

    /// Ends the span of an attempt with the outcome of its event (§4.2), after all spans inside of it.
    fn finish(&mut self, place: &SpanPlace, event: &NodeEvent, at: SystemTime) {
        let Some(index) = self.open.iter().rposition(|open| open.place == *place) else { return };
        self.close_contents(index, at);
        let mut open = self.open.remove(index);
        open.span.set_attributes(attributes::dispatcher(event));
        match (&event.error, &event.descriptor) {
            (Some(error), _) => fail(&mut open.span, attributes::category(place, error).as_str(), error, at),
            (None, Some(descriptor)) => {
                open.span.set_status(Status::Ok);
                open.span.set_attribute(KeyValue::new(OUTCOME, "suspended"));
                open.span.set_attributes(attributes::suspension(descriptor));
            }
            (None, None) => open.span.set_status(Status::Ok),
        }
        open.span.end_with_timestamp(at);
        for around in self.open.iter_mut().filter(|around| around.place.contains(place)) {
            around.last = Some((at, event.error.clone()));
        }
    }

    /// Closes the spans inside of the span at `index`: branches in the order in which they are declared, all others in
    /// the opposite order of opening.
    fn close_contents(&mut self, index: usize, at: SystemTime) {
        let outer = self.open[index].place.clone();
        let branches = self.open[index].branches.clone();
        for name in branches.iter().flat_map(|config| &config.branch_names) {
            let is_branch = |place: &SpanPlace| match place {
                SpanPlace::Inside(path) => path.last().and_then(|entered| entered.branch.as_ref()) == Some(name),
                SpanPlace::Node { .. } => false,
            };
            let branch = self.open.iter().position(|open| outer.is_parent_of(&open.place) && is_branch(&open.place));
            if let Some(branch) = branch {
                self.close_with_contents(branch, at);
            }
        }
        while let Some(inner) = self.open.iter().rposition(|open| outer.contains(&open.place)) {
            self.close(inner, at);
        }
    }

    fn close_with_contents(&mut self, index: usize, at: SystemTime) {
        self.close_contents(index, at);
        self.close(index, at);
    }

    /// Ends a span that no event ends: of a part that was entered, or of a node that was dropped while it ran.
    fn close(&mut self, index: usize, at: SystemTime) {
        let mut open = self.open.remove(index);
        let is_branch = |path: &[EnteredNode]| path.last().is_some_and(|entered| entered.branch.is_some());
        let ended = match (&open.place, &open.last) {
            // A branch lasts as long as its node (§6); everything else until its last node ended.
            (SpanPlace::Inside(path), Some((last, _))) if !is_branch(path) => *last,
            (SpanPlace::Inside(_) | SpanPlace::Node { .. }, _) => at,
        };
        // The innermost first.
        for span in std::iter::once(&mut open.span).chain(&mut open.around) {
            match (&open.place, &open.last) {
                (SpanPlace::Inside(_), Some((_, Some(error)))) => fail(span, error.category.as_str(), error, ended),
                (SpanPlace::Inside(_), Some((_, None))) => span.set_status(Status::Ok),
                (SpanPlace::Inside(_), None) | (SpanPlace::Node { .. }, _) => {
                    span.set_attribute(KeyValue::new(OUTCOME, "abandoned"));
                }
            }
            span.end_with_timestamp(ended);
        }
    }
}

/// Marks `span` as failed (§4.2): the error is described by the category of graph-engine §4, `category` is the one that
/// it is filed under.
fn fail(span: &mut Span, category: &str, error: &ObservedError, at: SystemTime) {
    span.set_status(Status::error(error.category.as_str().to_owned()));
    span.set_attribute(KeyValue::new(attributes::ERROR_CATEGORY, category.to_owned()));
    record_exception(span, error.derived_category.as_str(), &error.message, at);
}

fn record_exception(span: &mut Span, kind: &str, message: &str, at: SystemTime) {
    let exception =
        vec![KeyValue::new("exception.type", kind.to_owned()), KeyValue::new("exception.message", message.to_owned())];
    span.add_event_with_timestamp("exception", at, exception);
}

fn inside(parent: Option<&SpanContext>) -> Context {
    parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent.clone()))
}
