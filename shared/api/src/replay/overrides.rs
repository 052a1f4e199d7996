//! Replacements of what was recorded: each names something that was, and is what it says that it is.

use dormouse_ports::{PastEntry, ReplayMaterial};
use dormouse_protocol::id::{ArtifactId, EventId};
use dormouse_protocol::replay::{ReplayMode, ReplayOverride, ReplayOverrideKind, ReplayTaskRequest};
use dormouse_protocol::resource::{Artifact, PartVisibility};
use dormouse_protocol::{Map, ProtocolError};
use dormouse_receipts::canonical;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::material::Source;
use super::{ReplayNote, Replays};
use crate::Call;

/// Keys that a refusal lists.
const MOST_NAMED: usize = 20;
/// The key of the instant at which a run begins.
const STARTED_AT: &str = "time:started_at";
/// The first year in which no run is to begin.
const LATEST_YEAR: i16 = 9000;
/// The field of a delta with the key of what was replaced.
const OVERRIDE_KEY: &str = "override_key";

/// Something that was recorded, and can be replaced.
struct Replaceable {
    key: String,
    kinds: &'static [ReplayOverrideKind],
    /// The event that recorded it.
    event_id: Option<String>,
    /// The hash of it, as far as receipts know it.
    before: Option<String>,
}

impl Replays {
    /// Adds what `request` replaces to `note`.
    ///
    /// # Errors
    /// `invalid_request` with the path of what is wrong.
    pub(super) async fn replace(
        &self,
        call: &Call,
        source: &Source,
        request: &ReplayTaskRequest,
        (checkpoint, note): (usize, &mut ReplayNote),
    ) -> Result<(), ProtocolError> {
        if request.overrides.is_empty() {
            return Ok(());
        }
        let known = replaceable(&source.material);
        for (key, given) in &request.overrides {
            let param = |field: &str| format!("override.{key}{field}");
            let Some(target) = known.iter().find(|one| one.key == *key) else {
                let names: Vec<&str> = known.iter().take(MOST_NAMED).map(|one| one.key.as_str()).collect();
                let message = format!("the task recorded nothing of that name; it recorded {}", names.join(", "));
                return Err(ProtocolError::invalid(param(""), message));
            };
            if !target.kinds.contains(&given.kind) {
                return Err(ProtocolError::invalid(param(".kind"), "what the key names is of another kind"));
            }
            let by_event = given.event_id.as_ref().map(EventId::as_str);
            if by_event.is_some() && by_event != target.event_id.as_deref() {
                return Err(ProtocolError::invalid(param(".event_id"), "another event recorded it"));
            }
            let place = target.event_id.as_deref().and_then(|id| source.place(id));
            let is_passed = place.is_some_and(|place| place < checkpoint);
            if request.mode == ReplayMode::FromCheckpoint && is_passed {
                return Err(ProtocolError::invalid(
                    param(""),
                    "it lies before the checkpoint, where nothing is replaced",
                ));
            }
            let value = self.value_of(call, given, &param).await?;
            let after =
                canonical::digest(&value).map_err(|flaw| ProtocolError::invalid(param(".value"), flaw.to_string()))?;
            if given.sha256.as_ref().is_some_and(|claimed| claimed.as_str() != after) {
                let message = format!("it is not the hash of the value, which is {after} (SHA-256 of RFC 8785)");
                return Err(ProtocolError::invalid(param(".sha256"), message));
            }
            fits(key, given.kind, &value).map_err(|message| ProtocolError::invalid(param(".value"), message))?;
            // What the replay that is replayed had in its place is not used any more.
            note.deltas.retain(|before| before.get(OVERRIDE_KEY).and_then(Value::as_str) != Some(key.as_str()));
            note.deltas.push(delta(target, given, &after));
            note.overrides.insert(key.clone(), value);
        }
        Ok(())
    }

    /// The value of `given`, or what the artifact that it names holds.
    async fn value_of(
        &self,
        call: &Call,
        given: &ReplayOverride,
        param: &(dyn Fn(&str) -> String + Sync),
    ) -> Result<Value, ProtocolError> {
        let Some(id) = &given.artifact_id else { return Ok(given.value.clone()) };
        if !given.value.is_null() {
            return Err(ProtocolError::invalid(param(".artifact_id"), "give a value or an artifact, and not both"));
        }
        let id: &ArtifactId = id;
        let artifact = self.reads.see::<Artifact>(call, id).await?.kept.resource;
        let public = artifact.visibility == PartVisibility::Public;
        let content = artifact.uri.as_deref().filter(|_| public).and_then(crate::artifacts::data);
        let content = content.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        content.ok_or_else(|| {
            ProtocolError::invalid(
                param(".artifact_id"),
                "the artifact holds no JSON here: a public `data:` address does",
            )
        })
    }
}

/// Checks that `value` can stand for what is of `kind`.
fn fits(key: &str, kind: ReplayOverrideKind, value: &Value) -> Result<(), String> {
    match kind {
        ReplayOverrideKind::Time => match value.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
            // The run reckons with it, and behind the year 9999 there is no instant.
            Some(at) if at.to_zoned(TimeZone::UTC).year() < LATEST_YEAR => Ok(()),
            Some(_) => Err(format!("give an instant before the year {LATEST_YEAR}")),
            None => Err("give an instant, as in 2026-04-25T19:16:14Z".to_owned()),
        },
        ReplayOverrideKind::EventPayload if !value.is_object() => {
            Err(format!("`{key}` is an answer: give an object of the fields that it sets"))
        }
        ReplayOverrideKind::LlmProviderResponse if !(value.is_string() || value.is_object()) => {
            Err(format!("`{key}` is an answer of a model: give a text, or a message"))
        }
        ReplayOverrideKind::LlmProviderResponse
        | ReplayOverrideKind::McpToolReturn
        | ReplayOverrideKind::SecretValue
        | ReplayOverrideKind::HostFact
        | ReplayOverrideKind::ToolResult
        | ReplayOverrideKind::EventPayload
        | ReplayOverrideKind::CheckpointValue => Ok(()),
    }
}

/// Everything of `material` that can be replaced.
fn replaceable(material: &ReplayMaterial) -> Vec<Replaceable> {
    use ReplayOverrideKind as Kind;
    let mut known = vec![Replaceable {
        key: STARTED_AT.to_owned(),
        kinds: &[Kind::Time],
        event_id: None,
        before: canonical::digest(&json!(material.began)).ok(),
    }];
    let mut step = 0;
    for entry in &material.entries {
        let id = entry.payload.get("tool_call_id").and_then(Value::as_str);
        // What hooks ask of models is no step.
        let is_model = entry.payload.get("gen_ai.operation.name") == Some(&Value::from("chat"))
            && !entry.payload.contains_key("hook");
        match (entry.kind.as_str(), id) {
            ("span.completed", _) if is_model => {
                step += 1;
                let key = format!("llm:main:{step}");
                known.push(of_entry(key, &[Kind::LlmProviderResponse], entry, "response_digest"));
            }
            ("tool.completed" | "tool.failed", Some(id)) if entry.payload.get("made") != Some(&Value::Bool(false)) => {
                known.push(of_entry(
                    format!("tool:{id}"),
                    &[Kind::ToolResult, Kind::McpToolReturn],
                    entry,
                    "output_digest",
                ));
                let server = entry.payload.get("tool").and_then(Value::as_str).and_then(|tool| tool.split_once('.'));
                let key = server.map(|(server, _)| format!("mcp:{server}:{id}"));
                known.extend(key.map(|key| of_entry(key, &[Kind::McpToolReturn], entry, "output_digest")));
            }
            _ => {}
        }
    }
    known.extend(material.answers.iter().map(|answer| Replaceable {
        key: format!("event:{}", answer.event_id),
        kinds: &[Kind::EventPayload],
        event_id: Some(answer.event_id.clone()),
        before: None,
    }));
    known
}

fn of_entry(key: String, kinds: &'static [ReplayOverrideKind], entry: &PastEntry, digest: &str) -> Replaceable {
    let before = entry.payload.get(digest).and_then(Value::as_str).map(|digest| format!("sha256:{digest}"));
    Replaceable { key, kinds, event_id: Some(entry.event_id.clone()), before }
}

/// The id of the delta of `key`.
pub(super) fn delta_id(key: &str) -> String {
    let name: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("delta_{name}")
}

/// The replacement as a receipt tells of it.
fn delta(target: &Replaceable, given: &ReplayOverride, after: &str) -> Value {
    let key = &target.key;
    let mut delta = Map::from_iter([
        ("delta_id".to_owned(), delta_id(key).into()),
        ("operation".to_owned(), "replace".into()),
        ("path".to_owned(), format!("/replay_input/materials/{}", key.replace('~', "~0").replace('/', "~1")).into()),
        (OVERRIDE_KEY.to_owned(), key.as_str().into()),
        ("after_sha256".to_owned(), after.into()),
    ]);
    let more = [
        ("event_id", target.event_id.clone()),
        ("before_sha256", target.before.clone()),
        ("artifact_id", given.artifact_id.as_ref().map(ToString::to_string)),
        ("reason", given.reason.clone().filter(|reason| !reason.is_empty())),
    ];
    delta.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
    Value::Object(delta)
}
