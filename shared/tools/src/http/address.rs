//! Arguments in an address: `{name}` stands for the argument of that name.

use std::collections::BTreeSet;

use dormouse_ports::tool::{ToolError, ToolErrorKind};
use dormouse_ports::{Map, Template, TextPiece, pieces};
use serde_json::Value;

use crate::text::encode;

/// Bytes of an address with its arguments; servers take no longer ones.
const LONGEST: usize = 32 << 10;

/// The values of `names` among `arguments`, encoded.
///
/// # Errors
/// One of them is missing, no plain value, or would change the path itself.
pub(super) fn values(names: &[String], arguments: &Map) -> Result<Vec<(String, String)>, ToolError> {
    let names: BTreeSet<&String> = names.iter().collect();
    names.into_iter().map(|name| Ok((name.clone(), encode(&value(name, arguments)?)))).collect()
}

fn value(name: &str, arguments: &Map) -> Result<String, ToolError> {
    let text = match arguments.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(truth)) => truth.to_string(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => {
            return Err(refused(format!("`{name}` is a part of the address: give it as a text or a number")));
        }
    };
    match text.as_str() {
        "" | "." | ".." => Err(refused(format!("`{name}` is a part of the address and cannot be {text:?}"))),
        text if text.len() > LONGEST => {
            Err(refused(format!("`{name}` is too long for an address: {} bytes", text.len())))
        }
        _ => Ok(text),
    }
}

fn refused(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, message)
}

/// Refuses an address that its arguments would make too long, before it is made: each stands as often as it is written.
///
/// # Errors
/// How long it would be.
pub(super) fn fits(url: &Template, values: &[(String, String)]) -> Result<(), ToolError> {
    let size = pieces(url.written()).iter().fold(0_usize, |size, piece| match piece {
        TextPiece::Plain(plain) => size.saturating_add(plain.len()),
        TextPiece::Argument(name) => {
            let value = values.iter().find(|(known, _)| known == name);
            size.saturating_add(value.map_or(0, |(_, value)| value.len()))
        }
    });
    match size > LONGEST {
        true => Err(refused(format!("the address would have {size} bytes, and may have {LONGEST}"))),
        false => Ok(()),
    }
}

/// `text` with `values` in their places.
pub(super) fn fill(text: &str, values: &[(String, String)]) -> String {
    let filled = pieces(text).into_iter().map(|piece| match piece {
        TextPiece::Plain(plain) => plain,
        TextPiece::Argument(name) => {
            values.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
        }
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(text: &str) -> Template {
        Template::parse(text).expect("a template")
    }

    fn filled(text: &str, arguments: &Value) -> Result<String, ToolError> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let values = values(&template(text).arguments(), arguments)?;
        fits(&template(text), &values)?;
        Ok(fill(text, &values))
    }

    #[test]
    fn arguments_stand_encoded_in_their_places() {
        let address = filled("http://h/{a}/x{b}?q={c}", &json!({ "a": "../é?", "b": 7, "c": true }));
        assert_eq!(address.as_deref(), Ok("http://h/..%2F%C3%A9%3F/x7?q=true"));
        assert_eq!(filled("http://h/{}/{a b}/{", &json!({})).as_deref(), Ok("http://h/{}/{a b}/{"));
    }

    #[test]
    fn what_would_change_the_path_is_refused() {
        for value in [json!(""), json!("."), json!(".."), json!(null), json!([1]), json!({})] {
            let error = filled("http://h/{a}", &json!({ "a": value })).expect_err("refused");
            assert_eq!(error.kind, ToolErrorKind::InvalidArguments);
        }
        assert!(filled("http://h/{a}", &json!({})).is_err());
    }

    #[test]
    fn an_address_that_becomes_too_long_is_refused_before_it_is_made() {
        let url = format!("http://h/{}", "{a}/".repeat(20_000));
        assert!(filled(&url, &json!({ "a": "x".repeat(1 << 20) })).is_err());
        assert!(filled(&url, &json!({ "a": "x".repeat(10_000) })).is_err());
        assert!(filled("http://h/{a}", &json!({ "a": "x".repeat(10_000) })).is_ok());
    }

    #[test]
    fn no_argument_chooses_the_host() {
        for url in ["http://{host}/x", "{url}", "https://api.{zone}.example.com", "http://h:{port}/"] {
            assert!(template(url).chooses_host(), "{url}");
        }
        for url in ["http://h/{host}", "${env.BASE}/{id}", "https://h?q={q}", "https://${secrets.host}/a"] {
            assert!(!template(url).chooses_host(), "{url}");
        }
    }
}
