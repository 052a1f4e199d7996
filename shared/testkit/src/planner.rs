use dormouse_ports::{SignalDescriptor, WakePlan, WakePlanner};
use jiff::Timestamp;

/// A planner for pauses that only signals end: none wakes by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWakes;

impl WakePlanner for NoWakes {
    fn plan(&self, _: &SignalDescriptor, _: Timestamp) -> Result<WakePlan, String> {
        Ok(WakePlan::default())
    }
}
