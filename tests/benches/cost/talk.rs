//! A conversation whose words are hard to compress: drawn by dice from a large vocabulary.

use dormouse_ports::Map;
use serde_json::{Value, json};

/// Text of about `bytes` bytes that is the same whenever `seed` is.
pub(super) fn text(seed: u64, bytes: usize) -> String {
    let mut dice = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut text = String::new();
    while text.len() < bytes {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        text.push_str(&word(dice % 4096));
        text.push(' ');
    }
    text
}

/// Random letters, about `bytes` of them, that are the same whenever `seed` is: a quarter is all that compression saves.
pub(super) fn noise(seed: u64, bytes: usize) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut dice = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let letter = |_| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        char::from(LETTERS[usize::try_from(dice >> 58).unwrap_or_default()])
    };
    (0..bytes).map(letter).collect()
}

/// One of 4,096 words.
fn word(number: u64) -> String {
    const SYLLABLES: [&str; 16] =
        ["ra", "ton", "mi", "sel", "vo", "ker", "la", "din", "pu", "mar", "ne", "gol", "ti", "hes", "bo", "wen"];
    let syllable = |shift: u64| SYLLABLES[usize::try_from((number >> shift) & 15).unwrap_or_default()];
    [syllable(0), syllable(4), syllable(8)].concat()
}

/// A message of about 400 bytes of JSON.
pub(super) fn message(role: &str, number: u64) -> Value {
    let id = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    json!({"id": format!("msg_{id:016x}"), "role": role, "content": [{"type": "text", "text": text(number, 300)}]})
}

/// A session of `count` messages and of what an agent knows beside them.
pub(super) fn session(count: u64) -> Map {
    let messages: Vec<Value> =
        (0..count).map(|n| message(if n.is_multiple_of(2) { "user" } else { "assistant" }, n)).collect();
    let profile = json!({"customer": "5f0c1b7e-93d4-4e7a-8a51-c6b2f40d9e13", "tier": "gold", "language": "en",
        "plan": ["quote", "approve", "ship", "report"], "notes": text(u64::MAX / 3, 200)});
    let state = json!({"messages": messages, "profile": profile});
    state.as_object().cloned().unwrap_or_default()
}
