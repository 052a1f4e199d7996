//! Time from the start of a process to its first answer on the Runtime API, side by side with what can be compared.
//!
//! Every round starts each program once, in turn, so that a busy machine is busy for all of them. All see the same
//! Runtime API, environment and store, which is reached over loopback without TLS: the handshake with AWS is not part of
//! it. All are started from copies that are made here, since how a linker left a file in the page cache decides how much
//! of it one fault maps: the same program had a tenth fewer from a copy. Certificates that the system trusts are one
//! bundle, as they are on Lambda: a folder of them, as Debian has, makes those slow that read it. `make bench-cold` builds
//! the programs as they are deployed and runs this; it fails when a goal is missed.
//!
//! | variable | meaning |
//! |---|---|
//! | `DORMOUSE_PROGRAMS` | the folder of the programs |
//! | `DORMOUSE_ZIPS` | the folder of their zips |
//! | `DORMOUSE_VARIANTS` | a folder of programs that are `wakeup` built in other ways, to be compared as well; none |
//! | `BUNDLE` | the file of certificates that the system trusts; `/etc/ssl/certs/ca-certificates.crt` |
//! | `ROUNDS` | how often each is started; 100 |
//! | `DORMOUSE_TRACES` | a folder: what runs at each start is written there by valgrind, and nothing is measured (`make starts`) |

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a report for people; a broken benchmark may stop")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use dormouse_api::keys::{CHANCE, KeyToken};
use dormouse_aws::ensure_table;
use dormouse_http::{CallbackSecret, CallbackSigner};
use dormouse_local::{EmbeddedDynamoDb, StoreLocation};
use dormouse_protocol::PROTOCOL_VERSION;
use dormouse_tests::lambda::{RuntimeApi, SECRET, http_event};
use dormouse_tests::open_door;
use serde_json::{Value, json};

/// A program, what it is asked, and the status that it has to answer with.
struct Subject {
    label: String,
    program: PathBuf,
    zip: PathBuf,
    event: Value,
    status: Value,
    /// True if it does what the compared program does, one read, so that the goals are about it.
    has_goals: bool,
}

/// What one start took.
struct Start {
    /// From the start of the process to its first answer.
    wall: Duration,
    /// How much of it the process was on a processor, which says more where others want it as well.
    busy: Duration,
    /// Peak resident memory in KB.
    resident: u64,
    /// Pages of memory that it touched before they were there.
    faults: u64,
}

/// What the others are compared with.
const COMPARED: &str = "hello + SDK defaults";

/// The most that a function may take of what the compared program takes, by the clock and on a processor.
const RATIO: f64 = 0.7;
/// The most memory, in MB.
const PEAK_MB: f64 = 20.0;
/// The largest zip, in MB.
const ZIP_MB: f64 = 6.0;

/// Where Debian has all certificates in one file.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

fn subjects(programs: &Path, zips: &Path, variants: Option<&Path>) -> Vec<Subject> {
    let token = CallbackSigner::new(CallbackSecret::new(SECRET)).token(&"nobody".into(), 1, None, jiff::Timestamp::MAX);
    let query = format!("token={token}");
    let status = http_event("GET", "/invocations/nobody", &query, &Value::Null);
    // That nobody is there is known after one read.
    let cancel = http_event("POST", "/invocations/nobody/cancel", &query, &json!({}));
    let message = json!({ "role": "user", "content": "please get an approval" });
    let message = http_event("POST", "/chat/chat/sessions/s1/messages", "", &message);
    let callback = http_event("POST", "/callback/nobody", &query, &json!({}));
    let mut stream = http_event("GET", "/v1/tasks/nobody/stream", "", &Value::Null);
    stream["headers"]["harn-agents-protocol-version"] = PROTOCOL_VERSION.into();
    stream["headers"]["authorization"] = format!("Bearer {}", KeyToken::generate([7; CHANCE]).reveal()).into();
    let due = json!({ "dormouse_wakeup": { "invocation_id": "nobody", "generation": 1 } });
    let subject = |label: &str, program, zip: &str, event, status| Subject {
        label: label.to_owned(),
        program: programs.join(program),
        zip: zips.join(zip).with_extension("zip"),
        event,
        status,
        has_goals: label.ends_with("one read"),
    };
    let mut subjects = vec![
        subject("hello", "hello", "compare/hello", json!({}), Value::Null),
        subject(COMPARED, "hello-dynamodb", "compare/hello-dynamodb", json!({}), Value::Null),
        subject("inbound, one read", "dormouse-inbound", "inbound", status, json!(404)),
        subject("inbound, falls asleep", "dormouse-inbound", "inbound", message, json!(202)),
        subject("signal, one read", "dormouse-signal", "signal", cancel, json!(404)),
        subject("signal, claims in vain", "dormouse-signal", "signal", callback, json!(404)),
        subject("stream, one read", "dormouse-stream", "stream", stream, json!(401)),
        subject("wakeup, one read", "dormouse-wakeup", "wakeup", due.clone(), Value::Null),
    ];
    for program in variants.into_iter().flat_map(|folder| folder.read_dir().unwrap()).map(|entry| entry.unwrap().path())
    {
        if program.extension().is_none() {
            let label = program.file_name().unwrap().to_string_lossy().into_owned();
            let zip = program.with_extension("zip");
            subjects.push(Subject { label, program, zip, event: due.clone(), status: Value::Null, has_goals: false });
        }
    }
    subjects
}

fn main() -> ExitCode {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (Some(programs), Some(zips)) = (folder("DORMOUSE_PROGRAMS"), folder("DORMOUSE_ZIPS")) else {
        println!("cold start: DORMOUSE_PROGRAMS and DORMOUSE_ZIPS are not set; `make bench-cold` sets them");
        return ExitCode::SUCCESS;
    };
    let bundle = folder("BUNDLE").unwrap_or_else(|| BUNDLE.into());
    if !bundle.is_file() {
        println!("cold start: there is no file {}; install ca-certificates, or name one as BUNDLE", bundle.display());
        return ExitCode::FAILURE;
    }
    let traces = folder("DORMOUSE_TRACES");
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let copies = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut subjects = subjects(&programs, &zips, folder("DORMOUSE_VARIANTS").as_deref());
        if let Some(traces) = traces {
            subjects.retain(|subject| subject.program.exists());
            trace(&subjects, &bundle, &traces).await;
            return ExitCode::SUCCESS;
        }
        for subject in &mut subjects {
            let copy = copies.path().join(subject.program.file_name().unwrap());
            if !copy.exists() {
                std::fs::copy(&subject.program, &copy)
                    .unwrap_or_else(|error| panic!("{}: {error}", subject.program.display()));
            }
            subject.program = copy;
        }
        let mut measured: Vec<Vec<Start>> = subjects.iter().map(|_| Vec::new()).collect();
        // The first round only brings the files into memory.
        for round in 0..=rounds {
            let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
            ensure_table(&store.client(), "dormouse").await.unwrap();
            let endpoint = open_door(&store).await;
            for (subject, starts) in subjects.iter().zip(&mut measured) {
                let start = start(subject, &endpoint, &bundle).await;
                if round > 0 {
                    starts.push(start);
                }
            }
        }
        let missed = report(&subjects, &measured);
        for goal in &missed {
            println!("missed: {goal}");
        }
        if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    })
}

/// Starts the program of `subject` and waits for its first answer.
async fn start(subject: &Subject, endpoint: &str, bundle: &Path) -> Start {
    started(subject, endpoint, bundle, |command| command).await
}

/// The same with the command that `by` makes of that of the function.
async fn started(subject: &Subject, endpoint: &str, bundle: &Path, by: impl FnOnce(Command) -> Command) -> Start {
    let program = &subject.program;
    let api = RuntimeApi::start(Duration::from_secs(30)).await;
    let answer = api.deliver(subject.event.clone());
    let mut command = by(api.function(program, endpoint));
    command.env("SSL_CERT_FILE", bundle);
    let began = Instant::now();
    let mut process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let answer = answer.await;
    let wall = began.elapsed();
    let id = process.id();
    let start = Start { wall, busy: busy(id), resident: resident(id), faults: faults(id) };
    process.kill().unwrap();
    process.wait().unwrap();
    let answer = answer.unwrap_or_else(|error| panic!("{}: {error}", subject.label));
    assert_eq!(answer["statusCode"], subject.status, "{}: {answer}", subject.label);
    start
}

/// Writes into `traces` what runs at a start of each of the `subjects`. The process is killed behind its answer, so that valgrind
/// writes a part of it now and then.
async fn trace(subjects: &[Subject], bundle: &Path, traces: &Path) {
    let store = EmbeddedDynamoDb::start(&StoreLocation::Memory).await.unwrap();
    ensure_table(&store.client(), "dormouse").await.unwrap();
    let endpoint = open_door(&store).await;
    for (number, subject) in subjects.iter().enumerate() {
        let part = format!("--callgrind-out-file={}", traces.join(format!("{number}.%p")).display());
        let traced = |command: Command| {
            let mut valgrind = Command::new("valgrind");
            valgrind.args(["--quiet", "--tool=callgrind", "--demangle=no", "--dump-every-bb=15000", &part]);
            valgrind.arg(command.get_program()).args(command.get_args());
            valgrind.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            valgrind.env("PATH", std::env::var_os("PATH").unwrap_or_default());
            valgrind
        };
        started(subject, &endpoint, bundle, traced).await;
        println!("traced: {}", subject.label);
    }
}

/// How long the process, which has one thread, was on a processor.
fn busy(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// The most memory that the process ever held, in KB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// How often the process touched a page that was not there.
fn faults(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may hold blanks. Behind it are faults as the eighth field, and those that had to read as the tenth.
    let behind = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = behind.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    fields.get(7).copied().unwrap_or_default() + fields.get(9).copied().unwrap_or_default()
}

/// The value that a share of `starts` does not exceed, in milliseconds.
fn quantile(starts: &[Start], share: f64, of: impl Fn(&Start) -> Duration) -> f64 {
    let mut values: Vec<Duration> = starts.iter().map(of).collect();
    values.sort();
    values[((values.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0
}

/// Prints what was measured; the goals that were missed.
fn report(subjects: &[Subject], measured: &[Vec<Start>]) -> Vec<String> {
    let compared = subjects.iter().position(|subject| subject.label == COMPARED).unwrap();
    let medians =
        |starts: &[Start]| (quantile(starts, 0.5, |start| start.wall), quantile(starts, 0.5, |start| start.busy));
    let (base_wall, base_busy) = medians(&measured[compared]);
    let mut missed = Vec::new();
    println!("{} starts each, in turn; milliseconds from start to first answer", measured[0].len());
    let head = ["median", "p90", "ratio", "busy", "ratio", "peak MB", "zip MB", "faults"];
    println!("{:<24}{}", "", head.map(|word| format!("{word:>9}")).concat());
    for (subject, starts) in subjects.iter().zip(measured) {
        let (wall, busy) = medians(starts);
        let p90 = quantile(starts, 0.9, |start| start.wall);
        let wall_ratio = wall / base_wall;
        let busy_ratio = busy / base_busy;
        let peak = starts.iter().map(|start| start.resident).max().unwrap_or_default() as f64 / 1024.0;
        let mut faults: Vec<u64> = starts.iter().map(|start| start.faults).collect();
        faults.sort_unstable();
        let faults = faults[faults.len() / 2];
        let zip = std::fs::metadata(&subject.zip).map_or(f64::NAN, |zip| zip.len() as f64 / 1e6);
        print!("{:<24}{wall:>9.2}{p90:>9.2}{wall_ratio:>9.2}", subject.label);
        println!("{busy:>9.2}{busy_ratio:>9.2}{peak:>9.1}{zip:>9.2}{faults:>9}");
        let goals = [
            ("of the clock", wall_ratio, RATIO),
            ("of a processor", busy_ratio, RATIO),
            ("MB of memory", peak, PEAK_MB),
            ("MB zipped", zip, ZIP_MB),
        ];
        // What could not be measured, without the zip or a `/proc` for example, meets no goal.
        let is_met = |value: f64, most: f64| value > 0.0 && value <= most;
        let over = goals.into_iter().filter(|(_, value, most)| subject.has_goals && !is_met(*value, *most));
        missed.extend(over.map(|(what, value, most)| format!("{}: {value:.2} {what}, at most {most}", subject.label)));
    }
    println!(
        "goals for one read: at most {RATIO} of \"{COMPARED}\" by the clock and on a processor, {PEAK_MB} MB, {ZIP_MB} MB zipped"
    );
    missed
}
