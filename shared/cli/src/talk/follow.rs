use std::io::{self, Write};
use std::time::Duration;

use dormouse_protocol::sse::{ERROR, Reader};
use dormouse_protocol::{ErrorResponse, Event};
use reqwest::Response;
use tokio::time::{sleep, timeout};

use super::client::{ATTEMPTS, Client, TalkError, refusal};
use crate::terminal::plain;

/// Longest silence of a stream that has begun: heartbeats come more often than every 30 seconds.
const SILENCE: Duration = Duration::from_secs(65);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// End of a connection.
enum ConnectionEnd {
    /// The receiver of events has seen enough.
    Enough,
    /// It is to be taken up again.
    Again,
}

/// Reports every event of the stream at `path` behind `after`, once and in order, until `tell` reports that it is
/// enough. Takes the stream up again whenever it ends; where that takes several attempts, whoever waits is told why. A server
/// that was never there is given up after as many attempts as other requests have.
pub(super) async fn follow(
    client: &Client,
    path: &str,
    mut after: Option<String>,
    mut tell: impl FnMut(&Event) -> io::Result<bool>,
) -> Result<(), TalkError> {
    let mut pause = FIRST_PAUSE;
    let mut failures = 0;
    loop {
        let cursor = after.clone();
        let cut = match client.stream(path, after.as_deref()).await {
            Ok(response) => {
                failures = 0;
                read(response, &mut after, &mut tell).await
            }
            Err(error) => Err(error),
        };
        match cut {
            Ok(ConnectionEnd::Enough) => return Ok(()),
            Ok(ConnectionEnd::Again) => {}
            Err(error) if error.is_transient() => {
                failures += 1;
                if failures == ATTEMPTS && !client.was_there() {
                    return Err(error);
                }
                if failures == ATTEMPTS {
                    let told = plain(&format!("note: the connection is tried again until Ctrl-C: {error}"));
                    // Without an error stream there is no reader.
                    let _ = writeln!(io::stderr(), "{told}");
                }
            }
            Err(error) => return Err(error),
        }
        pause = if after == cursor { (pause * 2).min(LONGEST_PAUSE) } else { FIRST_PAUSE };
        sleep(pause).await;
    }
}

async fn read(
    mut response: Response,
    after: &mut Option<String>,
    tell: &mut impl FnMut(&Event) -> io::Result<bool>,
) -> Result<ConnectionEnd, TalkError> {
    let mut reader = Reader::new();
    let mut has_begun = false;
    loop {
        let chunk = match has_begun {
            true => timeout(SILENCE, response.chunk()).await,
            // Nothing has to come before the first event.
            false => Ok(response.chunk().await),
        };
        let Ok(Ok(Some(bytes))) = chunk else { return Ok(ConnectionEnd::Again) };
        for block in reader.push(&bytes) {
            has_begun = true;
            if block.event == ERROR {
                let body: Option<ErrorResponse> = serde_json::from_str(&block.data).ok();
                let status = body.as_ref().map_or(500, |body| body.error.code.status());
                return Err(refusal(status, body));
            }
            let event: Event = serde_json::from_str(&block.data).map_err(|_| TalkError::Unreadable { status: 200 })?;
            *after = Some(block.id);
            if tell(&event)? {
                return Ok(ConnectionEnd::Enough);
            }
        }
    }
}
