use std::sync::Arc;
use std::time::Duration;

use dormouse_engine::middleware::Retry;
use dormouse_engine::{END, Engine, GraphBuilder, Invocation, NodeError, Ports, StateSchema, Update};
use dormouse_harness::DescriptorWakes;
use dormouse_ports::Method;
use dormouse_ports::model::{
    CallOptions, CompletionRequest, ModelError, ModelProvider, Response, RetryPolicy, StructuredFailure,
};
use dormouse_system::RandomIds;
use dormouse_testkit::{MemoryStore, ScriptedFetch, TokioSpawner};
use futures::lock::Mutex;
use serde_json::Value;

use super::clock::StillClock;
use super::end::{End, Recorder, Seen};
use super::spec::{CallSpec, ModelCase, Operation, RetrySpec};
use super::wire::{conversation, demand, read_request, since};
use crate::Failure;

pub(super) async fn run(case: &ModelCase) -> Result<(), Failure> {
    let fetch = case.fetch();
    let clock = Arc::new(StillClock::default());
    let provider = case.provider(case.model(), &fetch, clock.clone());
    let mut failures = Vec::new();
    let mut sent = Vec::new();
    for (index, call) in case.calls.iter().enumerate() {
        let before = fetch.requests().len();
        let (end, is_unmodified, record) = one(call, &provider, &clock).await;
        let requests = since(&fetch, before);
        sent.push(requests.first().map(|request| request.body.clone()));
        let asked = fetch.requests().iter().filter(|request| request.method == Method::Post).count();
        let answered = asked.checked_sub(1).and_then(|last| case.answers.get(last)?.body());
        let bodies: Vec<Value> = requests.iter().map(|request| case.described(request)).collect();
        let said: Vec<Vec<Value>> = bodies.iter().map(conversation).collect();
        let messages = case.messages_of(&call.request, &said);
        let waits = clock.waits();
        let left = fetch.left();
        let attempts = record.attempts;
        let tokens = record.tokens;
        let seen =
            Seen { end, requests, bodies, said, messages, attempts, tokens, is_unmodified, waits, left, answered };
        let checked = [call.wire.check(&seen), call.expected.check(&seen), probed(case, call, &seen)];
        failures.extend(checked.into_iter().filter_map(|c| c.map_err(|f| f.within(&format!("call {index}"))).err()));
    }
    failures.extend(one_at_a_time(&fetch).err());
    failures.extend(identical(case, &sent).err());
    Failure::all(failures)
}

/// A probe goes where the fixture has its endpoint.
fn probed(case: &ModelCase, call: &CallSpec, seen: &Seen<'_>) -> Result<(), Failure> {
    let (Operation::Ready, Some(path)) = (&call.operation, &case.probe_path) else { return Ok(()) };
    let url = seen.requests.first().map(|request| request.url.as_str()).unwrap_or_default();
    demand(url.ends_with(path.as_str()), || format!("the probe went to `{url}`, not to `{path}`"))
}

/// No call has two requests under way, and none leaves a connection open.
fn one_at_a_time(fetch: &ScriptedFetch) -> Result<(), Failure> {
    demand(fetch.most_open() <= 1 && fetch.open() == 0, || "connections were left open".to_owned())
}

fn identical(case: &ModelCase, sent: &[Option<Vec<u8>>]) -> Result<(), Failure> {
    let Some(first) = case.identical.first() else { return Ok(()) };
    let bytes = |index: &usize| sent.get(*index).and_then(Option::as_deref);
    let all = case.identical.iter().all(|index| bytes(index).is_some() && bytes(index) == bytes(first));
    demand(all && case.identical.len() > 1, || "the requests differ in their bytes".to_owned())
}

/// Makes `call`; tells how it ended and whether the caller's request is as it was.
async fn one(
    call: &CallSpec,
    provider: &Arc<dyn ModelProvider>,
    clock: &Arc<StillClock>,
) -> (End, bool, super::end::Record) {
    let recorder = Arc::new(Recorder::new(provider.identity()));
    let (end, is_unmodified) = match call.operation {
        Operation::Ready => (provider.ready().await.map_or_else(|e| End::Failed(Box::new(e)), |()| End::Ready), true),
        Operation::Complete => match read_request(&call.request) {
            Err(error) => (End::Failed(Box::new(error)), true),
            Ok(request) => {
                let before = request.clone();
                let options = CallOptions {
                    observer: recorder.clone(),
                    retry: call.retry.as_ref().map(RetrySpec::policy),
                    timeout: None,
                };
                let result = match call.attempts_of_node {
                    None => provider.complete(&request, &options).await,
                    Some(attempts) => in_a_node(provider, &request, &options, attempts, clock).await,
                };
                (result.map_or_else(|e| End::Failed(Box::new(e)), |r| End::Answered(Box::new(r))), request == before)
            }
        },
    };
    (end, is_unmodified, recorder.take())
}

/// The call within a node that the engine's own retry wraps.
async fn in_a_node(
    provider: &Arc<dyn ModelProvider>,
    request: &CompletionRequest,
    options: &CallOptions,
    attempts: u32,
    clock: &Arc<StillClock>,
) -> Result<Response, ModelError> {
    let last = Arc::new(Mutex::new(None));
    let provider = provider.clone();
    let request = request.clone();
    let options = options.clone();
    let kept = last.clone();
    let node = move |_| {
        let provider = provider.clone();
        let request = request.clone();
        let options = options.clone();
        let kept = kept.clone();
        async move {
            let result = provider.complete(&request, &options).await;
            let error = result
                .as_ref()
                .err()
                .map(|error| NodeError::new(error.message.clone()).with_category(error.category.category()));
            *kept.lock().await = Some(result);
            error.map_or_else(|| Ok(Update::none()), Err)
        }
    };
    let retry = Retry::new(clock.clone(), Arc::new(|| 0.0)).max_attempts(attempts);
    let graph = GraphBuilder::new("case", StateSchema::new()).entry("ask").function("ask", node).edge("ask", END);
    let unknown = |what: String| ModelError::new(dormouse_ports::model::ModelErrorCategory::InvalidRequest, what);
    let graph = graph.wrap("ask", Arc::new(retry)).compile().map_err(|error| unknown(error.to_string()))?;
    let engine = Engine::new(Ports {
        store: Arc::new(MemoryStore::default()).into(),
        clock: clock.clone(),
        ids: Arc::new(RandomIds),
        spawner: Arc::new(TokioSpawner),
        planner: Arc::new(DescriptorWakes),
    });
    let ended = engine.invoke(&Arc::new(graph), Invocation::default()).await;
    let kept = last.lock().await.take();
    kept.unwrap_or_else(|| Err(unknown(format!("the node did not run: {:?}", ended.err()))))
}

impl RetrySpec {
    pub(super) fn policy(&self) -> RetryPolicy {
        let mut policy = RetryPolicy::new(Arc::new(|| 0.0));
        policy.max_attempts = self.max_attempts;
        policy.per_attempt_override.clone_from(&self.overrides);
        if let Some(wait) = self.wait {
            policy.backoff = Arc::new(move |_, _| -> Duration { wait });
        }
        if let Some(template) = self.template.clone() {
            policy.reask = Some(Arc::new(move |failure: &StructuredFailure| {
                let text = template.replace("{output_content}", &failure.output_content);
                text.replace("{error_message}", &failure.error_message)
            }));
        }
        policy
    }
}
