use std::fmt;
use std::time::Duration;

use dormouse_ports::{Clock, IdSource};

/// Attempts at a write that others may be faster at. Between them it waits a little, by chance longer than others.
pub struct Race<'a> {
    begun: u32,
    most: u32,
    ids: &'a dyn IdSource,
    clock: &'a dyn Clock,
}

impl fmt::Debug for Race<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("begun", &self.begun).field("most", &self.most).finish_non_exhaustive()
    }
}

impl<'a> Race<'a> {
    /// A race of `most` attempts. Chance is drawn from `ids`.
    pub fn new(most: u32, ids: &'a dyn IdSource, clock: &'a dyn Clock) -> Self {
        Self { begun: 0, most, ids, clock }
    }

    /// True if there is another attempt, once it may begin.
    pub async fn goes_on(&mut self) -> bool {
        if self.begun == self.most {
            return false;
        }
        if self.begun > 0 {
            let chance: u64 = self.ids.fresh().bytes().map(u64::from).sum();
            self.clock.sleep(Duration::from_millis(u64::from(self.begun) * (5 + chance % 20))).await;
        }
        self.begun += 1;
        true
    }
}
