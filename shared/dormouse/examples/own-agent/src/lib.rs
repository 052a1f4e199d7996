//! The agents of this package.

use dormouse::{
    Agent, Agents, Answer, AutonomyTier, Category, CompiledGraph, Delay, END, EngineError, Graph, NodeError, Outside,
    Rule, Step, Wait, invocation_id, state,
};

state! {
    /// A request for leave: what the agent works on, and what is stored while it sleeps.
    #[derive(Clone, Debug, Default)]
    pub struct Leave {
        /// Who asks.
        pub employee: String,
        /// For how many days.
        pub days: u32,
        /// The decision: what the answer carries.
        pub approved: bool,
        /// Who decided; the answer may carry it.
        pub decided_by: String,
        /// What became of it, in a sentence.
        pub result: String,
    }
}

/// Everything that is served. The first agent works for clients that name none.
pub fn agents() -> Agents {
    Agents::new().agent(
        Agent::new(leave)
            .description("Has a request for leave approved by a person.")
            .autonomy(AutonomyTier::ActWithApproval),
    )
}

/// `ask -> settle`.
fn leave(_: &Outside) -> Result<CompiledGraph, EngineError> {
    Graph::<Leave>::new("leave")
        .version("1")
        .required_inputs((Leave::employee, Leave::days))
        .entry("ask")
        .wait("ask", ask)
        .node("settle", async |leave: Leave| Ok(Leave::result.set(verdict(&leave))))
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

/// Sleeps until a person has answered; reminds after a day, and takes silence for a no after three.
fn ask(leave: &Leave) -> Result<Wait<Leave>, NodeError> {
    if leave.days == 0 {
        return Err(NodeError::new("days must be more than 0").with_category(Category::RequestInvalid));
    }
    let answer =
        Answer::new().required(Leave::approved, Rule::boolean()).optional(Leave::decided_by, Rule::text().at_most(200));
    Ok(Wait::signal(format!("leave-{}", invocation_id()?), answer)
        .kind("approval")
        .describe(format!("{} asks for {} days of leave", leave.employee, leave.days))
        .answers(Leave::approved.set(true), Leave::approved.set(false))
        .answered_by(Leave::decided_by)
        .steps([Step::remind(Delay::days(1))])
        .or_default(Delay::days(3), Leave::approved.set(false)))
}

fn verdict(leave: &Leave) -> String {
    match (leave.approved, leave.decided_by.as_str()) {
        (true, who) => format!("{} has {} days of leave, approved by {who}", leave.employee, leave.days),
        (false, "") => format!("{} stays: nobody answered", leave.employee),
        (false, who) => format!("{} stays: {who} said no", leave.employee),
    }
}

#[cfg(test)]
mod tests {
    use dormouse::json;
    use dormouse::testing::TestBed;

    use super::*;

    #[test]
    fn a_person_approves() {
        let mut bed = TestBed::new(&agents());
        let leave = bed.start("leave", json!({ "employee": "Ada", "days": 3 }));
        assert!(bed.status(&leave).is_asleep());
        bed.answer(&leave, json!({ "approved": true, "decided_by": "Grace" })).unwrap();
        assert_eq!(bed.status(&leave).completed()["result"], "Ada has 3 days of leave, approved by Grace");
    }

    #[test]
    fn silence_for_three_days_is_a_no() {
        let mut bed = TestBed::new(&agents());
        let leave = bed.start("leave", json!({ "employee": "Ada", "days": 3 }));
        bed.pass_days(1);
        assert_eq!(bed.published().len(), 1, "somebody is reminded");
        bed.pass_days(2);
        assert_eq!(bed.status(&leave).completed()["result"], "Ada stays: nobody answered");
    }

    #[test]
    fn an_answer_says_only_what_was_asked() {
        let mut bed = TestBed::new(&agents());
        let leave = bed.start("leave", json!({ "employee": "Ada", "days": 3 }));
        assert!(bed.answer(&leave, json!({ "aproved": true })).is_err());
        assert!(bed.answer(&leave, json!({ "approved": true, "days": 300 })).is_err());
        assert!(bed.status(&leave).is_asleep());
    }

    #[test]
    fn what_is_missing_in_a_request_is_named() {
        let mut bed = TestBed::new(&agents());
        let refused = bed.try_start("leave", json!({ "days": 3 })).unwrap_err();
        assert!(refused.message.contains("cannot begin without `employee`"), "{}", refused.message);
    }

    #[test]
    fn nobody_asks_for_no_leave() {
        let mut bed = TestBed::new(&agents());
        let refused = bed.try_start("leave", json!({ "employee": "Ada", "days": 0 })).unwrap_err();
        assert_eq!(refused.message, "days must be more than 0");
    }
}
