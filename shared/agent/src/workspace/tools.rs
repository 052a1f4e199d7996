use dormouse_ports::Template;
use serde::Serialize;

use super::fields::Fields;
use super::problem::{DefinitionKind, DefinitionName, FileProblems};
use super::yaml::Node;

/// An entry of `.openharness/tools/settings.yaml`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// False if its author switched it off.
    pub enabled: bool,
    /// What it is.
    #[serde(flatten)]
    pub source: ToolSourceDefinition,
    /// Which of its tools are offered, and how they are called.
    pub expose: Exposure,
    /// Milliseconds that one call may take.
    pub timeout_ms: Option<u64>,
}

/// What a source of tools is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolSourceDefinition {
    /// An MCP server that is started as a process (local mode only).
    Stdio {
        /// Command line.
        command: String,
        /// Variables of its environment.
        environment: Vec<(String, Template)>,
    },
    /// An MCP server behind an address.
    Server {
        /// Its address.
        url: Template,
        /// Headers of each request.
        headers: Vec<(String, Template)>,
        /// Settings of the OAuth client flow, as they stand.
        oauth: Option<serde_json::Value>,
    },
    /// One tool behind an HTTP address.
    Http(Box<HttpTool>),
}

/// A tool that is one HTTP request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HttpTool {
    /// Method: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Address; `{name}` in it stands for an argument.
    pub url: Template,
    /// Headers.
    pub headers: Vec<(String, Template)>,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: serde_json::Map<String, serde_json::Value>,
    /// True if a call may run again when nobody knows if it ran.
    pub safe: bool,
}

/// The part of a server's tools that is offered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposure {
    /// Stands before the name of each tool, with a dot.
    pub tool_prefix: Option<String>,
    /// Names or patterns; all when empty.
    pub include: Vec<String>,
    /// Names or patterns that are left out.
    pub exclude: Vec<String>,
}

impl ToolDefinition {
    pub(crate) fn read(name: &str, node: &Node, problems: &mut FileProblems<'_>) -> Option<Self> {
        problems.about(DefinitionName::new(DefinitionKind::Tool, name));
        let mut fields = Fields::of(node, format!("tool server `{name}`"), problems);
        let enabled = fields.boolean("enabled", problems).unwrap_or(true);
        let timeout_ms = fields.whole("timeout", (1, 24 * 3600 * 1000), problems);
        let expose = fields.get("expose").map(|node| exposure(node, problems)).unwrap_or_default();
        let source = source_of(name, &mut fields, problems);
        fields.finish(problems);
        Some(Self { name: name.to_owned(), enabled, source: source?, expose, timeout_ms })
    }
}

fn source_of(name: &str, fields: &mut Fields<'_>, problems: &mut FileProblems<'_>) -> Option<ToolSourceDefinition> {
    let line = fields.line();
    let command = fields.text("command", problems);
    let environment = fields.templates("environment", problems);
    let url = fields.template("url", problems);
    let headers = fields.templates("headers", problems);
    let oauth = fields.json("oauth");
    let http = fields.get("http");
    let message = match (command, url, http) {
        (Some(command), None, None) => return Some(ToolSourceDefinition::Stdio { command, environment }),
        (None, Some(url), None) => return Some(ToolSourceDefinition::Server { url, headers, oauth }),
        (None, None, Some(node)) => {
            return HttpTool::read(name, node, problems).map(|tool| ToolSourceDefinition::Http(Box::new(tool)));
        }
        (None, None, None) => "has neither `command` nor `url` nor `http`: set one of them",
        (_, _, _) => "has more than one of `command`, `url` and `http`: leave one of them",
    };
    problems.error(line, format!("tool server `{name}` {message}"));
    None
}

impl HttpTool {
    fn read(name: &str, node: &Node, problems: &mut FileProblems<'_>) -> Option<Self> {
        let mut fields = Fields::of(node, format!("`http` of `{name}`"), problems);
        let method = fields.word("method", &["GET", "POST", "PUT", "PATCH", "DELETE"], problems);
        let method = method.unwrap_or("POST");
        let url = fields.template("url", problems);
        if url.is_none() {
            problems.error(node.line, format!("`http` of `{name}` has no `url`"));
        }
        let schema = fields.json("input_schema");
        let input_schema = match schema {
            None => serde_json::Map::from_iter([("type".to_owned(), "object".into())]),
            Some(serde_json::Value::Object(schema)) => schema,
            Some(_) => {
                problems.error(node.line, format!("`input_schema` of `{name}` must be a JSON Schema of type `object`"));
                serde_json::Map::new()
            }
        };
        let effect = fields.word("effect", &["safe", "manual"], problems);
        let tool = Self {
            method: method.to_owned(),
            headers: fields.templates("headers", problems),
            description: fields.text("description", problems).unwrap_or_default(),
            input_schema,
            safe: effect.map_or(method == "GET", |effect| effect == "safe"),
            url: url?,
        };
        fields.finish(problems);
        Some(tool)
    }
}

fn exposure(node: &Node, problems: &mut FileProblems<'_>) -> Exposure {
    let mut fields = Fields::of(node, "`expose`", problems);
    let exposure = Exposure {
        tool_prefix: fields.text("tool_prefix", problems),
        include: fields.texts("include", problems).unwrap_or_default(),
        exclude: fields.texts("exclude", problems).unwrap_or_default(),
    };
    fields.finish(problems);
    exposure
}
