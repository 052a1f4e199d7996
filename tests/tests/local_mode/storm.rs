//! Local mode under load, killed at any moment and started again. `KILLS` says how often (`make soak` sets it).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::process::{Dormouse, in_time, text};
use crate::{approval, approve_until_done, expense, folder};

/// How many work at the same time.
const CLIENTS: usize = 6;
/// A round ends behind so many acknowledgements at most.
const ACKNOWLEDGEMENTS: usize = 40;

/// What becomes of an invocation that a client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is approved.
    Expense,
    /// An event tells that its job is done.
    Export,
    /// It wakes by itself.
    Reminder,
    /// It is canceled.
    Canceled,
}

/// What a client was told of one invocation.
#[derive(Debug)]
struct Told {
    kind: Kind,
    /// The first answer, from when on it must not be lost.
    begun: Option<Value>,
    /// Every answer that says how it ended.
    ended: Vec<Value>,
}

/// What all clients were told.
#[derive(Default)]
struct Ledger {
    told: Mutex<BTreeMap<String, Told>>,
    acknowledged: Mutex<usize>,
    news: Notify,
}

impl Ledger {
    fn told(&self) -> MutexGuard<'_, BTreeMap<String, Told>> {
        self.told.lock().expect("no panic")
    }

    fn note(&self, id: &str, note: impl FnOnce(&mut Told)) {
        note(self.told().get_mut(id).expect("a client began it"));
        *self.acknowledged.lock().expect("no panic") += 1;
        self.news.notify_one();
    }

    async fn reach(&self, acknowledged: usize) {
        while *self.acknowledged.lock().expect("no panic") < acknowledged {
            self.news.notified().await;
        }
    }
}

/// Begins and ends invocations, one after the other, until the process is gone.
async fn work(dormouse: &Dormouse, ledger: &Ledger, client: usize, round: usize) {
    for number in 0.. {
        let kind = [Kind::Expense, Kind::Export, Kind::Reminder, Kind::Canceled][(client + number) % 4];
        let id = format!("storm-{round}-{client}-{number}");
        ledger.told().insert(id.clone(), Told { kind, begun: None, ended: Vec::new() });
        let Some(begun) = begin(dormouse, kind, &id).await else { return };
        ledger.note(&id, |told| told.begun = Some(begun.clone()));
        let Some(answer) = move_on(dormouse, kind, &begun).await else { return };
        ledger.note(&id, |told| told.ended.extend(answer));
    }
}

/// The answer, while there is somebody who answers.
async fn ask(dormouse: &Dormouse, url: &str, body: &Value) -> Option<Value> {
    let response = dormouse.post(url, body).await.ok()?;
    let status = response.status().as_u16();
    let answer = response.json().await.ok()?;
    assert!(matches!(status, 200 | 202), "{status}: {answer}");
    Some(answer)
}

async fn begin(dormouse: &Dormouse, kind: Kind, id: &str) -> Option<Value> {
    let (graph, mut turn) = match kind {
        Kind::Expense | Kind::Canceled => ("expense-approval", expense()),
        Kind::Export => ("export-job", json!({"state": {"dataset": "orders"}})),
        Kind::Reminder => ("reminder", json!({"state": {"text": "stretch", "after": "PT1S"}})),
    };
    turn["invocation_id"] = id.into();
    ask(dormouse, &dormouse.url(&format!("/graphs/{graph}/turns")), &turn).await
}

/// Does what its kind asks for; what was answered of its end, if that was said at once.
async fn move_on(dormouse: &Dormouse, kind: Kind, begun: &Value) -> Option<Option<Value>> {
    let id = text(begun, "invocation_id");
    match kind {
        Kind::Expense => ask(dormouse, text(begun, "callback_url"), &approval(id)).await.map(Some),
        Kind::Canceled => ask(dormouse, &cancel_url(begun), &json!({})).await.map(Some),
        Kind::Reminder => Some(None),
        Kind::Export => {
            let detail = json!({"job_id": text(&begun["state"], "job_id"), "status": "succeeded", "url": "s3://b/k"});
            let event = json!({"source": "exporter", "detail-type": "Export Finished", "detail": detail});
            ask(dormouse, &dormouse.url("/_local/events"), &event).await.map(|_| None)
        }
    }
}

fn cancel_url(begun: &Value) -> String {
    text(begun, "cancel_url").to_owned()
}

/// What is acknowledged is known, in the state that was acknowledged.
async fn check(dormouse: &Dormouse, id: &str, told: &Told) {
    let Some(begun) = &told.begun else { return };
    let seen = dormouse.get(text(begun, "status_url")).await;
    assert_eq!(seen["invocation_id"], id, "an acknowledged invocation is lost: {seen}");
    if let Some(ended) = told.ended.first() {
        agree(id, &seen, ended);
    }
}

/// That both say the same of the end.
fn agree(id: &str, seen: &Value, ended: &Value) {
    if ended["status"] == "canceled" {
        assert_eq!(seen["error"]["category"], "invocation_canceled", "{id}: {seen}");
    } else {
        same_end(id, seen, ended);
    }
}

/// Whose answer ended it is not shown the state.
fn same_end(id: &str, one: &Value, other: &Value) {
    assert_eq!(one["status"], other["status"], "{id}");
    if let (Some(one), Some(other)) = (one.get("state"), other.get("state")) {
        assert_eq!(one, other, "{id}");
    }
}

/// Brings an invocation to its end, whatever was lost of it, and checks that it ended once.
async fn finish(dormouse: &Dormouse, id: &str, told: Told) {
    let Told { kind, begun, mut ended } = told;
    let begun = match begun {
        Some(begun) => begun,
        // Nobody knows whether it began; who begins it again is answered for what there is.
        None => begin(dormouse, kind, id).await.expect("it answers"),
    };
    match kind {
        Kind::Expense => ended.push(approve_until_done(dormouse, text(&begun, "callback_url")).await),
        Kind::Canceled => ended.extend(move_on(dormouse, kind, &begun).await.expect("it answers")),
        Kind::Export | Kind::Reminder if begun["status"] == "completed" => ended.push(begun),
        Kind::Export | Kind::Reminder => {
            move_on(dormouse, kind, &begun).await.expect("it answers");
            ended.push(dormouse.completed(&begun).await);
        }
    }
    let anew = ended.iter().filter(|ended| ended["repeated"] == false).count();
    assert!(anew <= 1, "{id} ended {anew} times: {ended:?}");
    for other in &ended {
        same_end(id, other, &ended[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_lose_and_double_nothing() {
    let kills = std::env::var("KILLS").ok().filter(|kills| !kills.is_empty());
    let kills: usize = kills.map_or(3, |kills| kills.parse().expect("KILLS is a number"));
    let folder = folder();
    let mut dormouse = Dormouse::start(folder.path());
    let mut all = BTreeMap::new();
    for round in 0..kills {
        let ledger = Ledger::default();
        let clients = join_all((0..CLIENTS).map(|client| work(&dormouse, &ledger, client, round)));
        let killer = async {
            in_time("so much is acknowledged", ledger.reach(1 + round * 17 % ACKNOWLEDGEMENTS)).await;
            dormouse.strike();
        };
        futures::future::join(clients, killer).await;
        dormouse = dormouse.kill_and_restart();
        let told = std::mem::take(&mut *ledger.told());
        for (id, told) in &told {
            check(&dormouse, id, told).await;
        }
        all.extend(told);
    }
    let count = all.len();
    for (id, told) in all {
        finish(&dormouse, &id, told).await;
    }
    for (command, empty) in [("doctor", json!({"examined": 0})), ("pending", json!({"pending": []}))] {
        let asked = dormouse.command(&[command, "--json"]).output().expect("it runs");
        let said: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
        let (name, nothing) = empty.as_object().and_then(|map| map.iter().next()).expect("a field");
        assert_eq!((asked.status.code(), &said[name]), (Some(0), nothing), "of {count}, something is left: {said}");
    }
}
