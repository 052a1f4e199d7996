//! The turn: classified, begun or resumed, and settled. Each file needs only those before it in this order: what is
//! resumed, begun, taken over, delivered, due, correlated, left to others, and at last which of these a transmission is.

pub(crate) mod accepted;
pub(crate) mod answers;
pub(crate) mod cancel;
mod correlate;
mod deliver;
mod delivery;
pub(crate) mod dispatch;
mod due;
mod leave;
mod resume;
pub(crate) mod retry;
pub(crate) mod start;
pub(crate) mod takeover;
pub(crate) mod unfit;
