//! Classification of a failure, through everything that wraps it (pipeline-utilities §6.3, §6.4).
//!
//! Retry, failure isolation, events and outcomes all classify by this one walk, so they never disagree.

use std::error::Error;

use dormouse_ports::Category;

use crate::{EngineError, NodeError};

/// One error of a cause chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The category that this error itself carries.
    pub category: Option<Category>,
    /// Its own message.
    pub message: String,
    /// True if it only carries the failure of a node outwards.
    pub carrier: bool,
}

/// A classified failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classification {
    /// From the error itself down to what first raised; never empty.
    pub chain: Vec<Link>,
    /// The category of the outermost link that has one and is no carrier.
    pub derived: Option<Category>,
    /// The message of that link; without one, of the outermost link that is no carrier.
    pub message: String,
}

/// A failure that can be classified.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'f> {
    /// Raised by a node, a middleware or an edge function.
    Node(&'f NodeError),
    /// Ended an invocation or an inner graph.
    Engine(&'f EngineError),
    /// An error of another crate.
    Foreign(&'f (dyn Error + 'static)),
}

impl<'f> From<&'f NodeError> for Failure<'f> {
    fn from(error: &'f NodeError) -> Self {
        error.carried().map_or(Self::Node(error), Self::Engine)
    }
}

impl<'f> From<&'f EngineError> for Failure<'f> {
    fn from(error: &'f EngineError) -> Self {
        Self::Engine(error)
    }
}

impl<'f> From<&'f (dyn Error + 'static)> for Failure<'f> {
    fn from(error: &'f (dyn Error + 'static)) -> Self {
        error.downcast_ref().map_or(Self::Foreign(error), Self::Engine)
    }
}

/// Walks the cause chain of `failure` and derives its category.
///
/// ```
/// use dormouse_engine::{NodeError, cause::classify};
/// use dormouse_ports::Category;
///
/// let limit = NodeError::new("slow down").with_category(Category::ProviderRateLimit);
/// let error = NodeError::new("no answer").caused_by(limit);
/// assert_eq!(classify(&error).derived, Some(Category::ProviderRateLimit));
/// ```
pub fn classify<'f>(failure: impl Into<Failure<'f>>) -> Classification {
    let failures = walk(failure.into());
    let derived = telling(&failures);
    let described =
        derived.or_else(|| failures.iter().copied().find(|f| !f.is_carrier())).or(failures.first().copied());
    Classification {
        derived: derived.and_then(Failure::category).cloned(),
        message: described.map_or_else(String::new, Failure::message),
        chain: failures.into_iter().map(Failure::link).collect(),
    }
}

/// The category that [`classify`] derives.
pub(crate) fn derived<'f>(failure: impl Into<Failure<'f>>) -> Option<&'f Category> {
    telling(&walk(failure.into())).and_then(Failure::category)
}

/// The failure and what caused it, outermost first. A chain that bites its own tail ends there.
fn walk(failure: Failure<'_>) -> Vec<Failure<'_>> {
    let mut chain = vec![failure];
    let mut next = failure.cause();
    while let Some(failure) = next.filter(|next| !chain.iter().any(|seen| seen.is(next))) {
        chain.push(failure);
        next = failure.cause();
    }
    chain
}

fn telling<'f>(chain: &[Failure<'f>]) -> Option<Failure<'f>> {
    chain.iter().copied().find(|failure| !failure.is_carrier() && failure.category().is_some())
}

impl<'f> Failure<'f> {
    fn category(self) -> Option<&'f Category> {
        let category = match self {
            Self::Node(error) => error.category(),
            Self::Engine(error) => Some(error.category()),
            Self::Foreign(_) => None,
        };
        category.filter(|category| !category.as_str().is_empty())
    }

    fn message(self) -> String {
        match self {
            Self::Node(error) => error.message().to_owned(),
            Self::Engine(error) => error.message().to_owned(),
            Self::Foreign(error) => error.to_string(),
        }
    }

    fn is_carrier(self) -> bool {
        match self {
            Self::Node(error) => error.is_carrier(),
            Self::Engine(error) => error.is_carrier(),
            Self::Foreign(_) => false,
        }
    }

    fn cause(self) -> Option<Self> {
        match self {
            Self::Node(error) => error.cause(),
            Self::Engine(error) => error.cause().map(Self::from),
            Self::Foreign(error) => error.source().map(Self::from),
        }
    }

    /// True if both are the same reference; only errors of other crates can come round again.
    fn is(self, other: &Self) -> bool {
        match (self, *other) {
            (Self::Foreign(one), Self::Foreign(other)) => std::ptr::eq(one, other),
            (Self::Node(_) | Self::Engine(_) | Self::Foreign(_), _) => false,
        }
    }

    fn link(self) -> Link {
        Link { category: self.category().cloned(), message: self.message(), carrier: self.is_carrier() }
    }
}
