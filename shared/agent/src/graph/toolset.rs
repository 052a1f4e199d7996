//! The tools of an agent, by the names under which a model calls them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dormouse_json::{Schema, Schemas};
use dormouse_ports::Map;
use dormouse_ports::model::{Tool, ToolCall};
use dormouse_ports::tool::{Effect, ToolError, ToolErrorKind, ToolSpec};
use futures::future::{Either, join_all, select};
use indexmap::IndexMap;
use serde_json::{Number, Value};

use super::parts::{AgentParts, ToolPart};
use super::run::{AgentRun, PlannedCall};
use crate::names::{RUN_ACTION, is_reserved, nearest, slip_of};
use crate::workspace::{AgentDefinition, DefinitionKind, ToolOrigin, ToolSelection, is_exact, matches};
use dormouse_ports::model::wire_name;

/// Tools of a source that are named as left out.
const MOST_LEFT_OUT: usize = 20;

/// Mistakes in arguments that a model is shown.
const MOST_MISTAKES: usize = 5;

/// The tools of one step.
#[derive(Debug, Default)]
pub(crate) struct Toolset<'p> {
    /// By the name on the wire.
    tools: IndexMap<String, OfferedTool<'p>>,
    /// Tools whose name the one of another source has. Only a call that was planned while that one was not there is theirs.
    shadowed: Vec<OfferedTool<'p>>,
    /// Sources that did not list their tools.
    unlisted: Vec<(&'p ToolPart, ToolError)>,
    /// Lists of the sources that had to ask a server, by their names.
    pub(crate) listed: Map,
    /// Sources that are disabled or could not be asked, and tools that are left out, with the reason.
    pub(crate) missing: Vec<(String, String)>,
}

/// A tool that the agent may call.
#[derive(Debug)]
pub(crate) struct OfferedTool<'p> {
    /// Its name with the prefix of its source.
    pub(crate) name: String,
    pub(crate) spec: ToolSpec,
    pub(crate) part: &'p ToolPart,
    /// True if a person is asked whatever the policy says, because a name in it may have been meant for this tool.
    pub(crate) must_ask: bool,
    schema: Arc<Schema>,
}

impl OfferedTool<'_> {
    pub(crate) fn origin(&self) -> ToolOrigin {
        self.part.origin
    }

    /// The names by which a policy may mean it.
    pub(crate) fn names(&self) -> Vec<String> {
        names_of(self.part, &self.spec.name)
    }

    /// True if nobody has to be asked: it is safe, and not only because a second call would change no more than the first.
    pub(crate) fn is_harmless(&self) -> bool {
        self.spec.effect == Effect::Safe && !self.spec.annotations.may_change()
    }

    /// Checks `arguments` against the schema.
    ///
    /// # Errors
    /// What is wrong, for the model.
    pub(crate) fn check(&self, arguments: &Map) -> Result<(), String> {
        let arguments = Value::Object(arguments.clone());
        if let Some(number) = rounded(&arguments) {
            return Err(format!(
                "a number is beyond 64 bits, and would not arrive as it was written but as {number}: give it as a text, where \
                 the tool takes one"
            ));
        }
        let mistakes = self.schema.mistakes(&arguments, MOST_MISTAKES);
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.join("; ")) }
    }
}

/// A number in `value` that may have been an integer with more digits than it has now: integers beyond 64 bits are read as
/// floating-point numbers.
fn rounded(value: &Value) -> Option<&Number> {
    /// The first that is too large, and the last that is not too small.
    const BOUNDS: (f64, f64) = (18_446_744_073_709_551_616.0, -9_223_372_036_854_775_808.0);
    match value {
        Value::Number(number) => {
            let is_rounded = |read: f64| number.is_f64() && (read >= BOUNDS.0 || read <= BOUNDS.1);
            number.as_f64().is_some_and(is_rounded).then_some(number)
        }
        Value::Array(items) => items.iter().find_map(rounded),
        Value::Object(fields) => fields.values().find_map(rounded),
        Value::Null | Value::Bool(_) | Value::String(_) => None,
    }
}

impl AgentParts {
    /// The tools that its agent may call, each under the name by which models call it. Sources are asked for theirs; one
    /// that does not answer, or not within `limit`, is left out.
    pub async fn offered_tools(&self, limit: Duration) -> Vec<ToolSpec> {
        let parts = self.clone().calling_others();
        let tools = Toolset::within(&parts, Some(limit)).await.tools;
        tools.into_iter().map(|(name, tool)| ToolSpec { name, ..tool.spec }).collect()
    }
}

impl AgentParts {
    /// The names by which models call the tools of its agent, as far as they are known without asking a server for its list;
    /// no more is made of the tools, and none is warned of.
    pub async fn known_tools(&self, limit: Duration) -> Vec<String> {
        let parts = &self.clone().calling_others();
        let asked =
            parts.tools.iter().filter(|part| part.source.lists_offline() && is_chosen(&parts.agent.tools, part));
        let listed = join_all(asked.map(|part| async move { (part, list_of(parts, part, Some(limit)).await.0) })).await;
        let mut names = BTreeSet::new();
        for (part, specs) in listed {
            for spec in specs.unwrap_or_default() {
                let name = prefixed(part, &spec.name);
                let wire = wire_name(&name);
                if is_exposed(&parts.agent.tools, part, &name, &spec.name) && !takes_ours(part, &wire) {
                    names.insert(wire);
                }
            }
        }
        names.into_iter().collect()
    }
}

/// The names by which tools may be meant.
#[derive(Default)]
struct KnownNames {
    /// Those of servers and of their tools, also of tools that are left out.
    of_servers: Vec<String>,
    of_others: Vec<String>,
    /// True if a source was not listed.
    is_short: bool,
}

impl<'p> Toolset<'p> {
    /// Asks the sources of `parts` for their tools. A source that does not answer, and a tool that cannot be called, is
    /// left out.
    pub(crate) async fn of(parts: &'p AgentParts) -> Self {
        Self::within(parts, None).await
    }

    /// The same; who does not answer within `limit` does not answer.
    async fn within(parts: &'p AgentParts, limit: Option<Duration>) -> Self {
        let chosen = parts.tools.iter().filter(|part| is_chosen(&parts.agent.tools, part));
        let listed = join_all(chosen.map(|part| async move {
            let (specs, left_out) = list_of(parts, part, limit).await;
            (part, specs, left_out)
        }));
        let listed = listed.await;
        let mut toolset = Self { missing: parts.disabled.clone(), ..Self::default() };
        let mut known = KnownNames::default();
        for (part, specs, left_out) in listed {
            if part.origin == ToolOrigin::External {
                known.of_servers.push(part.name.clone());
                known.of_servers.extend(left_out.iter().flat_map(|(tool, _)| names_of(part, tool)));
            }
            let of_source = |(tool, reason): (String, String)| (part.name.clone(), told(&tool, &reason));
            toolset.missing.extend(left_out.into_iter().take(MOST_LEFT_OUT).map(of_source));
            match specs {
                Ok(specs) => {
                    let names = specs.iter().flat_map(|spec| names_of(part, &spec.name));
                    if part.origin == ToolOrigin::External {
                        known.of_servers.extend(names);
                    } else {
                        known.of_others.extend(names);
                    }
                    if !part.source.lists_offline() {
                        // What is a list of specifications can be written.
                        let listed = serde_json::to_value(&specs).unwrap_or_default();
                        toolset.listed.insert(part.name.clone(), listed);
                    }
                    specs.into_iter().for_each(|spec| toolset.add(parts, part, spec));
                }
                Err(error) => {
                    tracing::warn!(%error, source = part.name, "the tools of a source could not be listed; the step goes on without them");
                    toolset.missing.push((part.name.clone(), error.to_string()));
                    toolset.unlisted.push((part, error));
                    known.is_short = true;
                }
            }
        }
        toolset.heed_slips(parts, &known);
        toolset
    }

    /// Has a person asked for every tool of a server where the policy names one that none has: a slip there would let a call
    /// run that was to be seen, or forbidden. A name in the agent's own approvals is one in any case, unless a source was not
    /// listed; settings speak of the tools of other agents as well, and there a name has to look like one that is known.
    fn heed_slips(&mut self, parts: &AgentParts, known: &KnownNames) {
        let own = &parts.agent.policy.approval.external;
        let is_other = |name: &&String| is_reserved(name) || known.of_others.contains(name);
        let forbidden = parts.agent.tools.forbidden().filter(|name| !is_other(name));
        for pattern in own.iter().chain(&parts.approval.external).chain(forbidden) {
            let guess = slip_of(pattern, known.of_servers.iter().map(String::as_str));
            let is_slip = guess.is_some() || (!known.is_short && own.contains(pattern));
            if !is_exact(pattern) || !is_slip || known.of_servers.contains(pattern) {
                continue;
            }
            let guess = guess.map(|guess| format!(": did you mean `{guess}`?")).unwrap_or_default();
            let message = format!(
                "`{pattern}` of the policy is no tool{guess}; until it is one, every call of a server's tool waits"
            );
            tracing::warn!("{message}");
            self.missing.push((pattern.clone(), message));
            let all = self.tools.values_mut().chain(&mut self.shadowed);
            all.filter(|tool| tool.origin() == ToolOrigin::External).for_each(|tool| tool.must_ask = true);
        }
    }

    /// The tools of `run`: those of its agent, or the action that it runs.
    pub(crate) async fn of_run(parts: &'p AgentParts, run: &AgentRun) -> Self {
        match &run.action {
            Some(action) => Self::of_action(parts, &action.name).await,
            None => Self::of(parts).await,
        }
    }

    /// The action `name` alone, whether models may run it or not.
    async fn of_action(parts: &'p AgentParts, name: &str) -> Self {
        let mut toolset = Self::default();
        for part in parts.tools.iter().filter(|part| part.origin == ToolOrigin::Action) {
            let specs = part.source.list().await.unwrap_or_default();
            for spec in specs.into_iter().filter(|spec| spec.name == name) {
                toolset.insert(&parts.schemas, (spec.name.clone(), wire_name(name)), part, spec);
            }
        }
        toolset
    }

    fn add(&mut self, parts: &AgentParts, part: &'p ToolPart, spec: ToolSpec) {
        let name = prefixed(part, &spec.name);
        if !is_exposed(&parts.agent.tools, part, &name, &spec.name) {
            return;
        }
        let wire = wire_name(&name);
        if takes_ours(part, &wire) {
            let advice = format!("give `{}` a `tool_prefix`", part.name);
            let message = format!("`{name}` has the name of a tool of Dormouse, and is left out; {advice}");
            tracing::warn!(source = part.name, "{message}");
            self.missing.push((part.name.clone(), message));
            return;
        }
        if let Some(first) = self.tools.get(&wire) {
            let (of_first, advice) = (&first.part.name, format!("give `{}` a `tool_prefix`", part.name));
            let message = format!("`{name}` has the name of `{}` of `{of_first}`, which counts; {advice}", first.name);
            tracing::warn!(source = part.name, "{message}");
            self.missing.push((part.name.clone(), message));
            if let Ok(schema) = parts.schemas.of(&spec.input_schema) {
                self.shadowed.push(OfferedTool { name, spec, part, must_ask: false, schema });
            }
            return;
        }
        self.insert(&parts.schemas, (name, wire), part, spec);
    }

    /// Adds a tool under its name, and the one under which it is called.
    fn insert(&mut self, schemas: &Schemas, (name, wire): (String, String), part: &'p ToolPart, spec: ToolSpec) {
        match schemas.of(&spec.input_schema) {
            Ok(schema) => {
                self.tools.insert(wire, OfferedTool { name, spec, part, must_ask: false, schema });
            }
            Err(error) => {
                tracing::warn!(%error, tool = name, "a tool is left out: its `input_schema` is no JSON Schema");
                let message = format!("`{name}` has an `input_schema` that is no JSON Schema: {error}");
                self.missing.push((part.name.clone(), message));
            }
        }
    }

    /// The tools as a model is told of them.
    pub(crate) fn for_model(&self) -> Vec<Tool> {
        let tool = |(wire, tool): (&String, &OfferedTool<'_>)| Tool {
            name: wire.clone(),
            description: tool.spec.description.clone(),
            parameters: Value::Object(tool.spec.input_schema.clone()),
        };
        self.tools.iter().map(tool).collect()
    }

    /// The tool that a model calls by `wire`.
    ///
    /// # Errors
    /// A sentence for the model, with the name that it may have meant.
    pub(crate) fn called(&self, wire: &str) -> Result<&OfferedTool<'p>, String> {
        self.tools.get(wire).ok_or_else(|| match nearest(wire, self.tools.keys().map(String::as_str)) {
            Some(guess) => format!("there is no tool `{wire}`; did you mean `{guess}`? Call it by its exact name"),
            None if self.tools.is_empty() => format!("there is no tool `{wire}`: no tools can be called"),
            None => {
                let names = self.tools.keys().map(String::as_str).collect::<Vec<_>>().join("`, `");
                format!("there is no tool `{wire}`; there are `{names}`")
            }
        })
    }

    /// The tool of `call` at the source that it was planned for, if that offers it now, whatever other sources do. A call
    /// that was planned before its source was kept is of any that has its name.
    pub(crate) fn of_call(&self, call: &PlannedCall) -> Option<&OfferedTool<'p>> {
        if call.source.is_empty() {
            return self.tools.values().find(|tool| tool.name == call.tool);
        }
        let is_its = |tool: &&OfferedTool<'p>| tool.name == call.tool && is_source_of(tool.part, call);
        self.tools.values().chain(&self.shadowed).find(is_its)
    }

    /// Why [`of_call`](Self::of_call) gives no tool.
    pub(crate) fn gone(&self, call: &PlannedCall) -> ToolError {
        let tool = match call.server() {
            Some(server) => format!("the tool `{}` of `{server}`", call.tool),
            None => format!("the tool `{}`", call.tool),
        };
        let may_have = |part: &ToolPart| match call.source.is_empty() {
            true => part.origin == call.origin,
            false => is_source_of(part, call),
        };
        match self.unlisted.iter().find(|unlisted| may_have(unlisted.0)) {
            Some((_, error)) => ToolError::new(error.kind, format!("{tool} cannot be reached now: {}", error.message)),
            None => ToolError::new(ToolErrorKind::NotFound, format!("{tool} is not there any more")),
        }
    }

    /// The tool of `call`, if its source offers it now. One that goes on elsewhere is `pending`, whatever is listed now.
    pub(crate) fn made<'t>(
        &'t self,
        call: &PlannedCall,
        pending: Option<&'t OfferedTool<'p>>,
    ) -> Option<&'t OfferedTool<'p>> {
        self.of_call(call).or(pending)
    }
}

/// True if `call` was planned for the source of `part`.
fn is_source_of(part: &ToolPart, call: &PlannedCall) -> bool {
    part.origin == call.origin && part.name == call.source
}

impl<'p> OfferedTool<'p> {
    /// The tool of `call`, which goes on elsewhere: what is known of it where its source does not list it now.
    pub(crate) fn of_pending(parts: &'p AgentParts, call: &PlannedCall) -> Option<Self> {
        let part = parts.tools.iter().find(|part| is_source_of(part, call))?;
        let spec = ToolSpec::new(plain(part, &call.tool));
        let schema = parts.schemas.of(&spec.input_schema).ok()?;
        Some(Self { name: call.tool.clone(), spec, part, must_ask: false, schema })
    }
}

/// What the source of `part` lists, and what it left out.
async fn list_of(
    parts: &AgentParts,
    part: &ToolPart,
    limit: Option<Duration>,
) -> (Result<Vec<ToolSpec>, ToolError>, Vec<(String, String)>) {
    let Some(limit) = limit else { return (part.source.list().await, part.source.left_out().await) };
    let listed = async { (part.source.list_briefly().await, part.source.left_out().await) };
    match select(pin!(listed), pin!(parts.clock.sleep(limit))).await {
        Either::Left((listed, _)) => listed,
        Either::Right(_) => {
            let message = format!("it did not list its tools within {} s", limit.as_secs_f64());
            (Err(ToolError::new(ToolErrorKind::TimedOut, message)), Vec::new())
        }
    }
}

/// The call of an action, where a model asks for it by the one tool that others have for all of them:
/// `run_action` with `name` and `input`.
pub(crate) fn unwrapped(call: &ToolCall) -> ToolCall {
    let mut call = call.clone();
    if call.name != RUN_ACTION {
        return call;
    }
    let arguments = call.arguments.take().unwrap_or_default();
    if let Some(name) = arguments.get("name").and_then(Value::as_str) {
        call.name = wire_name(name);
    }
    call.arguments = match arguments.get("input") {
        None | Some(Value::Null) => Some(Map::new()),
        Some(Value::Object(input)) => Some(input.clone()),
        Some(_) => None,
    };
    call
}

/// The name of the tool `plain` of `part`, with the prefix of its source.
fn prefixed(part: &ToolPart, plain: &str) -> String {
    match part.expose.tool_prefix.as_deref() {
        Some(prefix) if !prefix.is_empty() => format!("{prefix}.{plain}"),
        Some(_) | None => plain.to_owned(),
    }
}

/// The tool `name` of `part`, without the prefix of its source.
fn plain<'n>(part: &ToolPart, name: &'n str) -> &'n str {
    let prefix = part.expose.tool_prefix.as_deref().filter(|prefix| !prefix.is_empty());
    prefix.and_then(|prefix| name.strip_prefix(prefix)?.strip_prefix('.')).unwrap_or(name)
}

/// The names by which the tool `plain` of `part` is meant. One of a server goes by the server's as well.
fn names_of(part: &ToolPart, plain: &str) -> Vec<String> {
    let name = prefixed(part, plain);
    let mut names = vec![plain.to_owned(), wire_name(&name), name];
    if part.origin == ToolOrigin::External {
        names.extend([part.name.clone(), format!("{}.{plain}", part.name)]);
    }
    names
}

/// The names by which the tool of `call` is meant.
pub(super) fn names_of_call(parts: &AgentParts, call: &PlannedCall) -> Vec<String> {
    let part = parts.tools.iter().find(|part| is_source_of(part, call));
    part.map_or_else(|| vec![call.tool.clone()], |part| names_of(part, plain(part, &call.tool)))
}

/// Between the name of a tool that its source left out and the reason.
const LEFT_OUT: &str = "` is left out: ";

/// What is said of a tool that its source left out, short enough to be recorded.
fn told(tool: &str, reason: &str) -> String {
    let reason: String = reason.chars().take(300).collect();
    format!("`{tool}{LEFT_OUT}{reason}")
}

/// The tool and the reason of which that was said.
pub(super) fn left_out_in(said: &str) -> Option<(String, String)> {
    let (tool, reason) = said.strip_prefix('`')?.split_once(LEFT_OUT)?;
    Some((tool.to_owned(), reason.to_owned()))
}

/// True if a tool of `part` would have the name `wire` of a tool of Dormouse.
fn takes_ours(part: &ToolPart, wire: &str) -> bool {
    let is_own = matches!(part.origin, ToolOrigin::Native | ToolOrigin::Skill | ToolOrigin::Agent);
    !is_own && is_reserved(wire)
}

impl ToolPart {
    /// True if `agent` may call the tool `plain` of this source, by its own lists and by what the source exposes.
    pub fn is_for(&self, agent: &AgentDefinition, plain: &str) -> bool {
        let name = prefixed(self, plain);
        is_chosen(&agent.tools, self)
            && is_exposed(&agent.tools, self, &name, plain)
            && !takes_ours(self, &wire_name(&name))
    }
}

/// True if the agent selects the source.
fn is_chosen(selection: &ToolSelection, part: &ToolPart) -> bool {
    match part.origin {
        // One by one.
        ToolOrigin::Native => !selection.native.is_empty(),
        ToolOrigin::Action | ToolOrigin::Skill | ToolOrigin::Agent => true,
        ToolOrigin::External => selection.external.as_ref().is_none_or(|names| names.contains(&part.name)),
    }
}

fn selects_action(selection: &ToolSelection, name: &str) -> bool {
    selection.actions.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
}

/// Checks that an agent with `selection` may use the action `name`, whoever asks for it.
///
/// # Errors
/// The field that keeps it from that.
pub(super) fn may_use_action(selection: &ToolSelection, name: &str) -> Result<(), &'static str> {
    let names = [name.to_owned(), wire_name(name)];
    if !selects_action(selection, name) {
        Err("its `tools.actions` leave it out")
    } else if matches(selection.forbidden_of(DefinitionKind::Action), &names) {
        Err("its `disallowed` forbids it")
    } else {
        Ok(())
    }
}

fn is_exposed(selection: &ToolSelection, part: &ToolPart, name: &str, plain: &str) -> bool {
    let listed = |patterns: &[String]| matches(patterns, &[plain, name]);
    // The tool that reads skills is none itself.
    let kind = if part.origin == ToolOrigin::Action { DefinitionKind::Action } else { DefinitionKind::Tool };
    let is_disallowed = matches(selection.forbidden_of(kind), &names_of(part, plain));
    let chosen = match part.origin {
        ToolOrigin::Native => selection.native.iter().any(|one| one == plain),
        ToolOrigin::Action => selects_action(selection, plain),
        // The agent's own skills are all that it has.
        ToolOrigin::External | ToolOrigin::Skill | ToolOrigin::Agent => true,
    };
    let included = part.expose.include.is_empty() || listed(&part.expose.include);
    chosen && included && !listed(&part.expose.exclude) && !is_disallowed
}
