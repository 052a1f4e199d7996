//! Forms of values, and a check that names the first field that has another.

use jiff::Timestamp;
use serde_json::Value;

use crate::canonical::is_hash;
use crate::{Flaw, Map};

/// Form of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A text that is not empty.
    Text,
    /// An instant.
    Time,
    /// A hash.
    Hash,
    /// A hash, or null.
    HashOrNull,
    /// A number from 0.
    Amount,
    /// A whole number from 0.
    Count,
    /// Three capital letters.
    Currency,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any object.
    Free,
    /// Any object, or null.
    FreeOrNull,
    /// An object with these fields and no others.
    Closed(&'static [ShapeField]),
    /// The same, of which `uri` and `sha256`, `bytes_base64` and `sha256`, or `metadata` must be there.
    Material(&'static [ShapeField]),
    /// A list of such values.
    List(&'static Shape),
}

/// Field of a closed object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShapeField {
    /// Its name.
    pub(crate) name: &'static str,
    /// True if it must be there.
    pub(crate) needed: bool,
    /// Its form.
    pub(crate) shape: Shape,
}

impl Shape {
    /// Checks `value`, which stands at `path`.
    pub(crate) fn check(self, value: &Value, path: &str) -> Result<(), Flaw> {
        match (self, value) {
            (Self::Closed(fields), Value::Object(object)) => check_fields(fields, object, path),
            (Self::Material(fields), Value::Object(object)) => {
                check_fields(fields, object, path)?;
                check_material(object, path)
            }
            (Self::List(of), Value::Array(elements)) => {
                elements.iter().enumerate().try_for_each(|(at, element)| of.check(element, &format!("{path}/{at}")))
            }
            _ if self.fits(value) => Ok(()),
            _ => Err(Flaw::WrongField { path: path.to_owned(), expected: self.expected() }),
        }
    }

    /// True if `value`, which has no parts to check, has this form.
    fn fits(self, value: &Value) -> bool {
        let text = value.as_str();
        match self {
            Self::Text => text.is_some_and(|text| !text.is_empty()),
            Self::Time => text.is_some_and(is_time),
            Self::Hash => text.is_some_and(is_hash),
            Self::HashOrNull => value.is_null() || text.is_some_and(is_hash),
            Self::Amount => value.as_f64().is_some_and(|amount| amount >= 0.0),
            Self::Count => value.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0),
            Self::Currency => text.is_some_and(|text| text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase())),
            Self::Word(words) => text.is_some_and(|text| words.contains(&text)),
            Self::Free => value.is_object(),
            Self::FreeOrNull => value.is_object() || value.is_null(),
            Self::Closed(_) | Self::Material(_) | Self::List(_) => false,
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Text => "a text that is not empty",
            Self::Time => "an instant (RFC 3339)",
            Self::Hash => "`sha256:` and 64 hexadecimal digits in lower case",
            Self::HashOrNull => "`sha256:` and 64 hexadecimal digits in lower case, or null",
            Self::Amount => "a number from 0",
            Self::Count => "a whole number from 0",
            Self::Currency => "three capital letters (ISO 4217)",
            Self::Word(_) => "one of the words that the schema lists",
            Self::Free | Self::Closed(_) | Self::Material(_) => "an object",
            Self::FreeOrNull => "an object or null",
            Self::List(_) => "a list",
        }
    }
}

/// True if `text` is an instant in the form of RFC 3339 §5.6.
fn is_time(text: &str) -> bool {
    let has_form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    };
    let is_long = text.len() > 19 && text.bytes().take(19).enumerate().all(has_form);
    is_long && text.parse::<Timestamp>().is_ok()
}

fn check_fields(fields: &[ShapeField], object: &Map, path: &str) -> Result<(), Flaw> {
    if let Some(unknown) = object.keys().find(|name| fields.iter().all(|field| field.name != name.as_str())) {
        let name = unknown.replace('~', "~0").replace('/', "~1");
        return Err(Flaw::UnknownField { path: format!("{path}/{name}") });
    }
    fields.iter().try_for_each(|field| {
        let path = format!("{path}/{}", field.name);
        match object.get(field.name) {
            Some(value) => field.shape.check(value, &path),
            None if field.needed => Err(Flaw::MissingField { path }),
            None => Ok(()),
        }
    })
}

fn check_material(object: &Map, path: &str) -> Result<(), Flaw> {
    let has = |name| object.contains_key(name);
    let is_whole = has("metadata") || (has("sha256") && (has("uri") || has("bytes_base64")));
    match is_whole {
        true => Ok(()),
        false => {
            Err(Flaw::WrongField { path: path.to_owned(), expected: "a place or bytes with their hash, or metadata" })
        }
    }
}
