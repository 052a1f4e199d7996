//! What clients of the protocol do next, once they have heard of something.

use std::time::Duration;

use dormouse_app::CHAT;
use dormouse_ports::Map;
use dormouse_protocol::resource::Task;

use super::Clients;
use crate::simulation::graphs::{JURORS, JURY, POISON, signal_of, signal_of_part};
use crate::simulation::requests::{Deed, ProtocolRequest};
use crate::simulation::workload::{Operation, answer, juror, misfit};

/// Graphs that keep nothing in the session of their task.
const TASKS: [&str; 7] = ["ask", "nap", "ladder", "shaky", "doomed", "twice", JURY];
/// Those of them that wait for one signal.
const HAVE_ONE_PAUSE: [&str; 5] = ["ask", "nap", "ladder", "shaky", "doomed"];
/// How many sessions there are at most, forks among them.
const MOST_SESSIONS: usize = 4;

impl Clients {
    fn ask(&mut self, due: Duration, ask: ProtocolRequest) {
        self.operation(due, Operation::ProtocolRequest(ask));
    }

    /// A key that nobody has used.
    fn key(&mut self) -> String {
        self.tokens += 1;
        format!("k-{}", self.tokens)
    }

    /// There is a workspace: sessions are made in it, or a quota before.
    pub(crate) fn settle_in(&mut self, workspace: &str, now: Duration, chance: &mut fastrand::Rng) {
        if chance.u8(..3) == 0 {
            let key = self.key();
            return self.ask(now, ProtocolRequest::Quota { key, workspace: workspace.to_owned() });
        }
        self.move_in(workspace, now, chance);
    }

    /// All is there that sessions in the workspace need.
    pub(crate) fn move_in(&mut self, workspace: &str, now: Duration, chance: &mut fastrand::Rng) {
        for _ in 0..chance.u8(1..=2) {
            let key = self.key();
            let chats = chance.bool();
            self.ask(now, ProtocolRequest::Session { key, workspace: workspace.to_owned(), chats });
        }
        if chance.bool() {
            self.ask(later(now, chance), ProtocolRequest::ReadAll { behind: None, times: 6 });
        }
    }

    /// There is a session: work is given to it, and somebody reads along.
    pub(crate) fn live_in(&mut self, session: &str, chats: bool, now: Duration, chance: &mut fastrand::Rng) {
        let session = || session.to_owned();
        self.sessions += 1;
        for _ in 0..chance.u8(1..=3) {
            // One graph keeps its state in a session.
            let keeper = if chats { CHAT } else { "journal" };
            let poisonous = self.poisons && chance.u8(..3) == 0;
            let graph = match poisonous || chance.bool() {
                true if poisonous => POISON,
                true => keeper,
                false => TASKS[chance.usize(..TASKS.len())],
            };
            let key = self.key();
            let words = (graph == CHAT).then(|| said(&key, chance));
            let due = now + Duration::from_millis(chance.u64(0..4_000));
            // Some ask twice at once, to be sure; others think better of it and take the same key again.
            let times = chance.u8(..3);
            let other = words.as_ref().filter(|_| times == 1).map(|words| format!("{words}, or rather not"));
            let submit = |words: Option<String>| {
                let (key, session) = (key.clone(), session());
                ProtocolRequest::Submit { key, session, graph, words }
            };
            for words in std::iter::repeat_n(words, if times == 0 { 2 } else { 1 }).chain(other.map(Some)) {
                self.ask(due, submit(words));
            }
        }
        for _ in 0..chance.u8(..3) {
            let key = self.key();
            let words = if chance.bool() { "yes".to_owned() } else { said(&key, chance) };
            self.ask(later(now, chance), ProtocolRequest::Say { key, session: session(), words });
        }
        match chance.u8(..3) {
            0 => self.ask(later(now, chance), ProtocolRequest::Read { session: session(), behind: 0, times: 8 }),
            1 => self.ask(later(now, chance), ProtocolRequest::Follow { session: session(), behind: 0, times: 4 }),
            _ => {}
        }
        if chance.u8(..3) == 0 && self.sessions < MOST_SESSIONS {
            let key = self.key();
            self.ask(later(now, chance), ProtocolRequest::Fork { key, session: session(), chats });
        }
        if chance.u8(..3) == 0 {
            let key = self.key();
            let keep = chance.u64(..3);
            self.ask(later(now, chance), ProtocolRequest::Truncate { key, session: session(), keep });
        }
        if chance.u8(..5) == 0 {
            let key = self.key();
            self.ask(later(now, chance), ProtocolRequest::Close { key, session: session() });
        }
        self.mind_the_queue(&session(), now);
    }

    /// Somebody looks what is queued in a session, or thinks better of all of it.
    fn mind_the_queue(&mut self, session: &str, now: Duration) {
        let mut chance = apart(now, self.tokens);
        let soon = |chance: &mut fastrand::Rng| now + Duration::from_millis(chance.u64(0..6_000));
        if chance.u8(..6) == 0 {
            let (key, session) = (self.key(), session.to_owned());
            self.ask(soon(&mut chance), ProtocolRequest::Empty { key, session });
        }
        for _ in 0..chance.u8(..3) {
            self.ask(soon(&mut chance), ProtocolRequest::Queue { session: session.to_owned() });
        }
    }

    /// Somebody sees what is queued in a session, and wants the last of several to be the first.
    pub(crate) fn put_in_order(&mut self, session: &str, mut tasks: Vec<String>, now: Duration) {
        if tasks.len() < 2 {
            return;
        }
        tasks.rotate_right(1);
        let (key, session) = (self.key(), session.to_owned());
        let due = now + Duration::from_millis(apart(now, self.tokens).u64(0..2_000));
        self.ask(due, ProtocolRequest::Reorder { key, session, tasks });
    }

    /// A task was accepted: somebody looks how it is going, says something, or changes their mind.
    pub(crate) fn watch(&mut self, task: &str, graph: &'static str, now: Duration, chance: &mut fastrand::Rng) {
        self.tasks.insert(task.to_owned(), graph);
        let task = || task.to_owned();
        for _ in 0..chance.u8(1..=3) {
            self.ask(later(now, chance), ProtocolRequest::Look { task: task() });
        }
        match chance.u8(..12) {
            0..3 => {
                let key = self.key();
                self.ask(
                    now + Duration::from_millis(chance.u64(0..5_000)),
                    ProtocolRequest::Cancel { key, task: task() },
                );
            }
            3 => self.operation(later(now, chance), Operation::Cancel { invocation: task(), pause: None }),
            4 => {
                let key = self.key();
                let words = said(&key, chance);
                self.ask(later(now, chance), ProtocolRequest::Interrupt { key, task: task(), words });
            }
            5 => {
                let deed = Deed::ALL[chance.usize(..Deed::ALL.len())];
                self.ask(later(now, chance), ProtocolRequest::Trespass { task: task(), deed });
            }
            6 if HAVE_ONE_PAUSE.contains(&graph) => {
                // It may come before the task asks.
                let key = self.key();
                let payload = self.answer(graph);
                let due = now + Duration::from_millis(chance.u64(0..3_000));
                let (task, part) = (task(), None);
                self.ask(due, ProtocolRequest::Answer { key, task, part, payload, fits: true, early: true });
            }
            _ => {}
        }
        if graph == JURY {
            for _ in 0..chance.u8(..4) {
                let signal_id = signal_of_part(&task(), juror(chance));
                let payload = self.answer(graph);
                self.operation(later(now, chance), Operation::Signal { signal_id, payload });
            }
            self.signal_with_keys(&signal_of_part(&task(), JURORS[0]), graph, now, chance);
        } else if HAVE_ONE_PAUSE.contains(&graph) {
            // It may come before the task waits.
            self.signal_with_keys(&signal_of(&task()), graph, now, chance);
        }
    }

    /// A key of the task's tenant may send the signal `signal_id`, and one of another tenant, to which it is nothing.
    fn signal_with_keys(&mut self, signal_id: &str, graph: &str, now: Duration, chance: &mut fastrand::Rng) {
        if !self.signals_of_tenants {
            return;
        }
        for _ in 0..chance.u8(..3) {
            let own = chance.u8(..3) > 0;
            let payload = self.answer(graph);
            let due = now + Duration::from_millis(chance.u64(0..5_000));
            self.operation(due, Operation::TenantSignal { own, signal_id: signal_id.to_owned(), payload });
        }
    }

    /// A task waits: somebody may know what for. Whoever sees it waiting again answers again.
    pub(crate) fn attend(&mut self, task: &Task, now: Duration, chance: &mut fastrand::Rng) {
        let id = task.envelope.id.as_str();
        let Some(graph) = self.tasks.get(id).copied() else { return };
        let since = task.envelope.updated_at.to_string();
        if !self.attended.insert((id.to_owned(), since)) || chance.u8(..8) == 0 {
            return;
        }
        let soon = now + Duration::from_millis(chance.u64(0..5_000));
        self.ask(later(soon, chance), ProtocolRequest::Look { task: id.to_owned() });
        if graph == JURY {
            return self.poll(id, soon, chance);
        }
        if HAVE_ONE_PAUSE.contains(&graph) {
            self.signal_with_keys(&signal_of(id), graph, soon, chance);
        }
        for _ in 0..if chance.u8(..6) == 0 { 2 } else { 1 } {
            let fits = chance.u8(..8) > 0;
            let payload = if fits { self.answer(graph) } else { misfit(graph, chance) };
            match chance.u8(..6) {
                0 if !["twice", CHAT].contains(&graph) => {
                    let signal_id = signal_of(id);
                    let payload = answer(graph, &self.key());
                    self.operation(soon, Operation::Signal { signal_id, payload });
                }
                _ => {
                    let key = self.key();
                    let (task, part) = (id.to_owned(), None);
                    let by_request = graph == CHAT && fits && apart(now, self.tokens).bool();
                    let ask = match by_request {
                        true => ProtocolRequest::Respond { key, task, payload },
                        false => ProtocolRequest::Answer { key, task, part, payload, fits, early: false },
                    };
                    self.ask(soon, ask);
                }
            }
        }
    }

    /// Lets each of those whom the task asks answer once, twice or never.
    fn poll(&mut self, task: &str, soon: Duration, chance: &mut fastrand::Rng) {
        for part in JURORS {
            for _ in 0..[0, 1, 1, 2][chance.usize(..4)] {
                let key = self.key();
                let payload = self.vote_of_one(chance.u8(..6) == 0);
                let due = soon + Duration::from_millis(chance.u64(0..2_000));
                let (task, part) = (task.to_owned(), Some(part));
                self.ask(due, ProtocolRequest::Answer { key, task, part, payload, fits: true, early: false });
            }
        }
    }

    /// `payload` was sent to a task: whichever of its pauses comes may go on with it.
    pub(crate) fn sent_to_task(&mut self, task: &str, payload: &Map) {
        for generation in 1..=2 {
            self.sent_to.entry((task.into(), generation)).or_default().push(payload.clone());
        }
    }

    /// True if somebody asks for something else than `words` by `key`.
    pub(crate) fn says_otherwise(&self, key: &str, words: Option<&str>) -> bool {
        let asks = |operation: &Operation| {
            matches!(operation, Operation::ProtocolRequest(ProtocolRequest::Submit { key: of, words: said, .. })
                if of == key && said.as_deref() != words)
        };
        self.jobs.iter().any(|job| asks(&job.operation))
    }

    /// Somebody reads on, if they want to so many times more.
    pub(crate) fn read_on(&mut self, ask: ProtocolRequest, times: u8, now: Duration, chance: &mut fastrand::Rng) {
        if times > 0 {
            self.ask(now + Duration::from_millis(chance.u64(0..10_000)), ask);
        }
    }
}

/// Chance for what stands beside the rest of a run, which goes as it would without.
fn apart(now: Duration, number: u32) -> fastrand::Rng {
    let nanos = u64::try_from(now.as_nanos()).unwrap_or_default();
    fastrand::Rng::with_seed(nanos.wrapping_add(number.into()))
}

fn later(now: Duration, chance: &mut fastrand::Rng) -> Duration {
    now + Duration::from_millis(chance.u64(0..20_000))
}

/// Words that nobody else says.
fn said(key: &str, chance: &mut fastrand::Rng) -> String {
    if chance.bool() { format!("m-{key} needs approval") } else { format!("m-{key}") }
}
