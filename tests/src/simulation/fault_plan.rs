//! What goes wrong, and how often: drawn anew for every seed, so that some runs see one kind of fault only, and others
//! all of them together.

use std::fmt;

/// A kind of fault, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A call failed before it took effect: throttled, or in conflict too often.
    Refused,
    /// A call took effect, and its answer was lost.
    AnswerLost,
    /// A call was given up by its caller, and took effect afterwards.
    LateEffect,
    /// A call was slow: seconds, while leases and claims run out.
    Slow,
    /// A process died before a call of it took effect.
    DiedBefore,
    /// A process died after a call of it took effect, before it heard so.
    DiedAfter,
    /// A process died between two calls.
    Died,
    /// A request or an event did not arrive.
    MessageLost,
    /// A request or an event arrived twice.
    MessageDoubled,
    /// The answer to a request or an event did not arrive.
    ReplyLost,
    /// The scheduler forgot an entry.
    ScheduleLost,
    /// A node failed.
    NodeFailed,
    /// A clock was far ahead when it said until when a lease or a claim shall last.
    ClockAhead,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Refused,
        Self::AnswerLost,
        Self::LateEffect,
        Self::Slow,
        Self::DiedBefore,
        Self::DiedAfter,
        Self::Died,
        Self::MessageLost,
        Self::MessageDoubled,
        Self::ReplyLost,
        Self::ScheduleLost,
        Self::NodeFailed,
        Self::ClockAhead,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "call refused",
            Self::AnswerLost => "answer of a call lost",
            Self::LateEffect => "call given up, effective later",
            Self::Slow => "call slow",
            Self::DiedBefore => "death before a call's effect",
            Self::DiedAfter => "death after a call's effect",
            Self::Died => "death between calls",
            Self::MessageLost => "message lost",
            Self::MessageDoubled => "message doubled",
            Self::ReplyLost => "reply lost",
            Self::ScheduleLost => "schedule lost",
            Self::NodeFailed => "node failed",
            Self::ClockAhead => "clock far ahead",
        })
    }
}

/// Kinds of faults for which there are few chances, and how many times likelier they are.
const OFTEN: [(Fault, u32); 4] = [(Fault::Slow, 2), (Fault::Died, 5), (Fault::NodeFailed, 5), (Fault::ClockAhead, 2)];

/// How likely each kind of fault is, per thousand chances.
#[derive(Clone, Debug)]
pub(crate) struct FaultPlan {
    odds: [u32; Fault::ALL.len()],
    struck: [u64; Fault::ALL.len()],
}

impl FaultPlan {
    pub(crate) fn of(chance: &mut fastrand::Rng) -> Self {
        let mut odds = Fault::ALL.map(|_| if chance.u8(..5) < 3 { chance.u32(5..80) } else { 0 });
        for (fault, times) in OFTEN {
            odds[fault as usize] *= times;
        }
        // Every tenth run or so has a scheduler that loses everything: the sweep must do.
        if chance.u8(..10) == 0 {
            odds[Fault::ScheduleLost as usize] = 1000;
        }
        Self { odds, struck: Default::default() }
    }

    /// Whether `fault` strikes now.
    pub(crate) fn strikes(&mut self, fault: Fault, chance: &mut fastrand::Rng) -> bool {
        let odds = self.odds[fault as usize];
        let strikes = odds > 0 && chance.u32(..1000) < odds;
        if strikes {
            self.struck[fault as usize] += 1;
        }
        strikes
    }

    /// From now on nothing goes wrong; only the scheduler stays as it is.
    pub(crate) fn clear_up(&mut self) {
        let schedules = self.odds[Fault::ScheduleLost as usize];
        self.odds = Default::default();
        if schedules == 1000 {
            self.odds[Fault::ScheduleLost as usize] = schedules;
        }
    }

    /// How often each kind struck, in the order of [`Fault::ALL`].
    pub(crate) fn struck(&self) -> [u64; Fault::ALL.len()] {
        self.struck
    }
}
