//! The lists to which recent durable steps refer, so that the next step of the same invocation writes only what came behind
//! them. A hint: another process, or a list that was dropped from here, costs a larger write and nothing else.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use dormouse_ports::{Commit, GrowingLists, InvocationId, InvocationWrite, StoredList};

use super::encode::{Encoder, KnownMarks};

/// Number of invocations with known lists: as many as run in one process at a time, and more.
const MOST: usize = 64;

/// Lists by the running invocation that has them. Its item refers to them, so that they are there as long as it runs. Where it
/// ends elsewhere, nothing is told here: what stays until then is small.
#[derive(Debug, Default)]
pub(super) struct RecentLists(Mutex<VecDeque<RecentRun>>);

#[derive(Debug)]
struct RecentRun {
    id: InvocationId,
    lists: Vec<StoredList>,
    /// Of the lists: the next step looks only at what came behind.
    marks: KnownMarks,
}

impl RecentLists {
    /// What `commit` knows of its lists, with those of the last step of its invocation, and the marks of these.
    pub(super) fn knowing(&self, commit: &Commit) -> (GrowingLists, KnownMarks) {
        let mut growing = commit.growing.clone();
        let mut marks = KnownMarks::new();
        if let Some(write) = &commit.invocation {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for run in known.iter().filter(|run| run.id == *write.invocation_id()) {
                growing.stored.extend(run.lists.iter().cloned());
                marks.extend(run.marks.iter().cloned());
            }
        }
        (growing, marks)
    }

    /// `commit`, which is `encoded`, happened.
    pub(super) fn note(&self, commit: &Commit, encoded: &Encoder<'_>) {
        let Some(write) = &commit.invocation else { return };
        // What a run saves in the midst of a step leaves its item as it is.
        if matches!(write, InvocationWrite::AssertClaimed { .. }) {
            return;
        }
        let id = write.invocation_id();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|run| run.id != *id);
        if matches!(write, InvocationWrite::Progress { claim: Some(_), .. }) && !encoded.referred.is_empty() {
            known.truncate(MOST - 1);
            known.push_front(RecentRun {
                id: id.clone(),
                lists: encoded.referred.clone(),
                marks: encoded.beginnings(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dormouse_ports::{Claim, Map, Owner, PausedInvocation, ProgressFrom, SharedField, SharedItems, SharedMap};
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::super::StoreConfig;
    use super::super::keys::PieceKey;
    use super::super::plan::{Notes, Plan};
    use super::*;

    const LISTS: [&str; 2] = ["messages", "outputs"];

    /// A run with lists that grow.
    #[derive(Default)]
    struct Run {
        recent: RecentLists,
        lists: [(Vec<Value>, SharedItems); 2],
    }

    impl Run {
        /// Adds an item to the list `at` and commits that as a step; the lists of which pieces are written, with beginnings and
        /// ends.
        fn step(&mut self, at: usize) -> Vec<(String, usize, usize)> {
            let (list, items) = &mut self.lists[at];
            list.push(json!("x".repeat(600)));
            *items = items.grown(list);
            let fields = LISTS.iter().zip(&self.lists);
            let fields = fields.map(|(name, (_, items))| (Arc::<str>::from(*name), SharedField::Items(items.clone())));
            let begun = PausedInvocation::before_first_pause("i1".into(), "g", Timestamp::UNIX_EPOCH);
            let paused = Box::new(PausedInvocation { state: SharedMap::of_fields(fields), ..begun });
            let owner = Owner::from("worker");
            let until = Timestamp::UNIX_EPOCH;
            let claim = Claim { owner: owner.clone(), until, payload: Map::new(), attempts: 1, taken_over: false };
            self.commit(InvocationWrite::Progress { paused, from: ProgressFrom::Claimed(owner), claim: Some(claim) })
        }

        fn commit(&self, write: InvocationWrite) -> Vec<(String, usize, usize)> {
            let growing = GrowingLists { fields: LISTS.map(Arc::<str>::from).to_vec(), stored: Vec::new() };
            let commit = Commit { invocation: Some(write), growing, ..Commit::new("c1", Timestamp::UNIX_EPOCH) };
            let (growing, known) = self.recent.knowing(&commit);
            let config = StoreConfig { inline_limit: 0, whole_limit: 0, ..StoreConfig::default() };
            let plan = Plan::of(&commit, &growing, known, (&config, Notes::Unknown)).expect("a plan");
            self.recent.note(&commit, &plan.encoder);
            let pieces = plan.encoder.pieces.keys().filter_map(|key| PieceKey::parse(&key.sk));
            pieces.map(|piece| (piece.field, piece.from, piece.to)).collect()
        }
    }

    fn piece(list: &str, from: usize, to: usize) -> (String, usize, usize) {
        (list.to_owned(), from, to)
    }

    #[test]
    fn a_list_that_did_not_grow_is_known_to_the_step_in_which_it_grows_again() {
        let mut run = Run::default();
        assert_eq!(run.step(0), [piece("messages", 0, 1)]);
        assert_eq!(run.step(1), [piece("outputs", 0, 1)]);
        assert_eq!(run.step(0), [piece("messages", 1, 2)]);
        assert_eq!(run.step(0), [piece("messages", 2, 3)]);
        assert_eq!(run.step(1), [piece("outputs", 1, 2)]);
        let known = run.recent.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<_> = known.iter().map(|run| (run.lists.len(), run.marks.len())).collect();
        assert_eq!(known, [(2, 2)], "each as it is");
    }

    #[test]
    fn what_a_run_saves_in_the_midst_of_a_step_leaves_its_lists_known_and_its_end_does_not() {
        let (invocation_id, generation, owner) = (InvocationId::from("i1"), 0, Owner::from("worker"));
        let mut run = Run::default();
        assert_eq!(run.step(0), [piece("messages", 0, 1)]);
        let hold =
            InvocationWrite::AssertClaimed { invocation_id: invocation_id.clone(), generation, owner: owner.clone() };
        assert!(run.commit(hold).is_empty());
        assert_eq!(run.step(0), [piece("messages", 1, 2)]);
        let given_up = InvocationWrite::Keep { invocation_id, generation, owner, at_once: false };
        assert!(run.commit(given_up).is_empty());
        assert_eq!(run.step(0), [piece("messages", 0, 3)]);
    }
}
