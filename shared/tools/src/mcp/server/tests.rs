use dormouse_ports::{FetchError, FetchRequest, FetchResponse, Template};
use futures::{StreamExt, stream};
use serde_json::json;

use super::*;

/// Answers nothing.
struct Silence;

#[async_trait]
impl Fetch for Silence {
    async fn fetch(&self, _: FetchRequest) -> Result<FetchResponse, FetchError> {
        std::future::pending().await
    }
}

/// Lists one tool, and takes its time to answer this method.
struct Slow(&'static str, Duration);

#[async_trait]
impl Fetch for Slow {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if sent["method"] == self.0 {
            tokio::time::sleep(self.1).await;
        }
        let result = match sent["method"].as_str() {
            Some("initialize") => {
                let server = json!({ "name": "slow", "version": "1" });
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": server })
            }
            Some("tools/list") => json!({ "tools": [{ "name": "a", "inputSchema": {} }] }),
            Some(_) | None => Value::Null,
        };
        let status = match (&result, sent.get("id")) {
            (Value::Null, Some(_)) => 400,
            (Value::Null, None) if sent.is_null() => 405,
            (Value::Null, None) => 202,
            _ => 200,
        };
        let body = json!({ "jsonrpc": "2.0", "id": sent["id"], "result": result }).to_string();
        let body = if status == 200 { body } else { String::new() };
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Ok(FetchResponse { status, headers, body: stream::iter([Ok(body.into_bytes())]).boxed() })
    }
}

fn server(fetch: impl Fetch + 'static) -> McpServer {
    let config = McpConfig::http("docs", Template::parse("http://h/mcp").expect("a template"));
    McpServer::new(config, Arc::new(fetch), Values::none(), NoticeListener::default())
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_waited_for_in_vain_is_late_though_nobody_waits_any_more() {
    let server = server(Silence);
    timeout(Duration::from_secs(10), server.list_briefly()).await.expect_err("it says nothing");
    let began = Instant::now();
    let error = server.list_briefly().await.expect_err("it rests");
    assert_eq!((error.kind, began.elapsed()), (ToolErrorKind::TimedOut, Duration::ZERO), "{error}");
    tokio::time::sleep(REST).await;
    timeout(Duration::from_secs(1), server.list_briefly()).await.expect_err("it says nothing");
    let began = Instant::now();
    server.list_briefly().await.expect_err("it is asked");
    assert!(!began.elapsed().is_zero(), "who gives up at once knows nothing of it");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_the_newest_beginning_late_or_never_is_spoken_to_in_the_older_way() {
    for seconds in [15, 3600] {
        let server = server(Slow("server/discover", Duration::from_secs(seconds)));
        assert_eq!(server.list().await.expect("a list").len(), 1, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_needs_a_list_has_the_time_for_it_though_others_gave_up() {
    let slow = server(Slow("tools/list", Duration::from_secs(12)));
    let (looked, listed) = tokio::join!(timeout(Duration::from_secs(10), slow.list_briefly()), slow.list());
    looked.expect_err("it gives up");
    assert_eq!(listed.expect("a list").len(), 1);
    assert_eq!(slow.list_briefly().await.expect("what is known now").len(), 1);
    let silent = server(Silence);
    timeout(Duration::from_secs(10), silent.list_briefly()).await.expect_err("it says nothing");
    let began = Instant::now();
    silent.list().await.expect_err("it says nothing");
    assert!(began.elapsed() >= silent.config.connect_timeout, "it is asked");
    let began = Instant::now();
    let error = silent.list().await.expect_err("it rests");
    assert_eq!((error.kind, began.elapsed()), (ToolErrorKind::TimedOut, Duration::ZERO), "{error}");
}
