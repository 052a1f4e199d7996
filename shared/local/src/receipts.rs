//! The keys that receipts are signed with, in the data folder.

use std::io;
use std::path::Path;

use dormouse_receipts::{KeyRing, Ring};
use jiff::Timestamp;
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::folder::keep_secret;
use crate::locks::alone_with;

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

/// Puts what `change` makes of the keys of the data folder at `path` in their place, for this user alone; it is given none where
/// there is no file. Of several processes that change them one does so after the other. The server of the folder signs with
/// them from its next start on.
///
/// # Errors
/// What `change` refuses; and if the file is damaged, or cannot be written.
pub fn change_receipt_ring<E: From<io::Error>>(
    path: &Path,
    change: impl FnOnce(Option<Ring>) -> Result<Ring, E>,
) -> Result<Ring, E> {
    let file = path.join(RECEIPT_RING);
    let about = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let _alone = alone_with(&file).map_err(about)?;
    let stands = if file.exists() { Some(receipt_ring(path)?) } else { None };
    let ring = change(stands)?;
    keep_secret(&file, ring.text())?;
    Ok(ring)
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
