use std::sync::Arc;
use std::time::Duration;

use dormouse_api::{Keys, Receipts, RecordingEngine, RecordingStore, StreamLimits};
use dormouse_harness::{DescriptorWakes, GraphRegistry, TurnError, WORK};
use dormouse_http::{
    App, Authorization, BearerKey, CallbackSecret, CallbackSigner, Limits, Parts, ProtocolConfig, Request, Server,
    TriggerError,
};
use dormouse_ports::{Clock, InvocationId, MaintenanceStore, Records, Sleepers, TurnStore};
use dormouse_protocol::cursor::Cursors;
use dormouse_receipts::KeyRing;
use futures::future::{Either, select};
use serde_json::{Value, json};

use super::dynamodb;
use super::observed::Observed;
use super::sim_ports::SimPorts;
use super::workload::KEY;
use super::world::{ProcessId, World};
use super::{PlantedBug, RULES, Store, TURN};
use crate::HttpAnswer;

/// The keys that receipts are signed with.
pub(crate) fn ring() -> KeyRing {
    KeyRing::new([7; 32], None)
}

/// The most bytes of a stream that are sent in one response.
const WHOLE_STREAM: usize = 100_000;

/// One incarnation of a process that serves everything, composed as a function is.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    server: Server,
    sim_ports: Arc<SimPorts>,
}

/// What a function is asked.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Http(Box<Request>),
    Event(Value),
    Wakeup(Value),
    /// Somebody at the table lets an invocation be tried again.
    Retry(InvocationId),
}

/// What a function says.
#[derive(Debug)]
pub(crate) enum Reply {
    Http(Box<HttpAnswer>),
    Trigger(Result<Value, TriggerError>),
    Retried(Result<(), TurnError>),
}

impl Process {
    pub(crate) fn new(
        world: &World,
        id: ProcessId,
        graphs: GraphRegistry,
        (kind, planted): (Store, Option<PlantedBug>),
    ) -> Self {
        let sim_ports = Arc::new(SimPorts::of(world.clone(), id, planted));
        let agents = super::agents::graphs(&sim_ports).expect("agents that compile").into_iter().map(Arc::new);
        let graphs = GraphRegistry::new(graphs.iter().cloned().chain(agents));
        let (store, maintenance, records): (TurnStore, MaintenanceStore, Arc<dyn Records>) = match kind {
            Store::Memory => (sim_ports.clone().into(), sim_ports.clone().into(), sim_ports.clone()),
            Store::DynamoDb => {
                let store = dynamodb::store(&sim_ports);
                let observed = Observed { store: store.clone(), sim_ports: sim_ports.clone() };
                (observed.into(), Arc::new(store.clone()).into(), Arc::new(store))
            }
        };
        let receipts = (planted != Some(PlantedBug::EndUnproved)).then(|| Receipts::of(&ring()));
        let recording = RecordingStore::new(store, records.clone(), sim_ports.clone()).with_receipts(receipts);
        let (attempts, signals_of_tenants) = {
            let world = world.lock();
            (world.attempts, world.signals_of_tenants)
        };
        let limits = Limits { turn: TURN, rules: RULES, attempts, signals_of_tenants, ..Limits::default() };
        let app = App::new(Parts {
            engine: RecordingEngine::new(recording, sim_ports.clone(), sim_ports.clone(), Arc::new(DescriptorWakes)),
            agents: graphs.into(),
            maintenance,
            subscriptions: sim_ports.clone(),
            bus: sim_ports.clone(),
            callbacks: CallbackSigner::new(CallbackSecret::new("hush")),
            signal_key: BearerKey::new(KEY),
            authorization: Authorization::None,
            keys: Keys::new(records.clone()),
            base_url: None,
            limits,
            telemetry: None,
        });
        let wire = ProtocolConfig {
            streams: StreamLimits { whole: Some(WHOLE_STREAM), ..StreamLimits::default() },
            ..ProtocolConfig::new(records, Cursors::new(b"hush"))
        };
        Self { id, server: Server::new(app, wire), sim_ports }
    }

    /// What a process does with `message`.
    pub(crate) fn serve(&self, message: Message) -> impl Future<Output = Reply> + Send + 'static {
        let server = self.server.clone();
        let sim_ports = self.sim_ports.clone();
        let time_left = Some(TURN + Duration::from_secs(1));
        async move {
            match message {
                Message::Http(request) => {
                    let answer = Box::pin(async { HttpAnswer::of(server.http(*request).await).await });
                    Reply::Http(Box::new(match sim_ports.planted() {
                        Some(PlantedBug::CutCommit) => match select(answer, Box::pin(sim_ports.nap(TURN))).await {
                            Either::Left((answer, _)) => answer,
                            Either::Right(_) => cut(),
                        },
                        _ => answer.await,
                    }))
                }
                Message::Event(event) => Reply::Trigger(server.app().event(event, time_left).await),
                Message::Wakeup(event) => {
                    if sim_ports.planted() == Some(PlantedBug::SweepItself) && event.get("dormouse_sweep").is_some() {
                        for id in sim_ports.dead_claims(sim_ports.now()).await.unwrap_or_default() {
                            let detail = json!({ "invocation_id": id, "swept": true });
                            let call = json!({ "source": "dormouse", "detail-type": WORK, "detail": detail });
                            // What came of it, a sweep does not tell.
                            let _ = server.app().wakeup(call, time_left).await;
                        }
                    }
                    Reply::Trigger(server.app().wakeup(event, time_left).await)
                }
                Message::Retry(id) => Reply::Retried(server.app().harness().retry(&id).await),
            }
        }
    }
}

/// What a request is answered that was cut off without a look at what it had sent.
fn cut() -> HttpAnswer {
    let error = json!({ "category": "turn_deadline_exceeded", "retry_safe": true });
    HttpAnswer { status: 503, headers: Vec::new(), body: json!({ "error": error }) }
}
