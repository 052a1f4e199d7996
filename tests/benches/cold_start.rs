//! Time from the start of a process to its first answer on the Runtime API, side by side with what can be compared.
//!
//! Every round starts each program once, in turn, so that a busy machine is busy for all of them. All see the same
//! Runtime API, environment and store, which is reached over loopback without TLS: the handshake with AWS is not part of
//! it. `make bench-cold` builds the programs as they are deployed and runs this.
//!
//! | variable | meaning |
//! |---|---|
//! | `DORMOUSE_PROGRAMS` | the folder of the programs |
//! | `DORMOUSE_ZIPS` | the folder of their zips |
//! | `ROUNDS` | how often each is started; 100 |

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a report for people; a broken benchmark may stop")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dormouse_aws::{CallbackSecret, CallbackSigner, ensure_table};
use dormouse_local::{EmbeddedDynamoDb, Place};
use dormouse_tests::lambda::{RuntimeApi, SECRET, http_event};
use serde_json::{Value, json};

/// A program, what it is asked, and whether that means one request to the store.
struct Subject {
    label: &'static str,
    program: &'static str,
    zip: &'static str,
    event: Value,
}

#[derive(Default)]
struct Measured {
    times: Vec<Duration>,
    /// Peak resident memory in KB.
    resident: Vec<u64>,
}

/// What the others are compared with.
const COMPARED: &str = "hello + SDK defaults";

fn subjects() -> Vec<Subject> {
    let token = CallbackSigner::new(CallbackSecret::new(SECRET)).token(&"nobody".into(), 1);
    let query = format!("token={token}");
    let status = http_event("GET", "/invocations/nobody", &query, &Value::Null);
    let turn = json!({ "state": { "employee": "Ada", "amount_cents": 12_000, "purpose": "a keyboard" } });
    let turn = http_event("POST", "/graphs/expense-approval/turns", "", &turn);
    let callback = http_event("POST", "/callback/nobody", &query, &json!({}));
    let due = json!({ "dormouse_wakeup": { "invocation_id": "nobody", "generation": 1 } });
    let subject = |label, program, zip, event| Subject { label, program, zip, event };
    vec![
        subject("hello", "hello", "compare/hello", json!({})),
        subject(COMPARED, "hello-dynamodb", "compare/hello-dynamodb", json!({})),
        subject("inbound, one read", "dormouse-inbound", "inbound", status),
        subject("inbound, turn that suspends", "dormouse-inbound", "inbound", turn),
        subject("signal, one read", "dormouse-signal", "signal", callback),
        subject("wakeup, one read", "dormouse-wakeup", "wakeup", due),
    ]
}

fn main() {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(programs), Some(zips)) = (folder("DORMOUSE_PROGRAMS"), folder("DORMOUSE_ZIPS")) else {
        println!("cold start: DORMOUSE_PROGRAMS and DORMOUSE_ZIPS are not set; `make bench-cold` sets them");
        return;
    };
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = EmbeddedDynamoDb::start(&Place::Memory).await.unwrap();
        ensure_table(&store.client(), "dormouse").await.unwrap();
        let subjects = subjects();
        let mut measured: Vec<Measured> = subjects.iter().map(|_| Measured::default()).collect();
        for round in 0..=rounds {
            for (subject, measured) in subjects.iter().zip(&mut measured) {
                let (time, resident) = start(&programs.join(subject.program), subject, &store.endpoint()).await;
                // The first round only brings the files into memory.
                if round > 0 {
                    measured.times.push(time);
                    measured.resident.push(resident);
                }
            }
        }
        report(&subjects, &mut measured, &zips, rounds);
    });
}

/// Starts `program` and waits for its first answer.
async fn start(program: &Path, subject: &Subject, endpoint: &str) -> (Duration, u64) {
    let api = RuntimeApi::start(Duration::from_secs(30)).await;
    let answer = api.deliver(subject.event.clone());
    let mut command = api.function(program, endpoint);
    let began = Instant::now();
    let mut process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let answer = answer.await;
    let took = began.elapsed();
    let resident = resident(process.id());
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(answer.is_ok(), "{}: {answer:?}", subject.label);
    let status = answer.unwrap()["statusCode"].as_u64().unwrap_or(200);
    assert!(status < 500, "{}: {status}", subject.label);
    (took, resident)
}

/// The most memory that the process ever held, in KB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

fn report(subjects: &[Subject], measured: &mut [Measured], zips: &Path, rounds: usize) {
    for one in measured.iter_mut() {
        one.times.sort();
        one.resident.sort_unstable();
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let compared = subjects.iter().position(|subject| subject.label == COMPARED).unwrap();
    let base = milliseconds(measured[compared].times[rounds / 2]);
    println!("{rounds} starts each, in turn; milliseconds from start to first answer");
    println!("{:<28} {:>7} {:>7} {:>7} {:>9} {:>9}", "", "median", "p90", "ratio", "peak MB", "zip MB");
    for (subject, one) in subjects.iter().zip(measured.iter()) {
        let median = milliseconds(one.times[rounds / 2]);
        let p90 = milliseconds(one.times[rounds * 9 / 10]);
        let peak = one.resident[rounds / 2] as f64 / 1024.0;
        let zip = std::fs::metadata(zips.join(format!("{}.zip", subject.zip))).map_or(0, |zip| zip.len());
        let (ratio, zip) = (median / base, zip as f64 / 1e6);
        println!("{:<28} {median:>7.2} {p90:>7.2} {ratio:>7.2} {peak:>9.1} {zip:>9.2}", subject.label);
    }
    println!("goals: ratio at most 0.50, at most 20 MB resident, at most 6 MB zipped");
}
