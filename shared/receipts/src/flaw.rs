use jiff::Timestamp;

/// Reason for which a receipt, or its place in a chain, is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It has too many bytes.
    #[error("the receipt has {bytes} bytes; the limit is {}: this is no receipt", crate::limits::RECEIPT)]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// It is no JSON object, or one that readers may understand differently.
    #[error("the receipt cannot be read: {reason}")]
    Malformed {
        /// Problem, and where it is.
        reason: String,
    },
    /// It is of a schema that is not known.
    #[error("the receipt is of the schema {found:?}; this verifier knows {:?}", crate::SCHEMA)]
    OtherSchema {
        /// The schema that it names.
        found: String,
    },
    /// It has a field that the schema does not know.
    #[error("the field {path} is none of a receipt")]
    UnknownField {
        /// JSON pointer to it.
        path: String,
    },
    /// It lacks a field.
    #[error("the field {path} is missing")]
    MissingField {
        /// JSON pointer to it.
        path: String,
    },
    /// A field has another form than the schema demands.
    #[error("the field {path} must be {expected}")]
    WrongField {
        /// JSON pointer to it.
        path: String,
        /// Value that the schema demands.
        expected: &'static str,
    },
    /// Its content is not what was hashed.
    #[error("the content was changed: it has the hash {computed}, and the receipt claims {claimed}")]
    HashMismatch {
        /// The hash that stands in it.
        claimed: String,
        /// The hash of its content.
        computed: String,
    },
    /// It has no signature.
    #[error("nobody has signed the receipt")]
    Unsigned,
    /// It is signed by keys that are not trusted only.
    #[error("the key {key_id:?} that signed the receipt is not trusted")]
    UnknownKey {
        /// The id of the key, as the receipt gives it.
        key_id: String,
    },
    /// A signature in the name of a trusted key is not by that key.
    #[error("the signature in the name of the key {key_id:?} is not by that key, or over another hash")]
    BadSignature {
        /// The id of the key.
        key_id: String,
    },
    /// The issuer names another key than the one that signed.
    #[error("the receipt is signed by the key {key_id:?}, and its issuer names {named:?}")]
    OtherKeyNamed {
        /// The id of the key that signed.
        key_id: String,
        /// The one that the issuer names.
        named: String,
    },
    /// The key was not in use when the receipt was issued.
    #[error("the key {key_id:?} was not in use at {issued_at}, when the receipt claims to be issued")]
    KeyNotInUse {
        /// The id of the key.
        key_id: String,
        /// Instant of the issue.
        issued_at: Timestamp,
    },
    /// The key was revoked by the time in question: others may have signed with it.
    #[error("the key {key_id:?} is revoked since {revoked_at}")]
    KeyRevoked {
        /// The id of the key.
        key_id: String,
        /// Since when.
        revoked_at: Timestamp,
    },
    /// It did not exist at the time in question.
    #[error("the receipt was issued at {issued_at}, after the time in question")]
    NotYetIssued {
        /// Instant of the issue.
        issued_at: Timestamp,
    },
    /// The receipt before it in the chain is not there: it was removed, or this one was never behind it.
    #[error("the receipt before it, with the hash {previous}, is not here")]
    PreviousMissing {
        /// The hash of the receipt that it says to follow.
        previous: String,
    },
    /// The receipt before it in the chain is here, but in another place.
    #[error("the order was changed: it follows the receipt {previous_id:?}")]
    OutOfOrder {
        /// The id of the receipt that it says to follow.
        previous_id: String,
    },
    /// Two receipts follow the same one, or two are the first of their chain.
    #[error("the chain forks: {other_id:?} is in the same place")]
    Fork {
        /// The id of the other one.
        other_id: String,
    },
    /// It is there twice.
    #[error("the receipt is here twice")]
    Repeated,
    /// The chain ends with another receipt than it should.
    #[error("the chain ends with the hash {found}, and should with {expected}: receipts are missing at its end")]
    OtherHead {
        /// The hash of the last receipt.
        found: String,
        /// The hash that was expected.
        expected: String,
    },
}

impl Flaw {
    /// Its name for programs, in snake case.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Malformed { .. } => "malformed",
            Self::OtherSchema { .. } => "other_schema",
            Self::UnknownField { .. } => "unknown_field",
            Self::MissingField { .. } => "missing_field",
            Self::WrongField { .. } => "wrong_field",
            Self::HashMismatch { .. } => "hash_mismatch",
            Self::Unsigned => "unsigned",
            Self::UnknownKey { .. } => "unknown_key",
            Self::BadSignature { .. } => "bad_signature",
            Self::OtherKeyNamed { .. } => "other_key_named",
            Self::KeyNotInUse { .. } => "key_not_in_use",
            Self::KeyRevoked { .. } => "key_revoked",
            Self::NotYetIssued { .. } => "not_yet_issued",
            Self::PreviousMissing { .. } => "previous_missing",
            Self::OutOfOrder { .. } => "out_of_order",
            Self::Fork { .. } => "fork",
            Self::Repeated => "repeated",
            Self::OtherHead { .. } => "other_head",
        }
    }
}
