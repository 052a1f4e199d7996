use dormouse_ports::tool::{
    Exposure, HttpToolDefinition, ToolDefinition, ToolSourceDefinition, check_tool_name, is_header_of_http_tool,
    is_header_of_server,
};
use dormouse_ports::{Map, Template};

use super::action::schema;
use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::YamlNode;
use crate::names::{Guesses, is_reserved};
use dormouse_ports::model::wire_name;

/// Milliseconds of a `timeout` below which seconds were probably meant.
const SECOND: u64 = 1000;

/// How a client shows its secret, as metadata of OAuth names it.
const AUTH_METHOD: &str = "token_endpoint_auth_method";

/// The entry `name` of `.openharness/tools/settings.yaml`.
pub(crate) fn definition(name: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<ToolDefinition> {
    problems.about(DefinitionName::new(DefinitionKind::Tool, name));
    // As files of other programs have it.
    if matches!(name, "mcpServers" | "mcp_servers") && node.holds_mappings() {
        let message = format!("leave the level `{name}` out: servers stand by their names at the top of this file");
        problems.error(node.line, message);
        return None;
    }
    let mut fields = Fields::of(node, format!("tool server `{name}`"), problems);
    if fields.is_misfit() {
        return None;
    }
    let enabled = fields.boolean("enabled", problems).unwrap_or(true);
    let timeout_ms = fields.whole("timeout", (1, 24 * 3600 * SECOND), problems);
    if let Some(short) = timeout_ms.filter(|timeout| *timeout < SECOND) {
        let message =
            format!("`timeout` of tool server `{name}` is {short} milliseconds: for seconds write `{short}000`");
        problems.warning(fields.place_of("timeout"), message);
    }
    let expose = fields.get("expose").map(|node| exposure(node, problems)).unwrap_or_default();
    let source = source_of(name, &mut fields, problems);
    // Its one tool has its name; those of a server are not known before it is asked.
    let is_own_name = matches!(source, Some(ToolSourceDefinition::Http(_))) && is_reserved(&wire_name(name));
    if is_own_name && expose.tool_prefix.as_ref().is_none_or(String::is_empty) {
        let message = format!("`{name}` is the name of a tool of Dormouse: rename it, or give it a `tool_prefix`");
        problems.error(node.line, message);
    }
    fields.finish(problems);
    Some(ToolDefinition { name: name.to_owned(), enabled, source: source?, expose, timeout_ms })
}

fn source_of(name: &str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Option<ToolSourceDefinition> {
    let line = fields.line();
    let command = fields.text("command", problems);
    let environment = fields.templates("environment", problems);
    let url = fields.template("url", problems);
    let headers = fields.templates("headers", problems);
    let oauth = fields.get("oauth").map(|node| oauth(name, node, problems));
    let http = fields.get("http");
    let rust = fields.text("rust", problems);
    let is_told = |name: &'static str, is_read: bool, fields: &mut Fields<'_>| !is_read && fields.get(name).is_some();
    let is_misfit = is_told("command", command.is_some(), fields)
        || is_told("url", url.is_some(), fields)
        || is_told("rust", rust.is_some(), fields);
    let message = match (command, url, http, rust) {
        (Some(command), None, None, None) => {
            tell_misplaced("command", fields, problems);
            return Some(ToolSourceDefinition::Stdio { command, environment });
        }
        (None, Some(url), None, None) => {
            tell_misplaced("url", fields, problems);
            check_scheme(&format!("`url` of `{name}`"), &url, fields.place_of("url"), problems);
            check_headers(name, &headers, (is_header_of_server, fields.place_of("headers")), problems);
            return Some(ToolSourceDefinition::Server { url, headers, oauth });
        }
        (None, None, Some(node), None) => {
            tell_misplaced("http", fields, problems);
            return http_tool(name, node, problems).map(|tool| ToolSourceDefinition::Http(Box::new(tool)));
        }
        (None, None, None, Some(tools)) => {
            tell_misplaced("rust", fields, problems);
            return Some(ToolSourceDefinition::Rust { tools });
        }
        // That one of them cannot be read has been told.
        (None, None, None, None) if is_misfit => return None,
        (None, None, None, None) => "has neither `command` nor `url` nor `http` nor `rust`: set one of them",
        (_, _, _, _) => "has more than one of `command`, `url`, `http` and `rust`: leave one of them",
    };
    problems.error(line, format!("tool server `{name}` {message}"));
    None
}

/// Names the fields that belong to another kind of entry than one with the field `kind`, and are not looked at in this one.
fn tell_misplaced(kind: &str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) {
    for (field, owner) in [("environment", "command"), ("headers", "url"), ("oauth", "url")] {
        let why = match (field, kind) {
            ("headers", "http") => "those of the request stand in `http`".to_owned(),
            _ => format!("it goes with `{owner}`, and this entry has `{kind}`"),
        };
        if kind != owner {
            fields.without_effect(field, &why, problems);
        }
    }
}

fn http_tool(name: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> Option<HttpToolDefinition> {
    let mut fields = Fields::of(node, format!("`http` of `{name}`"), problems);
    let method = fields.word("method", &["GET", "POST", "PUT", "PATCH", "DELETE"], problems);
    let method = method.unwrap_or("POST");
    if let Err(reason) = check_tool_name(name) {
        problems.error(node.line, format!("no model can call the HTTP tool `{name}`: {reason}"));
    }
    let url = fields.template("url", problems);
    match &url {
        None => problems.error(node.line, format!("`http` of `{name}` has no `url`")),
        Some(url) => check_scheme(&format!("`url` of `{name}`"), url, fields.place_of("url"), problems),
    }
    if url.as_ref().is_some_and(Template::chooses_host) {
        problems.error(
            fields.place_of("url"),
            format!("an argument stands in the host of `url` of `{name}`: write the host there"),
        );
    }
    let headers = fields.templates("headers", problems);
    check_headers(name, &headers, (is_header_of_http_tool, fields.place_of("headers")), problems);
    let input_schema = schema(&mut fields, &format!("tool `{name}`"), problems);
    if let Some(url) = &url {
        check_arguments(name, url, &input_schema, fields.place_of("url"), problems);
    }
    let effect = fields.word("effect", &["safe", "manual"], problems);
    let tool = HttpToolDefinition {
        method: method.to_owned(),
        headers,
        description: fields.text("description", problems).unwrap_or_default(),
        input_schema,
        safe: effect.map_or(method == "GET", |effect| effect == "safe"),
        url: url?,
    };
    fields.finish(problems);
    Some(tool)
}

/// The OAuth client of the server `name`, its values as texts.
fn oauth(name: &str, node: &YamlNode, problems: &mut FileProblems<'_>) -> serde_json::Value {
    let what = format!("`oauth` of `{name}`");
    let mut fields = Fields::of(node, what.clone(), problems);
    let mut client = Map::new();
    for field in ["token_url", "client_id", "client_secret", "refresh_token"] {
        let template = fields.template(field, problems);
        if let Some(url) = template.as_ref().filter(|_| field == "token_url") {
            check_scheme(&format!("`token_url` of {what}"), url, fields.place_of(field), problems);
        }
        client.extend(template.map(|template| (field.to_owned(), template.written().into())));
    }
    let method = fields.word(AUTH_METHOD, &["client_secret_basic", "client_secret_post"], problems);
    client.extend(method.map(|method| (AUTH_METHOD.to_owned(), method.into())));
    for field in ["scope", "resource"] {
        client.extend(fields.text(field, problems).map(|text| (field.to_owned(), text.into())));
    }
    for field in ["token_url", "client_id"] {
        if fields.get(field).is_none() {
            problems.error(node.line, format!("{what} has no `{field}`"));
        }
    }
    fields.finish(problems);
    client.into()
}

fn check_scheme(what: &str, url: &Template, line: usize, problems: &mut FileProblems<'_>) {
    let written = url.written();
    if !["http://", "https://", "${"].iter().any(|start| written.starts_with(start)) {
        problems.error(line, format!("{what} must begin with `https://` or `http://`, and is `{written}`"));
    }
}

/// The `headers` are those that a definition may set.
fn check_headers(
    name: &str,
    headers: &[(String, Template)],
    (may_be_set, line): (fn(&str) -> bool, usize),
    problems: &mut FileProblems<'_>,
) {
    for (header, _) in headers.iter().filter(|(header, _)| !may_be_set(header)) {
        problems.error(line, format!("the header `{header}` of `{name}` cannot be set: remove it"));
    }
}

/// The arguments that `url` takes, in braces, are those that the schema describes.
fn check_arguments(name: &str, url: &Template, schema: &Map, line: usize, problems: &mut FileProblems<'_>) {
    let Some(properties) = schema.get("properties").and_then(serde_json::Value::as_object) else { return };
    let guesses = Guesses::default();
    for argument in url.arguments().iter().filter(|argument| !properties.contains_key(*argument)) {
        let guess = guesses.nearest(argument, properties.keys().map(String::as_str));
        let guess = guess.map(|guess| format!(": did you mean `{guess}`?")).unwrap_or_default();
        problems.error(
            line,
            format!("`url` of `{name}` takes `{argument}`, which `input_schema` does not describe{guess}"),
        );
    }
}

fn exposure(node: &YamlNode, problems: &mut FileProblems<'_>) -> Exposure {
    let mut fields = Fields::of(node, "`expose`", problems);
    let exposure = Exposure {
        tool_prefix: fields.text("tool_prefix", problems),
        include: fields.texts("include", problems).unwrap_or_default(),
        exclude: fields.texts("exclude", problems).unwrap_or_default(),
    };
    fields.finish(problems);
    exposure
}
