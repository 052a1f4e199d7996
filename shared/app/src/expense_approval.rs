//! *Expense approval*: waits for a person, with a ladder of deadlines.

use dormouse_engine::{CompiledGraph, END, EngineError, NodeError, Target, TypedGraph, Update, suspend};
use dormouse_ports::{Category, SignalDescriptor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::invocation_id;

/// Name of the graph.
pub const EXPENSE_APPROVAL: &str = "expense-approval";

/// Up to this amount, in cents, nobody needs to be asked.
const PETTY_CASH: u64 = 5_000;

/// What is decided about an expense.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Nobody has decided yet.
    #[default]
    Open,
    /// It is paid.
    Approved,
    /// It is not paid.
    Rejected,
    /// Nobody decided until the deadline; not the same as a no.
    TimedOut,
}

/// State of an expense approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expense {
    /// Who spent the money.
    pub employee: String,
    /// How much, in cents; more than 0.
    pub amount_cents: u64,
    /// What for.
    pub purpose: String,
    /// How long a decision may take, as an ISO-8601 duration. When empty: three days, with a reminder after one day and
    /// an escalation after two.
    pub decide_within: String,
    /// When to remind whoever was asked, as an ISO-8601 duration; never when empty and `decide_within` is given.
    pub remind_after: String,
    /// When to tell whoever is responsible; as `remind_after`.
    pub escalate_after: String,
    /// The decision: what the awaited signal carries.
    pub decision: Decision,
    /// Who decided; the signal may carry it.
    pub decided_by: String,
    /// What became of it, in a sentence.
    pub result: String,
}

/// `check -> ask -> settle`, where small amounts go from `check` to `settle` at once.
pub(crate) fn graph() -> Result<CompiledGraph, EngineError> {
    TypedGraph::<Expense>::new(EXPENSE_APPROVAL)
        .version("1")
        .inputs(["employee", "amount_cents", "purpose", "decide_within", "remind_after", "escalate_after"])
        .entry("check")
        .node("check", async |expense| check(&expense))
        .node("ask", async |expense: Expense| Err(suspend(wait_for_decision(&expense)?).await))
        .node("settle", async |expense| Ok(Update::none().with("result", verdict(&expense))))
        .route("check", |expense| if expense.decision == Decision::Open { Target::from("ask") } else { END })
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

fn check(expense: &Expense) -> Result<Update, NodeError> {
    if expense.amount_cents == 0 {
        let message = "field `amount_cents` must be more than 0";
        return Err(NodeError::new(message).with_category(Category::RequestInvalid));
    }
    if expense.amount_cents > PETTY_CASH {
        return Ok(Update::none());
    }
    let decided = Expense { decision: Decision::Approved, decided_by: "petty cash".to_owned(), ..expense.clone() };
    Update::none()
        .with("decided_by", "petty cash")
        .with("result", verdict(&decided))
        .try_with("decision", decided.decision)
}

fn wait_for_decision(expense: &Expense) -> Result<SignalDescriptor, NodeError> {
    Ok(SignalDescriptor::new(format!("expense-{}", invocation_id()?))
        .with("kind", "approval")
        .with("description", format!("{} asks for {} for {}", expense.employee, euros(expense), expense.purpose))
        .with("accepts", accepted())
        .with("answers", answers())
        .with("deadlines", deadlines(expense)))
}

/// What an answer may say: the decision, and by which name it was decided.
fn accepted() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": { "enum": [Decision::Approved, Decision::Rejected] },
            "decided_by": { "type": "string", "maxLength": 200 },
        },
        "required": ["decision"],
    })
}

/// What a yes and a no mean, and where the name goes of whoever says it.
fn answers() -> Value {
    let decided = |decision: Decision| json!({ "decision": decision });
    json!({
        "approved": decided(Decision::Approved), "denied": decided(Decision::Rejected), "by": "decided_by",
    })
}

fn deadlines(expense: &Expense) -> Value {
    let is_usual = expense.decide_within.is_empty();
    let or_usual = |given: &str, usual: &str| if given.is_empty() && is_usual { usual } else { given }.to_owned();
    let (remind, escalate) = (or_usual(&expense.remind_after, "P1D"), or_usual(&expense.escalate_after, "P2D"));
    let end = or_usual(&expense.decide_within, "P3D");
    let reminder = (!remind.is_empty()).then(|| json!({ "after": remind, "do": "remind" }));
    let escalation =
        (!escalate.is_empty()).then(|| json!({ "after": escalate, "do": "escalate", "to": "head of finance" }));
    let end = json!({ "after": end, "then": { "resume": { "decision": Decision::TimedOut } } });
    reminder.into_iter().chain(escalation).chain([end]).collect()
}

fn verdict(expense: &Expense) -> String {
    let by = if expense.decided_by.is_empty() { String::new() } else { format!(" by {}", expense.decided_by) };
    match expense.decision {
        Decision::Open => "not paid: nothing was decided".to_owned(),
        Decision::Approved => format!("{} paid to {}, approved{by}", euros(expense), expense.employee),
        Decision::Rejected => format!("not paid: rejected{by}"),
        Decision::TimedOut => "not paid: nobody decided in time".to_owned(),
    }
}

fn euros(expense: &Expense) -> String {
    format!("EUR {}.{:02}", expense.amount_cents / 100, expense.amount_cents % 100)
}
