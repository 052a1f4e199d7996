//! `POST /graphs/{graph}/turns`

use dormouse_harness::{Intent, Transmission, TurnOutcome};
use dormouse_ports::Map;
use serde::Deserialize;

use crate::encode::Holder;
use crate::refusal::Refusal;
use crate::repeat::{NOBODY, Repeatable, check_own_id};
use crate::{App, HttpRequest, HttpResponse, body};

/// What begins a turn.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TurnRequest {
    state: Map,
    session_id: Option<String>,
    invocation_id: Option<String>,
    correlation_id: Option<String>,
    metadata: Map,
    intent: Option<TurnIntent>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TurnIntent {
    NewSession,
    ExistingSession,
}

impl App {
    pub(super) async fn post_turn(&self, graph: &str, request: &HttpRequest) -> Result<HttpResponse, Refusal> {
        let compiled = self.graphs().get(graph)?;
        let said = body::object(request, self.limits().body)?;
        let turn: TurnRequest = body::typed(said.clone())?;
        let repeatable = Repeatable::of(request, NOBODY, &said, turn.invocation_id.as_deref())?;
        if turn.session_id.is_some() && compiled.sessions().is_none() {
            return Err(Refusal::invalid(format!("graph `{graph}` keeps no sessions; leave session_id out")));
        }
        let harness = self.harness_of(compiled);
        let transmission = transmission(graph, turn, (request, &repeatable))?;
        let mut turn = harness.turn(transmission).await;
        if let TurnOutcome::Errored(error) = &mut turn.outcome {
            error.category = repeatable.refused(error.category.clone());
        }
        Ok(self.answer(&turn, &Holder::Operator))
    }
}

fn transmission(
    graph: &str,
    turn: TurnRequest,
    (request, repeatable): (&HttpRequest, &Repeatable),
) -> Result<Transmission, Refusal> {
    let checked = |name: &str, id: Option<String>| id.map(|id| check_own_id(name, &id).map(|()| id)).transpose();
    Ok(Transmission {
        intent: turn.intent.map(|intent| match intent {
            TurnIntent::NewSession => Intent::NewSession,
            TurnIntent::ExistingSession => Intent::ExistingSession,
        }),
        session_id: checked("session_id", turn.session_id)?.map(Into::into),
        invocation_id: repeatable.invocation_id.clone(),
        request_digest: repeatable.request_digest.clone(),
        correlation_id: checked("correlation_id", turn.correlation_id)?,
        metadata: turn.metadata,
        time_left: request.time_left,
        ..Transmission::start(graph, turn.state)
    })
}
