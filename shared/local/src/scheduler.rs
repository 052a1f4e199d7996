//! One-shot entries in real time, kept on the disk until the wake-up that they stand for was taken.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dormouse_ports::{Clock, Due, InvocationId, Registration};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

use crate::courier::{Carried, Courier, Errand};
use crate::spool::{Spool, name_of};

/// The longest sleep: a machine that was suspended, or whose clock was set, is noticed after that time.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// Wakes paused invocations when they fall due. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LocalScheduler(Arc<Inner>);

struct Inner {
    spool: Spool,
    agenda: Mutex<Agenda>,
    changed: Notify,
    clock: Arc<dyn Clock>,
}

/// What is to come, in the order of time.
#[derive(Debug, Default)]
struct Agenda {
    order: BTreeSet<(Timestamp, String)>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    at: Timestamp,
    invocation_id: InvocationId,
    generation: u64,
    /// Which deadline of the pause it is.
    #[serde(default)]
    rung: u32,
}

impl std::fmt::Debug for LocalScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalScheduler").field("spool", &self.0.spool).finish_non_exhaustive()
    }
}

impl LocalScheduler {
    /// The scheduler that keeps its entries in `folder`.
    pub(crate) fn open(folder: PathBuf, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let spool = Spool::open(folder)?;
        let mut agenda = Agenda::default();
        for (name, entry) in spool.load::<Entry>()? {
            agenda.insert(name, entry);
        }
        Ok(Self(Arc::new(Inner { spool, agenda: Mutex::new(agenda), changed: Notify::new(), clock })))
    }

    /// Makes sure that pause `generation` of `invocation_id` is woken when it falls due. When it returns, the entry is on
    /// the disk.
    pub(crate) async fn schedule(
        &self,
        invocation_id: &InvocationId,
        generation: u64,
        due: &Due,
    ) -> io::Result<Registration> {
        let entry = Entry { at: due.at, invocation_id: invocation_id.clone(), generation, rung: due.rung };
        let name = entry.name();
        if self.agenda().entries.get(&name) == Some(&entry) {
            return Ok(Registration::Known);
        }
        self.0.spool.put(&name, &entry).await?;
        self.agenda().insert(name, entry);
        self.0.changed.notify_one();
        Ok(Registration::Made)
    }

    /// Removes the entry; it may have fired.
    pub(crate) async fn cancel(&self, invocation_id: &InvocationId, generation: u64, due: &Due) -> io::Result<()> {
        let entry = Entry { at: due.at, invocation_id: invocation_id.clone(), generation, rung: due.rung };
        let name = entry.name();
        self.agenda().remove(&name);
        self.0.spool.remove(&name).await
    }

    /// Fires entries until it is time to end. What has not been taken then stays on the disk.
    pub(crate) async fn run(self, courier: Arc<Courier>) {
        loop {
            for (name, entry) in self.agenda().take_due(self.0.clock.now()) {
                let (scheduler, courier) = (self.clone(), courier.clone());
                tokio::spawn(async move { scheduler.fire(&name, entry, &courier).await });
            }
            let pause = self.until_next();
            tokio::select! {
                () = self.0.clock.sleep(pause) => {}
                () = self.0.changed.notified() => {}
                () = courier.running().stopping() => return,
            }
        }
    }

    async fn fire(&self, name: &str, entry: Entry, courier: &Courier) {
        let Entry { at, invocation_id, generation, .. } = &entry;
        let wakeup = json!({ "invocation_id": invocation_id, "generation": generation, "due_at": at });
        let settled = match courier.carry(&Errand::Wakeup(json!({ "dormouse_wakeup": wakeup }))).await {
            Carried::Interrupted => return,
            Carried::Delivered => self.0.spool.remove(name).await,
            Carried::Refused => self.0.spool.set_aside(name).await,
        };
        if let Err(error) = settled {
            tracing::warn!(%error, invocation_id = %entry.invocation_id, "a used timer stays on the disk; it will fire again");
        }
    }

    fn until_next(&self) -> Duration {
        let Some(next) = self.agenda().order.first().map(|(at, _)| *at) else { return LONGEST_SLEEP };
        let left = Duration::try_from(next.duration_since(self.0.clock.now())).unwrap_or_default();
        left.min(LONGEST_SLEEP)
    }

    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.0.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Agenda {
    fn insert(&mut self, name: String, entry: Entry) {
        self.remove(&name);
        self.order.insert((entry.at, name.clone()));
        self.entries.insert(name, entry);
    }

    fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.order.remove(&(entry.at, name.to_owned()));
        }
    }

    fn take_due(&mut self, now: Timestamp) -> Vec<(String, Entry)> {
        let mut due = Vec::new();
        while let Some((at, name)) = self.order.first().cloned().filter(|(at, _)| *at <= now) {
            self.order.remove(&(at, name.clone()));
            due.extend(self.entries.remove(&name).map(|entry| (name, entry)));
        }
        due
    }
}

impl Entry {
    /// Says whose it is: making it again finds it there.
    fn name(&self) -> String {
        let (invocation, generation) = (self.invocation_id.as_str(), self.generation.to_string());
        match self.rung {
            0 => name_of(&[invocation, &generation]),
            rung => name_of(&[invocation, &generation, &rung.to_string()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dormouse_aws::SystemClock;
    use dormouse_ports::DueAction;
    use jiff::SignedDuration;

    use super::*;
    use crate::courier::Raised;
    use crate::courier::tests::{Flaky, courier};
    use crate::lifetime::Lifetime;

    fn open(folder: &Path) -> LocalScheduler {
        LocalScheduler::open(folder.to_owned(), Arc::new(SystemClock::default())).expect("a scheduler")
    }

    fn due(at: Timestamp) -> Due {
        Due::first(at, DueAction::Fail)
    }

    fn kept(folder: &Path) -> usize {
        Spool::open(folder.to_owned()).expect("a spool").load::<Entry>().expect("entries").len()
    }

    async fn fired(functions: &Flaky, folder: &Path, left: usize) -> Vec<serde_json::Value> {
        while kept(folder) > left {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        functions.taken.lock().expect("a lock").clone()
    }

    #[tokio::test]
    async fn an_overdue_entry_fires_after_a_restart_until_it_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let past = Timestamp::now() - SignedDuration::from_secs(60);
        let future = Timestamp::now() + SignedDuration::from_hours(1);
        open(folder.path()).schedule(&"i/1".into(), 2, &due(past)).await.expect("it is kept");
        open(folder.path()).schedule(&"later".into(), 1, &due(future)).await.expect("it is kept");

        let (functions, lifetime) = (Arc::new(Flaky::default()), Lifetime::new());
        functions.failures.lock().expect("a lock").push(Raised::Now("busy".to_owned()));
        tokio::spawn(open(folder.path()).run(courier(&functions, &lifetime)));
        let wakeup = json!({"dormouse_wakeup": {"invocation_id": "i/1", "generation": 2, "due_at": past}});
        assert_eq!(fired(&functions, folder.path(), 1).await, [wakeup]);
    }

    #[tokio::test]
    async fn an_entry_made_while_it_runs_fires_and_a_cancelled_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let scheduler = open(folder.path());
        let (functions, lifetime) = (Arc::new(Flaky::default()), Lifetime::new());
        let soon = Timestamp::now() + SignedDuration::from_millis(300);
        for name in ["cancelled", "kept"] {
            scheduler.schedule(&name.into(), 1, &due(soon)).await.expect("it is kept");
        }
        scheduler.schedule(&"kept".into(), 1, &due(soon)).await.expect("again is harmless");
        scheduler.cancel(&"cancelled".into(), 1, &due(soon)).await.expect("it goes");
        scheduler.cancel(&"unknown".into(), 1, &due(soon)).await.expect("it may be gone");
        tokio::spawn(scheduler.run(courier(&functions, &lifetime)));
        let taken = fired(&functions, folder.path(), 0).await;
        assert_eq!(taken, [json!({"dormouse_wakeup": {"invocation_id": "kept", "generation": 1, "due_at": soon}})]);
    }
}
