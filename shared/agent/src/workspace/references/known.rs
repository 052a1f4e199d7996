//! What is looked up for each name that a definition writes. It is made once for a check: thousands of definitions may write
//! thousands of names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::tool::NATIVE_TOOLS;

use super::approvals::http_names;
use super::is_of_all_tools;
use crate::names::{Guesses, OWN_TOOLS};
use crate::workspace::Workspace;
use crate::workspace::asked::is_of_all_models;
use crate::workspace::problem::{DefinitionKind, DefinitionName, Problem};

/// What one check looks up.
pub(super) struct Known {
    pub(super) guesses: Guesses,
    /// The names of HTTP tools.
    pub(super) of_http: Names,
    /// The names of all tools but those of servers.
    pub(super) of_tools: Names,
    flaws: RefCell<Flaws>,
}

impl Known {
    pub(super) fn of(workspace: &Workspace) -> Self {
        let of_http: Vec<String> = workspace.tools.values().flat_map(http_names).collect();
        let own = workspace.actions.keys().chain(workspace.skills.keys()).chain(&of_http);
        let of_tools = own.map(String::as_str).chain(NATIVE_TOOLS).chain(OWN_TOOLS).map(str::to_owned);
        let (of_tools, of_http) = (Names::of(of_tools.collect()), Names::of(of_http));
        Self { guesses: Guesses::default(), of_http, of_tools, flaws: RefCell::default() }
    }

    /// The first problem that disables the definition.
    pub(super) fn flaw<'w>(&self, workspace: &'w Workspace, kind: DefinitionKind, name: &str) -> Option<&'w Problem> {
        self.found(workspace, |flaws| flaws.of.get(&DefinitionName::new(kind, name)).copied())
    }

    /// The error for which nothing of the file of tools is known: it may have any of them.
    pub(super) fn unread_tools<'w>(&self, workspace: &'w Workspace) -> Option<&'w Problem> {
        self.found(workspace, |flaws| flaws.of_all_tools)
    }

    /// The same of a file of models.
    pub(super) fn unread_models<'w>(&self, workspace: &'w Workspace) -> Option<&'w Problem> {
        self.found(workspace, |flaws| flaws.of_all_models)
    }

    /// The problem at `place`, behind a look at those that have come since the last one.
    fn found<'w>(&self, workspace: &'w Workspace, place: impl Fn(&Flaws) -> Option<usize>) -> Option<&'w Problem> {
        let mut flaws = self.flaws.borrow_mut();
        flaws.see(&workspace.problems);
        workspace.problems.get(place(&flaws)?)
    }
}

/// Names, in the order in which they are guessed.
pub(super) struct Names {
    all: Vec<String>,
    known: BTreeSet<String>,
}

impl Names {
    fn of(all: Vec<String>) -> Self {
        Self { known: all.iter().cloned().collect(), all }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(String::as_str)
    }
}

/// Where problems stand among those of a workspace, of which there only come to be more.
#[derive(Default)]
struct Flaws {
    /// Number of problems that were looked at.
    seen: usize,
    /// The first that disables each definition.
    of: BTreeMap<DefinitionName, usize>,
    of_all_tools: Option<usize>,
    of_all_models: Option<usize>,
}

impl Flaws {
    fn see(&mut self, problems: &[Problem]) {
        for (at, problem) in problems.iter().enumerate().skip(self.seen) {
            if let Some(disabled) = &problem.disables {
                self.of.entry(disabled.clone()).or_insert(at);
            }
            self.of_all_tools = self.of_all_tools.or(is_of_all_tools(problem).then_some(at));
            self.of_all_models = self.of_all_models.or(is_of_all_models(problem).then_some(at));
        }
        self.seen = problems.len();
    }
}
