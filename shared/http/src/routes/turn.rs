//! `POST /graphs/{graph}/turns`

use dormouse_harness::{FreshTurn, Intent, Transmission, TurnError, TurnOutcome};
use dormouse_ports::{Category, Map};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::encode::AnsweredCaller;
use crate::principal::CallerName;
use crate::refusal::RequestRefusal;
use crate::repeat::{Repeatable, check_own_id};
use crate::reply::TurnReply;
use crate::routes::OF_TURNS;
use crate::{App, Request, body};

/// Request that begins a turn.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TurnRequest {
    /// Fields of the state that the graph begins with.
    state: Map,
    /// The session that it goes on in; only of graphs that keep sessions.
    session_id: Option<String>,
    /// An id of the caller's own, by which the request can be repeated.
    invocation_id: Option<String>,
    /// Id that joins it with other things in logs and traces.
    correlation_id: Option<String>,
    /// Metadata that observers are given.
    metadata: Map,
    /// Demand that the session is new, or exists.
    intent: Option<TurnIntent>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum TurnIntent {
    NewSession,
    ExistingSession,
}

impl App {
    pub(super) async fn post_turn(&self, graph: &str, request: &Request) -> Result<TurnReply, RequestRefusal> {
        let principal = self.principal(request, &OF_TURNS).await?;
        self.check_found(&principal, graph).await?;
        let current = self.graphs().offered(graph).await?;
        let compiled = &*current.graph;
        let said = body::object(request, self.limits().body)?;
        let mut turn: TurnRequest = body::typed(said.clone())?;
        let repeatable = Repeatable::of(request, &principal, &said, turn.invocation_id.as_deref())?;
        if turn.session_id.is_some() && compiled.sessions().is_none() {
            return Err(RequestRefusal::invalid(format!("graph `{graph}` keeps no sessions; leave session_id out")));
        }
        let harness = self.harness_of(compiled);
        if compiled.sessions().is_some() && !principal.is_nobody() {
            self.name_session(&mut turn);
        }
        let session_id = turn.session_id.take().map(|id| principal.session(&id)).transpose()?;
        let tenant = principal.tenant().map(str::to_owned);
        let version = current.version.clone();
        let fresh = FreshTurn { session_id, tenant, version, ..fresh_turn(graph, turn, &repeatable)? };
        let mut turn = harness.turn(Transmission { time_left: request.time_left, ..fresh.into() }).await;
        if let TurnOutcome::Errored(error) = &mut turn.outcome {
            error.category = repeatable.refused(error.category.clone());
        }
        Ok(self.encode(&turn, &AnsweredCaller::Operator, repeatable.invocation_id.is_some()))
    }

    /// Checks that `principal` finds the agent that works by `graph`.
    ///
    /// # Errors
    /// 404, as for a graph that is not there.
    async fn check_found(&self, principal: &CallerName, graph: &str) -> Result<(), RequestRefusal> {
        let Some(tenant) = principal.tenant() else { return Ok(()) };
        let kept = self.personas().keep_from(tenant, graph).await.map_err(|reason| {
            tracing::warn!(reason, "the agents of the folder cannot be loaded");
            TurnError::new(Category::ProviderUnavailable, "the agents of the folder cannot be loaded now")
        })?;
        if !kept {
            return Ok(());
        }
        Err(RequestRefusal::new(Category::GraphUnknown, format!("there is no graph `{graph}`")))
    }

    /// Names the session that `turn` begins without a name, so that it can be its principal's from the beginning.
    fn name_session(&self, turn: &mut TurnRequest) {
        let begins = match turn.intent {
            Some(TurnIntent::NewSession) | None => true,
            Some(TurnIntent::ExistingSession) => false,
        };
        if begins && turn.session_id.is_none() {
            turn.session_id = Some(self.engine().ports().ids.fresh());
            turn.intent = Some(TurnIntent::NewSession);
        }
    }
}

fn fresh_turn(graph: &str, turn: TurnRequest, repeatable: &Repeatable) -> Result<FreshTurn, RequestRefusal> {
    let checked = |name: &str, id: Option<String>| id.map(|id| check_own_id(name, &id).map(|()| id)).transpose();
    Ok(FreshTurn {
        intent: turn.intent.map(|intent| match intent {
            TurnIntent::NewSession => Intent::NewSession,
            TurnIntent::ExistingSession => Intent::ExistingSession,
        }),
        invocation_id: repeatable.invocation_id.clone(),
        earlier_id: repeatable.earlier_id.clone(),
        request_digest: repeatable.request_digest.clone(),
        correlation_id: checked("correlation_id", turn.correlation_id)?,
        metadata: turn.metadata,
        ..FreshTurn::new(graph, turn.state)
    })
}
