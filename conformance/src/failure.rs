use std::fmt;

/// Why a case did not pass. The first four are the adapter's own categories (conformance-adapter §9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The fixture uses a directive or assertion that the runner does not know.
    DirectiveUnknown(String),
    /// The fixture is not shaped as it should be.
    SchemaInvalid(String),
    /// The fixture targets a later version of the vocabulary.
    VersionUnsupported(String),
    /// The fixture needs something that the runner or the engine does not have.
    PrimitiveMissing(String),
    /// The implementation did something else than the fixture expects.
    Mismatch(Vec<String>),
}

impl Failure {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::SchemaInvalid(text.into())
    }

    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self::PrimitiveMissing(text.into())
    }

    pub(crate) fn mismatch(text: impl Into<String>) -> Self {
        Self::Mismatch(vec![text.into()])
    }

    /// Several failures of one case as one; the runner's own categories come first.
    pub(crate) fn all(failures: Vec<Failure>) -> Result<(), Failure> {
        let mut sentences = Vec::new();
        for failure in failures {
            match failure {
                Self::Mismatch(more) => sentences.extend(more),
                Self::DirectiveUnknown(_)
                | Self::SchemaInvalid(_)
                | Self::VersionUnsupported(_)
                | Self::PrimitiveMissing(_) => return Err(failure),
            }
        }
        if sentences.is_empty() { Ok(()) } else { Err(Self::Mismatch(sentences)) }
    }

    /// The same failure, told of the place `at`.
    pub(crate) fn within(self, at: &str) -> Self {
        match self {
            Self::Mismatch(sentences) => Self::Mismatch(sentences.into_iter().map(|s| format!("{at}: {s}")).collect()),
            Self::DirectiveUnknown(_)
            | Self::SchemaInvalid(_)
            | Self::VersionUnsupported(_)
            | Self::PrimitiveMissing(_) => self,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DirectiveUnknown(text) => write!(f, "fixture_directive_unknown: {text}"),
            Self::SchemaInvalid(text) => write!(f, "fixture_schema_invalid: {text}"),
            Self::VersionUnsupported(text) => write!(f, "fixture_version_unsupported: {text}"),
            Self::PrimitiveMissing(text) => write!(f, "harness_primitive_missing: {text}"),
            Self::Mismatch(sentences) => f.write_str(&sentences.join("\n")),
        }
    }
}

impl std::error::Error for Failure {}
