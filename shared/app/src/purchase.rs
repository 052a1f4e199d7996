//! *Purchase*: waits for two of three people, each with an address of their own; a single no decides at once.

use std::collections::BTreeMap;

use dormouse_engine::{CompiledGraph, END, EngineError, NodeError, TypedGraph, Update, suspend};
use dormouse_ports::{Category, Map, SignalDescriptor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::invocation_id;

/// Name of the graph.
pub const PURCHASE: &str = "purchase";

/// Who is asked when nobody is named.
const COMMITTEE: [&str; 3] = ["ada", "grace", "linus"];
/// How many of them have to agree.
const NEEDED: usize = 2;

/// State of a purchase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purchase {
    /// What is to be bought.
    pub item: String,
    /// For how much, in cents; more than 0.
    pub amount_cents: u64,
    /// Who is asked: 2 to 25 different names. When empty: ada, grace and linus.
    pub approvers: Vec<String>,
    /// How long the votes may take, as an ISO-8601 duration. When empty: three days, with a reminder after one.
    pub decide_within: String,
    /// What was answered; what the pause ends with.
    pub votes: Votes,
    /// What became of it, in a sentence.
    pub result: String,
}

/// The answers of all who were asked, as the harness gathers them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Votes {
    /// By name, what each has answered.
    pub answers: BTreeMap<String, Ballot>,
    /// Who has not answered.
    pub missing: Vec<String>,
    /// Whose answer decided; nobody's when time did.
    pub decided_by: Option<String>,
    /// `enough`, `veto` or `time`.
    pub outcome: String,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ballot {
    /// Whether to buy it.
    pub vote: Vote,
    /// Why, in their own words.
    #[serde(default)]
    pub remark: String,
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vote {
    /// Buy it.
    Yes,
    /// Do not.
    No,
}

/// `ask -> settle`.
pub(crate) fn graph() -> Result<CompiledGraph, EngineError> {
    TypedGraph::<Purchase>::new(PURCHASE)
        .version("1")
        .inputs(["item", "amount_cents", "approvers", "decide_within"])
        .entry("ask")
        .node("ask", async |purchase: Purchase| Err(suspend(wait_for_votes(&purchase)?).await))
        .node("settle", async |purchase| Ok(Update::none().with("result", verdict(&purchase))))
        .edge("ask", "settle")
        .edge("settle", END)
        .compile()
}

fn wait_for_votes(purchase: &Purchase) -> Result<SignalDescriptor, NodeError> {
    let refuse = |message: &str| Err(NodeError::new(message).with_category(Category::RequestInvalid));
    if purchase.amount_cents == 0 {
        return refuse("field `amount_cents` must be more than 0");
    }
    let named = purchase.approvers.iter().map(String::as_str);
    let asked: Vec<&str> = if purchase.approvers.is_empty() { COMMITTEE.to_vec() } else { named.collect() };
    let parts: Map = asked.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    if parts.len() < NEEDED || parts.len() < asked.len() {
        return refuse("field `approvers` must hold at least two different names");
    }
    let end = json!({ "after": or(&purchase.decide_within, "P3D"), "then": { "resume": {} } });
    let reminder = purchase.decide_within.is_empty().then(|| json!({ "after": "P1D", "do": "remind" }));
    Ok(SignalDescriptor::new(format!("purchase-{}", invocation_id()?))
        .with("kind", "vote")
        .with("description", format!("buy {} for {}?", purchase.item, euros(purchase)))
        .with(
            "accepts",
            json!({
                "type": "object",
                "properties": {
                    "vote": { "enum": [Vote::Yes, Vote::No] },
                    "remark": { "type": "string", "maxLength": 2000 },
                },
                "required": ["vote"],
            }),
        )
        .with("answers", json!({ "approved": { "vote": Vote::Yes }, "denied": { "vote": Vote::No } }))
        .with(
            "expects",
            json!({
                "parts": parts,
                "until": { "at_least": NEEDED },
                "veto": { "field": "vote", "is": Vote::No },
                "into": "votes",
            }),
        )
        .with("deadlines", reminder.into_iter().chain([end]).collect::<Vec<_>>()))
}

fn or<'t>(given: &'t str, usual: &'t str) -> &'t str {
    if given.is_empty() { usual } else { given }
}

fn verdict(purchase: &Purchase) -> String {
    let Votes { answers, decided_by, outcome, .. } = &purchase.votes;
    let who = decided_by.as_deref().unwrap_or("nobody");
    match outcome.as_str() {
        "enough" => {
            let names: Vec<_> = answers.keys().map(String::as_str).collect();
            format!("{} bought for {}, approved by {}", purchase.item, euros(purchase), names.join(" and "))
        }
        "veto" => format!("not bought: {who} said no"),
        _ => format!("not bought: {} of {NEEDED} votes came in time", answers.len()),
    }
}

fn euros(purchase: &Purchase) -> String {
    format!("EUR {}.{:02}", purchase.amount_cents / 100, purchase.amount_cents % 100)
}
