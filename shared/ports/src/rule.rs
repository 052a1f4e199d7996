use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{EventWait, Map, PausedInvocation, SignalId, StoreError, owned};

/// Number of bytes of a digest that name a shape.
const SHAPE_BYTES: usize = 20;
/// Number of bytes of a digest that name an edition.
const EDITION_BYTES: usize = 6;
/// Prefix of the names of rules.
const PREFIX: &str = "dormouse-";

/// Prefix of the ids of signals that only events bring.
const OF_EVENTS: &str = "event:";
const OF_TENANTS: &str = "tenant!";

/// The entries of the rules on the bus: the rule of each shape of event, and the instant since which no wait needs it.
#[async_trait]
pub trait RuleEntries: Send + Sync {
    /// Notes that the rule of `shape` is about to be relied on, and returns that rule's entry: the stored one, or,
    /// where there is none, a new one of the edition `fresh`. The entry is idle no more.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer; the entry may or may not have been touched then.
    async fn touch_rule(
        &self,
        shape: &ShapeId,
        fresh: &RuleIncarnation,
        now: Timestamp,
    ) -> Result<RuleEntry, StoreError>;

    /// All entries of rules, ordered by shape.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn rule_entries(&self) -> Result<Vec<RuleEntry>, StoreError>;

    /// Changes an entry as it was read. A change that does not apply any more changes nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store did not answer.
    async fn update_rule(&self, update: &RuleUpdate) -> Result<(), StoreError>;
}

/// A change of the entry of a rule.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleUpdate {
    /// A sweep found at `since` that no wait needs the rule of `entry`: noted unless the entry was touched meanwhile.
    Idle {
        /// The entry as it was read.
        entry: RuleEntry,
        /// Instant of the sweep.
        since: Timestamp,
    },
    /// The bus has taken the rule of `entry`: noted, unless that has made room for another edition.
    Stands {
        /// The entry as it was read.
        entry: RuleEntry,
        /// Instant at which the bus took it.
        since: Timestamp,
    },
    /// No wait relies on the rule of this entry any more: the entry goes away, unless it was touched since it was read.
    Unneeded(RuleEntry),
}

/// The common part of the waits for events that one rule on the bus serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventShape {
    /// An EventBridge event pattern. Where a wait asks for its signal id itself, any value will do: the id is compared
    /// later.
    pub pattern: Map,
    /// Path into the event, in the form `$.detail.job_id`, to the id of the signal that it carries.
    pub correlation: String,
}

impl EventWait {
    /// The shape of the events that this wait, for the signal `signal_id`, is for.
    ///
    /// # Errors
    /// A sentence, when the correlation is no path.
    pub fn shape(&self, signal_id: &SignalId) -> Result<EventShape, String> {
        let wrong = || format!("the correlation {:?} must be a path like $.detail.job_id", self.correlation);
        let path = steps(&self.correlation).ok_or_else(wrong)?;
        let mut pattern = self.pattern.clone();
        if let Some(asked) = at_path(&mut pattern, &path)
            && *asked == json!([signal_id.as_str()])
        {
            *asked = json!([{ "exists": true }]);
        }
        Ok(EventShape { pattern, correlation: self.correlation.clone() })
    }
}

impl EventWait {
    /// True if an event of `source`, `detail_type` and `detail` may match the pattern. A property that is not given,
    /// and an operator of the pattern, are the bus's to judge.
    pub fn may_match(&self, source: Option<&str>, detail_type: Option<&str>, detail: &Map) -> bool {
        self.pattern.iter().all(|(field, asked)| match field.as_str() {
            "source" => source.is_none_or(|source| is_asked_for(asked, Some(&source.into()))),
            "detail-type" => detail_type.is_none_or(|kind| is_asked_for(asked, Some(&kind.into()))),
            "detail" => asked.as_object().is_none_or(|asked| has_all(asked, detail)),
            _ => true,
        })
    }
}

fn has_all(asked: &Map, given: &Map) -> bool {
    asked.iter().all(|(field, asked)| match asked {
        // Operators on fields, such as `$or`.
        _ if field.starts_with('$') => true,
        Value::Object(inner) => match given.get(field) {
            Some(Value::Object(given)) => has_all(inner, given),
            Some(_) | None => has_all(inner, &Map::new()),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            is_asked_for(asked, given.get(field))
        }
    })
}

/// True if one of the choices is the value, or one of its items, or an operator.
fn is_asked_for(choices: &Value, given: Option<&Value>) -> bool {
    let choices = choices.as_array().map(Vec::as_slice).unwrap_or_default();
    choices.iter().any(|choice| {
        choice.is_object()
            || given.is_some_and(|given| {
                given == choice || given.as_array().is_some_and(|items| items.iter().any(|item| item == choice))
            })
    })
}

/// The fields through which `correlation` leads; none when it is no path.
fn steps(correlation: &str) -> Option<Vec<&str>> {
    let steps: Vec<&str> = correlation.strip_prefix("$.")?.split('.').collect();
    (!steps.iter().any(|step| step.is_empty())).then_some(steps)
}

fn at_path<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Value> {
    let (first, rest) = path.split_first()?;
    let value = map.get_mut(*first)?;
    if rest.is_empty() { Some(value) } else { at_path(value.as_object_mut()?, rest) }
}

impl EventShape {
    /// Its short name: shapes that differ in nothing but the order of keys share it.
    pub fn id(&self) -> ShapeId {
        let pattern = sorted(&Value::Object(self.pattern.clone())).to_string();
        let mut hasher = Sha256::new();
        for part in [pattern.as_str(), self.correlation.as_str()] {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        ShapeId(hex::encode(&hasher.finalize()[..SHAPE_BYTES]))
    }

    /// Transmission to the signal function for `event`, which has the form that EventBridge sends: the same as the rule
    /// of this shape on AWS makes of it. `None` where the event carries no id of a signal.
    pub fn signal_of(&self, event: &Value) -> Option<Value> {
        let signal_id = self.correlated(event)?;
        let signal = json!({ "signal_id": signal_id, "payload": event["detail"], "event_id": event["id"],
            "source": event["source"], "detail_type": event["detail-type"], "shape": self.id().as_str() });
        Some(json!({ "dormouse_signal": signal }))
    }

    /// The value in `event` to which the correlation leads.
    fn correlated<'a>(&self, event: &'a Value) -> Option<&'a Value> {
        steps(&self.correlation)?.iter().try_fold(event, |value, step| value.get(*step))
    }
}

/// `value` with its keys in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Names an [`EventShape`]: hexadecimal digits of a digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShapeId(String);

impl ShapeId {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the text of [`as_str`](Self::as_str).
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, SHAPE_BYTES).then(|| Self(text.to_owned()))
    }
}

impl SignalId {
    /// The signal of this name that only events of `shape` bring. A signal that a client sends under the plain name is
    /// another one, as is one that an event of another shape carries.
    #[must_use]
    pub fn of_event(&self, shape: &ShapeId) -> Self {
        Self::from(format!("{OF_EVENTS}{shape}:{self}"))
    }

    /// The signal of this name that only keys of `tenant` bring, to invocations of that tenant. Where the name has the id of
    /// one of its invocations, the name that the tenant gave that will do. Names of tenants have no exclamation mark.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Self {
        let plain = self.as_str().replacen(&owned::tenants(tenant), "", 1);
        Self::from(format!("{OF_TENANTS}{tenant}!{plain}"))
    }

    /// True if a sender means this signal by `name`: its own, or the one [of its tenant](Self::of_tenant).
    pub fn is_called(&self, name: &Self) -> bool {
        self == name || owned::named(self.as_str()) == name.as_str()
    }

    /// Who alone brings the signal, if it is one of those, and its plain name.
    pub fn origin(&self) -> (Option<SignalBringer>, Self) {
        let of_events = || {
            let (shape, plain) = self.as_str().strip_prefix(OF_EVENTS)?.split_once(':')?;
            Some((SignalBringer::Events(ShapeId::parse(shape)?), plain))
        };
        let of_tenant = || {
            let (tenant, plain) = self.as_str().strip_prefix(OF_TENANTS)?.split_once('!')?;
            Some((SignalBringer::Tenant(tenant.to_owned()), plain))
        };
        match of_events().or_else(of_tenant) {
            Some((bringer, plain)) => (Some(bringer), plain.into()),
            None => (None, self.clone()),
        }
    }
}

/// Who alone brings a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalBringer {
    /// Events of this shape.
    Events(ShapeId),
    /// The keys of this tenant.
    Tenant(String),
}

impl fmt::Display for ShapeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Distinguishes a rule from the earlier and later ones of its shape. It never comes again, so that a removal under the
/// name of one edition never removes another's rule, however late.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleIncarnation(String);

impl RuleIncarnation {
    /// The edition that a fresh id stands for.
    pub fn of(fresh: &str) -> Self {
        Self(hex::encode(&Sha256::digest(fresh.as_bytes())[..EDITION_BYTES]))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the text of [`as_str`](Self::as_str).
    pub fn parse(text: &str) -> Option<Self> {
        is_hex(text, EDITION_BYTES).then(|| Self(text.to_owned()))
    }
}

/// The name of a rule on the bus: 62 of the 64 characters that it may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleName {
    /// Shape of the events that it takes.
    pub shape: ShapeId,
    /// Edition among the rules of that shape; `None` for those that were made before rules had editions.
    pub edition: Option<RuleIncarnation>,
}

impl RuleName {
    /// Prefix of all names.
    pub const PREFIX: &'static str = PREFIX;

    /// Reads a name. Rules of other names belong to other applications.
    pub fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix(PREFIX)?;
        match digits.split_once('-') {
            None => Some(Self { shape: ShapeId::parse(digits)?, edition: None }),
            Some((shape, edition)) => {
                Some(Self { shape: ShapeId::parse(shape)?, edition: Some(RuleIncarnation::parse(edition)?) })
            }
        }
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.shape)?;
        self.edition.as_ref().map_or(Ok(()), |edition| write!(f, "-{}", edition.as_str()))
    }
}

/// A rule as the bus lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRule {
    /// Name of the rule.
    pub name: RuleName,
    /// True if it carries events. An operator may have disabled it.
    pub is_enabled: bool,
}

impl ListedRule {
    /// A rule that carries events.
    pub fn enabled(name: RuleName) -> Self {
        Self { name, is_enabled: true }
    }

    /// True if this is the rule `name`, and carries events.
    pub fn carries_for(&self, name: &RuleName) -> bool {
        self.is_enabled && self.name == *name
    }
}

/// A rule that carries events to the invocations that wait for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Its name.
    pub name: RuleName,
    /// Shape of the events it takes, with the path to the signal id in them.
    pub shape: EventShape,
}

/// The store's knowledge of the rule of a shape. A caller that relies on the rule has touched the entry first; no wait
/// relies on a rule that no entry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleEntry {
    /// Shape of the events that the rule takes.
    pub shape: ShapeId,
    /// Edition among the rules of that shape.
    pub edition: RuleIncarnation,
    /// Number of times that the entry was touched.
    pub touches: u64,
    /// Instant at which this edition was made.
    pub made_at: Timestamp,
    /// Instant since which the rule is known to stand on the bus, as this version makes it: no caller has to ask the
    /// bus for it.
    pub stands_since: Option<Timestamp>,
    /// Instant at which no wait was found to need the rule, if the entry was not touched since.
    pub idle_since: Option<Timestamp>,
}

impl RuleEntry {
    /// The name of the rule.
    pub fn name(&self) -> RuleName {
        RuleName { shape: self.shape.clone(), edition: Some(self.edition.clone()) }
    }
}

/// Rule that a pause needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleNeed {
    /// It was not noted: the row is of a version that noted none.
    Unknown,
    /// None: it waits for no event, or for one that no rule can carry.
    Nothing,
    /// The one of this shape.
    Shape(ShapeId),
}

impl RuleNeed {
    /// The need of `paused`.
    pub fn of(paused: &PausedInvocation) -> Self {
        paused.event_shape().map_or(Self::Nothing, |shape| Self::Shape(shape.id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pattern: &Value, correlation: &str) -> EventWait {
        EventWait { pattern: pattern.as_object().cloned().unwrap_or_default(), correlation: correlation.to_owned() }
    }

    fn shape(pattern: &Value, signal: &str) -> EventShape {
        wait(pattern, "$.detail.job").shape(&signal.into()).expect("a shape")
    }

    #[test]
    fn a_correlation_leads_to_a_value() {
        let event = json!({"detail": {"job": "j1"}});
        let through = |correlation: &str| EventShape { pattern: Map::new(), correlation: correlation.to_owned() };
        assert_eq!(through("$.detail.job").correlated(&event), Some(&json!("j1")));
        assert_eq!(through("$.detail.other").correlated(&event), None);
        assert_eq!(through("detail.job").correlated(&event), None);
    }

    #[test]
    fn waits_of_one_shape_share_a_rule() {
        let first = shape(&json!({"source": ["jobs"], "detail": {"job": ["j1"]}}), "j1");
        let second = shape(&json!({"detail": {"job": ["j2"]}, "source": ["jobs"]}), "j2");
        let other = shape(&json!({"source": ["mail"], "detail": {"job": ["j2"]}}), "j2");
        assert_eq!(first.id(), second.id());
        assert_ne!(first.id(), other.id());
        assert_ne!(first.id(), EventShape { correlation: "$.detail.id".to_owned(), ..first }.id());
    }

    #[test]
    fn only_the_signal_id_is_generalised() {
        let pattern = json!({"detail": {"job": ["j1", "j2"], "state": ["done"]}});
        assert_eq!(Value::Object(shape(&pattern, "j1").pattern), pattern);
        let asked = json!({"detail": {"job": ["j1"], "state": ["j1"]}});
        let expected = json!({"detail": {"job": [{"exists": true}], "state": ["j1"]}});
        assert_eq!(Value::Object(shape(&asked, "j1").pattern), expected);
    }

    #[test]
    fn what_an_event_brings_is_a_signal_of_its_own() {
        let first = shape(&json!({"source": ["jobs"]}), "j1").id();
        let other = shape(&json!({"source": ["b"]}), "j1").id();
        let plain = SignalId::from("j:1");
        assert_eq!(plain.of_event(&first).origin(), (Some(SignalBringer::Events(first.clone())), plain.clone()));
        let of_acme = Some(SignalBringer::Tenant("acme".to_owned()));
        assert_eq!(plain.of_tenant("acme").origin(), (of_acme, plain.clone()));
        let scoped = SignalId::from(format!("j:{}", owned::invocation("acme", "1")));
        assert_eq!(
            scoped.of_tenant("acme"),
            plain.of_tenant("acme"),
            "by the name that the tenant gave its invocation"
        );
        assert_ne!(scoped.of_tenant("evil"), plain.of_tenant("evil"));
        assert!(scoped.is_called(&plain) && scoped.is_called(&scoped) && !plain.is_called(&scoped));
        assert_ne!(plain.of_event(&first), plain.of_event(&other));
        for id in ["j:1", "event:j1", "event:", "event:0e22:j1"] {
            assert_eq!(SignalId::from(id).origin(), (None, id.into()), "{id}");
        }
    }

    #[test]
    fn an_event_that_does_not_match_is_told_from_one_that_may() {
        let pattern = json!({"source": ["jobs"], "detail-type": ["Done", "Failed"], "region": ["eu"],
            "detail": {"job": ["j1"], "size": [{"numeric": [">", 1]}], "tags": ["a"], "by": {"name": ["Ada"]}}});
        let detail = json!({"job": "j1", "size": 0, "tags": ["b", "a"], "by": {"name": "Ada"}, "more": 1});
        let admits = |source: Option<&str>, detail_type: Option<&str>, detail: &Value| {
            let detail = detail.as_object().cloned().unwrap_or_default();
            wait(&pattern, "$.detail.job").may_match(source, detail_type, &detail)
        };
        assert!(admits(Some("jobs"), Some("Failed"), &detail));
        assert!(admits(None, None, &detail), "who sent it is not known");
        assert!(!admits(Some("mail"), Some("Done"), &detail));
        assert!(!admits(Some("jobs"), Some("Begun"), &detail));
        assert!(!admits(Some("jobs"), Some("Done"), &json!({"job": "j1"})));
        for (field, value) in [("job", json!("j2")), ("tags", json!(["b"])), ("by", json!({})), ("by", json!("Ada"))] {
            let mut other = detail.clone();
            other[field] = value;
            assert!(!admits(Some("jobs"), Some("Done"), &other), "{other}");
        }
    }

    #[test]
    fn a_correlation_is_a_path() {
        for path in ["detail.job", "$.", "$.detail..job", ""] {
            assert!(wait(&json!({}), path).shape(&"j1".into()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_name_survives_and_fits() {
        let shape = shape(&json!({"source": ["jobs"]}), "j1").id();
        for edition in [None, Some(RuleIncarnation::of("fresh"))] {
            let name = RuleName { shape: shape.clone(), edition };
            let text = name.to_string();
            assert!(text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{text}");
            assert_eq!(RuleName::parse(&text), Some(name));
        }
        for foreign in
            ["dormouse-dev-SignalRule-1A2B", "dormouse-", "rule", &format!("dormouse-{shape}-"), "dormouse-ab"]
        {
            assert_eq!(RuleName::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn shapes_keep_the_names_that_released_versions_gave_them() {
        let shape = shape(&json!({"source": ["jobs"], "detail": {"job": ["j1"]}}), "j1");
        assert_eq!(shape.id().as_str(), "0e22b88c7976afe4246ba863fb85b3e795f38fbf");
    }
}
