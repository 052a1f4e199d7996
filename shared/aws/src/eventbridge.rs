//! EventBridge: announcing facts, and the rules that carry foreign events to those who wait for them.

mod bus;
mod rules;

pub use bus::EventBridgeBus;
pub use rules::RuleConfig;
pub(crate) use rules::Rules;

/// How errors call the bus `bus_name`.
fn resource(bus_name: &str) -> String {
    format!("event bus {bus_name}")
}
