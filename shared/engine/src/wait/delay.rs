use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dormouse_ports::Map;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp};
use serde_json::Value;

/// A length of time, as waits have it: written as an ISO-8601 duration, in which a day has 24 hours.
///
/// ```
/// use dormouse_engine::Delay;
///
/// assert_eq!(Delay::days(3).to_string(), "P3D");
/// assert_eq!("PT1H30M".parse::<Delay>()?, Delay::minutes(90));
/// assert!("P1M".parse::<Delay>().is_err(), "months differ in length");
/// # Ok::<(), dormouse_engine::DelayError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    span: Span,
    length: SignedDuration,
}

/// A text that is no [`Delay`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be an ISO-8601 duration such as PT10M or P3D")]
pub struct DelayError(String);

/// The most days and hours of a [`Span`], which are more than the calendar has.
const MOST_DAYS: u32 = 7_304_484;
const MOST_HOURS: u32 = 175_307_616;

impl Delay {
    /// So many days of 24 hours. A wait for more than the calendar has is refused when it begins.
    pub fn days(days: u32) -> Self {
        let days = days.min(MOST_DAYS);
        Self::of(Span::new().days(days), i64::from(days) * 24 * 3600)
    }

    /// So many hours; as [`days`](Self::days) otherwise.
    pub fn hours(hours: u32) -> Self {
        let hours = hours.min(MOST_HOURS);
        Self::of(Span::new().hours(hours), i64::from(hours) * 3600)
    }

    /// So many minutes.
    pub fn minutes(minutes: u32) -> Self {
        Self::of(Span::new().minutes(minutes), i64::from(minutes) * 60)
    }

    /// So many seconds.
    pub fn seconds(seconds: u32) -> Self {
        Self::of(Span::new().seconds(seconds), i64::from(seconds))
    }

    /// Its length; days have 24 hours.
    pub fn length(&self) -> std::time::Duration {
        self.length.unsigned_abs()
    }

    fn of(span: Span, seconds: i64) -> Self {
        Self { span, length: SignedDuration::from_secs(seconds) }
    }

    fn read(text: &str) -> Option<Self> {
        let span: Span = text.parse().ok()?;
        let length = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        (!length.is_negative()).then_some(Self { span, length })
    }

    /// This delay, if it takes any time; `what` it is for.
    pub(super) fn checked(&self, what: &str) -> Result<&Self, String> {
        if self.length.is_zero() {
            return Err(format!("{what} comes at once: give it a delay of more than 0"));
        }
        Ok(self)
    }
}

impl FromStr for Delay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        Self::read(text).ok_or_else(|| DelayError(text.to_owned()))
    }
}

impl TryFrom<Duration> for Delay {
    type Error = DelayError;

    fn try_from(duration: Duration) -> Result<Self, DelayError> {
        let wrong = || DelayError(format!("{duration:?}"));
        let length = SignedDuration::try_from(duration).map_err(|_| wrong())?;
        Ok(Self { span: Span::try_from(duration).map_err(|_| wrong())?, length })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.span.fmt(f)
    }
}

impl PartialEq for Delay {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length
    }
}

impl Eq for Delay {}

/// A point in time: so long after the wait begins, or a certain instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// So long after the wait begins.
    After(Delay),
    /// At this instant.
    At(Timestamp),
}

impl Deadline {
    /// The key under which it is stored, in an object of its own; `what` happens then.
    pub(super) fn json(&self, what: &str) -> Result<Map, String> {
        let (key, value): (_, Value) = match self {
            Self::After(delay) => ("after", delay.checked(what)?.to_string().into()),
            Self::At(time) => ("at", time.to_string().into()),
        };
        Ok(Map::from_iter([(key.to_owned(), value)]))
    }
}

impl From<Delay> for Deadline {
    fn from(delay: Delay) -> Self {
        Self::After(delay)
    }
}

impl From<Timestamp> for Deadline {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}
