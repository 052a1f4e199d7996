//! What is printed when everything runs: addresses, keys, and a tour to paste.
pub(crate) fn text(_address: &str, _key: &str) -> String {
    String::new()
}
