//! Where a case runs: its graph, compiled; its store, watched; its engine; and what happened so far.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use dormouse_engine::{DrainSummary, Engine, Migrations, Ports};
use dormouse_ports::{Checkpointer, InvocationId, SessionId};
use dormouse_system::RandomIds;
use dormouse_testkit::{NoWakes, TokioSpawner};

use crate::Failure;
use crate::case::CaseSpec;
use crate::clock::LiveClock;
use crate::evidence::{Earlier, End, Evidence, SeenError, Stage};
use crate::graph::{self, BuildError, BuiltGraph};
use crate::ledger::Ledger;
use crate::matching::Bindings;
use crate::observers::PerCall;
use crate::past::Past;
use crate::store::{Keeping, WatchedCheckpointer, WatchedStore};
use crate::telemetry::Capture;

pub(crate) struct Bench<'c> {
    pub(crate) case: &'c CaseSpec,
    pub(crate) store: Arc<WatchedStore>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) ports: Ports,
    pub(crate) past: Past,
    pub(crate) bindings: Arc<Bindings>,
    /// Which invocation runs, from 0.
    pub(crate) round: Arc<AtomicUsize>,
    pub(crate) checkpointer: Option<Arc<WatchedCheckpointer>>,
    /// The runs so far.
    pub(crate) earlier: Vec<Earlier>,
    pub(crate) capture: Capture,
}

/// A compiled case.
pub(crate) struct Compiled {
    pub(crate) built: BuiltGraph,
    pub(crate) engine: Engine,
    /// Observers to pass to every single call.
    pub(crate) observers: Vec<PerCall>,
}

/// Why there is nothing to run.
pub(crate) enum Refusal {
    /// The engine refused the case at this stage, which the case may expect.
    Engine(Stage, Box<SeenError>),
    Runner(Failure),
}

impl<'c> Bench<'c> {
    pub(crate) fn new(case: &'c CaseSpec, keeping: Keeping) -> Self {
        let checkpointer = case.checkpoints.declared.then_some(keeping.checkpointer);
        let watched = |durable| Arc::new(WatchedCheckpointer::new(durable, case.checkpoints.flush_every));
        let store = Arc::new(WatchedStore::new(keeping.store, case.sessions.faults.clone()));
        let ports = Ports {
            store: store.turns(),
            clock: Arc::new(case.tick.map_or_else(LiveClock::default, LiveClock::ticking)),
            // Requests to DynamoDB are told apart by these beyond tables, so no two cases may share any.
            ids: Arc::new(RandomIds),
            spawner: Arc::new(TokioSpawner),
            planner: Arc::new(NoWakes),
        };
        Self {
            case,
            store,
            ledger: Arc::default(),
            ports,
            past: Past::default(),
            bindings: Arc::default(),
            round: Arc::default(),
            checkpointer: checkpointer.map(watched),
            earlier: Vec::new(),
            capture: Capture::of(case.observers(), &case.detached, case.measures),
        }
    }

    /// The migrations of checkpoints.
    fn migrations(&self) -> Migrations {
        self.case.checkpoints.migrations.iter().fold(Migrations::new(), |migrations, migration| {
            let (from, to) = migration.versions();
            migrations.with(from, to, migration.noted_in(&self.ledger))
        })
    }

    /// Registers sessions and observers and compiles the graph.
    pub(crate) fn compile(&self) -> Result<Compiled, Refusal> {
        let refused =
            |stage| move |error: &dormouse_engine::EngineError| Refusal::Engine(stage, Box::new(error.into()));
        let sessions = self.case.sessions.policy(&self.ledger).map_err(|error| refused(Stage::Registration)(&error))?;
        let stage = graph::Stage {
            ledger: self.ledger.clone(),
            store: self.store.clone(),
            clock: self.ports.clock.clone(),
            round: self.round.clone(),
            graph: Arc::default(),
            model: self.case.model.model(self.ports.clock.clone()),
        };
        let checkpoints = self.checkpointer.as_ref().map(|checkpointer| graph::Checkpoints {
            checkpointer: checkpointer.clone(),
            migrations: self.migrations(),
        });
        let built = self.case.graph.build(&stage, sessions, checkpoints).map_err(|error| match error {
            BuildError::Refused(error) => refused(Stage::Compilation)(&error),
            BuildError::Broken(failure) => Refusal::Runner(failure),
        })?;
        let _ = stage.graph.set(Arc::downgrade(&built.graph));
        let mut observers = Vec::new();
        for observer in self.case.observers() {
            let attached = observer.attach(&built, &self.ledger, &self.round, &self.capture);
            observers.extend(attached.map_err(Refusal::Runner)?);
        }
        self.case.collectors.iter().for_each(|collector| collector.attach(&built, &self.ledger));
        Ok(Compiled { built, engine: Engine::new(self.ports.clone()), observers })
    }

    /// Forgets what happened between invocations.
    pub(crate) fn start_pages(&self) {
        self.ledger.take();
        self.store.take_calls();
        self.capture.take();
    }

    /// Everything about the invocation that just ended. Closes its pages.
    pub(crate) async fn evidence(
        &self,
        stage: Stage,
        end: End,
        ids: Ids,
        compiled: Option<&Compiled>,
        drain: DrainSummary,
    ) -> Result<Evidence, Failure> {
        let calls = self.store.take_calls();
        let mut sessions = indexmap::IndexMap::new();
        for id in self.case.session_ids.iter().chain(&ids.session_id) {
            let record = self.store.session(&SessionId::new(id.as_str())).await.map_err(Failure::mismatch)?;
            sessions.insert(id.clone(), record);
        }
        let record = match &ids.invocation_id {
            None => None,
            Some(id) => self.store.invocations().load_invocation(&InvocationId::new(id.as_str())).await.ok().flatten(),
        };
        let checkpoint = match (&self.checkpointer, &ids.invocation_id) {
            (Some(checkpointer), Some(id)) => checkpointer
                .load(&InvocationId::new(id.as_str()))
                .await
                .map_err(|e| Failure::mismatch(e.to_string()))?,
            (None, _) | (_, None) => None,
        };
        Ok(Evidence {
            stage,
            saves: self.checkpointer.as_ref().map_or_else(Vec::new, |checkpointer| checkpointer.take_saves()),
            checkpoint,
            earlier: self.earlier.clone(),
            end,
            invocation_id: ids.invocation_id,
            correlation_id: ids.correlation_id,
            session_id: ids.session_id,
            pages: self.ledger.take(),
            captured: self.capture.take(),
            calls,
            drain,
            sessions,
            record,
            names: self.case.names.clone(),
            schema_version: self.case.graph.schema_version().to_owned(),
            warnings: compiled.map_or_else(Vec::new, |compiled| compiled.built.graph.warnings().to_vec()),
            past: self.past.clone(),
            bindings: self.bindings.clone(),
        })
    }
}

/// Who an invocation was, as far as it is known.
#[derive(Default)]
pub(crate) struct Ids {
    pub(crate) invocation_id: Option<String>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) session_id: Option<String>,
}
