//! Operations beside the contract of the protocol, under `/v1/x-…`: everything that sleeps, no matter which caller
//! began it, and the shapes of graphs. They speak the protocol's version, keys, errors and lists; the console is made
//! of them and of it.
//!
//! # Invariants
//! - A key with `tasks:read` sees the pauses of tasks that it sees anyway; only `operations:read`, the right of those who
//!   operate the deployment, shows all, of every tenant.
//! - An answer, a cancellation or a repair names the pause that its sender saw; another pause is left alone.

mod act;
mod audit;
mod describe;
mod pauses;
mod told;

use std::sync::Arc;

use dormouse_api::{Actor, Operations, catalog_of, first_event_since};
use dormouse_ports::Records;
use dormouse_protocol::cursor::Cursors;
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::request::Query;
use dormouse_protocol::{ErrorCode, ProtocolError, Scope};
use jiff::Timestamp;
use serde_json::json;

use crate::protocol::{Beside, ProtocolAdmission, agents_away};
use crate::{App, Request, Response};

/// Serves the extensions.
pub(crate) struct Extensions {
    pub(crate) app: App,
    pub(crate) operations: Arc<dyn Operations>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) cursors: Cursors,
    /// True if this process may write to the index of what sleeps and register wake-ups, which a repair does.
    pub(crate) may_repair: bool,
}

/// A path that means something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExtensionRoute {
    Pauses,
    Pause { id: String },
    Answer { id: String },
    Cancel { id: String },
    Repair { id: String },
    Graphs,
    Catalog,
    Feed,
    Audit,
}

/// A request that is allowed.
struct AdmittedRequest<'r> {
    request: &'r Request,
    query: Query,
    actor: Actor,
    now: Timestamp,
}

const PAUSES: &str = "/v1/x-pauses";
const GRAPHS: &str = "/v1/x-graphs";
const CATALOG: &str = "/v1/x-catalog";
const FEED: &str = "/v1/x-feed";
const AUDIT: &str = "/v1/x-audit";

impl ExtensionRoute {
    /// The route of `path`. What acts on a pause is a word behind its id, which may contain slashes.
    pub(crate) fn at(method: &str, path: &str) -> Option<Self> {
        match path {
            PAUSES => return Some(Self::Pauses),
            GRAPHS => return Some(Self::Graphs),
            CATALOG => return Some(Self::Catalog),
            FEED => return Some(Self::Feed),
            AUDIT => return Some(Self::Audit),
            _ => {}
        }
        let id = path.strip_prefix(PAUSES)?.strip_prefix('/').filter(|id| !id.is_empty())?;
        let before = |word: &str| id.strip_suffix(word).filter(|id| !id.is_empty()).map(str::to_owned);
        if method != "GET" {
            let acts = before("/answer").map(|id| Self::Answer { id });
            let acts = acts.or_else(|| before("/cancel").map(|id| Self::Cancel { id }));
            if let Some(acts) = acts.or_else(|| before("/repair").map(|id| Self::Repair { id })) {
                return Some(acts);
            }
        }
        Some(Self::Pause { id: id.to_owned() })
    }

    fn method(&self) -> &'static str {
        match self {
            Self::Pauses | Self::Pause { .. } | Self::Graphs | Self::Catalog | Self::Feed | Self::Audit => "GET",
            Self::Answer { .. } | Self::Cancel { .. } | Self::Repair { .. } => "POST",
        }
    }

    /// The name of its operation.
    fn id(&self) -> &'static str {
        match self {
            Self::Pauses => "x-listPauses",
            Self::Pause { .. } => "x-getPause",
            Self::Answer { .. } => "x-answerPause",
            Self::Cancel { .. } => "x-cancelPause",
            Self::Repair { .. } => "x-repairPause",
            Self::Graphs => "x-listGraphs",
            Self::Catalog => "x-getCatalog",
            Self::Feed => "x-getFeedStart",
            Self::Audit => "x-listAudit",
        }
    }

    fn allowed(&self) -> &'static [&'static str] {
        match self.method() {
            "GET" => &["GET", "HEAD", "OPTIONS"],
            _ => &["POST", "OPTIONS"],
        }
    }

    fn scope(&self) -> Scope {
        match self {
            Self::Pauses | Self::Pause { .. } => Scope::TasksRead,
            Self::Answer { .. } | Self::Cancel { .. } | Self::Repair { .. } => Scope::OperationsWrite,
            Self::Graphs | Self::Catalog => Scope::PersonasRead,
            Self::Feed => Scope::EventsRead,
            Self::Audit => Scope::AuditRead,
        }
    }
}

impl Extensions {
    /// The extensions, for the document of the server.
    pub(crate) fn described() -> Beside {
        describe::described()
    }

    /// Answers `request` on `route`.
    ///
    /// # Errors
    /// The first objection: method (405), version (426), key (401), scope (403), then those of the operation.
    pub(crate) async fn answer(
        &self,
        admission: &ProtocolAdmission,
        route: ExtensionRoute,
        request: &Request,
    ) -> Result<Response, ProtocolError> {
        match request.method.as_str() {
            "OPTIONS" => return Ok(Response::empty().header("allow", route.allowed().join(", "))),
            method if method == route.method() => {}
            _ => return Err(ProtocolError::method_not_allowed(route.allowed())),
        }
        let now = self.app.engine().ports().clock.now();
        request.findings.note_action(route.id());
        let actor = admission.admit_actor(request, now).await?;
        let scope = route.scope();
        if !actor.scopes.contains(&scope) {
            let refusal = ProtocolError::new(ErrorCode::PermissionDenied, "the key does not have the scope for this");
            return Err(refusal.with_detail("scope", scope.as_str()));
        }
        if route.method() != "GET" {
            admission.begin(request, now).await?;
        }
        let admitted = AdmittedRequest { request, query: Query::parse(&request.query)?, actor, now };
        let value = match route {
            ExtensionRoute::Pauses => json!(self.list(&admitted).await?),
            ExtensionRoute::Pause { id } => json!(self.pause(&admitted, &id).await?),
            ExtensionRoute::Answer { id } => json!(self.take_answer(&admitted, &id).await?),
            ExtensionRoute::Cancel { id } => json!(self.cancel(&admitted, &id).await?),
            ExtensionRoute::Repair { id } => json!(self.repair(&admitted, &id).await?),
            ExtensionRoute::Graphs => json!(self.graphs()),
            ExtensionRoute::Catalog => json!(self.catalog(&admitted).await?),
            ExtensionRoute::Feed => json!(self.feed_since(&admitted).await?),
            ExtensionRoute::Audit => return self.audit(&admitted).await,
        };
        Ok(Response::json(200, &value))
    }

    /// Where the events of the caller's tenant begin that were sent at `since` or later.
    async fn feed_since(&self, admitted: &AdmittedRequest<'_>) -> Result<told::FeedStart, ProtocolError> {
        let since = admitted.query.get("since").and_then(|text| text.parse::<Timestamp>().ok());
        let since = since.ok_or_else(|| ProtocolError::invalid("since", "an instant, 2027-01-31T09:00:00Z"))?;
        let first = first_event_since(&*self.records, &admitted.actor, since, admitted.now).await?;
        Ok(told::FeedStart::of(first))
    }

    /// The catalog of the server, or of the workspace that is named.
    async fn catalog(&self, admitted: &AdmittedRequest<'_>) -> Result<told::Catalog, ProtocolError> {
        let Some(workspace) = admitted.query.get("workspace_id") else {
            let lines = self.app.personas().catalog_for(&admitted.actor).await.map_err(agents_away)?;
            return Ok(told::Catalog::of(lines));
        };
        let workspace = WorkspaceId::from(workspace.to_owned());
        let asks = (&admitted.actor, admitted.now);
        let lines = catalog_of(self.app.personas(), &*self.records, asks, &workspace).await?;
        Ok(told::Catalog::of(lines))
    }

    fn graphs(&self) -> told::Graphs {
        let linked = self.app.graphs().iter().map(|graph| told::GraphShape::of(graph.outline()));
        told::Graphs::of(linked.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_contain_slashes() {
        let id = || "order/7".to_owned();
        for (method, path, route) in [
            ("GET", "/v1/x-pauses", Some(ExtensionRoute::Pauses)),
            ("GET", "/v1/x-pauses/order/7", Some(ExtensionRoute::Pause { id: id() })),
            ("POST", "/v1/x-pauses/order/7/answer", Some(ExtensionRoute::Answer { id: id() })),
            ("POST", "/v1/x-pauses/order/7/cancel", Some(ExtensionRoute::Cancel { id: id() })),
            ("POST", "/v1/x-pauses/order/7/repair", Some(ExtensionRoute::Repair { id: id() })),
            ("GET", "/v1/x-pauses/a/cancel", Some(ExtensionRoute::Pause { id: "a/cancel".to_owned() })),
            ("GET", "/v1/x-pauses/", None),
            ("GET", "/v1/x-pausesx", None),
            ("GET", "/v1/x-graphs", Some(ExtensionRoute::Graphs)),
            ("GET", "/v1/x-catalog", Some(ExtensionRoute::Catalog)),
            ("GET", "/v1/x-feed", Some(ExtensionRoute::Feed)),
            ("GET", "/v1/x-audit", Some(ExtensionRoute::Audit)),
            ("GET", "/v1/x-other", None),
        ] {
            assert_eq!(ExtensionRoute::at(method, path), route, "{method} {path}");
        }
    }
}
