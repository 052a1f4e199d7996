//! Traces of their own for parts of a call (observability §4.4).

use std::collections::BTreeSet;
use std::time::SystemTime;

use dormouse_engine::Subgraph;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanContext};

use super::{OpenSpan, Tree};
use crate::place::{EnteredNode, SpanPlace};
use crate::{attributes, trace};

/// The parts that get a trace of their own, which log records from inside name (observability §4.4, §7). The span from
/// which a part was entered is linked to it. Log records of an edge function inside name the trace around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Subgraphs, by the name under which they were compiled.
    pub subgraphs: BTreeSet<String>,
    /// Fan-out nodes, by name: each instance gets a trace.
    pub fan_outs: BTreeSet<String>,
}

impl Detached {
    /// The graph that begins a trace when it is so entered.
    pub(super) fn begins<'e>(&self, entered: &'e EnteredNode) -> Option<&'e Subgraph> {
        let graph = entered.entry.graph.as_deref()?;
        let begins = match (entered.fan_out_index, &entered.branch) {
            (Some(_), _) => self.fan_outs.contains(&*entered.node),
            (None, Some(_)) => false,
            (None, None) => self.subgraphs.contains(&*graph.name),
        };
        begins.then_some(graph)
    }

    /// The root of the trace in which `place` is, where that is not the one of the call, with the root `root`.
    pub(crate) fn root_of(&self, root: &SpanContext, place: &SpanPlace) -> Option<SpanContext> {
        let way = place.way();
        let innermost = way.iter().rposition(|entered| self.begins(entered).is_some())?;
        Some(trace::of_part(root, &way[..=innermost]))
    }
}

impl Tree {
    /// Opens a trace of its own for a part that was entered (§4.4). The span from which it was entered is linked to it:
    /// that of the fan-out, or one that stands for the subgraph where it was dispatched.
    pub(super) fn detach(
        &mut self,
        place: SpanPlace,
        entered: &EnteredNode,
        graph: &Subgraph,
        own: Vec<KeyValue>,
        at: SystemTime,
    ) {
        let mut ids = trace::of_part(&self.at, place.way());
        if !self.used.insert(ids.span_id().to_bytes()) {
            ids = trace::fresh(None);
        }
        let attributes = attributes::invocation(&self.identity, &graph.entry_node);
        let root = self.span("openarmature.invocation", &ids, None, attributes, at);
        let link = root.span_context().clone();
        let mut around = vec![root];
        let mut name = &entered.node;
        if entered.is_plain() {
            let parent = self.parent_of(&place).clone();
            let mut dispatch = self.span(&entered.node, &trace::fresh(Some(&self.at)), Some(&parent), own.clone(), at);
            dispatch.add_link(link.clone(), Vec::new());
            around.push(dispatch);
            name = &graph.name;
        } else if let Some(node) = self.open.iter_mut().rev().find(|open| open.place.is_parent_of(&place)) {
            node.span.add_link(link.clone(), Vec::new());
        }
        let span = self.span(name, &trace::fresh(Some(&link)), Some(&link), own, at);
        self.open.push(OpenSpan { place, span, around, last: None, shared: false, branches: None });
    }
}
