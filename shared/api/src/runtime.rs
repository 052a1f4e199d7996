//! Facts about the server: what it is, what it can do, and the tools of its agents.

use dormouse_protocol::envelope::{List, Object};
use dormouse_protocol::id::ToolId;
use dormouse_protocol::resource::{Capability, CapabilitySummary, RuntimeMetadata, Tool};
use dormouse_protocol::{Map, PROTOCOL_VERSION, ProtocolError};

use crate::api::{Api, found};
use crate::refusal::agents_away;
use crate::{Call, CallAnswer};

/// A tool that an agent of the server may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolInfo {
    /// The name that models call it by.
    pub name: String,
    /// Purpose of the tool.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: Map,
    /// The JSON Schema of its result; empty where nothing is known of it.
    pub output_schema: Map,
}

impl ToolInfo {
    /// Its id: the name, with `_` for what would need an escape in an address.
    pub fn tool_id(&self) -> ToolId {
        tool_id(&self.name)
    }

    fn tool(&self) -> Tool {
        Tool {
            id: self.tool_id(),
            object: Object::new(),
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
        }
    }
}

/// The id of the tool `name`.
pub(crate) fn tool_id(name: &str) -> ToolId {
    ToolId::new(format!("tool_{}", plain(name)))
}

/// `name`, with `_` for what would need an escape in an address.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-._~:".contains(c) { c } else { '_' }).collect()
}

/// Abilities that not every server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Sockets can be opened.
    pub sockets: bool,
    /// Receipts are issued, and tasks replayed.
    pub receipts: bool,
    /// Webhooks are sent.
    pub webhooks: bool,
    /// A2A is spoken.
    pub a2a: bool,
}

impl Abilities {
    /// What a server with these can do, by name, and what each means: its cards and its operations say the same.
    pub fn described(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let more = [
            (self.sockets, "websocket", "Streams and commands over one socket."),
            (self.receipts, "receipts", "What tasks did, signed and chained."),
            (self.receipts, "replay", "Tasks run again on what they recorded."),
            (true, "connectors", "Webhooks of other services begin tasks and answer them."),
            (self.webhooks, "webhooks", "Events of a session are sent to addresses that its clients name."),
            (self.a2a, "a2a", "A2A 0.3 over JSON-RPC, over the same tasks."),
        ];
        let more = more.into_iter().filter_map(|(is_there, id, description)| is_there.then_some((id, description)));
        CAPABILITIES.iter().copied().chain(more)
    }
}

/// Abilities that every server has, and what each means.
const CAPABILITIES: &[(&str, &str)] = &[
    ("rest", "Requests and answers over HTTP."),
    ("sse", "Event streams that go on behind any event."),
    ("durable_tasks", "Tasks survive the process that runs them, and go on where they were."),
    ("permission_requests", "Approvals that tasks wait for can be listed and answered."),
    ("personas", "Personas can be made of the workflows of the server; their autonomy is kept."),
    ("memories", "Memories with scope and provenance; deleting one leaves a tombstone."),
    ("vaults", "Vaults are known by their provider; no operation gives a secret."),
    ("quotas", "Usage is counted in the transaction that uses something."),
    ("workspace_files", "Text files in workspaces; they can be removed, which is an extension."),
    ("workspace_templates", "Workspaces can begin with a template and with files, which is an extension."),
];

impl Api {
    pub(crate) fn runtime(&self) -> Result<CallAnswer, ProtocolError> {
        found(&RuntimeMetadata {
            object: Object::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            adapter: "http".to_owned(),
            workspace_root: None,
            session_count: None,
            task_count: None,
            capabilities: self.capabilities(),
        })
    }

    pub(crate) fn list_capabilities(&self) -> Result<CallAnswer, ProtocolError> {
        found(&CapabilitySummary { object: Object::new(), capabilities: self.capabilities() })
    }

    pub(crate) async fn list_tools(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let tools = self.tools(call).await?;
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let shown = self.lists.fixed_page(call, "tools", &names)?;
        let page = tools.get(shown.range).unwrap_or_default();
        found(&List::page(page.iter().map(ToolInfo::tool).collect(), shown.next))
    }

    pub(crate) async fn get_tool(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = ToolId::from(call.params.get("tool_id"));
        let tool = self.tools(call).await?.into_iter().find(|tool| tool.tool_id() == id);
        found(&tool.ok_or_else(|| ProtocolError::not_found("tool"))?.tool())
    }

    fn capabilities(&self) -> Vec<Capability> {
        let capability =
            |(id, description): (&str, &str)| Capability { id: id.to_owned(), description: description.to_owned() };
        self.parts().abilities.described().map(capability).collect()
    }

    /// The tools of the agents of the server, or of those that the workspace alone has which is named, each once, by their
    /// names.
    async fn tools(&self, call: &Call) -> Result<Vec<ToolInfo>, ProtocolError> {
        let personas = &self.parts().personas;
        let mut tools: Vec<ToolInfo> = match self.place_of(call).await? {
            Some(workspace) => match personas.own() {
                Some(own) => own.tools(&call.actor.tenant, &workspace).await.map_err(|reason| agents_away(&reason))?,
                None => Vec::new(),
            },
            None => {
                let specs = self.all_personas(call).await?;
                let of_source = match personas.source() {
                    Some(source) => {
                        let tools = source.tools(personas.is_at_home(&call.actor)).await;
                        tools.map_err(|reason| agents_away(&reason))?
                    }
                    None => Vec::new(),
                };
                specs.into_iter().flat_map(|spec| spec.tools).chain(of_source).collect()
            }
        };
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools.dedup_by(|one, other| one.tool_id() == other.tool_id());
        Ok(tools)
    }
}
