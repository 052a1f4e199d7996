//! Sizes that are looked at. What is larger is refused before anything is made of it.

/// Bytes of the largest receipt.
pub const RECEIPT: usize = 256 * 1024;

/// Bytes of the largest file of receipts.
pub const FILE: usize = 64 * 1024 * 1024;

/// The largest integer that every reader of JSON understands alike (RFC 7493 §2.2): 2^53 - 1.
pub const INTEGER: u64 = (1 << 53) - 1;
