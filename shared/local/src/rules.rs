//! Routing of published events.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use dormouse_harness::{SIGNAL, WORK};
use dormouse_ports::{EventRule, EventShape, RuleName, SubscriptionError};
use quamina::Quamina;
use serde_json::Value;

use crate::pattern;
use crate::spool::{self, Spool};

/// The rules that carry Dormouse's own events whole, by what kind of event each takes.
const OWN: [(&str, &str); 2] = [(SIGNAL, "own-signals"), (WORK, "own-work")];
const OWN_SOURCE: &str = "dormouse";

/// One rule for each shape of event, however many wait for it, each in a file of its own.
pub(crate) struct LocalRules {
    spool: Spool,
    known: RwLock<KnownShapes>,
}

#[derive(Default)]
struct KnownShapes {
    rules: BTreeMap<String, ShapeRule>,
    matcher: Quamina<String>,
}

#[derive(Clone, Debug)]
struct ShapeRule {
    shape: EventShape,
    /// The name of its file: rules of the first versions have files of other names.
    file: String,
}

/// Destination of an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventTarget {
    /// The rule that took it.
    pub(crate) rule: String,
    /// Input that the function is sent; `None` when the event has no value where the rule looks for the signal id.
    pub(crate) input: Option<Value>,
}

impl fmt::Debug for LocalRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("spool", &self.spool).finish_non_exhaustive()
    }
}

impl LocalRules {
    /// The rules that were kept in `folder`.
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        let spool = Spool::open(folder)?;
        let mut known = KnownShapes::default();
        for (file, shape) in spool.load::<EventShape>()? {
            let name = name_of(&file, &shape);
            if let Err(reason) = known.add(name.to_string(), ShapeRule { shape, file }) {
                tracing::error!(%reason, "a kept rule cannot be used");
            }
        }
        Ok(Self { spool, known: RwLock::new(known) })
    }

    /// The rules that are kept in `folder`, which another process may have open.
    pub(crate) fn kept(folder: &Path) -> io::Result<Vec<RuleName>> {
        let kept = spool::peek::<EventShape>(folder)?;
        Ok(kept.into_iter().map(|(file, shape)| name_of(&file, &shape)).collect())
    }

    /// Makes sure that events which `rule` takes are carried to the invocations that wait for them.
    pub(crate) async fn put(&self, rule: &EventRule) -> Result<(), SubscriptionError> {
        pattern::check(&rule.shape.pattern).map_err(SubscriptionError::Rejected)?;
        let name = rule.name.to_string();
        let shape = rule.shape.clone();
        if self.known.read().unwrap_or_else(PoisonError::into_inner).rules.contains_key(&name) {
            return Ok(());
        }
        let kept = self.spool.put(&name, &shape).await;
        kept.map_err(|error| SubscriptionError::Unavailable(format!("the rule cannot be kept: {error}")))?;
        let rule = ShapeRule { shape, file: name.clone() };
        let added = self.known.write().unwrap_or_else(PoisonError::into_inner).add(name.clone(), rule);
        if let Err(reason) = added {
            // The rule is of no use, and would be found again at the next start.
            let _ = self.spool.remove(&name).await;
            return Err(SubscriptionError::Rejected(reason));
        }
        Ok(())
    }

    /// The rules that there are.
    pub(crate) fn list(&self) -> Vec<RuleName> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.rules.keys().filter_map(|name| RuleName::parse(name)).collect()
    }

    /// Removes a rule, which may be gone already.
    pub(crate) async fn remove(&self, name: &RuleName) -> Result<(), SubscriptionError> {
        let name = name.to_string();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).rules.get(&name).cloned();
        let Some(rule) = known else { return Ok(()) };
        let removed = self.spool.remove(&rule.file).await;
        removed.map_err(|error| SubscriptionError::Unavailable(format!("the rule cannot be removed: {error}")))?;
        let removed = self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
        removed.map_err(SubscriptionError::Unavailable)
    }

    /// Destinations of `event`, in the shape that EventBridge sends.
    pub(crate) fn routes(&self, event: &Value) -> Vec<EventTarget> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = known.matcher.matches_for_event(event.to_string().as_bytes()).unwrap_or_default();
        names.sort();
        names.dedup();
        let is_own = |kind: &str| event["source"] == OWN_SOURCE && event["detail-type"] == kind;
        let own = OWN.iter().find(|(kind, _)| is_own(kind));
        let own = own.map(|(_, rule)| EventTarget { rule: (*rule).to_owned(), input: Some(event.clone()) });
        let shared = names.into_iter().filter_map(|name| {
            let input = known.rules.get(&name)?.shape.signal_of(event);
            Some(EventTarget { rule: name, input })
        });
        own.into_iter().chain(shared).collect()
    }
}

impl KnownShapes {
    fn add(&mut self, name: String, rule: ShapeRule) -> Result<(), String> {
        if !self.rules.contains_key(&name) {
            let pattern = Value::Object(rule.shape.pattern.clone()).to_string();
            self.matcher
                .add_pattern(name.clone(), &pattern)
                .map_err(|error| format!("the local bus cannot match the event pattern {pattern}: {error}"))?;
            self.rules.insert(name, rule);
        }
        Ok(())
    }

    fn remove(&mut self, name: &String) -> Result<(), String> {
        self.matcher
            .delete_patterns(name)
            .map_err(|error| format!("the local bus cannot forget the rule {name}: {error}"))?;
        self.matcher.maybe_rebuild();
        self.rules.remove(name);
        Ok(())
    }
}

/// The name of the rule for `shape` that is kept in `file`.
fn name_of(file: &str, shape: &EventShape) -> RuleName {
    RuleName::parse(file).unwrap_or_else(|| RuleName { shape: shape.id(), edition: None })
}

#[cfg(test)]
mod tests {
    use dormouse_ports::RuleIncarnation;
    use serde_json::json;

    use super::*;

    fn rule(pattern: &Value, edition: &str) -> EventRule {
        let pattern = pattern.as_object().cloned().expect("a mapping");
        let shape = EventShape { pattern, correlation: "$.detail.job".to_owned() };
        EventRule { name: RuleName { shape: shape.id(), edition: Some(RuleIncarnation::of(edition)) }, shape }
    }

    fn finished(job: &Value) -> Value {
        json!({"id": "e1", "source": "exporter", "detail-type": "Finished", "detail": {"job": job}})
    }

    #[tokio::test]
    async fn an_event_is_routed_and_transformed_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        let rule = rule(&json!({"source": ["exporter"], "detail": {"job": [{"exists": true}]}}), "first");
        for _ in 0..2 {
            rules.put(&rule).await.expect("a rule");
        }
        for rules in [&rules, &LocalRules::open(folder.path().to_owned()).expect("rules")] {
            let routes = rules.routes(&finished(&json!("j3")));
            let signal = json!({"signal_id": "j3", "payload": {"job": "j3"}, "event_id": "e1", "source": "exporter",
                "detail_type": "Finished", "shape": rule.shape.id().as_str()});
            assert_eq!(routes.len(), 1, "it is one rule");
            assert_eq!(routes[0].rule, rule.name.to_string());
            assert_eq!(routes[0].input, Some(json!({ "dormouse_signal": signal })));
            assert!(rules.routes(&json!({"source": "other", "detail": {"job": "j1"}})).is_empty());
        }
    }

    #[tokio::test]
    async fn an_event_without_the_value_has_a_route_to_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        rules.put(&rule(&json!({"source": ["exporter"]}), "first")).await.expect("a rule");
        let routes = rules.routes(&json!({"id": "e", "source": "exporter", "detail": {}}));
        assert_eq!(routes.iter().map(|route| route.input.clone()).collect::<Vec<_>>(), [None]);
    }

    #[tokio::test]
    async fn a_removed_rule_takes_nothing_and_stays_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        let first = rule(&json!({"source": ["exporter"]}), "1");
        let second = rule(&json!({"source": ["exporter"]}), "2");
        for rule in [&first, &second] {
            rules.put(rule).await.expect("a rule");
        }
        for _ in 0..2 {
            rules.remove(&first.name).await.expect("it goes");
        }
        for rules in [&rules, &LocalRules::open(folder.path().to_owned()).expect("rules")] {
            assert_eq!(rules.list(), std::slice::from_ref(&second.name));
            let taken: Vec<_> = rules.routes(&finished(&json!("j"))).into_iter().map(|route| route.rule).collect();
            assert_eq!(taken, [second.name.to_string()]);
        }
    }

    #[tokio::test]
    async fn a_rule_of_the_first_versions_is_listed_and_can_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let EventRule { name, shape } = rule(&json!({"source": ["exporter"]}), "any");
        Spool::open(folder.path().to_owned()).expect("a spool").put("0123", &shape).await.expect("it is kept");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        let old = RuleName { edition: None, ..name };
        assert_eq!(rules.list(), std::slice::from_ref(&old));
        assert_eq!(LocalRules::kept(folder.path()).expect("a folder"), std::slice::from_ref(&old));
        assert_eq!(rules.routes(&finished(&json!("j"))).len(), 1);
        rules.remove(&old).await.expect("it goes");
        assert!(LocalRules::open(folder.path().to_owned()).expect("rules").list().is_empty());
    }

    #[tokio::test]
    async fn own_events_pass_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        for (kind, rule) in [("Dormouse Signal", "own-signals"), ("Dormouse Work", "own-work")] {
            let event = json!({"source": "dormouse", "detail-type": kind, "detail": {"signal_id": "s"}});
            assert_eq!(rules.routes(&event), [EventTarget { rule: rule.to_owned(), input: Some(event.clone()) }]);
        }
    }

    #[tokio::test]
    async fn what_cannot_be_matched_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = LocalRules::open(folder.path().to_owned()).expect("rules");
        for pattern in [json!({"$or": []}), json!({"source": [{"numeric": ["~", 1]}]})] {
            let refused = rules.put(&rule(&pattern, "first")).await;
            assert!(matches!(refused, Err(SubscriptionError::Rejected(_))), "{pattern}: {refused:?}");
        }
        assert!(LocalRules::open(folder.path().to_owned()).expect("rules").routes(&finished(&json!(1))).is_empty());
    }
}
