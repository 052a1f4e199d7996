use dormouse_json::Schema;
use dormouse_ports::Map;
use dormouse_ports::tool::{ActionDefinition, ActionEntry, ActionExposure};
use serde_json::Value;

use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::YamlNode;
use crate::names::Guesses;

/// The most seconds that an action may ask for.
const DAY: u64 = 24 * 3600;

/// Reads the action of `file`, which lies in `folder`.
pub(super) fn definition(
    file: &str,
    folder: &str,
    node: &YamlNode,
    problems: &mut FileProblems<'_>,
) -> Option<ActionDefinition> {
    let mut fields = Fields::of(node, "the action", problems);
    problems.named_on(fields.get("name").map(|name| name.line));
    let name = fields.text("name", problems);
    let shown = name.clone().unwrap_or_else(|| folder.rsplit('/').next().unwrap_or(folder).to_owned());
    problems.about(DefinitionName::new(DefinitionKind::Action, &shown));
    let description = fields.text("description", problems);
    let missing =
        [("name", name.is_none()), ("description", description.is_none()), ("entry", fields.get("entry").is_none())];
    for (field, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
        problems.error(node.line, format!("action `{shown}` has no `{field}`"));
    }
    if let Some(name) = name.as_deref().filter(|name| !is_sound(name)) {
        let message = format!("an action cannot be called `{name}`: use up to 64 letters, digits, `.`, `_` and `-`");
        problems.name_error(message);
    }
    let entry = fields.get("entry").and_then(|node| entry(node, folder, problems));
    let expose = fields.get("expose").map_or(ActionExposure::ALL, |node| exposure(node, problems));
    let input_schema = schema(&mut fields, &format!("action `{shown}`"), problems);
    let safe = fields.get("recovery").is_some_and(|node| is_safe(node, problems));
    fields.finish(problems);
    Some(ActionDefinition {
        name: name?,
        file: file.to_owned(),
        description: description?,
        entry: entry?,
        expose,
        input_schema,
        safe,
    })
}

fn is_sound(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn entry(node: &YamlNode, folder: &str, problems: &mut FileProblems<'_>) -> Option<ActionEntry> {
    if node.as_map().is_none() {
        let message = format!("`entry` is {}: the command line stands in it, `entry: {{command: …}}`", node.kind());
        problems.error(node.line, message);
        return None;
    }
    let mut fields = Fields::of(node, "`entry`", problems);
    let command = fields.text("command", problems);
    if command.as_deref().is_none_or(|command| command.trim().is_empty()) {
        problems.error(node.line, "`entry` has no `command`: write the command line that runs");
    }
    let folder = match fields.text("cwd", problems) {
        None => folder.to_owned(),
        Some(cwd) if cwd.starts_with('/') || cwd.split('/').any(|part| part == "..") => {
            problems.error(node.line, format!("`cwd` leads out of the workspace: `{cwd}`"));
            return None;
        }
        Some(cwd) => cwd,
    };
    let entry = ActionEntry {
        command: command.unwrap_or_default(),
        environment: fields.environment(problems),
        folder,
        timeout_seconds: fields.whole("timeout_seconds", (1, DAY), problems),
    };
    fields.finish(problems);
    (!entry.command.trim().is_empty()).then_some(entry)
}

/// What cannot be read is not exposed.
fn exposure(node: &YamlNode, problems: &mut FileProblems<'_>) -> ActionExposure {
    let mut fields = Fields::of(node, "`expose`", problems);
    let mut is_exposed = |name: &'static str, problems: &mut FileProblems<'_>| match fields.get(name) {
        None => true,
        Some(_) => fields.boolean(name, problems).unwrap_or(false),
    };
    let exposure = ActionExposure {
        to_llm: is_exposed("to_llm", problems),
        callable_by_user: is_exposed("callable_by_user", problems),
        callable_by_api: is_exposed("callable_by_api", problems),
    };
    fields.finish(problems);
    exposure
}

/// The `input_schema` of `what`.
pub(super) fn schema(fields: &mut Fields<'_>, what: &str, problems: &mut FileProblems<'_>) -> Map {
    let any = || Map::from_iter([("type".to_owned(), Value::from("object"))]);
    let line = fields.place_of("input_schema");
    match fields.json("input_schema") {
        None => any(),
        Some(Value::Object(schema)) => {
            let is_object = schema.get("type").is_none_or(|kind| kind == "object");
            if let Err(error) = Schema::new(&Value::Object(schema.clone())) {
                problems.error(line, format!("`input_schema` of {what} is no JSON Schema: {error}"));
            } else if !is_object {
                problems.error(line, format!("`input_schema` of {what} must be of type `object`"));
            }
            check_required(&schema, what, line, problems);
            let mut typed = any();
            typed.extend(schema);
            typed
        }
        Some(_) => {
            problems.error(line, format!("`input_schema` of {what} must be a JSON Schema of type `object`"));
            any()
        }
    }
}

/// Reports fields that `schema` requires and that are like one that it describes.
fn check_required(schema: &Map, what: &str, line: usize, problems: &mut FileProblems<'_>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let guesses = Guesses::default();
    for name in required.filter(|name| !properties.contains_key(*name)) {
        if let Some(guess) = guesses.nearest(name, properties.keys().map(String::as_str)) {
            let message = format!("`input_schema` of {what} requires `{name}`, which it does not describe");
            problems.error(line, format!("{message}: did you mean `{guess}`?"));
        }
    }
}

fn is_safe(node: &YamlNode, problems: &mut FileProblems<'_>) -> bool {
    let mut fields = Fields::of(node, "`recovery`", problems);
    let policy = fields.word("retry_policy", &["manual", "safe"], problems);
    fields.finish(problems);
    policy == Some("safe")
}
