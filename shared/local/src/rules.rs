//! Which published event goes to whom.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use dormouse_harness::WORK;
use dormouse_ports::limits::PATTERN_RULES;
use dormouse_ports::{EventWait, Map, Registration, SignalId, SubscriptionError};
use quamina::Quamina;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pattern;
use crate::spool::{Spool, name_of};

/// The rules that carry Dormouse's own events whole, by what kind of event each takes.
const OWN: [(&str, &str); 2] = [("Dormouse Signal", "own-signals"), (WORK, "own-work")];
const OWN_SOURCE: &str = "dormouse";

/// One rule for each shape of event and path of correlation, however many wait for it. Rules stay: a signal that
/// nobody waits for finds nobody.
pub(crate) struct Rules {
    spool: Spool,
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    rules: BTreeMap<String, Rule>,
    matcher: Quamina<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rule {
    pattern: Map,
    correlation: String,
}

/// Where an event goes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Route {
    /// The rule that took it.
    pub(crate) rule: String,
    /// What the function is sent; `None` when the event has no value where the rule looks for the signal id.
    pub(crate) input: Option<Value>,
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("spool", &self.spool).finish_non_exhaustive()
    }
}

impl Rules {
    /// The rules that were kept in `folder`.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        let spool = Spool::open(folder)?;
        let mut known = Known::default();
        for (name, rule) in spool.load::<Rule>()? {
            if let Err(reason) = known.add(name, rule) {
                tracing::error!(%reason, "a kept rule cannot be used");
            }
        }
        Ok(Self { spool, known: RwLock::new(known) })
    }

    /// Makes sure that events which `wait` describes are carried to whoever waits for `signal_id`.
    pub(crate) async fn ensure(
        &self,
        wait: &EventWait,
        signal_id: &SignalId,
    ) -> Result<Registration, SubscriptionError> {
        pattern::check(&wait.pattern).map_err(SubscriptionError::Rejected)?;
        let pattern = pattern::shape(wait, signal_id).map_err(SubscriptionError::Rejected)?;
        let name = name_of(&[&sorted(&Value::Object(pattern.clone())).to_string(), &wait.correlation]);
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if known.rules.contains_key(&name) {
                return Ok(Registration::Known);
            }
            if known.rules.len() >= PATTERN_RULES {
                let advice = "let waits share a pattern";
                let sentence = format!("the bus has {PATTERN_RULES} rules, which is the limit: {advice}");
                return Err(SubscriptionError::Rejected(sentence));
            }
        }
        let rule = Rule { pattern, correlation: wait.correlation.clone() };
        let kept = self.spool.put(&name, &rule).await;
        kept.map_err(|error| SubscriptionError::Unavailable(format!("the rule cannot be kept: {error}")))?;
        let added = self.known.write().unwrap_or_else(PoisonError::into_inner).add(name.clone(), rule);
        if let Err(reason) = added {
            // The rule is of no use, and would be found again at the next start.
            let _ = self.spool.remove(&name).await;
            return Err(SubscriptionError::Rejected(reason));
        }
        Ok(Registration::Made)
    }

    /// Where `event`, in the shape that EventBridge sends, goes.
    pub(crate) fn routes(&self, event: &Value) -> Vec<Route> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = known.matcher.matches_for_event(event.to_string().as_bytes()).unwrap_or_default();
        names.sort();
        names.dedup();
        let is_own = |kind: &str| event["source"] == OWN_SOURCE && event["detail-type"] == kind;
        let own = OWN.iter().find(|(kind, _)| is_own(kind));
        let own = own.map(|(_, rule)| Route { rule: (*rule).to_owned(), input: Some(event.clone()) });
        let shared = names.into_iter().filter_map(|name| {
            let input = transformed(event, &known.rules.get(&name)?.correlation);
            Some(Route { rule: name, input })
        });
        own.into_iter().chain(shared).collect()
    }
}

impl Known {
    fn add(&mut self, name: String, rule: Rule) -> Result<(), String> {
        if !self.rules.contains_key(&name) {
            let pattern = Value::Object(rule.pattern.clone()).to_string();
            self.matcher
                .add_pattern(name.clone(), &pattern)
                .map_err(|error| format!("the local bus cannot match the event pattern {pattern}: {error}"))?;
            self.rules.insert(name, rule);
        }
        Ok(())
    }
}

/// What the signal function is sent: the awaited id, the event's detail as payload, and the event's own id.
fn transformed(event: &Value, correlation: &str) -> Option<Value> {
    let signal_id = pattern::correlated(event, correlation)?;
    let signal = json!({ "signal_id": signal_id, "payload": event["detail"], "event_id": event["id"] });
    Some(json!({ "dormouse_signal": signal }))
}

/// `value` with its keys in order: patterns that differ in nothing else share a rule.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pattern: &Value) -> EventWait {
        let pattern = pattern.as_object().cloned().expect("a mapping");
        EventWait { pattern, correlation: "$.detail.job".to_owned() }
    }

    fn finished(job: &Value) -> Value {
        json!({"id": "e1", "source": "exporter", "detail-type": "Finished", "detail": {"job": job}})
    }

    #[tokio::test]
    async fn an_event_is_routed_and_transformed_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules::open(folder.path().to_owned()).expect("rules");
        for job in ["j1", "j2"] {
            let wait = wait(&json!({"source": ["exporter"], "detail": {"job": [job]}}));
            rules.ensure(&wait, &job.into()).await.expect("a rule");
        }
        for rules in [&rules, &Rules::open(folder.path().to_owned()).expect("rules")] {
            let routes = rules.routes(&finished(&json!("j3")));
            let signal = json!({"signal_id": "j3", "payload": {"job": "j3"}, "event_id": "e1"});
            assert_eq!(routes.len(), 1, "the two waits share one rule");
            assert_eq!(routes[0].input, Some(json!({ "dormouse_signal": signal })));
            assert!(rules.routes(&json!({"source": "other", "detail": {"job": "j1"}})).is_empty());
        }
    }

    #[tokio::test]
    async fn an_event_without_the_value_has_a_route_to_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules::open(folder.path().to_owned()).expect("rules");
        rules.ensure(&wait(&json!({"source": ["exporter"]})), &"j".into()).await.expect("a rule");
        let routes = rules.routes(&json!({"id": "e", "source": "exporter", "detail": {}}));
        assert_eq!(routes.iter().map(|route| route.input.clone()).collect::<Vec<_>>(), [None]);
    }

    #[tokio::test]
    async fn a_bus_has_only_so_many_rules() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules::open(folder.path().to_owned()).expect("rules");
        let shape = |number: usize| wait(&json!({"source": [format!("exporter-{number}")]}));
        for number in 0..PATTERN_RULES {
            rules.ensure(&shape(number), &"j".into()).await.expect("a rule");
        }
        let refused = rules.ensure(&shape(PATTERN_RULES), &"j".into()).await;
        let Err(SubscriptionError::Rejected(reason)) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, "the bus has 200 rules, which is the limit: let waits share a pattern");
        assert!(rules.routes(&json!({"source": "exporter-200", "detail": {}})).is_empty());
        rules.ensure(&shape(7), &"j".into()).await.expect("a rule that is there");
    }

    #[tokio::test]
    async fn own_events_pass_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules::open(folder.path().to_owned()).expect("rules");
        for (kind, rule) in [("Dormouse Signal", "own-signals"), ("Dormouse Work", "own-work")] {
            let event = json!({"source": "dormouse", "detail-type": kind, "detail": {"signal_id": "s"}});
            assert_eq!(rules.routes(&event), [Route { rule: rule.to_owned(), input: Some(event.clone()) }]);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_matched_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = Rules::open(folder.path().to_owned()).expect("rules");
        for pattern in [json!({"$or": []}), json!({"source": [{"numeric": ["~", 1]}]})] {
            let refused = rules.ensure(&wait(&pattern), &"j".into()).await;
            assert!(matches!(refused, Err(SubscriptionError::Rejected(_))), "{pattern}: {refused:?}");
        }
        assert!(Rules::open(folder.path().to_owned()).expect("rules").routes(&finished(&json!(1))).is_empty());
    }
}
