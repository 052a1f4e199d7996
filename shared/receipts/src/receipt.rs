use jiff::Timestamp;
use serde_json::Value;

use crate::keys::ALGORITHM;
use crate::schema::RECEIPT;
use crate::{Flaw, Keys, Map, SCHEMA, canonical, json, limits};

/// Seconds by which the clocks of issuer and verifier may differ.
const SKEW: i64 = 300;

/// A receipt as it was received. It has the form that the schema demands; whether it is [valid](Self::verify) is another
/// question.
#[derive(Clone, Debug, PartialEq)]
pub struct Receipt {
    body: Map,
    issued_at: Timestamp,
}

impl Receipt {
    /// Reads the JSON of a receipt.
    ///
    /// # Errors
    /// [`Flaw::TooLarge`], [`Flaw::Malformed`], or the first field that the schema does not allow.
    pub fn parse(text: &[u8]) -> Result<Self, Flaw> {
        let bytes = text.len();
        match bytes > limits::RECEIPT {
            true => Err(Flaw::TooLarge { bytes }),
            false => Self::new(json::object(text)?),
        }
    }

    /// The receipt `body`, from a reader that refused [what readers understand differently](crate).
    ///
    /// # Errors
    /// The first field that the schema does not allow.
    pub fn new(body: Map) -> Result<Self, Flaw> {
        if let Some(found) = body.get("schema").and_then(Value::as_str).filter(|schema| *schema != SCHEMA) {
            return Err(Flaw::OtherSchema { found: found.to_owned() });
        }
        let body = Value::Object(body);
        RECEIPT.check(&body, "")?;
        let missing = || Flaw::MissingField { path: "/issued_at".to_owned() };
        let issued_at = body["issued_at"].as_str().and_then(|text| text.parse().ok()).ok_or_else(missing)?;
        let Value::Object(body) = body else { return Err(missing()) };
        Ok(Self { body, issued_at })
    }

    /// All of it.
    pub fn body(&self) -> &Map {
        &self.body
    }

    /// Its id.
    pub fn id(&self) -> &str {
        self.text("/receipt_id")
    }

    /// The session of its chain.
    pub fn session_id(&self) -> &str {
        self.text("/identifiers/session_id")
    }

    /// The hash that stands in it.
    pub fn claimed_hash(&self) -> &str {
        self.text("/chain/receipt_hash")
    }

    /// The hash of the receipt before it; `None` of the first one of its chain.
    pub fn previous_hash(&self) -> Option<&str> {
        self.pointer("/chain/previous_receipt_hash").and_then(Value::as_str)
    }

    /// Instant of its issue.
    pub fn issued_at(&self) -> Timestamp {
        self.issued_at
    }

    /// The hash of its content.
    ///
    /// # Errors
    /// [`Flaw::Malformed`] when its content has no canonical form.
    pub fn hash(&self) -> Result<String, Flaw> {
        canonical::hash(&self.body)
    }

    /// Checks that its content is what was hashed, and the hash what one of `keys` signed that was to be believed at `at`.
    ///
    /// # Errors
    /// The first reason for which it is not valid.
    pub fn verify(&self, keys: &Keys, at: Timestamp) -> Result<(), Flaw> {
        let claimed = self.claimed_hash();
        let computed = self.hash()?;
        if claimed != computed {
            return Err(Flaw::HashMismatch { claimed: claimed.to_owned(), computed });
        }
        self.verify_signatures(keys)?;
        self.verify_times(keys, at)
    }

    /// Every signature in the name of a trusted key must be by that key, and there must be one.
    fn verify_signatures(&self, keys: &Keys) -> Result<(), Flaw> {
        let signatures = self.signatures();
        let (first, _) = *signatures.first().ok_or(Flaw::Unsigned)?;
        let hash = self.claimed_hash().as_bytes();
        let trusted: Vec<_> = signatures.iter().filter(|(id, _)| keys.get(id).is_some()).collect();
        for (key_id, signature) in &trusted {
            if !keys.get(key_id).is_some_and(|key| key.has_signed(hash, signature)) {
                return Err(Flaw::BadSignature { key_id: (*key_id).to_owned() });
            }
        }
        let Some((key_id, _)) = trusted.first() else { return Err(Flaw::UnknownKey { key_id: first.to_owned() }) };
        let named = self.pointer("/issuer/public_key_id").and_then(Value::as_str);
        match named.filter(|named| trusted.iter().all(|(id, _)| id != named)) {
            Some(named) => Err(Flaw::OtherKeyNamed { key_id: (*key_id).to_owned(), named: named.to_owned() }),
            None => Ok(()),
        }
    }

    fn verify_times(&self, keys: &Keys, at: Timestamp) -> Result<(), Flaw> {
        let issued_at = self.issued_at;
        if issued_at.as_second() > at.as_second() + SKEW {
            return Err(Flaw::NotYetIssued { issued_at });
        }
        for key in self.signatures().iter().filter_map(|(id, _)| keys.get(id)) {
            let key_id = key.id.clone();
            if let Some(revoked_at) = key.revoked_at.filter(|revoked| at >= *revoked) {
                return Err(Flaw::KeyRevoked { key_id, revoked_at });
            }
            if !key.is_in_use(issued_at) {
                return Err(Flaw::KeyNotInUse { key_id, issued_at });
            }
        }
        Ok(())
    }

    /// The ids of keys and the signatures of the algorithm that is verified.
    fn signatures(&self) -> Vec<(&str, &str)> {
        let signatures = self.body.get("signatures").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let ours = signatures.iter().filter(|one| one.get("algorithm").and_then(Value::as_str) == Some(ALGORITHM));
        ours.filter_map(|one| Some((one.get("key_id")?.as_str()?, one.get("signature")?.as_str()?))).collect()
    }

    fn pointer(&self, path: &str) -> Option<&Value> {
        let mut names = path.split('/').skip(1);
        let first = self.body.get(names.next()?)?;
        names.try_fold(first, |value, name| value.get(name))
    }

    /// The text at `path`, which the schema demands.
    fn text(&self, path: &str) -> &str {
        self.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }
}
