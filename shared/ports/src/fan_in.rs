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
    /// The answers that count towards `until`; without it, all of them do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<AnswerTest>,
    /// An answer that is enough by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub veto: Option<AnswerTest>,
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

/// Some of the answers: those with `is` in their `field`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerTest {
    /// A field of the answer's payload.
    pub field: String,
    /// The value that is there.
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
    /// Reason for which nothing else has to be waited for.
    pub reason: DecisionReason,
}

/// Reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// As many answers that count have come as are needed.
    Enough,
    /// An answer is a veto.
    Veto,
    /// So many answers do not count that those which are missing can no longer make it enough.
    OutOfReach,
}

impl AnswerTest {
    fn holds(&self, answer: &PartAnswer) -> bool {
        answer.payload.get(&self.field) == Some(&self.is)
    }
}

impl FanIn {
    /// The part with the signal that is called `signal_id`.
    pub fn part_of(&self, signal_id: &SignalId) -> Option<&str> {
        self.expected.iter().find(|one| one.signal_id.is_called(signal_id)).map(|one| one.part.as_str())
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

    /// The decision, once nothing else has to be waited for: by the first veto, by the answer that made them as many as are
    /// needed, or by the one after which they cannot become so many; the earliest of these.
    pub fn decision(&self) -> Option<Decision<'_>> {
        let needed = match self.until {
            Until::All => self.expected.len(),
            Until::AtLeast(count) => count,
        };
        let (mut counted, mut possible) = (0, self.expected.len());
        self.answers.iter().find_map(|answer| {
            match self.counts.as_ref().is_none_or(|counts| counts.holds(answer)) {
                true => counted += 1,
                false => possible = possible.saturating_sub(1),
            }
            let reason = if self.veto.as_ref().is_some_and(|veto| veto.holds(answer)) {
                DecisionReason::Veto
            } else if counted >= needed {
                DecisionReason::Enough
            } else if possible < needed {
                DecisionReason::OutOfReach
            } else {
                return None;
            };
            Some(Decision { by: &answer.part, reason })
        })
    }

    /// Payload that resumes the pause: all answers under the one field, the missing parts, and the part that decided.
    ///
    /// ```json
    /// {"answers": {"ada": {"vote": "yes"}}, "missing": ["grace"], "decided_by": "ada", "outcome": "enough"}
    /// ```
    /// `outcome` is `enough`, `veto`, `out_of_reach` or, when nothing decided and `decided_by` is null, `time`.
    pub fn payload(&self) -> Map {
        let decision = self.decision();
        let outcome = match decision.map(|decision| decision.reason) {
            Some(DecisionReason::Enough) => "enough",
            Some(DecisionReason::Veto) => "veto",
            Some(DecisionReason::OutOfReach) => "out_of_reach",
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
        let veto = Some(test("no"));
        FanIn { expected, until, counts: None, veto, into: "votes".to_owned(), answers: Vec::new() }
    }

    fn test(vote: &str) -> AnswerTest {
        AnswerTest { field: "vote".to_owned(), is: vote.into() }
    }

    /// Two of three have to say yes.
    fn yes_of_two() -> FanIn {
        FanIn { counts: Some(test("yes")), veto: None, ..three(Until::AtLeast(2)) }
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
        assert_eq!(two.decision(), Some(Decision { by: "a", reason: DecisionReason::Enough }));
        assert_eq!(told(two, "b", "no").decision().map(|decision| decision.by), Some("a"), "a veto came too late");
        assert_eq!(told(told(three(Until::All), "a", "yes"), "b", "yes").decision(), None);
    }

    #[test]
    fn a_veto_is_enough() {
        let vetoed = told(told(three(Until::All), "a", "yes"), "b", "no");
        assert_eq!(vetoed.decision(), Some(Decision { by: "b", reason: DecisionReason::Veto }));
        let expected = json!({ "votes": {
            "answers": { "a": { "vote": "yes" }, "b": { "vote": "no" } },
            "missing": ["c"], "decided_by": "b", "outcome": "veto",
        } });
        assert_eq!(Value::Object(vetoed.payload()), expected);
    }

    #[test]
    fn where_only_some_answers_count_the_others_decide_once_those_cannot_be_enough() {
        let one_no = told(told(yes_of_two(), "a", "yes"), "b", "no");
        assert_eq!(one_no.decision(), None, "two may still say yes");
        let enough = told(one_no.clone(), "c", "yes");
        assert_eq!(enough.decision(), Some(Decision { by: "c", reason: DecisionReason::Enough }));
        let out_of_reach = told(one_no, "c", "no");
        assert_eq!(out_of_reach.decision(), Some(Decision { by: "c", reason: DecisionReason::OutOfReach }));
        assert_eq!(out_of_reach.payload()["votes"]["outcome"], "out_of_reach");
        let at_once = told(told(yes_of_two(), "a", "no"), "b", "no");
        assert_eq!(at_once.decision().map(|decision| decision.by), Some("b"), "the third need not be waited for");
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
        let written = serde_json::to_value(yes_of_two()).expect("json");
        assert_eq!(written["counts"], json!({ "field": "vote", "is": "yes" }));
        assert_eq!(serde_json::from_value::<FanIn>(written).expect("a fan-in"), yes_of_two());
    }
}
