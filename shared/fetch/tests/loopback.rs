//! HTTP out, against servers on the loopback interface.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_fetch::NetworkFetch;
use dormouse_ports::{Fetch, FetchError, FetchLimits, FetchRequest, FetchResponse, Method};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// Reads a request up to the end of its head, or of its body where it is `body` long.
async fn request(connection: &mut TcpStream, body: usize) -> String {
    let mut read = Vec::new();
    loop {
        let head = read.windows(4).position(|four: &[u8]| four == b"\r\n\r\n");
        if head.is_some_and(|head| read.len() >= head + 4 + body) {
            return String::from_utf8(read).expect("text");
        }
        let mut buffer = [0; 1024];
        let count = connection.read(&mut buffer).await.expect("a request");
        assert!(count > 0, "the connection ended in the request");
        read.extend_from_slice(&buffer[..count]);
    }
}

/// Serves one connection with `answer` and keeps it open until the other side closes it; tells the request, and then
/// that it was closed.
async fn serve(answer: &'static str, body: usize) -> (SocketAddr, oneshot::Receiver<String>, oneshot::Receiver<()>) {
    let (listener, address) = listener().await;
    let (tell, told) = oneshot::channel();
    let (close, closed) = oneshot::channel();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.expect("a connection");
        let request = request(&mut connection, body).await;
        tell.send(request).expect("somebody listens");
        connection.write_all(answer.as_bytes()).await.expect("an answer");
        let mut rest = [0; 64];
        // Either way it is over.
        while connection.read(&mut rest).await.is_ok_and(|count| count > 0) {}
        let _ = close.send(());
    });
    (address, told, closed)
}

fn get(address: SocketAddr) -> FetchRequest {
    FetchRequest::new(Method::Get, format!("http://{address}/path?key=hush"))
}

fn within(mut request: FetchRequest, limits: FetchLimits) -> FetchRequest {
    request.limits = limits;
    request
}

async fn text(answer: FetchResponse) -> Result<String, FetchError> {
    let pieces: Vec<_> = answer.body.collect().await;
    let bytes = pieces.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    Ok(String::from_utf8(bytes).expect("text"))
}

#[tokio::test]
async fn a_request_goes_out_as_it_is_and_the_answer_comes_back() {
    let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\ncontent-length: 4\r\n\r\nslow";
    let (address, told, _) = serve(answer, 2).await;
    let url = format!("http://{address}/v1/ask?a=%20b");
    let outbound = FetchRequest::new(Method::Post, url).header("authorization", "Bearer k").json(b"{}".to_vec());
    let answer = NetworkFetch::past_proxies().fetch(outbound).await.expect("an answer");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("7")));
    assert_eq!(text(answer).await, Ok("slow".to_owned()));
    let request = told.await.expect("a request");
    assert!(request.starts_with("POST /v1/ask?a=%20b HTTP/1.1\r\n") && request.ends_with("\r\n\r\n{}"), "{request}");
    assert!(request.contains("authorization: Bearer k\r\n"), "{request}");
}

#[tokio::test]
async fn a_redirect_is_an_answer() {
    let answer = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
    let (address, _told, _) = serve(answer, 0).await;
    let answer = NetworkFetch::past_proxies().fetch(get(address)).await.expect("an answer");
    assert_eq!(answer.status, 302);
}

#[tokio::test]
async fn what_is_dropped_is_closed() {
    let (address, told, closed) = serve("", 0).await;
    let fetch = NetworkFetch::past_proxies();
    tokio::select! {
        answer = fetch.fetch(get(address)) => panic!("nobody answers: {answer:?}"),
        request = told => drop(request.expect("a request")),
    }
    closed.await.expect("the connection is closed with the future");

    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nbegun\r\n";
    let (address, _told, closed) = serve(begun, 0).await;
    let mut answer = fetch.fetch(get(address)).await.expect("an answer");
    assert_eq!(answer.body.next().await, Some(Ok(b"begun".to_vec())), "a piece comes before the end");
    drop(answer);
    closed.await.expect("the connection is closed with the body");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_end() {
    let (listener, address) = listener().await;
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.expect("a connection");
        request(&mut connection, 0).await;
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.expect("half an answer");
    });
    let answer = NetworkFetch::past_proxies().fetch(get(address)).await.expect("a head");
    let broken = text(answer).await.expect_err("it broke off");
    assert!(matches!(broken, FetchError::Closed(_)), "{broken:?}");
}

#[tokio::test]
async fn a_connection_is_used_again_at_once_and_not_when_its_server_may_have_had_enough_of_it() {
    let (listener, address) = listener().await;
    let served = Arc::new(AtomicUsize::new(0));
    let connections = served.clone();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                loop {
                    request(&mut connection, 0).await;
                    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("an answer");
                }
            });
        }
    });
    let fetch = NetworkFetch::past_proxies();
    // Whether it takes another connection behind a rest.
    let connects = async |rest: u64| {
        let before = served.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(rest)).await;
        let answer = fetch.fetch(get(address)).await.expect("an answer");
        text(answer).await.expect("a body");
        served.load(Ordering::SeqCst) > before
    };
    assert!(connects(0).await, "there was none");
    let mut again = 0;
    // A busy machine may rest for that long of itself.
    while connects(1).await {
        again += 1;
        assert!(again < 20, "none is used again");
    }
    assert!(connects(1_900).await, "some servers close what has been idle for 2 s");
}

#[tokio::test]
async fn limits_hold_for_silence_for_all_of_it_and_for_size() {
    let soon = Duration::from_millis(200);
    let fetch = NetworkFetch::past_proxies();
    for (limits, passed) in [
        (FetchLimits { idle: soon, ..FetchLimits::default() }, soon),
        (FetchLimits { total: soon * 2, ..FetchLimits::default() }, soon * 2),
    ] {
        let (address, told, closed) = serve("", 0).await;
        let late = fetch.fetch(within(get(address), limits)).await.expect_err("nobody answers");
        assert_eq!(late, FetchError::Timeout(passed));
        // On a busy machine the time may be over before the request is sent, or before there is a connection: then this
        // one, which says nothing, is served instead.
        drop(TcpStream::connect(address).await);
        if told.await.is_ok() {
            closed.await.expect("the connection is closed");
        }

        let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
        let (address, _told, _closed) = serve(begun, 0).await;
        let answered = async { text(fetch.fetch(within(get(address), limits)).await?).await };
        assert_eq!(answered.await, Err(FetchError::Timeout(passed)), "the end of it never comes");
    }
    let (address, _told, closed) = serve("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n12345", 0).await;
    let limits = FetchLimits { most_bytes: 4, ..FetchLimits::default() };
    let answer = fetch.fetch(within(get(address), limits)).await.expect("a head");
    assert_eq!(text(answer).await, Err(FetchError::TooLarge(4)));
    closed.await.expect("the connection is closed");
}

#[tokio::test(start_paused = true)]
async fn who_gives_no_connection_in_time_was_sent_nothing() {
    let (_silent, address) = listener().await;
    let request = FetchRequest::new(Method::Get, format!("https://{address}/"));
    let error = NetworkFetch::past_proxies().fetch(request).await.expect_err("nobody shakes hands");
    assert!(matches!(error, FetchError::Connect(_)) && error.is_unsent(), "{error:?}");
}

#[tokio::test]
async fn every_failure_has_its_name_and_none_tells_the_query() {
    let fetch = NetworkFetch::past_proxies();
    // Nobody listens at it, and nobody else is given it as long as it is held.
    let held = TcpSocket::new_v4().expect("a socket");
    held.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let nobody = held.local_addr().expect("an address");
    let (plain, no_tls) = listener().await;
    tokio::spawn(async move {
        let (mut connection, _) = plain.accept().await.expect("a connection");
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("plain text");
    });
    type Is = fn(&FetchError) -> bool;
    let cases: [(String, Is); 6] = [
        (format!("http://{nobody}/?key=hush"), |error| matches!(error, FetchError::Connect(_))),
        (format!("http://{}.invalid/?key=hush", "a".repeat(64)), |error| matches!(error, FetchError::Dns(_))),
        (format!("https://{no_tls}/?key=hush"), |error| matches!(error, FetchError::Tls(_))),
        ("ftp://localhost/?key=hush".to_owned(), |error| matches!(error, FetchError::Denied(_))),
        ("localhost".to_owned(), |error| matches!(error, FetchError::Denied(_))),
        ("http://".to_owned(), |error| matches!(error, FetchError::Denied(_))),
    ];
    for (url, is_expected) in cases {
        let error = fetch.fetch(FetchRequest::new(Method::Get, url.clone())).await.expect_err("no answer");
        assert!(is_expected(&error), "{url}: {error:?}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
    let alone = FetchRequest::new(Method::Get, format!("http://{nobody}/?key=hush"));
    let error = fetch.fetch(alone).await.expect_err("no answer");
    assert!(error.to_string().contains(&nobody.to_string()), "it says where nobody listens: {error}");
    let bad = FetchRequest::new(Method::Get, "http://localhost/").header("x-key", "a\nhush");
    let error = fetch.fetch(bad).await.expect_err("a header with two lines");
    assert!(
        matches!(&error, FetchError::Denied(words) if words.contains("x-key") && !words.contains("hush")),
        "{error}"
    );
}

/// Where the test runs as its own child, to have another environment.
const CHILD: &str = "DORMOUSE_TEST_ASKS_THROUGH";

#[tokio::test]
async fn a_proxy_of_the_environment_is_used_but_where_it_must_not() {
    if let Ok(url) = std::env::var(CHILD) {
        let answer = NetworkFetch::new().fetch(FetchRequest::new(Method::Get, url)).await;
        if std::env::var("HTTP_PROXY").as_deref() == Ok("::::") {
            let error = answer.expect_err("it is not asked past the proxy");
            assert!(error.to_string().contains("the proxy in `HTTP_PROXY` is none that can be used"), "{error}");
            return;
        }
        let answer = answer.expect("an answer");
        assert_eq!(text(answer).await.as_deref(), Ok("answered"));
        return;
    }
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nanswered";
    let name = "a_proxy_of_the_environment_is_used_but_where_it_must_not";
    for (through_proxy, except, asked) in [
        (true, "127.0.0.1", "GET http://model.invalid/ask "),
        (false, "127.0.0.1", "GET /ask "),
        (false, "localhost, *", "GET /ask "),
    ] {
        let (address, told, _closed) = serve(answer, 0).await;
        let url = if through_proxy { "http://model.invalid/ask".to_owned() } else { format!("http://{address}/ask") };
        let proxy = if through_proxy { format!("http://{address}") } else { "http://127.0.0.1:9".to_owned() };
        let child = tokio::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name])
            .env_clear()
            .envs([(CHILD, url), ("HTTP_PROXY", proxy), ("NO_PROXY", except.to_owned())])
            .output();
        let output = child.await.expect("the child");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(told.await.expect("a request").starts_with(asked));
    }
    let child = tokio::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name])
        .env_clear()
        .envs([(CHILD, "http://127.0.0.1:9/ask"), ("HTTP_PROXY", "::::")])
        .output();
    let output = child.await.expect("the child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
