//! Who may call back: tokens that name one pause, and the key of whoever operates the endpoint.

mod bearer;
mod signer;

pub use bearer::BearerKey;
pub use signer::{CallbackSecret, CallbackSigner, Token};
