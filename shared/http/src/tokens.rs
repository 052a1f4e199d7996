//! Credentials for calling back: tokens that name one pause, and the key of the operator of the endpoint.

mod bearer;
mod signer;

pub use bearer::BearerKey;
pub use signer::{CallbackSecret, CallbackSigner, Token};
