//! As much of IAM as the roles of the template use: what it does not know, it refuses to judge.

use std::collections::BTreeSet;

use serde_json::Value;

/// What a request needs to be allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asked {
    pub(crate) action: String,
    pub(crate) resource: String,
    /// The condition keys of the request, each with its value.
    pub(crate) context: Vec<(&'static str, String)>,
}

/// One thing that a role may do: an action on a resource, where one condition value is one thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    action: String,
    resource: String,
    condition: Option<(String, String)>,
}

impl Grant {
    pub(crate) fn action(&self) -> &str {
        &self.action
    }

    fn allows(&self, asked: &Asked) -> bool {
        let holds = self.condition.as_ref().is_none_or(|(key, pattern)| {
            asked.context.iter().any(|(given, value)| given == key && is_like(value, pattern))
        });
        self.action == asked.action && is_like(&asked.resource, &self.resource) && holds
    }
}

impl std::fmt::Display for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)?;
        self.condition.iter().try_for_each(|(key, pattern)| write!(f, " where {key} is {pattern}"))
    }
}

/// Everything that `statements` grant.
pub(crate) fn grants(statements: &[Value]) -> BTreeSet<Grant> {
    told(statements, "Allow")
}

/// Everything that `statements` forbid, whatever grants it.
pub(crate) fn prohibitions(statements: &[Value]) -> BTreeSet<Grant> {
    told(statements, "Deny")
}

fn told(statements: &[Value], effect: &str) -> BTreeSet<Grant> {
    let mut grants = BTreeSet::new();
    for statement in statements {
        let known = statement["Effect"] == "Allow" || statement["Effect"] == "Deny";
        assert!(known, "a statement allows or denies: {statement}");
        if statement["Effect"] != effect {
            continue;
        }
        let conditions = conditions(statement);
        for (action, resource) in many(&statement["Action"])
            .into_iter()
            .flat_map(|action| many(&statement["Resource"]).into_iter().map(move |resource| (action.clone(), resource)))
        {
            assert!(!action.contains('*'), "an action is named in full: {action}");
            let grant = |condition| Grant { action: action.clone(), resource: resource.clone(), condition };
            if conditions.is_empty() {
                grants.insert(grant(None));
            }
            grants.extend(conditions.iter().cloned().map(Some).map(grant));
        }
    }
    grants
}

/// The grant that allows `asked`, if there is one.
pub(crate) fn judge<'a>(grants: &'a BTreeSet<Grant>, asked: &Asked) -> Option<&'a Grant> {
    grants.iter().find(|grant| grant.allows(asked))
}

/// The values of the one condition of `statement`. A request has one value for each key here, so that "all values" and
/// "the value" are the same.
fn conditions(statement: &Value) -> Vec<(String, String)> {
    let Some(operators) = statement.get("Condition").and_then(Value::as_object) else { return Vec::new() };
    assert_eq!(operators.len(), 1, "one operator is understood: {statement}");
    let (operator, keys) = operators.iter().next().expect("an operator");
    let known = match statement["Effect"] == "Deny" {
        true => &["ForAnyValue:StringLike"][..],
        false => &["ForAllValues:StringLike", "ForAllValues:ArnEquals", "StringEquals"],
    };
    assert!(known.contains(&operator.as_str()), "{operator} is not understood");
    let keys = keys.as_object().expect("keys");
    assert_eq!(keys.len(), 1, "one key is understood: {statement}");
    let (key, values) = keys.iter().next().expect("a key");
    many(values).into_iter().map(|value| (key.clone(), value)).collect()
}

fn many(value: &Value) -> Vec<String> {
    match value.as_array() {
        Some(items) => items.iter().flat_map(many).collect(),
        None => vec![value.as_str().expect("text").to_owned()],
    }
}

/// `*` stands for anything, `?` for any one character.
fn is_like(value: &str, pattern: &str) -> bool {
    match (first(value), first(pattern)) {
        (_, Some(('*', rest))) => {
            let ends = value.char_indices().map(|(at, _)| &value[at..]);
            ends.chain([""]).any(|left| is_like(left, rest))
        }
        (Some((one, left)), Some((wanted, rest))) => (wanted == '?' || wanted == one) && is_like(left, rest),
        (one, wanted) => one.is_none() && wanted.is_none(),
    }
}

fn first(text: &str) -> Option<(char, &str)> {
    text.chars().next().map(|one| (one, &text[one.len_utf8()..]))
}

#[test]
fn patterns_match_as_in_iam() {
    assert!(is_like("SESSION#a#b", "SESSION#*") && is_like("rule/bus/dormouse-1", "rule/bus/dormouse-*"));
    assert!(is_like("anything", "*") && is_like("exact", "exact"));
    assert!(is_like("rule-1a2", "rule-??*") && is_like("rule-1a", "rule-??*") && !is_like("rule-1", "rule-??*"));
    assert!(!is_like("XSESSION#a", "SESSION#*") && !is_like("exactly", "exact"));
}
