use std::time::Duration;

use dormouse_http::Request;
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_testkit::ManualClock;

/// A request of the protocol, or of the routes beside it, as whoever has `key` sends it; `target` may have a query.
pub fn protocol_request(key: &str, method: &str, target: &str, body: Vec<u8>) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = [
        ("authorization", format!("Bearer {key}")),
        ("harn-agents-protocol-version", PROTOCOL_VERSION.to_owned()),
        ("content-type", "application/json".to_owned()),
    ];
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: headers.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        body,
        ..Request::default()
    }
}

/// Does `work` while time passes, by `step` whenever everybody else waits.
pub async fn while_time_passes<T>(clock: &ManualClock, step: Duration, work: impl Future<Output = T>) -> T {
    let ticking = async {
        loop {
            tokio::task::yield_now().await;
            clock.advance(step);
        }
    };
    tokio::select! { done = work => done, () = ticking => unreachable!("time never ends") }
}
