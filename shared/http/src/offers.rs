//! What clients of the protocol can have done: the graphs that ship, in their words.

use dormouse_api::Offer;
use dormouse_app::{CHAT, EXPENSE_APPROVAL, EXPORT_JOB, PURCHASE, REMINDER};
use dormouse_harness::GraphRegistry;
use dormouse_protocol::resource::AutonomyTier;

/// Graphs with what they are responsible for. The first works where nobody names a persona.
const DESCRIBED: [(&str, &str, AutonomyTier); 5] = [
    (CHAT, "Answers what a user says in a session, and asks before it does something.", AutonomyTier::ActWithApproval),
    (EXPENSE_APPROVAL, "Has an expense approved by a person, with reminders.", AutonomyTier::ActWithApproval),
    (
        PURCHASE,
        "Asks several people about a purchase, until enough agree or one says no.",
        AutonomyTier::ActWithApproval,
    ),
    (REMINDER, "Says something at a later time.", AutonomyTier::ActAuto),
    (EXPORT_JOB, "Starts an export and waits for the job to finish.", AutonomyTier::ActAuto),
];

/// An offer of every graph in `graphs`, those that nobody described behind the others.
pub(crate) fn of(graphs: &GraphRegistry) -> Vec<Offer> {
    let described = DESCRIBED.into_iter().filter(|(graph, ..)| graphs.get(graph).is_ok());
    let described = described.map(|(graph, description, tier)| Offer::new(graph, description, tier));
    let is_described = |name: &str| DESCRIBED.iter().any(|(graph, ..)| *graph == name);
    let others = graphs.iter().map(|graph| graph.name()).filter(|name| !is_described(name));
    let others = others.map(|name| Offer::new(name, format!("Runs the graph {name}."), AutonomyTier::ActAuto));
    described.chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_graph_that_ships_is_described() {
        let bus = Arc::new(dormouse_testkit::MemoryBus::default());
        let clock = Arc::new(dormouse_testkit::ManualClock::default());
        let graphs = dormouse_app::registry(bus, clock).expect("graphs");
        let offers = of(&graphs);
        assert_eq!((offers.len(), offers[0].graph.as_str()), (DESCRIBED.len(), CHAT));
        assert_eq!(graphs.iter().count(), DESCRIBED.len());
    }
}
