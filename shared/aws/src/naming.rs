//! Names of resources in the account: derived from the records that they represent, so that making them twice makes
//! them once.

use sha2::{Digest, Sha256};

/// `dormouse-` and 40 hexadecimal digits of a digest over `parts`: 49 of the 64 characters that schedules may
/// have, all of them allowed.
pub(crate) fn derived(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    format!("dormouse-{}", hex::encode(&hasher.finalize()[..20]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_distinct_and_fit() {
        let name = derived(&["invocation", "1"]);
        assert_eq!(name, derived(&["invocation", "1"]));
        assert_ne!(name, derived(&["invocation1", ""]));
        assert_eq!(name.len(), 49);
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }
}
