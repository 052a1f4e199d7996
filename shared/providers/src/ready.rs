use dormouse_ports::model::ModelError;

use crate::Provider;
use crate::attempt::{refused, whole_body};

/// Asks the provider for its model, and for nothing else (§5).
pub(crate) async fn ready(provider: &Provider) -> Result<(), ModelError> {
    let model = &provider.setup.model;
    let (method, path) = provider.wire.probe(model);
    let answer = provider.send(provider.quick_request(method, &path).await?).await?;
    if !(200..300).contains(&answer.status) {
        return Err(refused(&*provider.wire, &*provider.setup.ports.clock, false, answer).await);
    }
    let body = whole_body(answer, provider.setup.limits.most_bytes).await?;
    provider.wire.judge_probe(model, &body)
}
