//! Whatever takes long is slept through: an action that answers later, and a model that works while nobody waits.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_local::ScriptedTurn;
use dormouse_protocol::resource::TaskStatus;
use hmac::{Hmac, Mac};
use serde_json::json;
use sha2::Sha256;

use super::terminal::Terminal;
use super::world::{Assistant, Wire, eventually};
use super::{DONE, last_words};
use crate::process::{Dormouse, HOOK};

const UNASKED: &str = "default_agent: assistant\nmodels: {default: workspace/main}\n";

impl Assistant {
    /// Books by an action, which is the shell script `lines`, in place of the office.
    fn books_by(&self, lines: &str) {
        self.write(".openharness/settings.yaml", UNASKED);
        self.write(".openharness/tools/settings.yaml", "{}\n");
        let folder = PathBuf::from(self.folder()).join(".openharness/actions/book");
        fs::create_dir_all(&folder).expect("a folder");
        let script = folder.join("run.sh");
        fs::write(&script, format!("#!/bin/sh\ncat > /dev/null\n{lines}\n")).expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it can be run");
        let action = "name: book\ndescription: Books a room.\ninput_schema: {type: object, properties: {room: {type: string}}, \
                      required: [room]}\nentry: {command: ./run.sh}\n";
        fs::write(folder.join("ACTION.yaml"), action).expect("a file");
        let checked = super::world::command(&["workspace", "check", &self.folder()]);
        assert!(checked.status.success(), "{checked:?}");
    }

    fn noted(&self, file: &str) -> Vec<String> {
        let noted = fs::read_to_string(PathBuf::from(self.folder()).join(file)).unwrap_or_default();
        noted.lines().map(str::to_owned).collect()
    }

    /// The model works while nobody waits.
    fn in_the_background(&self) {
        self.write(".openharness/settings.yaml", UNASKED);
        let url = self.model.base_url();
        self.write(
            ".openharness/models/models.yaml",
            &format!("main:\n  provider: openai-compatible\n  name: scripted-1\n  url: {url}\n  background: true\n"),
        );
    }
}

async fn sleeps(dormouse: &Dormouse, task: &str) {
    eventually("the run sleeps", || {
        let pending = dormouse.command(&["pending"]).output().expect("it runs");
        String::from_utf8_lossy(&pending.stdout).contains(task)
    })
    .await;
}

/// Both ways in which an action says so; the worker is killed while it sleeps, and the outcome is heard once.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_answers_later_lets_the_run_sleep_until_it_does() {
    for answer in ["exit 75", "echo '{\"pending\": \"job-7\"}'"] {
        let assistant = Assistant::hired().await;
        assistant.books_by(&format!("echo \"$DORMOUSE_IDEMPOTENCY_KEY $DORMOUSE_CALLBACK_URL\" >> asked\n{answer}"));
        let dormouse = assistant.serve();
        let task = assistant.send(&dormouse, "book blue");
        sleeps(&dormouse, &task).await;
        let asked = assistant.noted(".openharness/actions/book/asked");
        assert_eq!(asked.len(), 1, "{answer}: {asked:?}");
        let (key, address) = asked[0].split_once(' ').expect("a key and an address");
        assert_eq!(key, format!("{task}/1/call-1"));
        let dormouse = dormouse.kill_and_restart();
        let sent = dormouse_tests::client().post(address).json(&json!({ "booked": "blue, at last" })).send().await;
        let status = sent.expect("an answer").status().as_u16();
        assert!(matches!(status, 200 | 202), "{status}");
        Wire::of(&dormouse).task(&task, &DONE).await;
        assert!(last_words(&dormouse, &task).contains("blue, at last"), "{}", last_words(&dormouse, &task));
        let asked = assistant.noted(".openharness/actions/book/asked");
        assert_eq!((asked.len(), assistant.model.requests().len()), (1, 2), "{answer}");
    }
}

/// Who sits at the terminal is told what is waited for and until when, and where the outcome is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_tells_that_an_action_works_elsewhere() {
    let assistant = Assistant::hired().await;
    assistant.books_by("echo \"$DORMOUSE_CALLBACK_URL\" >> asked\nexit 75");
    let mut terminal = tokio::task::block_in_place(|| {
        let mut terminal = Terminal::open(&assistant, &[]);
        terminal.shows(&["> "]);
        terminal.say("book blue");
        let told = "the run sleeps until the outcome of `book` is told, and goes on at 20";
        let told = terminal.shows(&[told, "`dormouse dev --workspace` has one that stays"]);
        let address = assistant.noted(".openharness/actions/book/asked").remove(0);
        let (origin, _) = address.split_once("/signals/").expect("an address of signals");
        assert!(told.contains(&format!("its callback address is at {origin}, ")), "{told}");
        terminal
    });
    let address = assistant.noted(".openharness/actions/book/asked").remove(0);
    let sent = dormouse_tests::client().post(address).json(&json!({ "booked": "blue, at last" })).send().await;
    assert!(sent.expect("an answer").status().is_success());
    tokio::task::block_in_place(|| {
        terminal.shows(&["blue, at last", "> "]);
        terminal.leave();
    });
}

/// An action without anybody who calls back is asked again, and tells by its reference what it was.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_may_be_asked_again_how_its_work_stands() {
    let assistant = Assistant::hired().await;
    assistant.books_by(
        "echo \"$DORMOUSE_IDEMPOTENCY_KEY $DORMOUSE_ACTION_PENDING\" >> asked\n\
         if [ \"$(wc -l < asked)\" -lt 3 ]; then echo '{\"pending\": {\"reference\": \"job-7\", \"poll_after_seconds\": 1}}'\n\
         else echo '{\"booked\": \"blue, at last\"}'; fi",
    );
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert!(last_words(&dormouse, &task).contains("blue, at last"), "{}", last_words(&dormouse, &task));
    let asked = assistant.noted(".openharness/actions/book/asked");
    let key = format!("{task}/1/call-1");
    assert_eq!(asked, [format!("{key} "), format!("{key} job-7"), format!("{key} job-7")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_sleeps_while_its_model_thinks_in_the_background() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    assistant.thinks.store(600_000, Ordering::SeqCst);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "book blue");
    sleeps(&dormouse, &task).await;
    let dormouse = dormouse.kill_and_restart();
    assistant.thinks.store(3_000, Ordering::SeqCst);
    assistant.model.finish_jobs();
    Wire::of(&dormouse).task(&task, &DONE).await;
    let jobs = assistant.model.jobs();
    let keys: Vec<_> = jobs.iter().map(|job| job.key.clone()).collect();
    assert_eq!(keys, [format!("{task}/1/model-1"), format!("{task}/2/model-1")], "each step is begun once");
    assert_eq!(assistant.model.requests().len(), 2);
    assert_eq!(assistant.office.bookings().len(), 1);
    assert!(last_words(&dormouse, &task).contains("\"booked\":\"blue\""), "{}", last_words(&dormouse, &task));
}

/// Whatever moment the worker is killed at: the provider is given each step once, and every run comes to its end.
#[tokio::test(flavor = "multi_thread")]
async fn kills_while_models_think_begin_nothing_twice() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    assistant.thinks.store(300, Ordering::SeqCst);
    let mut dormouse = assistant.serve();
    let mut tasks = Vec::new();
    let rounds = std::env::var("DORMOUSE_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);
    for round in 0..rounds {
        for run in 0..4 {
            tasks.push(assistant.send(&dormouse, &format!("hello {round}-{run}")));
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..400))).await;
        dormouse = dormouse.kill_and_restart();
    }
    let wire = Wire::of(&dormouse);
    for task in &tasks {
        wire.task(task, &DONE).await;
    }
    let mut keys: Vec<_> = assistant.model.jobs().into_iter().map(|job| job.key).collect();
    keys.sort();
    let mut awaited: Vec<_> = tasks.iter().map(|task| format!("{task}/1/model-1")).collect();
    awaited.sort();
    assert_eq!(keys, awaited);
    assert_eq!(assistant.model.requests().len(), tasks.len(), "one key is one job, however often it was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn canceling_a_run_cancels_what_its_model_thinks() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    assistant.thinks.store(600_000, Ordering::SeqCst);
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    sleeps(&dormouse, &task).await;
    let canceled = Wire::of(&dormouse).post(&format!("/v1/tasks/{task}/cancel"), "cancel-1", &json!({})).await;
    assert_eq!(canceled.0, 200, "{}", canceled.1);
    eventually("the provider is told", || assistant.model.jobs()[0].is_canceled).await;
    let told = Wire::of(&dormouse).get(&format!("/v1/tasks/{task}")).await;
    assert_eq!(told["status"], json!(TaskStatus::Canceled), "{told}");

    // From the command line it is the same.
    let task = assistant.send(&dormouse, "hello again");
    sleeps(&dormouse, &task).await;
    let canceled = dormouse.command(&["cancel", &task]).output().expect("it runs");
    assert!(canceled.status.success(), "{canceled:?}");
    eventually("the provider is told", || assistant.model.jobs()[1].is_canceled).await;
}

/// The provider has begun the job, and the run does not know yet which one it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_begun_while_its_run_is_canceled_is_canceled_too() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    assistant.thinks.store(600_000, Ordering::SeqCst);
    let dormouse = assistant.serve();
    // Shorter and longer than it takes until a run looks whether it was canceled.
    for (round, tarries) in [500, 4_000].into_iter().enumerate() {
        assistant.model.tarry(Duration::from_millis(tarries));
        let task = assistant.send(&dormouse, "hello");
        eventually("the job is begun", || assistant.model.jobs().len() == round + 1).await;
        let path = format!("/v1/tasks/{task}/cancel");
        let canceled = Wire::of(&dormouse).post(&path, &format!("cancel-{round}"), &json!({})).await;
        assert_eq!(canceled.0, 200, "{}", canceled.1);
        eventually("the provider is told", || assistant.model.jobs()[round].is_canceled).await;
    }
}

/// What a provider signs with `secret`, as Standard Webhooks says.
fn signed(id: &str, body: &str, secret: &[u8]) -> [(&'static str, String); 3] {
    let time = jiff::Timestamp::now().as_second().to_string();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key");
    mac.update(format!("{id}.{time}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    [("webhook-id", id.to_owned()), ("webhook-timestamp", time), ("webhook-signature", signature)]
}

/// The provider's webhook wakes the run, which looks at once: believed by its signature, and of what it says only that
/// there is something to look at.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_the_provider_wakes_the_run() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    assistant.answers(|_| ScriptedTurn::saying("here I am").after(Duration::from_secs(3600)));
    let dormouse = assistant.serve();
    let wire = Wire::of(&dormouse);
    let workspace = wire.post("/v1/workspaces", "w", &json!({ "name": "desk", "root": "/" })).await.1["id"].clone();
    let session = wire.post("/v1/sessions", "s", &json!({ "workspace_id": workspace })).await.1["id"].clone();
    let vault = json!({ "provider": "env", "capabilities": ["webhooks:verify"], "workspace_id": workspace });
    let vault = wire.post("/v1/vaults", "v", &vault).await.1["id"].clone();
    let connector = json!({ "provider": "openai", "workspace_id": workspace, "target_session_id": session,
        "auth": { "scheme": "standard_webhooks", "vault_id": vault, "secrets": ["OPENAI"] },
        "mapping": { "kind": "model" } });
    let (status, connector) = wire.post("/v1/connectors", "c", &connector).await;
    assert_eq!(status, 201, "{connector}");
    let url = dormouse.url(connector["webhook"]["path"].as_str().expect("a path"));
    let deliver = async |id: &str, job: &str, secret: &[u8]| {
        let body = json!({ "type": "response.completed", "data": { "id": job } }).to_string();
        let request = dormouse_tests::client().post(&url).header("content-type", "application/json");
        let request = signed(id, &body, secret).into_iter().fold(request, |all, (name, value)| all.header(name, value));
        let answer = request.body(body).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<serde_json::Value>().await.expect("JSON"))
    };

    let task = assistant.send(&dormouse, "hello");
    // It has looked three times by itself, and would look again ten seconds later.
    eventually("it looks", || assistant.model.jobs().first().is_some_and(|job| job.polls == 3)).await;
    assistant.model.finish_jobs();
    // In which it goes to sleep behind that look: whoever has not yet looks by itself, with the same outcome.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let job = assistant.model.jobs()[0].id.clone();
    assert_eq!(deliver("d1", &job, b"somebody else").await.0, 401);
    let (status, told) = deliver("d2", &job, HOOK).await;
    assert_eq!((status, &told["status"]), (200, &json!("accepted")), "{told}");
    assert_eq!(deliver("d2", &job, HOOK).await.1["status"], "deduped");
    assert_eq!(deliver("d3", "resp_of_somebody_else", HOOK).await.0, 200, "nobody waits for it");
    wire.task(&task, &DONE).await;
    assert_eq!(last_words(&dormouse, &task), "here I am");
    assert_eq!((assistant.model.jobs().len(), assistant.model.jobs()[0].polls), (1, 4));
}

/// A job that its provider gives up is begun anew, as another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_is_begun_anew_after_a_rest() {
    let assistant = Assistant::hired().await;
    assistant.in_the_background();
    let seen = AtomicUsize::new(0);
    assistant.answers(move |_| match seen.fetch_add(1, Ordering::SeqCst) {
        0 => ScriptedTurn::raw("out of order"),
        _ => ScriptedTurn::saying("here I am"),
    });
    let dormouse = assistant.serve();
    let task = assistant.send(&dormouse, "hello");
    Wire::of(&dormouse).task(&task, &DONE).await;
    assert_eq!(last_words(&dormouse, &task), "here I am");
    let keys: Vec<_> = assistant.model.jobs().into_iter().map(|job| job.key).collect();
    assert_eq!(keys, [format!("{task}/1/model-1"), format!("{task}/1/model-2")]);
}
