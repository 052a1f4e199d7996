//! Connections: a client that is slow to send its request, or to read its answer, is not waited for, and at the end none is for
//! long.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use futures::{StreamExt, stream};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::patient::Patient;
use crate::shutdown::RunningGuard;

/// Time that a connection may take for the head of its next request, and where most connections are taken. So long it is kept
/// idle, too: longer than the 60 seconds for which proxies keep theirs. One that ends before may do so while a request is on its
/// way over it, and the proxy can only answer that with an error.
const HEAD: Duration = Duration::from_secs(75);
const HEAD_IN_A_CROWD: Duration = Duration::from_secs(5);
/// Number of bytes of a head, and of what is read of a body before anybody takes it: AWS takes 10 KB of headers.
const READ_AHEAD: usize = 64 * 1024;
/// Time that the next part of a body may take.
const PIECE: Duration = Duration::from_secs(15);
/// Time that a body may take.
const BODY: Duration = Duration::from_secs(60);
/// Time in which a client takes some of what is written to it; as long as proxies wait for it.
const UNREAD: Duration = Duration::from_secs(60);
/// Largest number of connections, and the one where this process may have few files; more wait to be accepted. Streams and
/// sockets, of which there are a thousand at most, leave some of the first to others.
const CONNECTIONS: usize = 4_096;
const FEW_CONNECTIONS: usize = 900;
/// Descriptors that are none of connections: those of sockets, which have left theirs, and of files.
const OTHERS: usize = 1_200;
/// Time for which nothing is accepted when nothing could be, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves `routes` until it is time to end, and then until all answers are given.
pub(crate) async fn serve(listener: TcpListener, routes: Router, running: RunningGuard) -> io::Result<()> {
    let mut connections = JoinSet::new();
    let most = most_connections(files());
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, _)) => {
                    let head = if connections.len() < most / 2 { HEAD } else { HEAD_IN_A_CROWD };
                    connections.spawn(connection(stream, (head, UNREAD), routes.clone(), running.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = running.stopping() => break,
        }
    }
    drop((listener, routes, running));
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Number of connections where this process may have so many files.
fn most_connections(files: usize) -> usize {
    files.saturating_sub(OTHERS).clamp(FEW_CONNECTIONS, CONNECTIONS)
}

/// Number of files that this process may have: as many as it may let itself have.
fn files() -> usize {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        let wanted = hard.min((CONNECTIONS + OTHERS) as u64).max(soft);
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map(|()| wanted)
    });
    raised.map_or(0, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

async fn connection(stream: TcpStream, (head, unread): (Duration, Duration), routes: Router, running: RunningGuard) {
    // Small answers shall not wait for more.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(tower_of(routes));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(READ_AHEAD);
    let stream = TokioIo::new(Patient::new(stream, unread));
    let mut served = std::pin::pin!(builder.serve_connection(stream, service).with_upgrades());
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = running.stopping() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

fn tower_of(
    routes: Router,
) -> impl tower_service::Service<Request<Incoming>, Response = axum::response::Response, Error = Infallible, Future: Send>
+ Clone {
    routes
}

/// `body`, which ends with an error where it takes too long.
pub(crate) fn in_time(body: Body) -> Body {
    within(body, PIECE, BODY)
}

fn within(body: Body, piece: Duration, whole: Duration) -> Body {
    let last = Instant::now() + whole;
    let pieces = stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
        let mut pieces = pieces?;
        let patience = piece.min(last.saturating_duration_since(Instant::now()));
        match timeout(patience, pieces.next()).await {
            Ok(piece) => {
                let piece: Result<Bytes, String> = piece?.map_err(|error| error.to_string());
                Some((piece, Some(pieces)))
            }
            Err(_) => Some((Err("it took too long to come".to_owned()), None)),
        }
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::shutdown::Shutdown;

    async fn length(pieces: &[u64], piece: u64, whole: u64) -> Result<usize, String> {
        let pieces = stream::iter(pieces.to_vec()).then(async |after| {
            sleep(Duration::from_millis(after)).await;
            Ok::<_, Infallible>(Bytes::from_static(b"x"))
        });
        let piece = Duration::from_millis(piece);
        let whole = Duration::from_millis(whole);
        let body = within(Body::from_stream(Box::pin(pieces)), piece, whole);
        let read = axum::body::to_bytes(body, 1000).await;
        read.map(|bytes| bytes.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn streams_leave_connections_to_others_where_there_are_files_for_that() {
        assert_eq!([1_024, 4_096, 20_000].map(most_connections), [900, 2_896, 4_096]);
        assert!(files() > 0, "this machine says how many");
    }

    #[tokio::test]
    async fn a_connection_is_kept_idle_for_as_long_as_a_head_may_take() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        // A busy machine may need a part of it for an answer.
        let head = Duration::from_secs(3);
        let shutdown = Shutdown::new();
        let running = shutdown.running();
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            connection(stream, (head, UNREAD), Router::new(), running).await;
        });
        let mut client = TcpStream::connect(address).await.expect("it is listened to");
        let mut idle = Instant::now();
        for _ in 0..3 {
            sleep(head / 3).await;
            idle = Instant::now();
            client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.expect("it is read");
            let mut answer = [0; 1024];
            let _ = client.read(&mut answer).await.expect("an answer");
            assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", String::from_utf8_lossy(&answer));
        }
        let _ = client.read_to_end(&mut Vec::new()).await.expect("it ends");
        assert!(idle.elapsed() > head / 2, "{:?}", idle.elapsed());
        serving.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_head_without_an_end_is_read_to_its_bound() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = Shutdown::new();
        let begin = "GET / HTTP/1.1\r\nhost: here\r\nx: ";
        let long = format!("{begin}{}\r\n\r\n", "x".repeat(READ_AHEAD / 2));
        let endless = format!("{begin}{}", "x".repeat(READ_AHEAD - begin.len()));
        for (head, status) in [(long, "HTTP/1.1 404 "), (endless, "HTTP/1.1 431 ")] {
            let mut client = TcpStream::connect(address).await.expect("it is listened to");
            let (stream, _) = listener.accept().await.expect("a client");
            let serving = tokio::spawn(connection(stream, (HEAD, UNREAD), Router::new(), shutdown.running()));
            client.write_all(head.as_bytes()).await.expect("it is read");
            let mut answer = [0; 1024];
            let read = client.read(&mut answer).await.expect("an answer");
            assert!(answer.starts_with(status.as_bytes()), "{}", String::from_utf8_lossy(&answer[..read]));
            serving.abort();
        }
    }

    #[tokio::test]
    async fn who_does_not_read_an_answer_leaves_the_connection_to_others() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shutdown = Shutdown::new();
        let running = shutdown.running();
        let much = Router::new().fallback(|| async { vec![b'x'; 32 << 20] });
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            connection(stream, (HEAD, Duration::from_millis(100)), much, running).await;
        });
        let mut client = TcpStream::connect(address).await.expect("it is listened to");
        client.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.expect("it is read");
        timeout(Duration::from_secs(20), serving).await.expect("it is given up").expect("it ends");
    }

    #[tokio::test]
    async fn a_body_comes_in_time_or_not_at_all() {
        assert_eq!(length(&[0, 10, 0, 10], 20_000, 60_000).await, Ok(4));
        assert!(length(&[0, 5000], 50, 60_000).await.expect_err("a piece is late").contains("too long"));
        assert!(length(&[20; 500], 5000, 100).await.expect_err("the whole is late").contains("too long"));
    }
}
