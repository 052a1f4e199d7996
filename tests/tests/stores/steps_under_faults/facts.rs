//! What must be true of a task whatever happens to requests, and what was seen of it so far.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::Map;
use dormouse_tests::map;
use serde_json::{Value, json};

/// The state behind the steps `tokens`: of each kind of field there is one, such that none can be left as it was.
pub(crate) fn state_of(tokens: &[String]) -> Map {
    let mut state = map(json!({ "done": tokens, "count": tokens.len() }));
    if let Some(last) = tokens.last() {
        let size = last.rsplit('/').next().and_then(|size| size.parse().ok()).unwrap_or(0);
        state.insert("last".to_owned(), last.as_str().into());
        state.insert("text".to_owned(), "x".repeat(size).into());
    }
    if tokens.len() % 2 == 1 {
        state.insert("odd".to_owned(), true.into());
    }
    state
}

/// The session behind the steps `tokens` and as many turns of others.
pub(crate) fn session_of(tokens: &[String], turns: u64) -> Map {
    map(json!({ "done": tokens, "turns": turns }))
}

/// `state` without the turns of others, of which a run learns when it next saves.
pub(crate) fn without_turns(mut state: Map) -> Map {
    state.remove("turns");
    state
}

/// The steps that a state knows.
pub(crate) fn done(state: &Map) -> Vec<String> {
    let done = state.get("done").and_then(Value::as_array).into_iter().flatten();
    done.filter_map(|token| token.as_str().map(str::to_owned)).collect()
}

/// The turns that a session knows.
pub(crate) fn turns(state: &Map) -> u64 {
    state.get("turns").and_then(Value::as_u64).unwrap_or(0)
}

/// The entries of a step, of which each tells which part of the step it is.
pub(crate) fn entries_of(worker: &str, token: &str, parts: u64) -> Vec<Map> {
    let entry = |part| json!({ "kind": "step", "by": worker, "token": token, "part": part, "parts": parts });
    (0..parts).map(|part| map(entry(part))).collect()
}

/// What can be read of the task at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) entries: Vec<(u64, Map)>,
    /// Position of the end of the stream, and what is known there.
    pub(crate) tip: (u64, Map),
    /// Of what has not ended.
    pub(crate) run: Option<RunReading>,
    /// Of what was completed.
    pub(crate) final_state: Option<Map>,
    /// Version and state.
    pub(crate) session: Option<(u64, Map)>,
}

/// What the next worker would go on from.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunReading {
    pub(crate) state: Map,
    pub(crate) step: u64,
    pub(crate) places: usize,
    pub(crate) trace: Option<String>,
}

impl RunReading {
    /// As it has to be behind `tokens`.
    pub(crate) fn behind(tokens: &[String]) -> Self {
        Self { state: state_of(tokens), step: tokens.len() as u64, places: tokens.len(), trace: tokens.last().cloned() }
    }
}

/// What a worker was told of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Accepted,
    Refused,
}

/// What was seen so far. Each reading may be ahead of the one before by one commit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Map>,
    /// The steps that stand in the stream.
    tokens: Vec<String>,
    /// The step of which a part is missing, and the next part.
    torn: Option<(String, u64)>,
    told: BTreeMap<String, Told>,
    /// Workers that were granted a claim.
    workers: BTreeSet<String>,
    /// Those whose claim was taken over, or ended.
    past: BTreeSet<String>,
    /// How it rests or ended.
    rest: Option<&'static str>,
    turns: u64,
    session_version: u64,
    /// True if no turn of others changed the session since the task saved it.
    saved: bool,
    erasure: Erasure,
}

/// How far it is erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Erasure {
    #[default]
    Never,
    /// Some of it may be gone.
    UnderWay,
    /// Nothing is left.
    Done,
}

/// Ways in which a task rests or ends: the kind of the entry, and whether that is for ever.
const RESTS: [(&str, bool); 5] =
    [("suspended", false), ("aside", false), ("completed", true), ("failed", true), ("canceled", true)];

impl Ledger {
    /// True if it has ended for ever.
    pub(crate) fn has_ended(&self) -> bool {
        self.erasure == Erasure::Done || RESTS.iter().any(|(rest, for_ever)| *for_ever && self.rest == Some(*rest))
    }

    /// True if it was put aside.
    pub(crate) fn is_aside(&self) -> bool {
        self.rest == Some("aside")
    }

    /// Somebody begins to erase it.
    pub(crate) fn begin_erasure(&mut self) {
        if self.erasure == Erasure::Never {
            self.erasure = Erasure::UnderWay;
        }
    }

    /// It was erased.
    pub(crate) fn erased(&mut self) {
        self.erasure = Erasure::Done;
    }

    /// True while some of it may be gone, and nothing can be said of the rest.
    pub(crate) fn is_in_erasure(&self) -> bool {
        self.erasure == Erasure::UnderWay
    }

    /// The number of steps.
    pub(crate) fn steps(&self) -> usize {
        self.tokens.len()
    }

    /// A worker was told that its step was written.
    pub(crate) fn accepted(&mut self, token: &str) -> Result<(), String> {
        self.told.insert(token.to_owned(), Told::Accepted);
        self.keeps_what_it_told()
    }

    /// A worker was told that its step was not written, and sends it no more.
    pub(crate) fn refused(&mut self, token: &str) -> Result<(), String> {
        self.told.insert(token.to_owned(), Told::Refused);
        self.keeps_what_it_told()
    }

    /// `worker` was granted the claim, which is still its own, with `handed`.
    pub(crate) fn granted(&mut self, worker: &str, handed: &RunReading) -> Result<(), String> {
        let before = self.workers.iter().filter(|other| *other != worker).cloned();
        self.past.extend(before);
        self.workers.insert(worker.to_owned());
        if *handed == RunReading::behind(&self.tokens) || self.erasure != Erasure::Never {
            return Ok(());
        }
        Err(format!("{worker} was handed {handed:?}, and the steps are {:?}", self.tokens))
    }

    /// `worker` was granted a claim that was over before it heard of it.
    pub(crate) fn granted_too_late(&mut self, worker: &str) {
        self.past.insert(worker.to_owned());
    }

    /// Somebody was told `run`, having begun to read when there were so many `steps`.
    pub(crate) fn was_once(&self, steps: usize, run: &RunReading) -> Result<(), String> {
        let may_be = |count: usize| *run == RunReading::behind(&self.tokens[..count]);
        if self.erasure != Erasure::Never || (steps..=self.tokens.len()).any(may_be) {
            return Ok(());
        }
        Err(format!("somebody read {run:?}, and the steps are {:?}", self.tokens))
    }

    /// Looks at `reading`.
    pub(crate) fn look(&mut self, reading: &Reading) -> Result<(), String> {
        if *reading == Reading::default() {
            // What is kept apart is written ahead of the task.
            return Ok(());
        }
        match self.erasure {
            Erasure::Never => {}
            Erasure::UnderWay => return Ok(()),
            Erasure::Done => return nothing_is_left(reading),
        }
        let turns = self.turns;
        self.entries_stand(reading)?;
        self.keeps_what_it_told()?;
        self.state_is_that_of_the_steps(reading)?;
        self.session_follows(reading, turns)
    }

    fn entries_stand(&mut self, reading: &Reading) -> Result<(), String> {
        let positions = reading.entries.iter().map(|(position, _)| *position);
        if !positions.clone().eq(1..=reading.entries.len() as u64) {
            return Err(format!("positions have a gap: {:?}", positions.collect::<Vec<_>>()));
        }
        let last = reading.entries.len() as u64;
        if reading.tip.0 != last || reading.tip.1.get("last").and_then(Value::as_u64) != Some(last) {
            return Err(format!("the end of the stream is {:?}, behind {last} entries", reading.tip));
        }
        let mut entries = reading.entries.iter().map(|(_, entry)| entry);
        for known in &self.entries {
            let found = entries.next();
            if found != Some(known) {
                return Err(format!("an entry was {known:?} and is {found:?}"));
            }
        }
        for entry in entries {
            self.entries.push(entry.clone());
            self.entry(entry)?;
        }
        match &self.torn {
            Some((token, part)) => Err(format!("step {token} has no part {part}")),
            None => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Map) -> Result<(), String> {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| entry.get(name).and_then(Value::as_u64).unwrap_or_default();
        let kind = text("kind");
        if let Some((token, part)) = self.torn.take_if(|_| kind != "step" || number("part") == 0) {
            return Err(format!("step {token} has no part {part}, but then {entry:?}"));
        }
        if kind == "step" {
            let (token, by, part) = (text("token"), text("by"), number("part"));
            if self.torn.take().map_or(0, |(torn, next)| if torn == token { next } else { u64::MAX }) != part {
                return Err(format!("part {part} of step {token} has no part before"));
            }
            if part == 0 {
                if self.past.contains(by) || self.has_ended() {
                    return Err(format!("step {token} was accepted of {by}, whose claim is over"));
                }
                if self.tokens.iter().any(|known| known == token) {
                    return Err(format!("step {token} stands there twice"));
                }
                self.tokens.push(token.to_owned());
                self.rest = None;
            }
            self.torn = (part + 1 < number("parts")).then(|| (token.to_owned(), part + 1));
        } else if kind == "recorded" {
            let by = text("by");
            if self.past.contains(by) || self.has_ended() {
                return Err(format!("{by}, whose claim is over, has recorded something"));
            }
        } else if kind == "turn" {
            self.turns += 1;
        } else if let Some((rest, _)) = RESTS.iter().find(|(rest, _)| *rest == kind) {
            if self.has_ended() {
                return Err(format!("it is {kind} after it was {:?}", self.rest));
            }
            self.rest = Some(*rest);
            self.past.extend(self.workers.iter().cloned());
        } else if kind == "retried" {
            self.rest = None;
        }
        Ok(())
    }

    fn keeps_what_it_told(&self) -> Result<(), String> {
        if self.erasure != Erasure::Never {
            return Ok(());
        }
        for (token, told) in &self.told {
            match (told, self.tokens.contains(token)) {
                (Told::Accepted, false) => return Err(format!("step {token} was accepted and is lost")),
                (Told::Refused, true) => return Err(format!("step {token} was refused and stands there")),
                (Told::Accepted, true) | (Told::Refused, false) => {}
            }
        }
        Ok(())
    }

    fn state_is_that_of_the_steps(&self, reading: &Reading) -> Result<(), String> {
        let tokens = &self.tokens;
        if !self.has_ended() {
            let expected = Some(RunReading::behind(tokens));
            if reading.run != expected {
                return Err(format!("the state is {:?}, and the steps are {tokens:?}", reading.run));
            }
        }
        if self.rest == Some("completed") && reading.final_state != Some(state_of(tokens)) {
            return Err(format!("the final state is {:?}, and the steps are {tokens:?}", reading.final_state));
        }
        Ok(())
    }

    fn session_follows(&mut self, reading: &Reading, turns_before: u64) -> Result<(), String> {
        let tokens = &self.tokens;
        let nothing = Map::new();
        let (version, state) = reading.session.as_ref().map_or((0, &nothing), |(version, state)| (*version, state));
        if self.turns != turns_before {
            self.saved = false;
        } else if version > self.session_version {
            self.saved = true;
        }
        if version < self.session_version {
            return Err(format!("the session's version was {} and is {version}", self.session_version));
        }
        self.session_version = version;
        let known = done(state);
        if !tokens.starts_with(&known) {
            return Err(format!("the session knows {known:?}, and the steps are {tokens:?}"));
        }
        if turns(state) != self.turns {
            return Err(format!("the session knows {} turns of {}", turns(state), self.turns));
        }
        if let Some(rest) = self.rest
            && self.saved
            && known != *tokens
        {
            return Err(format!("it is {rest}, and the session knows {known:?} of the steps {tokens:?}"));
        }
        Ok(())
    }

    /// Looks at where each append of the feed begins, and how many entries it has.
    pub(crate) fn is_fed(&self, appends: &[(u64, u64)]) -> Result<(), String> {
        let mut positions: Vec<u64> = appends.iter().flat_map(|(first, count)| *first..first + count).collect();
        positions.sort_unstable();
        if positions.iter().copied().eq(1..=self.entries.len() as u64) {
            return Ok(());
        }
        Err(format!("the feed reports {appends:?} of {} entries", self.entries.len()))
    }
}

/// Nothing of a task that was erased may come back.
fn nothing_is_left(reading: &Reading) -> Result<(), String> {
    let Reading { entries, tip, run, final_state, session } = reading;
    let is_empty = entries.is_empty() && tip.1.is_empty();
    if is_empty && run.is_none() && final_state.is_none() && session.is_none() {
        return Ok(());
    }
    Err(format!("it was erased, and there is {reading:?}"))
}

/// A task of which `tokens` were accepted, in its first claim.
fn reading(tokens: &[&str]) -> Reading {
    let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
    let begun = map(json!({ "kind": "begun" }));
    let steps = tokens.iter().flat_map(|token| entries_of("w1", token, 2));
    let entries: Vec<(u64, Map)> = (1..).zip([begun].into_iter().chain(steps)).collect();
    let last = entries.len() as u64;
    Reading {
        entries,
        tip: (last, map(json!({ "last": last }))),
        run: Some(RunReading::behind(&tokens)),
        final_state: None,
        session: Some((tokens.len() as u64, session_of(&tokens, 0))),
    }
}

/// `reading` with one more entry.
fn with(mut reading: Reading, entry: Value) -> Reading {
    let last = reading.entries.len() as u64 + 1;
    reading.entries.push((last, map(entry)));
    reading.tip = (last, map(json!({ "last": last })));
    reading
}

/// What the ledger says of `second`, where `first` was all right.
fn behind(first: &Reading, second: &Reading) -> String {
    let mut ledger = Ledger::default();
    ledger.look(&reading(&[])).expect("it begins");
    ledger.granted("w1", &RunReading::behind(&[])).expect("a claim");
    ledger.look(first).expect("all is right before");
    ledger.look(second).err().unwrap_or_default()
}

#[test]
fn a_history_in_which_all_is_right_is_passed() {
    let (one, two) = (reading(&["w1/1/5"]), reading(&["w1/1/5", "w1/2/9"]));
    assert_eq!(behind(&one, &two), "");
    let rests = with(two.clone(), json!({ "kind": "suspended" }));
    assert_eq!(behind(&two, &rests), "");
    let mut noted = two.clone();
    noted.session = one.session.clone();
    assert_eq!(behind(&one, &noted), "", "a session may be behind while the task runs");
    let mut ledger = Ledger::default();
    ledger.look(&two).expect("all is right");
    assert_eq!(ledger.is_fed(&[(1, 1), (4, 2), (2, 2)]), Ok(()));
}

#[test]
fn a_history_that_was_spoilt_is_found() {
    let (one, two) = (reading(&["w1/1/5"]), reading(&["w1/1/5", "w1/2/9"]));
    let is_found = |spoilt: &Reading, what: &str| {
        let said = behind(&one, spoilt);
        assert!(said.contains(what), "{what:?} is to be found, and not {said:?}");
    };
    // A step that the state does not know, or only in part.
    is_found(&Reading { run: one.run.clone(), ..two.clone() }, "the state is");
    let mut mixed = two.clone();
    mixed.run.as_mut().expect("a run").state.insert("text".to_owned(), "xxxxx".into());
    is_found(&mixed, "the state is");
    is_found(
        &Reading { run: two.run.as_ref().map(|run| RunReading { places: 1, ..run.clone() }), ..two.clone() },
        "the state is",
    );
    // A state that knows a step that is not told of.
    is_found(&Reading { run: two.run.clone(), ..one.clone() }, "the state is");
    // Steps that stand twice, in part, in another order or no more.
    is_found(&reading(&["w1/1/5", "w1/1/5"]), "stands there twice");
    is_found(
        &with(one.clone(), json!({ "kind": "step", "by": "w1", "token": "t", "part": 0, "parts": 2 })),
        "no part 1",
    );
    is_found(
        &with(one.clone(), json!({ "kind": "step", "by": "w1", "token": "t", "part": 1, "parts": 2 })),
        "no part before",
    );
    is_found(&reading(&["w1/2/9", "w1/1/5"]), "an entry was");
    is_found(&reading(&[]), "an entry was");
    let mut gap = two.clone();
    gap.entries.remove(3);
    is_found(&gap, "a gap");
    is_found(&Reading { tip: one.tip.clone(), ..two.clone() }, "the end of the stream");
    // Sessions that know what did not happen, or do not know at the end what did.
    is_found(&Reading { session: two.session.clone(), ..one.clone() }, "the session knows");
    let rests = with(two.clone(), json!({ "kind": "aside" }));
    is_found(&Reading { session: one.session.clone(), ..rests }, "the session knows");
    is_found(&with(two.clone(), json!({ "kind": "turn" })), "turns");
    let completed = with(two, json!({ "kind": "completed" }));
    is_found(&Reading { final_state: Some(Map::new()), ..completed }, "the final state");
}

#[test]
fn a_worker_of_the_past_and_an_answer_that_was_no_truth_are_found() {
    let tokens = |tokens: &[&str]| tokens.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>();
    let mut ledger = Ledger::default();
    ledger.look(&reading(&["w1/1/5"])).expect("all is right");
    ledger.accepted("w1/1/5").expect("it stands there");
    assert!(ledger.clone().accepted("w1/2/9").expect_err("it is lost").contains("is lost"));
    assert!(ledger.clone().refused("w1/1/5").expect_err("it stands there").contains("was refused"));
    ledger.granted("w1", &RunReading::behind(&tokens(&["w1/1/5"]))).expect("a claim");
    let handed = ledger.clone().granted("w2", &RunReading::behind(&[]));
    assert!(handed.expect_err("a step is missing").contains("was handed"));
    ledger.granted("w2", &RunReading::behind(&tokens(&["w1/1/5"]))).expect("a claim");
    let late = ledger.clone().look(&reading(&["w1/1/5", "w1/2/9"]));
    assert!(late.expect_err("w1 is over").contains("whose claim is over"));
    let recorded = with(reading(&["w1/1/5"]), json!({ "kind": "recorded", "by": "w1" }));
    assert!(ledger.clone().look(&recorded).expect_err("w1 is over").contains("has recorded"));
    let canceled = Reading { run: None, ..with(reading(&["w1/1/5"]), json!({ "kind": "canceled" })) };
    ledger.look(&canceled).expect("an end");
    let again = ledger.clone().look(&with(canceled, json!({ "kind": "aside" })));
    assert!(again.expect_err("it has ended").contains("after it was"));
}

#[test]
fn a_reading_that_never_was_so_is_found() {
    let of = |tokens: &[&str]| reading(tokens).run.expect("a run");
    let mut ledger = Ledger::default();
    ledger.look(&reading(&["w1/1/5", "w1/2/9"])).expect("all is right");
    assert_eq!(ledger.was_once(1, &of(&["w1/1/5"])), Ok(()));
    assert_eq!(ledger.was_once(1, &of(&["w1/1/5", "w1/2/9"])), Ok(()));
    assert!(ledger.was_once(2, &of(&["w1/1/5"])).is_err(), "it was behind that already");
    assert!(ledger.was_once(0, &of(&["w1/2/9"])).is_err(), "a step is missing");
}

#[test]
fn what_comes_back_of_an_erased_task_is_found() {
    let erased = || {
        let mut ledger = Ledger::default();
        ledger.look(&reading(&["w1/1/5"])).expect("all is right");
        ledger.begin_erasure();
        ledger.look(&reading(&[])).expect("some of it may be gone");
        ledger.erased();
        ledger
    };
    let nothing = Reading { tip: (3, Map::new()), ..Reading::default() };
    assert_eq!(erased().look(&nothing), Ok(()), "a fence is nothing");
    let known = Reading { tip: (3, map(json!({ "last": 3 }))), ..Reading::default() };
    let session = Reading { session: Some((1, session_of(&[], 0))), ..Reading::default() };
    for left in [known, session, Reading { session: None, run: None, ..reading(&["w1/1/5"]) }] {
        assert!(erased().look(&left).is_err(), "{left:?}");
    }
}

#[test]
fn an_entry_that_a_feed_reports_twice_or_never_is_found() {
    let mut ledger = Ledger::default();
    ledger.look(&reading(&["w1/1/5"])).expect("all is right");
    for appends in [vec![(1, 1)], vec![(1, 1), (2, 2), (2, 2)], vec![(1, 1), (3, 1)]] {
        assert!(ledger.is_fed(&appends).is_err(), "{appends:?}");
    }
}
