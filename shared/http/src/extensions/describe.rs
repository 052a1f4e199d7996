//! The extensions as a part of the OpenAPI document.

use dormouse_ports::Map;
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_protocol::envelope::List;
use dormouse_protocol::openapi;
use dormouse_protocol::operation::SchemaOf;
use dormouse_protocol::request::VERSION_HEADER;
use serde_json::{Value, json};

use super::ExtensionRoute;
use super::act::{PauseAnswer, PauseCancel, PauseRepair};
use super::audit::AuditLine;
use super::told::{AnswerTaken, Catalog, FeedStart, Graphs, Pause, PauseSummary, Repaired};
use crate::describe::schema;
use crate::protocol::Beside;

/// Tag under which the extensions are listed.
const TAG: &str = "x-Extensions";
const DESCRIPTION: &str = "Beside the contract: everything that sleeps, whoever began it, and the shapes of graphs. The \
    console is made of these and of the protocol. Keys, version, errors and lists are the protocol's.";

struct ListedResource {
    path: &'static str,
    id: &'static str,
    does: &'static str,
    query: &'static [(&'static str, &'static str)],
    takes: Option<SchemaOf>,
    gives: SchemaOf,
}

const LISTED: [ListedResource; 9] = [
    ListedResource {
        path: "/v1/x-pauses",
        id: "x-listPauses",
        does: "Lists what sleeps, about so many at once as are asked for. A page may be empty and go on.",
        query: &[
            ("limit", "From 1 to 1000."),
            ("cursor", "The `next_cursor` of the page before."),
            ("asks", "`person`: only what waits for a person."),
            ("graph", "Only invocations of this graph."),
        ],
        takes: None,
        gives: schema::<List<PauseSummary>>,
    },
    ListedResource {
        path: "/v1/x-pauses/{invocation_id}",
        id: "x-getPause",
        does: "Shows what an invocation waits for, what may be answered, and what time does.",
        query: &[],
        takes: None,
        gives: schema::<Pause>,
    },
    ListedResource {
        path: "/v1/x-pauses/{invocation_id}/answer",
        id: "x-answerPause",
        does: "Answers the pause that the body names, and goes on. Of a task, its message says more: POST /v1/tasks/{task_id}/messages.",
        query: &[],
        takes: Some(schema::<PauseAnswer>),
        gives: schema::<AnswerTaken>,
    },
    ListedResource {
        path: "/v1/x-pauses/{invocation_id}/cancel",
        id: "x-cancelPause",
        does: "Ends the invocation for good, while it is in the pause that the body names.",
        query: &[],
        takes: Some(schema::<PauseCancel>),
        gives: schema::<Pause>,
    },
    ListedResource {
        path: "/v1/x-pauses/{invocation_id}/repair",
        id: "x-repairPause",
        does: "Does what helps against what the doctor finds, where something does.",
        query: &[],
        takes: Some(schema::<PauseRepair>),
        gives: schema::<Repaired>,
    },
    ListedResource {
        path: "/v1/x-graphs",
        id: "x-listGraphs",
        does: "Gives the shapes of the graphs that are linked into the server: nodes, and what follows them.",
        query: &[],
        takes: None,
        gives: schema::<Graphs>,
    },
    ListedResource {
        path: "/v1/x-catalog",
        id: "x-getCatalog",
        does: "Tells what is declared: agents, models, sources of tools, and what cannot be used and why.",
        query: &[("workspace_id", "What the files of this workspace declare, instead of what the server does.")],
        takes: None,
        gives: schema::<Catalog>,
    },
    ListedResource {
        path: "/v1/x-feed",
        id: "x-getFeedStart",
        does: "Tells behind which event a range of all events begins that were sent since an instant.",
        query: &[("since", "The instant, with its offset.")],
        takes: None,
        gives: schema::<FeedStart>,
    },
    ListedResource {
        path: "/v1/x-audit",
        id: "x-listAudit",
        does: "Lists who did what, oldest first; of all tenants with the scope operations:read. As lines with `accept: \
            application/jsonl`; `x-next-cursor` leads on then.",
        query: &[
            ("since", "Only what was let in at this instant or later."),
            ("until", "Only what was let in before this instant."),
            ("actor", "Only of this actor."),
            ("tenant", "Only of this tenant; another than one's own is there for who sees all."),
            ("limit", "Number of entries that are looked at, from 1 to 1000."),
            ("cursor", "The `next_cursor` of the page before."),
        ],
        takes: None,
        gives: schema::<List<AuditLine>>,
    },
];

/// The extensions, for the document of the server.
pub(crate) fn described() -> Beside {
    let mut requests = openapi::settings().for_deserialize().into_generator();
    let mut answers = openapi::settings().for_serialize().into_generator();
    let mut paths = Map::new();
    for listed in &LISTED {
        let method = if listed.takes.is_some() { "post" } else { "get" };
        let mut described = json!({
            "operationId": listed.id,
            "summary": listed.does,
            "tags": [TAG],
            "x-dormouse-extension": true,
            "parameters": parameters(listed),
            "responses": {
                "200": {
                    "description": "Done.",
                    "content": { "application/json": { "schema": (listed.gives)(&mut answers) } },
                },
                "default": { "$ref": "#/components/responses/Error" },
            },
        });
        if let Some(route) = ExtensionRoute::at(&method.to_ascii_uppercase(), listed.path) {
            described["x-scope"] = route.scope().as_str().into();
        }
        if let Some(takes) = listed.takes {
            let content = json!({ "application/json": { "schema": takes(&mut requests) } });
            described["requestBody"] = json!({ "required": true, "content": content });
        }
        paths.entry(listed.path).or_insert_with(|| json!({}))[method] = described;
    }
    let schemas: Map = requests.take_definitions(true).into_iter().chain(answers.take_definitions(true)).collect();
    let components = Map::from_iter([("schemas".to_owned(), Value::Object(schemas))]);
    Beside { tag: TAG.to_owned(), description: DESCRIPTION.to_owned(), paths, components }
}

fn parameters(listed: &ListedResource) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let version = json!({ "type": "string", "enum": [PROTOCOL_VERSION] });
    let mut all = vec![json!({ "name": VERSION_HEADER, "in": "header", "required": true, "schema": version })];
    if listed.path.contains("{invocation_id}") {
        all.push(json!({ "name": "invocation_id", "in": "path", "required": true, "schema": text }));
    }
    all.extend(listed.query.iter().map(
        |(name, about)| json!({ "name": name, "in": "query", "required": false, "description": about, "schema": text }),
    ));
    all
}
