//! How much gets done when more is asked than can be done.
//!
//! Run with `make bench-overload`. Messages go to the real binary, which runs beside this program: first from as many
//! clients as keep it busy, each with the next message when the last one is answered; then from five times as many, who
//! honour `retry-after`; then from five times as many impatient ones, who hang up after two seconds and send again at
//! once. The program fails when less than four fifths of the first rate get done in either.
//!
//! Only the ratios mean something: this program shares the processor with what it measures.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

#[path = "common/process.rs"]
mod process;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use process::Process;
use reqwest::Client;
use serde_json::json;

/// How many clients keep the process busy.
const CLIENTS: usize = 32;
const TIMES: usize = 5;
/// In how many conversations they talk.
const SESSIONS: usize = 200;
const WARM_UP: Duration = Duration::from_secs(3);
const PHASE: Duration = Duration::from_secs(15);
const IMPATIENCE: Duration = Duration::from_secs(2);
/// How much of the rate at its best must get done under overload.
const GOAL: f64 = 0.8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Comes again when it is told to.
    Patient,
    /// Hangs up and sends again at once, whatever it is told.
    Impatient,
}

#[derive(Default)]
struct Tally {
    done: AtomicUsize,
    refused: AtomicUsize,
    gone: AtomicUsize,
}

async fn talk(process: &Process, client: &Client, tally: &Tally, number: usize, manner: Manner, until: Instant) {
    for turn in 0_usize.. {
        if Instant::now() >= until {
            return;
        }
        let session = (number * 31 + turn * 7) % SESSIONS;
        let url = format!("{}/chat/chat/sessions/crowd-{session}-{}/messages", process.url, turn / 20);
        let asked = client.post(url).json(&json!({ "role": "user", "content": "Hello." })).send().await;
        let Ok(answer) = asked else {
            tally.gone.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        if answer.status().as_u16() == 200 {
            tally.done.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        tally.refused.fetch_add(1, Ordering::Relaxed);
        let wait = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        if manner == Manner::Patient {
            let wait = Duration::from_secs(wait.unwrap_or(1));
            tokio::time::sleep(wait.min(until.saturating_duration_since(Instant::now()))).await;
        }
    }
}

/// What gets done in a second.
async fn rate(process: &Process, name: &str, clients: usize, manner: Manner) -> f64 {
    let timeout = if manner == Manner::Impatient { IMPATIENCE } else { Duration::from_secs(60) };
    let client = dormouse_tests::client_within(timeout);
    let phase = async |length: Duration| {
        let tally = Arc::new(Tally::default());
        let began = Instant::now();
        let until = began + length;
        join_all((0..clients).map(|number| talk(process, &client, &tally, number, manner, until))).await;
        (tally, began.elapsed())
    };
    phase(WARM_UP).await;
    let (tally, took) = phase(PHASE).await;
    let [done, refused, gone] = [&tally.done, &tally.refused, &tally.gone].map(|count| count.load(Ordering::Relaxed));
    let rate = f64::from(u32::try_from(done).unwrap_or(u32::MAX)) / took.as_secs_f64();
    println!("{name:<34}{clients:>8}{done:>8}{rate:>10.1}{refused:>9}{gone:>9}");
    rate
}

#[tokio::main]
async fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    let process = Process::start(&folder.path().join("data"), &[]);
    println!("{:<34}{:>8}{:>8}{:>10}{:>9}{:>9}", "", "clients", "done", "a second", "refused", "hung up");
    let peak = rate(&process, "as many as keep it busy", CLIENTS, Manner::Patient).await;
    let patient = rate(&process, "five times as many", TIMES * CLIENTS, Manner::Patient).await;
    let crowd = rate(&process, "fifty times as many", 10 * TIMES * CLIENTS, Manner::Patient).await;
    let impatient = rate(&process, "five times as many, impatient", TIMES * CLIENTS, Manner::Impatient).await;
    let ratios = [patient, crowd, impatient].map(|rate| rate / peak);
    println!("of the first rate: {:.2}, {:.2}, {:.2}; the goal is {GOAL}", ratios[0], ratios[1], ratios[2]);
    if ratios.iter().all(|ratio| *ratio >= GOAL) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
