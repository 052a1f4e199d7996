//! *Purchase*: waits for two of three people, each with an address of their own; a single no decides at once.

use std::collections::BTreeSet;

use dormouse::{
    Answer, CompiledGraph, Delay, END, EngineError, Graph, NodeError, Rule, Step, Update, VoteOutcome, Voters, Votes,
    Wait, invocation_id, record, state,
};
use serde::{Deserialize, Serialize};

use crate::{delay, euros, must_be, refuse};

/// Name of the graph.
pub const PURCHASE: &str = "purchase";

/// Persons who are asked when none is named.
const COMMITTEE: [&str; 3] = ["ada", "grace", "linus"];
/// Number of them that have to agree.
const NEEDED: usize = 2;

state! {
    /// State of a purchase.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Purchase {
        /// Item to be bought.
        pub item: String,
        /// For how much, in cents; more than 0.
        pub amount_cents: u64,
        /// Persons who are asked: 2 to 25 different names. When empty: ada, grace and linus.
        pub approvers: Vec<String>,
        /// Time that the votes may take, as an ISO-8601 duration. When empty: three days, with a reminder after one.
        pub decide_within: String,
        /// Answers; what the pause ends with.
        pub votes: Votes<Ballot>,
        /// Outcome, in a sentence.
        pub result: String,
    }
}

record! {
    /// One answer.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Ballot {
        /// Vote for or against the purchase.
        pub vote: Vote,
        /// Reason, in their own words.
        #[serde(default)]
        pub remark: String,
    }
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
    Graph::<Purchase>::new(PURCHASE)
        .version("1")
        .inputs((Purchase::item, Purchase::amount_cents, Purchase::approvers, Purchase::decide_within))
        .entry("ask")
        .wait("ask", wait_for_votes)
        .node("settle", async |purchase: Purchase| Ok(Purchase::result.set(verdict(&purchase))))
        .edge("ask", "settle")
        .edge("settle", END)
        .pure()
        .compile()
}

fn wait_for_votes(purchase: &Purchase) -> Result<Wait<Purchase, Ballot>, NodeError> {
    if purchase.amount_cents == 0 {
        return Err(must_be(Purchase::amount_cents, "more than 0"));
    }
    let answer = Answer::new()
        .required(Ballot::vote, Rule::one_of([Vote::Yes, Vote::No]))
        .optional(Ballot::remark, Rule::text().at_most(2000));
    let within = delay(Purchase::decide_within, &purchase.decide_within)?;
    let reminder = within.is_none().then(|| Step::remind(Delay::days(1)));
    let voters = Voters::each(approvers(purchase)?).at_least(NEEDED).veto(Ballot::vote, Vote::No);
    Ok(Wait::votes(format!("purchase-{}", invocation_id()?), Purchase::votes, answer, voters)
        .kind("vote")
        .describe(format!("buy {} for {}?", purchase.item, euros(purchase.amount_cents)))
        .answers(Ballot::vote.set(Vote::Yes), Ballot::vote.set(Vote::No))
        .steps(reminder)
        .or_default(within.unwrap_or(Delay::days(3)), Update::none()))
}

/// Persons who are asked.
fn approvers(purchase: &Purchase) -> Result<Vec<&str>, NodeError> {
    if purchase.approvers.is_empty() {
        return Ok(COMMITTEE.to_vec());
    }
    let names: Vec<&str> = purchase.approvers.iter().map(String::as_str).collect();
    let different: BTreeSet<&str> = names.iter().copied().collect();
    if different.len() < NEEDED || different.len() < names.len() {
        return Err(refuse(format!("field `{}` must hold at least two different names", Purchase::approvers)));
    }
    Ok(names)
}

fn verdict(purchase: &Purchase) -> String {
    let Votes { answers, decided_by, outcome, .. } = &purchase.votes;
    let who = decided_by.as_deref().unwrap_or("nobody");
    match outcome {
        VoteOutcome::Enough => {
            let names: Vec<_> = answers.keys().map(String::as_str).collect();
            format!(
                "{} bought for {}, approved by {}",
                purchase.item,
                euros(purchase.amount_cents),
                names.join(" and ")
            )
        }
        VoteOutcome::Veto => format!("not bought: {who} said no"),
        VoteOutcome::Open | VoteOutcome::Time | VoteOutcome::OutOfReach => {
            format!("not bought: {} of {NEEDED} votes came in time", answers.len())
        }
    }
}
