use dormouse_json::ReadError;
use serde::Deserializer;
use serde::de::{DeserializeOwned, Visitor};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::OperationBody;
use crate::operation::{Input, Operation};
use crate::resource::{MessageInput, Part, PartVisibility, ToolResultStatus};
use crate::{ErrorCode, Map, ProtocolError};

/// The longest body that is taken, in bytes. Large content belongs into artifacts.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// The longest content of a file that is taken, in bytes.
pub const MAX_FILE_BYTES: usize = 256 * 1024;

/// Bytes beside the content of a file that is as long as it may be.
pub(super) const BESIDE: usize = 16 * 1024;

/// The longest body with such a content: JSON may write each byte of it as six.
pub const MAX_FILE_BODY_BYTES: usize = 6 * MAX_FILE_BYTES + BESIDE;

/// How alike two names are of which one may be meant by the other, from 0 to 1.
const ALIKE: f64 = 0.6;
/// The most characters of a name for which it is guessed what may be meant.
const LONGEST_GUESSED: usize = 256;
/// The most characters of a name that is told.
pub(super) const LONGEST_NAME: usize = 100;

/// The body of a request: a JSON object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Body(Map);

impl Body {
    /// Reads the body of a request for `operation`. Where the contract asks for none it is not looked at; where it may
    /// be missing, none is `{}`.
    ///
    /// # Errors
    /// `payload_too_large` (413), also for too many values; 415 for a content type that is not JSON; `invalid_request`
    /// for a body that is missing, no JSON object, nested too deeply, or has a name twice.
    pub fn read(operation: Operation, content_type: Option<&str>, bytes: &[u8]) -> Result<Self, ProtocolError> {
        let limit = if operation == Operation::WriteWorkspaceFile { MAX_FILE_BODY_BYTES } else { MAX_BODY_BYTES };
        if bytes.len() > limit {
            return Err(ProtocolError::too_large(limit));
        }
        let blank = bytes.iter().all(u8::is_ascii_whitespace);
        match operation.spec().input {
            Input::None => return Ok(Self(Map::new())),
            Input::Optional if blank => return Ok(Self(Map::new())),
            Input::Required if blank => {
                return Err(ProtocolError::new(ErrorCode::InvalidRequest, "a JSON object is needed as the body"));
            }
            Input::Optional | Input::Required => {}
        }
        if !content_type.is_none_or(is_json) {
            return Err(ProtocolError::unsupported_media_type());
        }
        match dormouse_json::read_distinct(bytes, dormouse_json::ENTRY) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(ProtocolError::new(ErrorCode::InvalidRequest, "the body must be a JSON object")),
            Err(ReadError::Excess(excess)) => Err(ProtocolError::too_complex(excess)),
            Err(ReadError::Json(error)) => {
                let message = if error.is_data() { error.to_string() } else { "the body is not JSON".to_owned() };
                let refusal = ProtocolError::new(ErrorCode::InvalidRequest, message);
                Err(refusal.with_detail("line", error.line()).with_detail("column", error.column()))
            }
        }
    }

    /// The request that the body holds.
    ///
    /// # Errors
    /// `invalid_request` with the path of the first field that is not known, wrong or missing as its `param`.
    pub fn decode<T: OperationBody + DeserializeOwned>(self) -> Result<T, ProtocolError> {
        known::<T>("", &self.0)?;
        for (place, value) in messages(&self.0) {
            // What reads a message would also take the values of its fields in a row, with none of their names looked at.
            if value.is_array() {
                return Err(ProtocolError::invalid(place, "expected an object"));
            }
            if let Some(message) = value.as_object().filter(|fields| is_message(fields)) {
                known::<MessageInput>(&place, message)?;
                known_parts(&place, message)?;
            }
        }
        let request: T = serde_path_to_error::deserialize(Value::Object(self.0)).map_err(|error| refuse("", error))?;
        request.check()?;
        Ok(request)
    }

    /// The same body without the field `name`.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.remove(name);
        self
    }

    /// A hash that is the same for bodies that mean the same: order of fields, spaces, escapes and the spelling of
    /// whole numbers do not matter.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        digest_object(&self.0, &mut hasher);
        hasher.finalize().into()
    }
}

impl From<Map> for Body {
    fn from(fields: Map) -> Self {
        Self(fields)
    }
}

/// Checks that `fields`, which stand at `place`, are all fields of a `T`.
///
/// # Errors
/// `invalid_request` for one that is not, with the one that may be meant.
fn known<T: DeserializeOwned>(place: &str, fields: &Map) -> Result<(), ProtocolError> {
    match fields_of::<T>() {
        Some(known) => only(known, place, fields),
        None => Ok(()),
    }
}

/// Checks that `fields`, which stand at `place`, are all among `known`.
fn only(known: &[&str], place: &str, fields: &Map) -> Result<(), ProtocolError> {
    let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let is_of_message = place.is_empty() && known.contains(&"message") && is_field_of_message(other);
    let message = match nearest(other, known.iter().copied()) {
        _ if is_of_message => format!("it belongs into `message`: send it as `message.{other}`"),
        Some(name) => format!("there is no such field; did you mean `{name}`?"),
        None => format!("there is no such field; there are `{}`", known.join("`, `")),
    };
    // A name of any length comes from outside.
    let name: String = other.chars().take(LONGEST_NAME).collect();
    let param = if place.is_empty() { name } else { format!("{place}.{name}") };
    Err(ProtocolError::invalid(param, message))
}

/// True if a message has a field of that `name`.
fn is_field_of_message(name: &str) -> bool {
    fields_of::<MessageInput>().is_some_and(|fields| fields.contains(&name))
}

/// The one of `names` that is most like `wanted`, if one is like it. What is longer than any name is like none: how alike two
/// are takes time and memory that grow with both.
pub fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    if wanted.chars().nth(LONGEST_GUESSED).is_some() {
        return None;
    }
    let folded = wanted.to_lowercase();
    let rated = names.into_iter().map(|name| (strsim::normalized_damerau_levenshtein(&folded, name), name));
    let alike = rated.filter(|(likeness, _)| *likeness >= ALIKE);
    alike.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// Reads `fields`, which stand at `place`, as a message.
///
/// # Errors
/// `invalid_request` with the path of the first field that is not known, wrong or missing, and what may be meant.
pub fn read_message(place: &str, fields: &Map) -> Result<MessageInput, ProtocolError> {
    known::<MessageInput>(place, fields)?;
    known_parts(place, fields)?;
    serde_path_to_error::deserialize(Value::Object(fields.clone())).map_err(|error| refuse(place, error))
}

/// Checks the words and the fields of the parts of `message`, which stands at `place`: the type of a part says which it
/// has.
fn known_parts(place: &str, message: &Map) -> Result<(), ProtocolError> {
    let parts = message.get("parts").and_then(Value::as_array).into_iter().flatten().enumerate();
    for (at, part) in parts.filter_map(|(at, part)| Some((at, part.as_object()?))) {
        let place = format!("{place}.parts[{at}]");
        let Some(word) = part.get("type").and_then(Value::as_str) else { continue };
        let Some((_, own)) = Part::FIELDS.iter().find(|(known, _)| *known == word) else {
            let words: Vec<&str> = Part::FIELDS.iter().map(|(known, _)| *known).collect();
            return Err(ProtocolError::invalid(format!("{place}.type"), one_of(&words, word)));
        };
        let known: Vec<&str> = own.iter().copied().chain(["type", "visibility"]).collect();
        for (name, value) in part.iter().filter(|(name, _)| known.contains(&name.as_str())) {
            field_of_part(name, value)
                .map_err(|expected| ProtocolError::invalid(format!("{place}.{name}"), expected))?;
        }
        only(&known, &place, part)?;
    }
    Ok(())
}

/// Checks the field `name` of a part. What reads it names the part alone, since its type decides what it is read as.
///
/// # Errors
/// What is expected where `value` stands.
fn field_of_part(name: &str, value: &Value) -> Result<(), String> {
    let word = |words: &[&str]| match value.as_str() {
        Some(word) if words.contains(&word) => Ok(()),
        other => Err(one_of(words, other.unwrap_or_default())),
    };
    match name {
        "visibility" => word(&PartVisibility::WORDS),
        "status" => word(&ToolResultStatus::WORDS),
        "input" if !value.is_object() => Err("expected an object".to_owned()),
        _ if Part::TEXTS.contains(&name) && !value.is_string() => Err("expected a string".to_owned()),
        _ => Ok(()),
    }
}

/// What is expected where `found` stands: the words, and the one that may be meant.
pub fn one_of(words: &[&str], found: &str) -> String {
    let guess = nearest(found, words.iter().copied()).map(|word| format!("; did you mean `{word}`?"));
    format!("expected one of `{}`{}", words.join("`, `"), guess.unwrap_or_default())
}

/// What stands in `body` where a message may, with its place.
fn messages(body: &Map) -> impl Iterator<Item = (String, &Value)> {
    let one = ["input", "message"].into_iter().filter_map(|name| Some((name.to_owned(), body.get(name)?)));
    let many = body.get("initial_messages").and_then(Value::as_array).into_iter().flatten().enumerate();
    one.chain(many.map(|(at, message)| (format!("initial_messages[{at}]"), message)))
}

/// True if `fields` are those of a message, and not a payload.
fn is_message(fields: &Map) -> bool {
    fields.contains_key("role") && fields.contains_key("parts")
}

/// The names of the fields of a `T`; `None` where it takes any.
fn fields_of<T: DeserializeOwned>() -> Option<&'static [&'static str]> {
    let mut found = None;
    // It reads nothing, so it fails each time.
    let _ = T::deserialize(FieldNames(&mut found));
    found
}

/// Is asked for a struct, keeps the names of its fields, and gives nothing.
struct FieldNames<'f>(&'f mut Option<&'static [&'static str]>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("nothing is read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = Some(fields);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// `application/json`, or something that is written in it.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Reports what was expected, and the place below `place`. What was found stays out of the message: it is the client's, and
/// may be secret.
fn refuse(place: &str, error: serde_path_to_error::Error<serde_json::Error>) -> ProtocolError {
    let path = match (place, error.path().to_string()) {
        ("", path) => path,
        (place, path) if path == "." => place.to_owned(),
        (place, path) => format!("{place}.{path}"),
    };
    let cause = error.into_inner().to_string();
    let within = |field: &str| if path == "." { field.to_owned() } else { format!("{path}.{field}") };
    match cause.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        Some(field) => ProtocolError::invalid(within(field), "missing required field"),
        None => {
            let expected = cause.rsplit_once(", expected ").map_or(cause.as_str(), |(_, expected)| expected);
            let expected = expected.strip_prefix("expected ").unwrap_or(expected);
            let expected = in_words_of_json(expected);
            let found = cause.strip_prefix("unknown variant `").and_then(|rest| rest.rsplit_once("`, expected "));
            let words = expected.split('`').skip(1).step_by(2);
            let guess = found.and_then(|(found, _)| nearest(found, words));
            let guess = guess.map(|word| format!("; did you mean `{word}`?")).unwrap_or_default();
            ProtocolError::invalid(path, format!("expected {expected}{guess}"))
        }
    }
}

/// What its reader calls `expected`, in the words of JSON.
fn in_words_of_json(expected: &str) -> &str {
    match expected {
        // So what reads words calls them: a map could hold one with a value.
        "string or map" | "map with a single key" | "variant identifier" => "a string",
        "a sequence" => "an array",
        "struct MessageInput" => "an object with `role` and `parts`",
        "internally tagged enum Part" => "an object with a `type`",
        "a map" => "an object",
        named if named.starts_with("struct ") || named.starts_with("internally tagged enum ") => "an object",
        other => other,
    }
}

/// Every value begins with a letter for its kind and every part of unknown length with that length, so that no two
/// values give the same bytes.
fn digest(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(value) => hasher.update(if *value { b"t" } else { b"f" }),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 2_f64.powi(53));
            let text = whole.map_or_else(|| number.to_string(), |value| format!("{value:.0}"));
            digest_text(b"d", if text == "-0" { "0" } else { &text }, hasher);
        }
        Value::String(text) => digest_text(b"s", text, hasher),
        Value::Array(elements) => {
            hasher.update(b"a");
            hasher.update((elements.len() as u64).to_be_bytes());
            elements.iter().for_each(|element| digest(element, hasher));
        }
        Value::Object(fields) => digest_object(fields, hasher),
    }
}

fn digest_object(fields: &Map, hasher: &mut Sha256) {
    hasher.update(b"o");
    hasher.update((fields.len() as u64).to_be_bytes());
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(name, _)| *name);
    for (name, value) in sorted {
        digest_text(b"k", name, hasher);
        digest(value, hasher);
    }
}

fn digest_text(kind: &[u8; 1], text: &str, hasher: &mut Sha256) {
    hasher.update(kind);
    hasher.update((text.len() as u64).to_be_bytes());
    hasher.update(text);
}
