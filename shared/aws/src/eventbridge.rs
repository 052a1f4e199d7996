//! EventBridge: announcing facts, and the rules that carry foreign events to the invocations that wait for them.

mod bus;
mod rules;

pub use bus::EventBridgeBus;
pub use rules::RuleConfig;
pub(crate) use rules::Rules;

/// Name of the bus `bus_name` in errors.
fn resource(bus_name: &str) -> String {
    format!("event bus {bus_name}")
}
