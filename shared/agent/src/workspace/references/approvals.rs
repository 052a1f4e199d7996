//! What is said of approvals, and of names that are meant to be those of tools.

use std::collections::BTreeMap;

use dormouse_ports::model::wire_name;
use dormouse_ports::tool::{NATIVE_TOOLS, ToolDefinition, ToolSourceDefinition};

use super::known::{Known, Names};
use super::missing;
use crate::names::Guesses;
use crate::workspace::Workspace;
use crate::workspace::approval::{ApprovalPolicy, is_exact, listed, matches};
use crate::workspace::load::SETTINGS;
use crate::workspace::problem::{FileProblems, Problem, Severity};
use crate::workspace::settings::WorkspaceKind;

/// Approvals of the settings that ask for nothing there is: until they are mended a person is asked for everything.
pub(super) fn approvals(workspace: &mut Workspace, known: &Known) {
    let wrong = strangers(workspace, (SETTINGS, &workspace.settings.approval), known);
    if wrong.is_empty() {
        return;
    }
    let mut problems = FileProblems::new(SETTINGS);
    wrong.into_iter().for_each(|(line, message)| problems.error(line, message));
    workspace.problems.extend(problems.into_found());
    workspace.ask_for_everything();
}

/// Approvals that are written and ask for nothing: times alone count for what the settings, or agents, ask for.
pub(super) fn idle_approvals(workspace: &mut Workspace) {
    let of_settings = &workspace.settings.approval;
    if of_settings.asks_for_any() || workspace.settings.kind == WorkspaceKind::Chat {
        return;
    }
    let is_idle = |policy: &ApprovalPolicy| policy.line.is_some() && !policy.asks_for_any();
    let agents = workspace.agents.values().map(|agent| (agent.file.as_str(), &agent.policy.approval));
    let of_settings = (SETTINGS, of_settings);
    let needs_settings = agents.clone().all(|(_, policy)| !policy.asks_for_any());
    let written = agents.chain(needs_settings.then_some(of_settings));
    let idle = written.filter(|(_, policy)| is_idle(policy)).map(|(file, policy)| (file.to_owned(), policy.line));
    for (file, line) in idle.collect::<Vec<_>>() {
        let message = "`approval` asks for nothing, and no call waits for a person: say `manual`, or name tools under `native`, \
                       `actions` and `external`";
        workspace.warn(&file, line, message.to_owned());
    }
}

/// Patterns of approvals that match nothing of what there is, as a regular expression does not. Where nothing is there yet, or
/// servers offer what they like, they may match later.
pub(super) fn unmatched_approvals(workspace: &mut Workspace, known: &Known) {
    if workspace.settings.kind == WorkspaceKind::Chat {
        return;
    }
    let native: Vec<String> = NATIVE_TOOLS.iter().map(|name| (*name).to_owned()).collect();
    let actions: Vec<String> = workspace.actions.keys().cloned().collect();
    let external: Vec<String> = match all_known(workspace) {
        true => known.of_http.iter().map(str::to_owned).collect(),
        false => Vec::new(),
    };
    let agents = workspace.agents.values().map(|agent| (agent.file.as_str(), &agent.policy.approval));
    let mut found = Vec::new();
    for (file, policy) in agents.chain([(SETTINGS, &workspace.settings.approval)]) {
        for (list, patterns, names) in [
            ("native", &policy.native, &native),
            ("actions", &policy.actions, &actions),
            ("external", &policy.external, &external),
        ] {
            let is_idle = |pattern: &&String| {
                let is_pattern = !is_exact(pattern) && !names.is_empty();
                is_pattern && known.guesses.affords(pattern, names) && !matches([*pattern], names)
            };
            for pattern in patterns.iter().filter(is_idle) {
                let line = workspace.places.line(file, &listed(list, pattern)).or(policy.line);
                let message = format!(
                    "`approval` asks for nothing with `{pattern}`, which no tool is called: `*` stands for any characters, `?` \
                     for one, and every other for itself"
                );
                found.push((file.to_owned(), line, message));
            }
        }
    }
    for (file, line, message) in found {
        workspace.warn(&file, line, message);
    }
}

impl Workspace {
    /// Warnings about what approvals name under `external` and no tool is called, where the servers say what they offer: the
    /// names of their tools, by the names of the servers. Where one of them said nothing, what looks like a slip is told alone.
    pub fn unmet_approvals(&self, offered: &BTreeMap<String, Vec<String>>) -> Vec<Problem> {
        let of_agents = self.agents.values().map(|agent| {
            let is_chosen =
                |name: &str| agent.tools.external.as_ref().is_none_or(|chosen| chosen.iter().any(|one| one == name));
            (agent.file.as_str(), &agent.policy.approval, self.known_to(is_chosen, offered))
        });
        let of_settings = (SETTINGS, &self.settings.approval, self.known_to(|_| true, offered));
        let mut found = Vec::new();
        let guesses = Guesses::default();
        for (file, policy, (names, is_all)) in of_agents.chain([of_settings]) {
            for pattern in policy.external.iter().filter(|pattern| !matches([*pattern], &names)) {
                // What belongs elsewhere is told without asking.
                let is_elsewhere =
                    self.actions.contains_key(pattern) || NATIVE_TOOLS.contains(&pattern.as_str()) || all_known(self);
                let names = names.iter().map(String::as_str);
                let guess = if is_all { guesses.nearest(pattern, names) } else { guesses.slip_of(pattern, names) };
                if is_elsewhere || (!is_all && guess.is_none()) {
                    continue;
                }
                let guess = guess.map(|guess| format!(": did you mean `{guess}`?")).unwrap_or_default();
                let message = format!("`approval` asks for nothing with `{pattern}`, which no server offers{guess}");
                let line = self.places.line(file, &listed("external", pattern)).or(policy.line);
                let file = file.to_owned();
                found.push(Problem { file, line, severity: Severity::Warning, message, disables: None });
            }
        }
        found
    }

    /// The names of the tools of the servers for which `is_chosen` is true, and whether these are all.
    fn known_to(
        &self,
        is_chosen: impl Fn(&str) -> bool,
        offered: &BTreeMap<String, Vec<String>>,
    ) -> (Vec<String>, bool) {
        let (mut names, mut is_all) = (Vec::new(), true);
        for tool in self.tools.values().filter(|tool| is_chosen(&tool.name)) {
            match (&tool.source, offered.get(&tool.name)) {
                (ToolSourceDefinition::Http(_), _) => names.extend(http_names(tool)),
                (_, Some(plain)) => names.extend(plain.iter().flat_map(|plain| names_of(tool, plain))),
                (_, None) if !tool.enabled => {}
                (_, None) => is_all = false,
            }
            names.push(tool.name.clone());
        }
        (names, is_all)
    }
}

/// What is wrong with names that `policy` of `file` asks for and that nothing has, with their lines: a slip there would let a
/// call run that a person was to see. What servers of tools, and programs, add is not known here.
pub(super) fn strangers(
    workspace: &Workspace,
    (file, policy): (&str, &ApprovalPolicy),
    known: &Known,
) -> Vec<(Option<usize>, String)> {
    let line = |list: &str, name: &str| workspace.places.line(file, &listed(list, name));
    let mut found = Vec::new();
    for name in policy.native.iter().filter(|name| is_exact(name) && !NATIVE_TOOLS.contains(&name.as_str())) {
        found.push((line("native", name), unasked("native tool", name, known.guesses.nearest(name, NATIVE_TOOLS))));
    }
    for name in policy.actions.iter().filter(|name| is_exact(name) && !workspace.actions.contains_key(*name)) {
        let guess = known.guesses.nearest(name, workspace.actions.keys().map(String::as_str));
        found.push((line("actions", name), unasked("action", name, guess)));
    }
    let names = if policy.external.is_empty() { None } else { names_of_http(workspace, known) };
    for name in &policy.external {
        let place = match name {
            name if workspace.actions.contains_key(name) => "actions",
            name if NATIVE_TOOLS.contains(&name.as_str()) => "native",
            name => {
                if let Some(names) = names.filter(|names| is_exact(name) && !names.has(name)) {
                    let guess = known.guesses.nearest(name, names.iter());
                    found.push((line("external", name), unasked("tool", name, guess)));
                }
                continue;
            }
        };
        let message = format!("`approval` names `{name}` under `external`: it belongs under `{place}`");
        found.push((line("external", name), message));
    }
    found
}

/// The names of all tools, where these are known: servers are asked for theirs when a run begins.
fn names_of_http<'k>(workspace: &Workspace, known: &'k Known) -> Option<&'k Names> {
    let is_known = !workspace.tools.is_empty() && all_known(workspace);
    is_known.then_some(&known.of_http)
}

/// True if no tool comes from a server: those are asked for theirs when a run begins.
fn all_known(workspace: &Workspace) -> bool {
    workspace.tools.values().all(|tool| matches!(tool.source, ToolSourceDefinition::Http(_)))
}

/// The names by which a run knows an HTTP tool.
pub(super) fn http_names(tool: &ToolDefinition) -> Vec<String> {
    names_of(tool, &tool.name)
}

/// The names by which a run knows the tool `plain` of the server `tool`.
fn names_of(tool: &ToolDefinition, plain: &str) -> Vec<String> {
    let mut names = vec![plain.to_owned(), format!("{}.{plain}", tool.name)];
    if let Some(prefix) = tool.expose.tool_prefix.as_deref().filter(|prefix| !prefix.is_empty()) {
        let name = format!("{prefix}.{plain}");
        names.extend([wire_name(&name), name]);
    }
    names
}

/// The name of `names` that `written` was to be: close to it where there are tools whose names are not known.
pub(super) fn meant<'n>(
    workspace: &Workspace,
    written: &str,
    names: impl Iterator<Item = &'n str>,
    guesses: &Guesses,
) -> Option<&'n str> {
    if all_known(workspace) { guesses.nearest(written, names) } else { guesses.slip_of(written, names) }
}

fn unasked(what: &str, name: &str, guess: Option<&str>) -> String {
    format!("`approval` asks for nothing: {}", missing(what, name, guess))
}
