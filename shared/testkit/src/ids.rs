use std::sync::atomic::{AtomicU64, Ordering};

use dormouse_ports::IdSource;

/// Identifiers in the shape of UUIDv4 that count up from 1, the same in every run.
#[derive(Debug, Default)]
pub struct CountingIds {
    last: AtomicU64,
}

impl IdSource for CountingIds {
    fn fresh(&self) -> String {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        format!("00000000-0000-4000-8000-{number:012x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_count_and_have_the_shape_of_a_uuid() {
        let ids = CountingIds::default();
        assert_eq!(ids.fresh(), "00000000-0000-4000-8000-000000000001");
        assert_eq!(ids.fresh(), "00000000-0000-4000-8000-000000000002");
    }
}
