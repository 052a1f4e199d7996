//! What many callers cost, and one another: tokens of issuers, open sockets, and a tenant that asks, or reads, without end beside
//! one that asks now and then.
//!
//! Run with `make bench-extended`. The sockets and the tenants are those of the real binary, which runs beside this program
//! and shares the processor with it. The clients of the noisy tenant stand for other machines, so they are a process of
//! their own with the lowest priority (`nice`): they take what the server and the quiet client leave. The program fails
//! where a goal is missed.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "common/process.rs"]
mod process;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dormouse_api::Keys;
use dormouse_api::identity::{IssuerConfig, Issuers};
use dormouse_ports::{Clock, Fetch, Spawner};
use dormouse_system::{SystemClock, TokioSpawner};
use dormouse_testkit::{MemoryStore, ScriptedAnswer, ScriptedFetch};
use futures::future::join_all;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use process::{Process, binary};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A key that was made for this program and signs nothing else.
const ED: &str = "302e020100300506032b6570042204204e06514791ac26f55c788d5ac8d057af571a38f92b0d463dc6098aef295b2679";
const ED_X: &str = "sSZZqe365MG0d9vXxI54ntvQNQa3Yc2GwCgNxRnN7_o";
const ISSUER: &str = "https://id.example.com";
const TOKENS: u32 = 2_000;
/// How long a request may be authorised by a token.
const TOKEN_GOAL: Duration = Duration::from_micros(200);

/// How many sockets are open, of how many actors, and how much memory the process may have then, in KiB.
const SOCKETS: usize = 1_000;
const ACTORS: usize = 10;
const MEMORY_GOAL: u64 = 100 * 1024;

/// Requests a minute of a tenant.
const RATE: &str = "600";
/// How often the quiet tenant asks, and how seldom.
const ASKED: usize = 120;
const EVERY: Duration = Duration::from_millis(120);
/// How many clients the other one has.
const NOISY: usize = 16;
/// By how much the quiet one's p99 may grow.
const NOISE_GOAL: f64 = 2.0;
/// What the other one has to read, and how many streams of it are open.
const SESSIONS: usize = 100;
const MESSAGES: usize = 400;
const STREAMS: usize = 50;
/// What its clients read in turn.
const READ: [&str; 3] = ["/v1/sessions?limit=200", "/v1/events?limit=200", "/v1/tasks?limit=200"];
const VERSION: (&str, &str) = ("harn-agents-protocol-version", "agents-protocol-2026-04-25");

/// The resident memory of `process`, in KiB.
fn memory(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A key of `actor` of `tenant`.
fn key(data: &Path, tenant: &str, actor: &str) -> String {
    let ask = ["keys", "create", "--all-scopes", "--never-expires", "--json", "--tenant", tenant, "--actor", actor];
    let made = Command::new(binary()).args(ask).arg("--data").arg(data).output().expect("it runs");
    let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("no key: {made:?}"));
    made["key"].as_str().expect("a key").to_owned()
}

/// Mean time in which a request is authorised by a token, once the keys of the issuer are known; and the requests to it.
async fn tokens() -> (Duration, usize) {
    let fetch = ScriptedFetch::default();
    fetch.answer(ScriptedAnswer::json(
        200,
        &json!({"keys": [{"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": ED_X}]}),
    ));
    let port: Arc<dyn Fetch> = Arc::new(fetch.clone());
    let config = json!([{ "name": "corp", "issuer": ISSUER, "audiences": ["dormouse"], "tenant_claim": "org",
        "jwks_uri": "https://id.example.com/keys" }]);
    let spawner: Arc<dyn Spawner> = Arc::new(TokioSpawner);
    let issuers = Issuers::new(IssuerConfig::read(&config.to_string()).expect("a configuration"), &port, &spawner);
    let keys = Keys::new(Arc::new(MemoryStore::default())).trusting(issuers);
    let clock = SystemClock::default();
    let until = clock.now().as_second() + 3_000;
    let claims =
        json!({ "iss": ISSUER, "aud": "dormouse", "sub": "ada", "org": "acme", "exp": until, "scope": "tasks:read" });
    let key = EncodingKey::from_ed_der(&hex::decode(ED).expect("digits"));
    let header = Header { kid: Some("ed".to_owned()), ..Header::new(Algorithm::EdDSA) };
    let header = format!("Bearer {}", jsonwebtoken::encode(&header, &claims, &key).expect("a token"));
    let once = async || assert!(keys.holder(Some(&header), clock.now()).await.is_ok_and(|actor| actor.is_some()));
    once().await;
    let began = Instant::now();
    for _ in 0..TOKENS {
        once().await;
    }
    (began.elapsed() / TOKENS, fetch.requests().len() - 1)
}

/// A socket that is open.
async fn socket(process: &Process, key: &str) -> TcpStream {
    let host = process.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).await.expect("it listens");
    let request = format!(
        "GET /v1/events/stream HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
         harn-agents-protocol-version: agents-protocol-2026-04-25\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 101", "a socket opens");
    stream
}

/// Resident memory before the sockets are open and with all of them, in KiB.
async fn sockets() -> (u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &[("DORMOUSE_TENANT_RATE", RATE)]);
    let keys: Vec<String> =
        (0..ACTORS).map(|n| key(&data, if n % 2 == 0 { "even" } else { "odd" }, &format!("a{n}"))).collect();
    let before = memory(&process);
    let mut open = Vec::new();
    for number in 0..SOCKETS {
        open.push(socket(&process, &keys[number % ACTORS]).await);
    }
    // Until each has found that nothing happens.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let with = memory(&process);
    drop(open);
    (before, with)
}

/// The longest of the times in which 99 of a hundred requests of the quiet tenant are answered.
async fn quiet(url: &str, client: &Client, key: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..ASKED {
        let began = Instant::now();
        let asked = asks(url, client, key).await;
        times.push(began.elapsed());
        assert_eq!(asked, 200, "it is within its limit");
        tokio::time::sleep(EVERY).await;
    }
    times.sort_unstable();
    times[ASKED * 99 / 100]
}

async fn asks(url: &str, client: &Client, key: &str) -> u16 {
    reads(url, client, key, "/v1/sessions").await
}

/// Asks for `path` and takes all of the answer.
async fn reads(url: &str, client: &Client, key: &str, path: &str) -> u16 {
    let request = client.get(format!("{url}{path}")).bearer_auth(key).header(VERSION.0, VERSION.1);
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    response.bytes().await.expect("all of it");
    status
}

/// Makes something by `body` at `path`; its id.
async fn makes(process: &Process, client: &Client, key: &str, path: &str, body: Value) -> String {
    let request = client.post(format!("{}{path}", process.url)).bearer_auth(key).header(VERSION.0, VERSION.1);
    let made = request.json(&body).send().await.expect("an answer");
    assert!(made.status().is_success(), "{path}: {}", made.status());
    let made: Value = made.json().await.expect("JSON");
    made["id"].as_str().expect("an id").to_owned()
}

/// Gives the tenant of `key` sessions and messages to read.
async fn fill(process: &Process, client: &Client, key: &str) {
    let workspace = makes(process, client, key, "/v1/workspaces", json!({ "name": "w", "root": "/" })).await;
    let mut session = String::new();
    for _ in 0..SESSIONS {
        session = makes(process, client, key, "/v1/sessions", json!({ "workspace_id": workspace })).await;
    }
    let parts = json!([{ "type": "text", "text": "word ".repeat(200), "visibility": "public" }]);
    let message = json!({ "message": { "role": "user", "parts": parts } });
    for _ in 0..MESSAGES {
        makes(process, client, key, &format!("/v1/sessions/{session}/messages"), message.clone()).await;
    }
}

/// Opens a stream of all events again and again, and reads what it yields at once.
async fn streams(url: &str, client: &Client, key: &str) {
    loop {
        let request = client.get(format!("{url}/v1/events/stream")).bearer_auth(key);
        let mut stream = request.header(VERSION.0, VERSION.1).send().await.expect("an answer");
        while let Ok(Ok(Some(_))) = tokio::time::timeout(Duration::from_secs(1), stream.chunk()).await {}
    }
}

/// How often the noisy tenant was answered, and refused.
#[derive(Default)]
struct Noise {
    done: AtomicUsize,
    refused: AtomicUsize,
}

impl Noise {
    /// Each client asks for what is on its paths in turn, as soon as it is answered, whatever it is told, as often as a
    /// client over a network does.
    async fn make(&self, url: &str, client: &Client, key: &str, paths: &[&str]) {
        let clients = (0..NOISY).map(async |number| {
            for path in paths.iter().cycle().skip(number) {
                let status = reads(url, client, key, path).await;
                assert!(status == 200 || status == 429, "{path}: {status}");
                if status == 200 { &self.done } else { &self.refused }.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        join_all(clients).await;
    }
}

/// The clients of the noisy tenant, until the standard input ends.
async fn be_noisy(kind: &str, url: &str, key: &str) {
    let client = dormouse_tests::client();
    let noise = Noise::default();
    let over = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let made = async {
        if kind == READERS {
            let open = join_all((0..STREAMS).map(async |_| streams(url, &client, key).await));
            futures::join!(noise.make(url, &client, key, &READ), open);
        } else {
            noise.make(url, &client, key, &["/v1/sessions"]).await;
        }
    };
    tokio::select! {
        () = made => unreachable!("they ask without end"),
        read = over => drop(read),
    }
    println!("{} {}", noise.done.into_inner(), noise.refused.into_inner());
}

/// What the clients of the noisy tenant do.
const ASKERS: &str = "askers";
const READERS: &str = "readers";

/// This program once more, as the clients of the noisy tenant.
fn noise(kind: &str, process: &Process, key: &str) -> Child {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe().expect("a program")).args([NOISE, kind, &process.url, key]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts")
}

/// The first argument of this program as the clients of the noisy tenant.
const NOISE: &str = "noise";

/// Ends the clients of the noisy tenant; how often they were answered, and refused.
fn counted(noise: Child) -> [usize; 2] {
    let output = noise.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<usize> = told.split_whitespace().filter_map(|count| count.parse().ok()).collect();
    counts.try_into().unwrap_or_else(|_| panic!("the noisy clients failed: {told}"))
}

/// The p99 of the quiet tenant alone and beside one that reads without end, and how often that one was answered.
async fn beside_readers() -> (Duration, Duration, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &[]);
    let (mouse, crowd) = (key(&data, "quiet", "mouse"), key(&data, "noisy", "crowd"));
    let client = dormouse_tests::client();
    fill(&process, &client, &crowd).await;
    asks(&process.url, &client, &mouse).await;
    let alone = quiet(&process.url, &client, &mouse).await;
    let readers = noise(READERS, &process, &crowd);
    let beside = quiet(&process.url, &client, &mouse).await;
    let [done, _] = counted(readers);
    (alone, beside, done)
}

/// The p99 of the quiet tenant alone and beside the noisy one, and of that one how much was done and how much refused.
async fn neighbours() -> (Duration, Duration, [usize; 2]) {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let process = Process::start(&data, &[("DORMOUSE_TENANT_RATE", RATE)]);
    let (mouse, crowd) = (key(&data, "quiet", "mouse"), key(&data, "noisy", "crowd"));
    let client = dormouse_tests::client();
    asks(&process.url, &client, &mouse).await;
    let alone = quiet(&process.url, &client, &mouse).await;
    let askers = noise(ASKERS, &process, &crowd);
    // The window of the first measurement is over.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let beside = quiet(&process.url, &client, &mouse).await;
    (alone, beside, counted(askers))
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, kind, url, key] = &arguments[..]
        && first == NOISE
    {
        be_noisy(kind, url, key).await;
        // The read of the standard input is over, and nothing else is worth waiting for.
        std::process::exit(0);
    }
    let (time, requests) = tokens().await;
    println!(
        "a token, once its issuer's keys are known   {time:>10.1?}, requests {requests}; the goal is {TOKEN_GOAL:?}, and 0"
    );
    let (before, with) = sockets().await;
    println!(
        "{SOCKETS} open sockets   {} MiB resident, {} before; the goal is {}",
        with / 1024,
        before / 1024,
        MEMORY_GOAL / 1024
    );
    let (alone, beside, [done, refused]) = neighbours().await;
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "a quiet tenant's p99   {alone:.1?} alone, {beside:.1?} beside one of {NOISY} clients ({done} done, {refused} refused)"
    );
    println!("of that alone   {ratio:.2}; the goal is {NOISE_GOAL}");
    let (alone, beside, done) = beside_readers().await;
    let read = beside.as_secs_f64() / alone.as_secs_f64();
    println!(
        "a quiet tenant's p99   {alone:.1?} alone, {beside:.1?} beside {NOISY} clients that read ({done} answers) and {STREAMS} streams"
    );
    println!("of that alone   {read:.2}; the goal is {NOISE_GOAL}");
    let ratio = ratio.max(read);
    let met = time <= TOKEN_GOAL && requests == 0 && with <= MEMORY_GOAL && ratio <= NOISE_GOAL;
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
