//! Credentials for calling back: tokens that name one pause, and the key of the operator of the endpoint.

mod addresses;
mod bearer;
mod signer;

pub use addresses::SignalAddresses;
pub use bearer::BearerKey;
pub use signer::{CallbackSecret, CallbackSigner, Token};
