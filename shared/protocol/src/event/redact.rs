//! Keeps out of events what must not be in one: parts that are not public, hidden reasoning, secrets.
//!
//! Removed content leaves a mark, so that a reader sees that there was something. Two rules find it: the name of a
//! field ([`is_private_name`]) and the look of a text ([`looks_secret`]). Both know common forms only; content that has
//! no such form has to be marked by its visibility.

use std::ops::Range;

use serde_json::{Value, json};

use crate::envelope::Map;
use crate::resource::{Part, PartVisibility};

/// Stands where a value was.
pub const MARK: &str = "[redacted]";

/// Stands in outputs of tools where a secret was that was looked up for them; announces none itself.
const MASKED: &str = "[secret]";

/// Endings of the names of fields that hold a secret, in lower case and without separators.
const SECRET_ENDINGS: &[&str] = &[
    "accesskey",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "passphrase",
    "password",
    "privatekey",
    "secret",
    "secretkey",
    "secrets",
    "token",
];

/// Names of fields that hold hidden reasoning, as model providers call them; written like the endings above.
const REASONING_NAMES: &[&str] = &[
    "chainofthought",
    "encryptedcontent",
    "hiddenreasoning",
    "reasoning",
    "reasoningcontent",
    "redactedthinking",
    "thinking",
    "thoughts",
];

/// Values of `type` that make a whole object hidden reasoning.
const PRIVATE_TYPES: &[&str] = &["reasoning", "redacted_thinking", "thinking"];

/// Beginnings of words that are secrets: our own keys, tokens and keys of well-known issuers.
const SECRET_BEGINNINGS: &[&str] = &[
    "dm_",
    "AIza",
    "AKIA",
    "ASIA",
    "dop_v1_",
    "ghp_",
    "gho_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "pypi-AgE",
    "rk_live_",
    "shpat_",
    "sk-",
    "sk_live_",
    "sk_test_",
    "whsec_",
    "xapp-",
    "xoxb-",
    "xoxp-",
    "ya29.",
    "eyJ",
];

/// The same of issuers whose tokens go on with letters and digits alone; names of variables may begin so, too.
const PLAIN_SECRET_BEGINNINGS: &[&str] = &["hf_", "npm_"];

/// Ends the lines around a private key.
const KEY_LINE: &str = "PRIVATE KEY-----";

/// The shortest word that [`looks_secret`] takes for one.
const SECRET_BYTES: usize = 20;

/// True if the value of a field called `name` is private independently of its content. Case and separators do not
/// matter.
pub fn is_private_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    REASONING_NAMES.contains(&plain.as_str()) || SECRET_ENDINGS.iter().any(|ending| plain.ends_with(ending))
}

/// True if `text` holds a private key, an address with a password (`postgres://ada:…@host`), a long word that is announced
/// as private (`Bearer …`, `?token=…`), or one that looks like a token of a well-known issuer.
pub fn looks_secret(text: &str) -> bool {
    !secrets(text).is_empty()
}

/// `text` with a mark in the place of each part of it that [`looks_secret`]; `None` where no part does.
pub fn text(text: &str) -> Option<String> {
    let secrets = secrets(text);
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    for secret in &secrets {
        shown.push_str(text.get(at..secret.start).unwrap_or_default());
        shown.push_str(MARK);
        at = secret.end;
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    (!secrets.is_empty()).then_some(shown)
}

/// Where the secrets in `text` stand, in order; no two of them overlap.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = keys(text).chain(passwords(text)).chain(words(text)).collect();
    found.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for range in found {
        match apart.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => apart.push(range),
        }
    }
    apart
}

/// Private keys, from the line that announces one to the line that ends it, or to the end.
fn keys(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = text.get(from..)?;
        let at = from + rest.find(KEY_LINE)?;
        let start = text[from..at].rfind("-----").map_or(from, |start| from + start);
        let body = at + KEY_LINE.len();
        from = text[body..].find(KEY_LINE).map_or(text.len(), |end| body + end + KEY_LINE.len());
        Some(start..from)
    })
}

/// Passwords in addresses, before the host.
fn passwords(text: &str) -> impl Iterator<Item = Range<usize>> {
    text.match_indices("://").filter_map(|(at, mark)| {
        let from = at + mark.len();
        let rest = &text[from..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'`<>".contains(c)).unwrap_or(rest.len());
        let (user, _) = rest[..end].rsplit_once('@')?;
        let (name, password) = user.split_once(':')?;
        let start = from + name.len() + 1;
        (!password.is_empty() && password != MARK).then_some(start..start + password.len())
    })
}

/// Long words that are announced as private, or begin as tokens do.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut announced = false;
    let ends = |c: char| c.is_whitespace() || "\"'`,;()<>=:?&".contains(c);
    let mut behind = 0;
    text.split_inclusive(ends).filter_map(move |piece| {
        let at = behind;
        behind += piece.len();
        let word = piece.trim_end_matches(ends);
        if word.is_empty() {
            return None;
        }
        let secret = word.len() >= SECRET_BYTES && (announced || begins_as_secret(word));
        let is_masked = word.trim_end_matches(['.', '!']).ends_with(MASKED);
        announced = word.eq_ignore_ascii_case("bearer") || (is_private_name(word) && !is_masked);
        secret.then_some(at..at + word.len())
    })
}

fn begins_as_secret(word: &str) -> bool {
    let plain = |beginning: &&str| {
        word.strip_prefix(*beginning).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    };
    SECRET_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning)) || PLAIN_SECRET_BEGINNINGS.iter().any(plain)
}

/// `value` without what is private, at any depth.
pub fn value(value: Value) -> Value {
    match value {
        Value::String(text) => self::text(&text).unwrap_or(text).into(),
        Value::Array(elements) => elements.into_iter().map(self::value).collect(),
        Value::Object(fields) => Value::Object(object(fields)),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// `fields` without what is private, at any depth.
pub fn object(fields: Map) -> Map {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    if PRIVATE_TYPES.contains(&kind) {
        return Map::from_iter([("type".to_owned(), kind.into()), ("redacted".to_owned(), true.into())]);
    }
    let clean = |(name, value): (String, Value)| {
        let value = if is_private_name(&name) { MARK.into() } else { self::value(value) };
        (name, value)
    };
    fields.into_iter().map(clean).collect()
}

/// The parts of a message as an event shows them: public ones without what is private in them, of the others type and
/// visibility alone.
pub fn parts(parts: &[Part]) -> Value {
    let shown = parts.iter().map(|part| {
        let written = match part.visibility() {
            PartVisibility::Public => serde_json::to_value(part).ok(),
            PartVisibility::Internal | PartVisibility::ReceiptOnly => None,
        };
        let hidden = || json!({"type": part.type_word(), "visibility": part.visibility(), "redacted": true});
        written.map_or_else(hidden, value)
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_judged_by_their_names() {
        for private in
            ["password", "X-API-Key", "apiKey", "callback_token", "Authorization", "reasoning", "chain_of_thought"]
        {
            assert!(is_private_name(private), "{private}");
        }
        for public in ["input_tokens", "token_count", "summary", "reasoning_summary", "secretary", "key"] {
            assert!(!is_private_name(public), "{public}");
        }
    }

    #[test]
    fn texts_are_judged_by_their_looks() {
        let token = "a".repeat(SECRET_BYTES);
        for secret in [
            format!("Authorization: Bearer {token}"),
            format!("bearer {token}"),
            format!("the key is sk-{token}."),
            format!("AKIA{token}"),
            format!("try dm_{token}_{token}"),
            format!("x=ghp_{token}&y"),
            format!("https://example.org/callback/1?token={token}"),
            format!("password: {token}"),
            "-----BEGIN RSA PRIVATE KEY-----\nMII".to_owned(),
            "see postgres://ada:hunter2@db.example:5432/x".to_owned(),
            "AIzaSyA-0123456789_abcdefghijklmnopqrstu".to_owned(),
            format!("hf_{token}"),
            format!("npm_{token}"),
            format!("whsec_{token}"),
        ] {
            assert!(looks_secret(&secret), "{secret}");
        }
        for plain in [
            "the bearer of good news",
            "sk-8 is a road",
            "eyJ",
            "a bearer walked home",
            "key [secret]. /work/project/.openharness/actions",
            "npm_config_registry_of_the_house",
            "http://localhost:8787/a@b and ada@example.org: https://ada@example.org/",
            "",
        ] {
            assert!(!looks_secret(plain), "{plain}");
        }
    }

    #[test]
    fn of_a_text_only_the_secret_is_taken_out() {
        let token = "a".repeat(SECRET_BYTES);
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----";
        for (before, after) in [
            (
                format!("answer at https://d.example/callback/7?token={token}&part=1 today"),
                "answer at https://d.example/callback/7?token=[redacted]&part=1 today",
            ),
            (format!("PATH=/bin\nTOKEN={token}\nHOME=/root"), "PATH=/bin\nTOKEN=[redacted]\nHOME=/root"),
            (
                format!("Authorization: Bearer {token} and sk-{token}."),
                "Authorization: Bearer [redacted] and [redacted]",
            ),
            ("at postgres://ada:hunter2@db:5432/x is".to_owned(), "at postgres://ada:[redacted]@db:5432/x is"),
            (format!("first\n{key}\nlast, {key}"), "first\n[redacted]\nlast, [redacted]"),
            ("first\n-----BEGIN PRIVATE KEY-----\nMII".to_owned(), "first\n[redacted]"),
            (format!("grüße, müde: dm_{token} ünd"), "grüße, müde: [redacted] ünd"),
            (
                format!("[secret]\n/work/project/actions/{token}\nTOKEN=[secret] /work/project/{token} secret {token}"),
                "[secret]\n/work/project/actions/aaaaaaaaaaaaaaaaaaaa\nTOKEN=[secret] \
                 /work/project/aaaaaaaaaaaaaaaaaaaa secret [redacted]",
            ),
        ] {
            assert_eq!(text(&before).as_deref(), Some(after));
            assert_eq!(text(after), None, "what was taken out is not taken out again");
        }
        assert_eq!(text("nothing of the kind"), None);
    }

    #[test]
    fn what_is_taken_out_leaves_a_mark_at_any_depth() {
        let before = json!({"amount": 3, "auth": {"password": "x", "user": "ada"}, "steps": [
            {"type": "thinking", "thinking": "the user is gullible", "signature": "s"},
            {"type": "text", "text": "done"},
        ]});
        let after = json!({"amount": 3, "auth": {"password": MARK, "user": "ada"}, "steps": [
            {"type": "thinking", "redacted": true},
            {"type": "text", "text": "done"},
        ]});
        assert_eq!(value(before), after);
        assert_eq!(value(after.clone()), after);
    }

    #[test]
    fn of_parts_that_are_not_public_only_their_kind_is_shown() {
        let parts = [
            Part::text("hello"),
            Part::Text { text: "between us".to_owned(), visibility: PartVisibility::Internal },
            Part::Json { value: json!({"a": 1}), visibility: PartVisibility::ReceiptOnly },
            Part::json(json!({"token": "x"})),
        ];
        let shown = json!([
            {"type": "text", "text": "hello", "visibility": "public"},
            {"type": "text", "visibility": "internal", "redacted": true},
            {"type": "json", "visibility": "receipt_only", "redacted": true},
            {"type": "json", "value": {"token": MARK}, "visibility": "public"},
        ]);
        assert_eq!(super::parts(&parts), shown);
    }
}
