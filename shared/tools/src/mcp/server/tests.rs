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
        Ok(response(status, if status == 200 { body } else { String::new() }))
    }
}

fn response(status: u16, body: String) -> FetchResponse {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    FetchResponse { status, headers, body: stream::iter([Ok(body.into_bytes())]).boxed() }
}

/// Speaks the newest version alone, and answers nothing before it is awake.
struct Asleep(Instant);

#[async_trait]
impl Fetch for Asleep {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        tokio::time::sleep_until(self.0).await;
        let list = json!([{ "name": "a", "inputSchema": {} }]);
        let result = match sent["method"].as_str() {
            Some("server/discover") => json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" }),
            Some("tools/list") => {
                json!({ "resultType": "complete", "tools": list, "ttlMs": 0, "cacheScope": "private" })
            }
            Some(_) | None => Value::Null,
        };
        let unknown = json!({ "code": -32601, "message": "there is no such method" });
        let answer = match result.is_null() {
            false => json!({ "jsonrpc": "2.0", "id": sent["id"], "result": result }),
            true => json!({ "jsonrpc": "2.0", "id": sent["id"], "error": unknown }),
        };
        Ok(response(200, answer.to_string()))
    }
}

/// Lists this many tools of one name.
struct Flood(usize);

#[async_trait]
impl Fetch for Flood {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, FetchError> {
        let sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if sent["method"] != "tools/list" {
            return Slow("", Duration::ZERO).fetch(request).await;
        }
        let tools = vec![json!({ "name": "a", "inputSchema": {} }); self.0];
        let answer = json!({ "jsonrpc": "2.0", "id": sent["id"], "result": { "tools": tools } });
        Ok(response(200, answer.to_string()))
    }
}

fn server(fetch: impl Fetch + 'static) -> McpServer {
    server_within(fetch, Duration::from_secs(30))
}

fn server_within(fetch: impl Fetch + 'static, connect_timeout: Duration) -> McpServer {
    let config = McpConfig::http("docs", Template::parse("http://h/mcp").expect("a template"));
    let config = McpConfig { connect_timeout, ..config };
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
    let silent = Slow("server/discover", Duration::from_secs(3600));
    let hurried = server_within(silent, Duration::from_secs(6));
    assert_eq!(hurried.list().await.expect("a list").len(), 1, "half of the time is for the older way");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_the_newest_version_alone_may_wake_up_late() {
    for seconds in [1, 12] {
        let server = server(Asleep(Instant::now() + Duration::from_secs(seconds)));
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

#[tokio::test]
async fn of_many_tools_that_are_not_offered_the_first_are_told_and_all_are_known() {
    let told = Arc::new(std::sync::Mutex::new(0));
    let counted = told.clone();
    let listener = NoticeListener::new(move |_, notice| {
        *counted.lock().expect("a lock") += usize::from(matches!(notice, McpNotice::ToolLeftOut { .. }));
    });
    let config = McpConfig::http("docs", Template::parse("http://h/mcp").expect("a template"));
    let server = McpServer::new(config, Arc::new(Flood(600)), Values::none(), listener);
    assert_eq!(server.list().await.expect("a list").len(), 1);
    assert_eq!((server.left_out().await.len(), *told.lock().expect("a lock")), (599, MOST_TOLD));
}
