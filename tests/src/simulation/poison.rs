//! Work that kills whoever does it: always, or so many times, before its pause or behind it.

use super::world::Inner;

/// How many workers an invocation kills yet.
#[derive(Clone, Debug)]
pub(crate) struct Poison {
    before: u32,
    behind: u32,
}

/// What a process died of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Death {
    pub(crate) invocation: String,
    pub(crate) place: Place,
}

/// Where an invocation kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Before its first pause.
    Before,
    /// Behind it.
    Behind,
}

impl Poison {
    /// Whoever begins a turn that kills asks again and again, and nobody counts; so that ends. What was accepted is
    /// claimed before it begins, and counted from then on.
    fn of(invocation: &str, attempts: u32, chance: &mut fastrand::Rng) -> Self {
        let mut times = || [1, attempts, attempts + 1, 2 * attempts + 1, u32::MAX][chance.usize(..5)];
        let behind = times();
        let accepted = is_accepted(invocation);
        let before = if accepted { times() } else { chance.u32(..2) };
        match chance.u8(..3) {
            0 if accepted => Self { before, behind: 0 },
            1 => Self { before, behind },
            _ => Self { before: 0, behind },
        }
    }

    fn at(&mut self, place: Place) -> &mut u32 {
        match place {
            Place::Before => &mut self.before,
            Place::Behind => &mut self.behind,
        }
    }
}

impl Death {
    /// Whether it died with a claim, which counts.
    pub(crate) fn counts(&self) -> bool {
        self.place == Place::Behind || is_accepted(&self.invocation)
    }
}

/// Whether it was accepted before it began, as tasks are.
fn is_accepted(invocation: &str) -> bool {
    invocation.starts_with("task_")
}

impl Inner {
    /// Whether the running process dies of what `invocation` does at `place`; it is dead from then on.
    pub(crate) fn dies_of(&mut self, invocation: &str, place: Place) -> bool {
        let Self { poison, chance, attempts, death, .. } = self;
        let poison = poison.entry(invocation.to_owned()).or_insert_with(|| Poison::of(invocation, *attempts, chance));
        let left = poison.at(place);
        let dies = *left > 0;
        if dies {
            *left -= u32::from(*left < u32::MAX);
            *death = Some(Death { invocation: invocation.to_owned(), place });
        }
        dies
    }
}
