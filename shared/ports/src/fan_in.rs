use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Map, SignalId};

/// The signals that one pause expects when it waits for several (suspension §8.2: one outer pause, aggregated outside
/// of the graph), and those of them that have come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FanIn {
    /// The parts, each with a signal of its own; at least one.
    pub expected: Vec<Expected>,
    /// Condition under which the parts that have come are enough.
    pub until: Until,
    /// An answer that is enough by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub veto: Option<Veto>,
    /// The state field that receives all answers together.
    pub into: String,
    /// The answers so far, in the order in which they were accepted; one for each part at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<PartAnswer>,
}

/// One of several signals that a pause waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// Its name in the descriptor.
    pub part: String,
    /// Its correlation token.
    pub signal_id: SignalId,
}

/// Number of parts that have to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// All of them.
    All,
    /// So many; at least 1, and no more than there are.
    AtLeast(usize),
}

/// The answers that decide against all: those with `is` in their `field`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Veto {
    /// A field of the answer's payload.
    pub field: String,
    /// The value that is a veto.
    pub is: Value,
}

/// The answer of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartAnswer {
    /// Name of the part.
    pub part: String,
    /// Its payload.
    pub payload: Map,
    /// Instant at which it came.
    pub at: Timestamp,
}

/// The decision that the answers are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// The part with the answer that decided.
    pub by: &'a str,
    /// True if it was a veto.
    pub is_veto: bool,
}

impl FanIn {
    /// The part with the signal `signal_id`.
    pub fn part_of(&self, signal_id: &SignalId) -> Option<&str> {
        self.expected.iter().find(|one| one.signal_id == *signal_id).map(|one| one.part.as_str())
    }

    /// True if there is such a part.
    pub fn expects(&self, part: &str) -> bool {
        self.expected.iter().any(|one| one.part == part)
    }

    /// True if `part` has answered.
    pub fn has_answered(&self, part: &str) -> bool {
        self.answers.iter().any(|answer| answer.part == part)
    }

    /// The parts that have not answered, in the order of the descriptor.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.expected.iter().map(|one| one.part.as_str()).filter(|part| !self.has_answered(part))
    }

    /// The same with one answer more. The first answer of a part stands: a second one changes nothing.
    #[must_use]
    pub fn with(mut self, answer: PartAnswer) -> Self {
        if !self.has_answered(&answer.part) {
            self.answers.push(answer);
        }
        self
    }

    /// The decision, once the answers are enough: the first veto, or the answer that made them as many as are needed;
    /// the earlier of both.
    pub fn decision(&self) -> Option<Decision<'_>> {
        let needed = match self.until {
            Until::All => self.expected.len(),
            Until::AtLeast(count) => count,
        };
        let vetoes = |answer: &PartAnswer| {
            self.veto.as_ref().is_some_and(|veto| answer.payload.get(&veto.field) == Some(&veto.is))
        };
        self.answers.iter().enumerate().find_map(|(before, answer)| {
            let is_veto = vetoes(answer);
            (is_veto || before + 1 >= needed).then_some(Decision { by: &answer.part, is_veto })
        })
    }

    /// Payload that resumes the pause: all answers under the one field, the missing parts, and the part that decided.
    ///
    /// ```json
    /// {"answers": {"ada": {"vote": "yes"}}, "missing": ["grace"], "decided_by": "ada", "outcome": "enough"}
    /// ```
    /// `outcome` is `enough`, `veto` or, when nothing decided and `decided_by` is null, `time`.
    pub fn payload(&self) -> Map {
        let decision = self.decision();
        let outcome = match decision {
            Some(Decision { is_veto: true, .. }) => "veto",
            Some(Decision { is_veto: false, .. }) => "enough",
            None => "time",
        };
        let answers = self.answers.iter().map(|answer| (answer.part.clone(), Value::Object(answer.payload.clone())));
        let all = json!({
            "answers": answers.collect::<Map>(),
            "missing": self.missing().collect::<Vec<_>>(),
            "decided_by": decision.map(|decision| decision.by),
            "outcome": outcome,
        });
        Map::from_iter([(self.into.clone(), all)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three(until: Until) -> FanIn {
        let expected = ["a", "b", "c"].map(|part| Expected { part: part.to_owned(), signal_id: part.into() }).to_vec();
        let veto = Some(Veto { field: "vote".to_owned(), is: json!("no") });
        FanIn { expected, until, veto, into: "votes".to_owned(), answers: Vec::new() }
    }

    fn told(fan_in: FanIn, part: &str, vote: &str) -> FanIn {
        let payload = Map::from_iter([("vote".to_owned(), vote.into())]);
        fan_in.with(PartAnswer { part: part.to_owned(), payload, at: Timestamp::UNIX_EPOCH })
    }

    #[test]
    fn the_answer_that_makes_it_enough_decides() {
        let one = told(three(Until::AtLeast(2)), "c", "yes");
        assert_eq!((one.decision(), one.missing().collect::<Vec<_>>()), (None, vec!["a", "b"]));
        let two = told(one, "a", "yes");
        assert_eq!(two.decision(), Some(Decision { by: "a", is_veto: false }));
        assert_eq!(told(two, "b", "no").decision().map(|decision| decision.by), Some("a"), "a veto came too late");
        assert_eq!(told(told(three(Until::All), "a", "yes"), "b", "yes").decision(), None);
    }

    #[test]
    fn a_veto_is_enough() {
        let vetoed = told(told(three(Until::All), "a", "yes"), "b", "no");
        assert_eq!(vetoed.decision(), Some(Decision { by: "b", is_veto: true }));
        let expected = json!({ "votes": {
            "answers": { "a": { "vote": "yes" }, "b": { "vote": "no" } },
            "missing": ["c"], "decided_by": "b", "outcome": "veto",
        } });
        assert_eq!(Value::Object(vetoed.payload()), expected);
    }

    #[test]
    fn the_first_answer_of_a_part_stands() {
        let twice = told(told(three(Until::All), "a", "yes"), "a", "no");
        assert_eq!((twice.answers.len(), twice.decision()), (1, None));
        assert_eq!(twice.payload()["votes"]["outcome"], "time");
    }

    #[test]
    fn it_survives_its_record() {
        let fan_in = told(three(Until::AtLeast(2)), "a", "yes");
        let written = serde_json::to_value(&fan_in).expect("json");
        assert_eq!(written["until"], json!({ "at_least": 2 }));
        assert_eq!(serde_json::from_value::<FanIn>(written).expect("a fan-in"), fan_in);
    }
}
