//! The keys that receipts are signed with, in the data folder.

use std::io;
use std::path::Path;

use dormouse_receipts::{KeyRing, Ring};
use jiff::Timestamp;
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::folder::keep_secret;

/// The file of a data folder with the key that signs receipts, and the public halves of those before it.
pub const RECEIPT_RING: &str = "receipt-keys";

/// The keys of the data folder at `path`. A key of AWS KMS may be among them only in a folder that nobody serves.
///
/// # Errors
/// If there are none, or the file is damaged.
pub fn receipt_ring(path: &Path) -> io::Result<Ring> {
    let file = path.join(RECEIPT_RING);
    let about = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|error| about(&error))?;
    Ring::parse(&text).map_err(|error| about(&error))
}

/// Keeps `ring` in the data folder at `path`, for this user alone. The server of the folder signs with it from its next
/// start on.
///
/// # Errors
/// If it cannot be written.
pub fn keep_receipt_ring(path: &Path, ring: &Ring) -> io::Result<()> {
    keep_secret(&path.join(RECEIPT_RING), ring.text()).map(|_| ())
}

/// 32 bytes by the random source of the operating system.
///
/// # Errors
/// If that fails.
pub fn seed() -> io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    OsRng.try_fill_bytes(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(seed)
}

/// A new ring, in use from now on.
pub(crate) fn new_ring() -> io::Result<KeyRing> {
    Ok(KeyRing::new(seed()?, Some(Timestamp::now())))
}
