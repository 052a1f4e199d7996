//! *Expense approval*: waits for a person, with a ladder of deadlines.

use dormouse::{
    Answer, CompiledGraph, Delay, END, EngineError, Graph, NodeError, Rule, Step, Target, Update, Wait, invocation_id,
    state,
};
use serde::{Deserialize, Serialize};

use crate::{delay, euros, must_be};

/// Name of the graph.
pub const EXPENSE_APPROVAL: &str = "expense-approval";

/// Up to this amount, in cents, no approval is needed.
const PETTY_CASH: u64 = 5_000;

/// Decision about an expense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpenseDecision {
    /// Not decided yet.
    #[default]
    Open,
    /// It is paid.
    Approved,
    /// It is not paid.
    Rejected,
    /// Not decided until the deadline; not the same as a no.
    TimedOut,
}

state! {
    /// State of an expense approval.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Expense {
        /// Employee who spent the money.
        pub employee: String,
        /// Amount, in cents; more than 0.
        pub amount_cents: u64,
        /// Purpose of the expense.
        pub purpose: String,
        /// Time that a decision may take, as an ISO-8601 duration. When empty: three days, with a reminder after one
        /// day and an escalation after two.
        pub decide_within: String,
        /// Time until the reminder of the approver, as an ISO-8601 duration; never when empty and `decide_within` is
        /// given.
        pub remind_after: String,
        /// Time until the escalation to the head of finance; as `remind_after`.
        pub escalate_after: String,
        /// The decision: what the awaited signal carries.
        pub decision: ExpenseDecision,
        /// Person who decided; the signal may carry it.
        pub decided_by: String,
        /// Outcome, in a sentence.
        pub result: String,
    }
}

/// `check -> ask -> settle`, where small amounts go from `check` to `settle` at once.
pub(crate) fn graph() -> Result<CompiledGraph, EngineError> {
    Graph::<Expense>::new(EXPENSE_APPROVAL)
        .version("1")
        .inputs((
            Expense::employee,
            Expense::amount_cents,
            Expense::purpose,
            Expense::decide_within,
            Expense::remind_after,
            Expense::escalate_after,
        ))
        .entry("check")
        .node("check", async |expense: Expense| check(&expense))
        .wait("ask", wait_for_decision)
        .node("settle", async |expense: Expense| Ok(Expense::result.set(verdict(&expense))))
        .route(
            "check",
            ["ask"],
            |expense| if expense.decision == ExpenseDecision::Open { Target::from("ask") } else { END },
        )
        .edge("ask", "settle")
        .edge("settle", END)
        .pure()
        .compile()
}

fn check(expense: &Expense) -> Result<Update<Expense>, NodeError> {
    if expense.amount_cents == 0 {
        return Err(must_be(Expense::amount_cents, "more than 0"));
    }
    if expense.amount_cents > PETTY_CASH {
        return Ok(Update::none());
    }
    Ok(Update::change(expense, |expense| {
        expense.decided_by = "petty cash".to_owned();
        expense.decision = ExpenseDecision::Approved;
        expense.result = verdict(expense);
    }))
}

fn wait_for_decision(expense: &Expense) -> Result<Wait<Expense>, NodeError> {
    let answer = Answer::new()
        .required(Expense::decision, Rule::one_of([ExpenseDecision::Approved, ExpenseDecision::Rejected]))
        .optional(Expense::decided_by, Rule::text().at_most(200));
    let (steps, end) = deadlines(expense)?;
    Ok(Wait::signal(format!("expense-{}", invocation_id()?), answer)
        .kind("approval")
        .describe(format!("{} asks for {} for {}", expense.employee, euros(expense.amount_cents), expense.purpose))
        .answers(Expense::decision.set(ExpenseDecision::Approved), Expense::decision.set(ExpenseDecision::Rejected))
        .answered_by(Expense::decided_by)
        .steps(steps)
        .or_default(end, Expense::decision.set(ExpenseDecision::TimedOut)))
}

/// Reminders and escalations, and the deadline.
fn deadlines(expense: &Expense) -> Result<(Vec<Step>, Delay), NodeError> {
    let is_usual = expense.decide_within.is_empty();
    let within = delay(Expense::decide_within, &expense.decide_within)?;
    let remind = delay(Expense::remind_after, &expense.remind_after)?.or(is_usual.then(|| Delay::days(1)));
    let escalate = delay(Expense::escalate_after, &expense.escalate_after)?.or(is_usual.then(|| Delay::days(2)));
    let reminder = remind.map(Step::remind);
    let escalation = escalate.map(|after| Step::escalate(after, "head of finance"));
    Ok((reminder.into_iter().chain(escalation).collect(), within.unwrap_or(Delay::days(3))))
}

fn verdict(expense: &Expense) -> String {
    let by = if expense.decided_by.is_empty() { String::new() } else { format!(" by {}", expense.decided_by) };
    match expense.decision {
        ExpenseDecision::Open => "not paid: nothing was decided".to_owned(),
        ExpenseDecision::Approved => {
            format!("{} paid to {}, approved{by}", euros(expense.amount_cents), expense.employee)
        }
        ExpenseDecision::Rejected => format!("not paid: rejected{by}"),
        ExpenseDecision::TimedOut => "not paid: nobody decided in time".to_owned(),
    }
}
