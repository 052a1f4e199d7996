//! Values as bytes: a tag, then JSON in the order of its keys, compressed when that makes it smaller.
//!
//! Most values are small records with field names that are longer than what they hold. These are compressed with a
//! dictionary, [`SAMPLES`] and [`SAMPLES_OF_AGENTS`], and take a third to a half of the bytes: an item is paid for by the
//! kilobyte.

use std::sync::LazyLock;

use dormouse_ports::{Map, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// [`ZSTD`] with [`SAMPLES`] alone: read, and no longer written.
const SAMPLED: u8 = 2;
/// [`ZSTD`] with [`SAMPLES`] and [`SAMPLES_OF_AGENTS`] behind them.
const SMALL: u8 = 3;
/// Before any of the others: what is encoded so is only to be read with the notes of steps (`steps`). Builds that know of none
/// do not read it.
const NOTED: u8 = 4;
const LEVEL: i32 = 3;
/// With the dictionary: a tenth less than at [`LEVEL`], and hundredths of a millisecond more for a record of some KB. What
/// is written at one level is read as at any other.
const LEVEL_OF_SMALL: i32 = 9;

/// Bytes of JSON of the largest value that is compressed with the dictionary: larger ones bring their own repetitions.
const MOST_SMALL: usize = 16 * 1024;

/// The dictionary: records of all kinds, without what they are about. What is stored can only be read with these very
/// bytes, so that another dictionary is another tag, beside this one.
static SAMPLES: &[u8] = include_bytes!("samples.jsonl");
/// The same of runs of agents: their events, what a session knows of them, and their state, most of whose fields are empty.
static SAMPLES_OF_AGENTS: &[u8] = include_bytes!("samples_of_agents.txt");

static ALL_SAMPLES: LazyLock<Vec<u8>> = LazyLock::new(|| [SAMPLES, SAMPLES_OF_AGENTS].concat());
static WRITING: LazyLock<EncoderDictionary<'static>> =
    LazyLock::new(|| EncoderDictionary::copy(&ALL_SAMPLES, LEVEL_OF_SMALL));
static READING: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(&ALL_SAMPLES));
static READING_SAMPLED: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(SAMPLES));

/// The bytes of `value`; the same value gives the same bytes.
///
/// # Errors
/// [`StoreError::TooComplex`] for a value that [`decode`] might not read again.
pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_vec(value).map_err(|error| StoreError::Invalid(format!("cannot be stored: {error}")))?;
    dormouse_json::scan(&json, dormouse_json::STORED)
        .map_err(|excess| StoreError::TooComplex { what: "what is to be stored", excess })?;
    let (tag, packed) = if json.len() <= MOST_SMALL {
        let packed = Compressor::with_prepared_dictionary(&WRITING).and_then(|mut zstd| zstd.compress(&json));
        (SMALL, packed)
    } else {
        (ZSTD, zstd::bulk::compress(&json, LEVEL))
    };
    let packed = packed.map_err(|error| StoreError::Invalid(format!("cannot be compressed: {error}")))?;
    Ok(if packed.len() < json.len() { tagged(tag, &packed) } else { tagged(PLAIN, &json) })
}

/// `encoded` as what is only to be read with the notes of steps.
pub(super) fn noted(encoded: &[u8]) -> Vec<u8> {
    tagged(NOTED, encoded)
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(content.len() + 1);
    bytes.push(tag);
    bytes.extend_from_slice(content);
    bytes
}

/// The value of `bytes`.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    let json = match bytes.split_first() {
        Some((&NOTED, encoded)) => return decode(encoded),
        Some((&PLAIN, json)) => json.to_vec(),
        Some((&ZSTD, packed)) => zstd::stream::decode_all(packed).map_err(corrupt)?,
        Some((&SMALL, packed)) => unpack(packed, &READING)?,
        Some((&SAMPLED, packed)) => unpack(packed, &READING_SAMPLED)?,
        Some((tag, _)) => return Err(StoreError::Corrupt(format!("unknown format tag {tag}"))),
        None => return Err(StoreError::Corrupt("no bytes".to_owned())),
    };
    serde_json::from_slice(&json).map_err(corrupt)
}

fn unpack(packed: &[u8], dictionary: &DecoderDictionary<'_>) -> Result<Vec<u8>, StoreError> {
    Decompressor::with_prepared_dictionary(dictionary)
        .and_then(|mut zstd| zstd.decompress(packed, MOST_SMALL))
        .map_err(corrupt)
}

fn corrupt(error: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// A digest that equal payloads share, in any order of their keys.
pub(super) fn payload_digest(payload: &Map) -> String {
    let mut hasher = Sha256::new();
    digest_map(&mut hasher, payload);
    hex::encode(hasher.finalize())
}

fn digest_map(hasher: &mut Sha256, map: &Map) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    hasher.update(format!("{{{}", entries.len()));
    for (key, value) in entries {
        hasher.update(format!("{}:{key}", key.len()));
        digest_value(hasher, value);
    }
}

fn digest_value(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Object(map) => digest_map(hasher, map),
        Value::Array(items) => {
            hasher.update(format!("[{}", items.len()));
            items.iter().for_each(|item| digest_value(hasher, item));
        }
        Value::String(text) => hasher.update(format!("\"{}:{text}", text.len())),
        Value::Null | Value::Bool(_) | Value::Number(_) => hasher.update(format!("={value};")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The invocation of a task whose model has asked for a tool.
    const STEP: &str = r#"
{"invocation_id":"task_01M8QFB1JNFZJB3MNXFXQ558H2","correlation_id":"task_01M8QFB1JNFZJB3MNXFXQ558H2",
"session_id":"session_01M8QFB1J6FVGRDYV2JRFRDPF5","graph":"helper",
"graph_digest":"3d4d5270964067d3137f7bd4b6f7221673b39b621980ec2dbeb396b8c35f9668","generation":0,
"descriptor":{"signal_id":""},"wake":{"due":{"at":"2026-12-01T00:16:12.380807972Z","action":{"resume":{}}}},
"state":{"messages":[],"confided":"","compaction":null,"compact":false,"action":null,"environment":"",
"waiting":{"task_01M8QFB1JNFZJB3MNXFXQ558H2":
{"call_000000066a99b4b1f77dd0fc":"this call has no result yet: it is about to be made"}},
"unanswered":{},"remembered":{},"agent":"helper","last_agent":"helper","agent_before":"","takes_over":false,
"next_agent":"","hook_context":[],"dormouse_parent":null,"dormouse_children":[],"awaits_children":false,
"bundle":"148de22d2ac40eb765a84fe7a28ac34ad2881114ce34b2bf7d6a9f6e779187e1","steps":6,
"usage":{"prompt_tokens":6000,"completion_tokens":120,"cost":0.0,"active_ms":1070},"calls":[{"part":"call-1",
"id":"call_000000066a99b4b1f77dd0fc","tool":"Read","origin":"native","effect":"safe",
"arguments":{"file_path":"notes/part-1.md"},
"digest":"d635c03acecea309f39dee17c494cc922f529c786809fd8849a6c59657f0587e","attempts":0,"source":"native",
"status":{"is":"ready"}}],"reply":{"decision":"","reason":"","arguments":null,"digest":"","result":"",
"content":null,"by":""},"replies":{"answers":{},"missing":[],"decided_by":null,"outcome":""},"outcome":{},
"outcomes":{"answers":{},"missing":[],"decided_by":null,"outcome":""},"outputs":[],"image_bytes":0,
"images_refused":"","notes":{"native":{"files":{"notes/part-1.md":"0b98decbb75a6385fa9d9af8da6717d9",
"notes/part-2.md":"7ea0a0cf8b9d50bf6f133c9776d0157b","notes/part-3.md":"3e794950f3331b429847be460678429b",
"notes/part-0.md":"754447cfa79e399d38c209f259778d42"}}},"measured":null,"rest":null,"thinking":null,"reason":"",
"dormouse_shortfall":null,"dormouse_resolution":""},"parent_states":[],"under_way":true,"namespace":["model"],
"suspended_at_node":["model"],"completed_positions":[{"namespace":[],"node_name":"model","step":10,
"attempt_index":0}],"step":11,"suspended_step":10,"attempt_index":0,"schema_version":"1","session_version":11,
"metadata":{"dormouse.workspace_id":"workspace_01M8QF9T4RES7SAKFW7D7PEZMG",
"dormouse.graph_version":"workspace@148de22d2ac40eb765a84fe7a28ac34ad2881114ce34b2bf7d6a9f6e779187e1"},
"carried":{"history_length":1},"suspended_at":"2026-12-01T00:16:12.380807972Z"}"#;

    fn map(value: &Value) -> Map {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn numbers_and_key_order_survive() {
        let state = map(&json!({"z": 1, "a": 1.0, "m": u64::MAX, "n": i64::MIN, "f": 5e-324, "": ""}));
        let back: Map = decode(&encode(&state).expect("encodes")).expect("decodes");
        assert_eq!(serde_json::to_string(&back).ok(), serde_json::to_string(&state).ok());
    }

    #[test]
    fn only_what_shrinks_is_compressed() {
        let small = encode(&map(&json!({"a": 1}))).expect("encodes");
        assert_eq!((small[0], small.len()), (PLAIN, 1 + br#"{"a":1}"#.len()));
        for (tag, times) in [(SMALL, 100), (SMALL, 1_600), (ZSTD, 1_700)] {
            let long = map(&json!({"a": "again and ".repeat(times)}));
            let packed = encode(&long).expect("encodes");
            assert_eq!(packed[0], tag);
            assert!(packed.len() < 100);
            assert_eq!(decode::<Map>(&packed).expect("decodes"), long);
        }
    }

    #[test]
    fn what_was_stored_before_is_read() {
        let value = map(&json!({"status": "COMPLETED", "metadata": {}}));
        let json = serde_json::to_vec(&value).expect("JSON");
        let by_itself = tagged(ZSTD, &zstd::bulk::compress(&json, LEVEL).expect("compresses"));
        let mut sampled = Compressor::with_dictionary(LEVEL, SAMPLES).expect("a dictionary");
        let sampled = tagged(SAMPLED, &sampled.compress(&json).expect("compresses"));
        for stored in [tagged(PLAIN, &json), by_itself, sampled] {
            assert_eq!(decode::<Map>(&stored).expect("decodes"), value);
        }
        // What earlier versions wrote with them cannot be read with others.
        for (samples, digest) in [
            (SAMPLES, "031c3b87757c27d3036457b476888a4d0733594930d2e625e41017c2f86f8fa8"),
            (SAMPLES_OF_AGENTS, "66719504ad5ca662c2e873ce7ab217b0719c71cf9af35fbbbe85ca7551b67f00"),
        ] {
            assert_eq!(hex::encode(Sha256::digest(samples)), digest);
        }
    }

    #[test]
    fn a_record_is_compressed_by_what_all_records_have_in_common() {
        let task = json!({
            "tenant": "acme", "workspace": "workspace_01JZ8YQX5T0V2B3N4M5K6J7H8G",
            "resource": {
                "id": "task_01JZ8YQX5T0V2B3N4M5K6J7H8F", "object": "task", "created_at": "2026-01-02T03:04:05.123456Z",
                "updated_at": "2026-01-02T03:04:06.123456Z", "metadata": {},
                "session_id": "session_01JZ8YQX5T0V2B3N4M5K6J7H8E",
                "workspace_id": "workspace_01JZ8YQX5T0V2B3N4M5K6J7H8G", "status": "WORKING",
                "input": {"question": "Which way?"}, "created_by": "grace", "persona_id": "persona_guide",
                "branch_id": null, "parent_task_id": null, "assigned_agent_id": null, "receipt_id": null,
                "outcome_id": null, "quota_id": null, "started_at": "2026-01-02T03:04:05.123456Z",
                "completed_at": null, "canceled_at": null, "failure": null
            },
            "own": {"sequence": 3, "first": 5, "graph": "guide", "told": null}
        });
        let alone = zstd::bulk::compress(task.to_string().as_bytes(), LEVEL).expect("compresses").len();
        let stored = encode(&task).expect("encodes").len();
        assert!(stored < 220 && alone > 350, "{stored} bytes, {alone} without the dictionary");
    }

    /// Beside its keys and its claim, some 350 bytes, it has to have room in a kilobyte of its item.
    #[test]
    fn the_step_of_an_agent_that_is_to_make_a_call_leaves_room_in_its_kilobyte() {
        let step: Value = serde_json::from_str(STEP).expect("JSON");
        let json = serde_json::to_vec(&step).expect("JSON");
        let quick = EncoderDictionary::copy(&ALL_SAMPLES, LEVEL);
        let quick = Compressor::with_prepared_dictionary(&quick).and_then(|mut zstd| zstd.compress(&json));
        let quick = quick.expect("compresses").len();
        let stored = encode(&step).expect("encodes");
        assert!(stored.len() < 640 && quick > 660, "{} bytes, {quick} at the level of large values", stored.len());
        assert_eq!(decode::<Value>(&stored).expect("decodes"), step);
    }

    #[test]
    fn what_cannot_be_read_is_corrupt() {
        for bytes in [&[][..], &[9, 1], &[PLAIN, b'{'], &[ZSTD, 1, 2, 3]] {
            assert!(matches!(decode::<Map>(bytes), Err(StoreError::Corrupt(_))), "{bytes:?}");
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_not_encoded() {
        let nested = |levels: usize| (1..levels).fold(json!([]), |inner, _| json!([inner]));
        let deepest = encode(&nested(dormouse_json::STORED.depth)).expect("encodes");
        assert!(decode::<Value>(&deepest).is_ok());
        let deeper = encode(&nested(dormouse_json::STORED.depth + 1));
        assert!(matches!(deeper, Err(StoreError::TooComplex { .. })), "{deeper:?}");
    }

    #[test]
    fn digests_ignore_key_order_and_nothing_else() {
        let digest = |value: Value| payload_digest(&map(&value));
        assert_eq!(digest(json!({"a": 1, "b": {"c": 2, "d": 3}})), digest(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        assert_ne!(digest(json!({"a": 1})), digest(json!({"a": 1.0})));
        assert_ne!(digest(json!({"a": ["b", "c"]})), digest(json!({"a": ["bc"]})));
        assert_ne!(digest(json!({"a": "1"})), digest(json!({"a": 1})));
    }
}
