//! The API page: the table of operations and the fields of their bodies as one page of HTML that loads nothing.

use std::fmt::Write;

use dormouse_protocol::envelope::Map;
use dormouse_protocol::operation::{Access, Input, Operation, Output, Spec};
use dormouse_protocol::request::{IDEMPOTENCY_HEADER, VERSION_HEADER};
use dormouse_protocol::{ErrorCode, PROTOCOL_VERSION};
use serde_json::Value;

use super::public::{Beside, NOT_OFFERED};

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
code,pre{font:14px/1.5 ui-monospace,monospace}\
pre{overflow-x:auto;padding:.8rem;border:1px solid #8886;border-radius:4px}\
nav{columns:3 12rem}\
h2{margin-top:3rem;border-bottom:1px solid #8886}\
h3{margin:2rem 0 .2rem}\
h3 b{display:inline-block;min-width:4.5rem}\
p{margin:.3rem 0}\
table{border-collapse:collapse;width:100%;margin:.5rem 0}\
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #8884}\
.quiet{opacity:.7}";

/// The page about the API that `document` describes.
pub(super) fn of(document: &Value, beside: &[Beside]) -> String {
    let mut page = String::new();
    // Writing into a string cannot fail.
    let _ = write(&mut page, document, beside);
    page
}

fn write(page: &mut String, document: &Value, beside: &[Beside]) -> std::fmt::Result {
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Dormouse API</title><style>{STYLE}</style></head><body>\n<h1>Dormouse API</h1>\n"
    )?;
    introduce(page, document, beside)?;
    for tag in tags() {
        writeln!(page, "<h2 id=\"{tag}\">{tag}</h2>")?;
        for operation in Operation::ALL.iter().filter(|other| other.spec().tag == tag) {
            describe(page, operation.spec(), document)?;
        }
    }
    for beside in beside {
        let tag = escape(&beside.tag);
        let about = escape(&beside.description);
        writeln!(page, "<h2 id=\"{}\">{tag}</h2>\n<p>{about}</p>", anchor(&beside.tag))?;
        let operations = beside.paths.iter().flat_map(|(path, methods)| {
            methods.as_object().into_iter().flatten().map(move |(method, operation)| (method, path, operation))
        });
        for (method, path, operation) in operations {
            describe_beside(page, (method, path), operation, document)?;
        }
    }
    writeln!(page, "</body></html>")
}

/// Anchor of an element that is headed `title`.
fn anchor(title: &str) -> String {
    escape(&title.replace(' ', "-"))
}

/// The groups of operations, in the order of their first ones.
fn tags() -> Vec<&'static str> {
    let mut tags = Vec::new();
    for operation in Operation::ALL {
        let tag = operation.spec().tag;
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    tags
}

fn introduce(page: &mut String, document: &Value, beside: &[Beside]) -> std::fmt::Result {
    let about = text(&document["info"]["description"]);
    writeln!(
        page,
        "<p>{about} This page is made from the same table as the \
         <a href=\"/openapi.json\">OpenAPI document</a>.</p>\n\
         <p>Every request that is not public carries a key and a version, every write may carry a key of its own by \
         which it can be repeated:</p>\n<pre>Authorization: Bearer dm_…\n{VERSION_HEADER}: {PROTOCOL_VERSION}\n\
         {IDEMPOTENCY_HEADER}: anything, 1 to 255 characters\nContent-Type: application/json</pre>\n\
         <p>Streams are server-sent events. A client that lost one sends the id of the last event as \
         <code>Last-Event-ID</code>. Refusals are \
         <code>{{\"error\": {{\"code\", \"message\", \"type\", \"param\", \"request_id\", \"details\"}}}}</code>:</p>\n\
         <table><tr><th>code</th><th>status</th></tr>"
    )?;
    for code in ErrorCode::ALL {
        writeln!(page, "<tr><td><code>{code}</code></td><td>{}</td></tr>", code.status())?;
    }
    writeln!(page, "</table>\n<nav>")?;
    for tag in tags() {
        writeln!(page, "<a href=\"#{tag}\">{tag}</a><br>")?;
    }
    for Beside { tag, .. } in beside {
        writeln!(page, "<a href=\"#{}\">{}</a><br>", anchor(tag), escape(tag))?;
    }
    writeln!(page, "</nav>")
}

fn describe(page: &mut String, spec: &Spec, document: &Value) -> std::fmt::Result {
    let method = spec.method.as_str();
    let path = escape(spec.path);
    writeln!(page, "<h3 id=\"{}\"><b>{method}</b> <code>{path}</code></h3>", spec.id)?;
    let operation = &document["paths"][spec.path][method.to_ascii_lowercase()];
    if operation[NOT_OFFERED] == true {
        writeln!(page, "<p><strong>not offered here (501)</strong></p>")?;
    }
    writeln!(page, "<p>{} <span class=\"quiet\">{}</span></p>", escape(spec.summary), facts(spec))?;
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    match spec.input {
        Input::None => {}
        Input::Optional => fields(page, "Body, may be missing", body, document)?,
        Input::Required => fields(page, "Body", body, document)?,
    }
    match spec.output {
        Output::Json(status) => {
            let answer = &operation["responses"][status.to_string()]["content"]["application/json"]["schema"];
            fields(page, &format!("{status}"), answer, document)
        }
        Output::Stream => writeln!(page, "<p>200: <code>text/event-stream</code></p>"),
        Output::Bytes => writeln!(page, "<p>200: bytes</p>"),
        Output::Empty => writeln!(page, "<p>204</p>"),
    }
}

/// The same of a route beside the protocol, which only the document describes.
fn describe_beside(
    page: &mut String,
    (method, path): (&str, &str),
    operation: &Value,
    document: &Value,
) -> std::fmt::Result {
    let id = text(&operation["operationId"]);
    let method = method.to_ascii_uppercase();
    let path = escape(path);
    writeln!(page, "<h3 id=\"{id}\"><b>{method}</b> <code>{path}</code></h3>")?;
    let keys = operation["security"].as_array().into_iter().flatten();
    let keys: Vec<String> = keys
        .filter_map(Value::as_object)
        .flat_map(Map::keys)
        .map(|key| format!("<code>{}</code>", escape(key)))
        .collect();
    let access = if keys.is_empty() { "public".to_owned() } else { keys.join(" or ") };
    let scopes = operation["x-scopes"].as_array().into_iter().flatten();
    let scopes: String = scopes.map(|scope| format!(", scope <code>{}</code>", text(scope))).collect();
    let others = operation["parameters"].as_array().into_iter().flatten();
    let others: String = others
        .filter(|parameter| parameter["in"] != "path")
        .map(|parameter| match parameter["in"].as_str() {
            Some("query") => format!(", <code>?{}</code>", text(&parameter["name"])),
            Some(_) | None => format!(", <code>{}</code>", text(&parameter["name"])),
        })
        .collect();
    let summary = text(&operation["summary"]);
    writeln!(page, "<p>{summary} <span class=\"quiet\">{access}{scopes}{others}</span></p>")?;
    let content = |of: &Value| of["content"]["application/json"]["schema"].clone();
    if operation.get("requestBody").is_some() {
        fields(page, "Body, may be missing", &content(&operation["requestBody"]), document)?;
    }
    let mut refusals = Vec::new();
    let responses = operation["responses"].as_object().into_iter().flatten();
    for (status, response) in responses {
        let about = text(&response["description"]);
        if status.starts_with('2') {
            let schema = content(response);
            let alternatives = schema["anyOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
            for schema in alternatives {
                fields(page, &format!("{status}, {about}"), &schema, document)?;
            }
        } else {
            refusals.push(format!("<tr><td>{status}</td><td>{about}</td></tr>"));
        }
    }
    writeln!(page, "<details><summary>Refusals</summary><table>{}</table></details>", refusals.concat())
}

fn facts(spec: &Spec) -> String {
    let access = match spec.access {
        Access::Public => "public".to_owned(),
        Access::Signed => "by signature".to_owned(),
        Access::AnyKey => "any key".to_owned(),
        Access::Needs(scope) => format!("scope <code>{}</code>", scope.as_str()),
    };
    let query: Vec<String> = spec.parameters().map(|name| format!("<code>?{name}</code>")).collect();
    let query = if query.is_empty() { String::new() } else { format!(", {}", query.join(" ")) };
    format!("{access}{query}, level {}", spec.level.as_str())
}

/// The fields of an object as a folded table; the name alone where the schema is described elsewhere or has none.
fn fields(page: &mut String, title: &str, schema: &Value, document: &Value) -> std::fmt::Result {
    let resolved = resolve(schema, document);
    let Some(properties) = resolved["properties"].as_object() else {
        return writeln!(page, "<p>{title}: <code>{}</code></p>", kind(schema));
    };
    writeln!(
        page,
        "<details><summary>{title}: <code>{}</code></summary><table><tr><th>field</th><th>type</th><th></th></tr>",
        kind(schema)
    )?;
    let required = resolved["required"].as_array();
    for (name, property) in properties {
        let needed = required.is_some_and(|all| all.iter().any(|one| one == name.as_str()));
        let mark = if needed { "" } else { " <span class=\"quiet\">optional</span>" };
        let name = escape(name);
        let kind = kind(property);
        let about = text(&property["description"]);
        writeln!(page, "<tr><td><code>{name}</code>{mark}</td><td><code>{kind}</code></td><td>{about}</td></tr>")?;
    }
    writeln!(page, "</table></details>")
}

fn resolve<'a>(schema: &'a Value, document: &'a Value) -> &'a Value {
    let named = schema["$ref"].as_str().and_then(|reference| document.pointer(reference.strip_prefix('#')?));
    named.unwrap_or(schema)
}

/// A type in a few words.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return escape(reference.rsplit('/').next().unwrap_or_default());
    }
    let alternatives = ["enum", "anyOf", "oneOf", "type"].iter().find_map(|word| schema[*word].as_array());
    if let Some(alternatives) = alternatives {
        let named = |one: &Value| one.as_str().map_or_else(|| kind(one), escape);
        return alternatives.iter().map(named).collect::<Vec<_>>().join(" | ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("[{}]", kind(&schema["items"])),
        Some("string") => schema["format"].as_str().map_or_else(|| "string".to_owned(), escape),
        Some(other) => escape(other),
        None => "anything".to_owned(),
    }
}

fn text(value: &Value) -> String {
    escape(value.as_str().unwrap_or_default())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
