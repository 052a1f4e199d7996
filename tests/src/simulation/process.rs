use std::sync::Arc;
use std::time::Duration;

use dormouse_aws::{BearerKey, CallbackSecret, CallbackSigner};
use dormouse_engine::{Engine, Ports};
use dormouse_harness::{DescriptorWakes, GraphRegistry};
use dormouse_lambda::{App, HttpRequest, HttpResponse, Limits, Parts, TriggerError};
use serde_json::Value;

use super::clerk::{Ask, Clerk, Task};
use super::desk::Desk;
use super::workload::KEY;
use super::world::{ProcessId, World};
use super::{PlantedBug, TURN};

/// One incarnation of a process that serves everything, as a function or local mode does.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    app: App,
    clerk: Arc<Clerk>,
}

/// What a function is asked.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Http(Box<HttpRequest>),
    Event(Value),
    Wakeup(Value),
    Ask(Ask),
}

/// What a function says.
#[derive(Debug)]
pub(crate) enum Reply {
    Http(Box<HttpResponse>),
    Trigger(Result<Value, TriggerError>),
    /// What the clerk says of a task; `None` when it does not know.
    Task(Option<Task>),
}

impl Process {
    pub(crate) fn new(world: &World, id: ProcessId, graphs: GraphRegistry, planted: Option<PlantedBug>) -> Self {
        let desk = Arc::new(Desk::of(world.clone(), id, planted));
        let ports = Ports {
            store: desk.clone(),
            clock: desk.clone(),
            ids: desk.clone(),
            spawner: desk.clone(),
            planner: Arc::new(DescriptorWakes),
        };
        let app = App::new(Parts {
            engine: Engine::new(ports),
            graphs,
            subscriptions: desk.clone(),
            bus: desk.clone(),
            callbacks: CallbackSigner::new(CallbackSecret::new("hush")),
            signal_key: BearerKey::new(KEY),
            base_url: None,
            limits: Limits { turn: TURN, ..Limits::default() },
            telemetry: None,
        });
        let clerk = Arc::new(Clerk { desk, harness: app.harness().clone() });
        Self { id, app, clerk }
    }

    /// What a process does with `message`.
    pub(crate) fn serve(&self, message: Message) -> impl Future<Output = Reply> + Send + 'static {
        let (app, clerk) = (self.app.clone(), self.clerk.clone());
        let time_left = Some(TURN + Duration::from_secs(1));
        async move {
            match message {
                Message::Http(request) => Reply::Http(Box::new(app.http(*request).await)),
                Message::Event(event) => Reply::Trigger(app.event(event, time_left).await),
                Message::Ask(ask) => Reply::Task(clerk.serve(ask).await),
                Message::Wakeup(event) => Reply::Trigger(app.wakeup(event, time_left).await),
            }
        }
    }
}
