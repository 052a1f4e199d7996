//! Files of receipts.

use serde_json::{Value, json};

use crate::chain::{self, ChainFinding, Report};
use crate::{Flaw, Keys, Map, PublicKey, Receipt, json, limits};

/// The word in the field `object` of the line with the keys.
const KEYS: &str = "receipt.keys";

/// A file of receipts: one JSON object in each line, receipts in the order of their issue. A line
/// `{"object": "receipt.keys", "data": […]}` holds the public keys of who exported them. A file of one receipt, of a list
/// of them and of the resources in which servers give them out can be read too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Export {
    /// The keys that the file itself names. They prove that its receipts fit together, and nothing about who signed.
    pub keys: Keys,
    /// Its receipts, and the flaws of those that cannot be read.
    pub receipts: Vec<Result<Receipt, Flaw>>,
}

/// Reason for which a file is none of receipts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// It is too large.
    #[error("the file has {bytes} bytes; the limit is {}: export fewer sessions into one file", limits::FILE)]
    TooLarge {
        /// Its bytes.
        bytes: usize,
    },
    /// There is no receipt in it.
    #[error("there is no receipt in the file")]
    Empty,
    /// The keys in it cannot be read.
    #[error("the keys in line {line} cannot be read: {reason}")]
    Keys {
        /// The line, from 1.
        line: usize,
        /// Problem of the export.
        reason: String,
    },
}

impl Export {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ExportError`] when it is none of receipts. A receipt in it that cannot be read is no error: its flaw stands in
    /// [`receipts`](Self::receipts).
    pub fn parse(text: &[u8]) -> Result<Self, ExportError> {
        let bytes = text.len();
        if bytes > limits::FILE {
            return Err(ExportError::TooLarge { bytes });
        }
        let mut export = Self::default();
        match json::value(text) {
            Ok(whole) => export.take(1, whole)?,
            Err(_) if lines(text).next().is_none() || lines(text).any(|(_, line)| is_object(line)) => {
                export.take_lines(text)?;
            }
            // One document over several lines, which is wrong somewhere: its lines are nothing by themselves.
            Err(flaw) => export.receipts.push(Err(flaw)),
        }
        if export.receipts.is_empty() { Err(ExportError::Empty) } else { Ok(export) }
    }

    fn take_lines(&mut self, text: &[u8]) -> Result<(), ExportError> {
        for (at, line) in lines(text) {
            if line.len() > limits::RECEIPT {
                self.receipts.push(Err(Flaw::TooLarge { bytes: line.len() }));
                continue;
            }
            match json::value(line) {
                Ok(value) => self.take(at + 1, value)?,
                Err(flaw) => self.receipts.push(Err(flaw)),
            }
        }
        Ok(())
    }

    /// Takes what `value` holds: keys, a receipt, the resource of one, or a list of these.
    fn take(&mut self, line: usize, value: Value) -> Result<(), ExportError> {
        match value {
            Value::Array(elements) => elements.into_iter().try_for_each(|element| self.take(line, element)),
            Value::Object(mut object) => {
                let payload = object.get_mut("wire").and_then(|wire| wire.get_mut("payload")).map(Value::take);
                let word = object.get("object").and_then(Value::as_str).unwrap_or_default();
                match (word, payload) {
                    (KEYS, _) => self.take_keys(line, &object),
                    (_, Some(payload)) => self.take(line, payload),
                    ("list", None) => self.take(line, object.remove("data").unwrap_or_default()),
                    _ => {
                        self.receipts.push(sized(object));
                        Ok(())
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.receipts.push(Err(Flaw::Malformed { reason: "it is no JSON object".to_owned() }));
                Ok(())
            }
        }
    }

    fn take_keys(&mut self, line: usize, object: &Map) -> Result<(), ExportError> {
        let data = object.get("data").cloned().unwrap_or_default();
        let read: Result<Vec<PublicKey>, _> = serde_json::from_value(data);
        let read = read.map_err(|error| ExportError::Keys { line, reason: error.to_string() })?;
        self.keys = Keys::from(self.keys.iter().cloned().chain(read).collect::<Vec<_>>());
        Ok(())
    }

    /// Verifies what is in the file by `keys`, that are to be believed at `at`.
    pub fn verify(&self, keys: &Keys, at: jiff::Timestamp) -> Report {
        let mut places = Vec::new();
        let mut readable = Vec::new();
        let mut findings = Vec::new();
        for (position, receipt) in self.receipts.iter().enumerate() {
            match receipt {
                Ok(receipt) => {
                    places.push(position);
                    readable.push(receipt.clone());
                }
                Err(flaw) => findings.push(ChainFinding { position, receipt_id: String::new(), flaw: flaw.clone() }),
            }
        }
        let mut report = chain::verify(&readable, keys, at);
        report.findings.iter_mut().for_each(|finding| finding.position = places[finding.position]);
        report.findings.extend(findings);
        report.findings.sort_by_key(|finding| finding.position);
        report
    }

    /// The line with `keys` of a file.
    pub fn line_of_keys(keys: &Keys) -> String {
        json!({ "object": KEYS, "data": keys.iter().collect::<Vec<_>>() }).to_string()
    }
}

/// The lines of `text` that are not blank, with their places from 0.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    lines.filter(|(_, line)| !line.is_empty())
}

/// True if `line` has the form of an object, or the size of more than a receipt.
fn is_object(line: &[u8]) -> bool {
    line.len() > limits::RECEIPT || (line.starts_with(b"{") && line.ends_with(b"}") && line.len() > 2)
}

/// The receipt `object`, unless it is too large.
fn sized(object: Map) -> Result<Receipt, Flaw> {
    let bytes = serde_json::to_vec(&object).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > limits::RECEIPT { Err(Flaw::TooLarge { bytes }) } else { Receipt::new(object) }
}
