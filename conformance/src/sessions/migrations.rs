//! Migration functions by name: a fixture cannot hold a function, so it names what the function does.

use std::sync::Arc;

use dormouse_engine::{EngineError, Migrate, SessionPolicy};
use dormouse_ports::Map;
use serde_json::Value;

use crate::Failure;
use crate::directives::Directives;
use crate::ledger::Ledger;

#[derive(Clone, Debug)]
pub(crate) struct Migration {
    from: String,
    to: String,
    effect: Effect,
}

#[derive(Clone, Debug, PartialEq)]
enum Effect {
    Nothing,
    /// Raises; the text begins with the name of the error's kind.
    Raise(String),
    Add(String, i64),
    Multiply(String, i64),
    Set(String, Value),
    Rename(String, String),
    Remove(String),
}

impl Migration {
    pub(crate) fn read(mut given: Directives<'_>) -> Result<Self, Failure> {
        let from = given.required_text("from_version")?.to_owned();
        let to = given.required_text("to_version")?.to_owned();
        let name = given.required_text("migrate")?;
        given.done()?;
        let effect = Effect::named(name).ok_or_else(|| Failure::missing(format!("migration function `{name}`")))?;
        Ok(Self { from, to, effect })
    }

    /// From which version to which.
    pub(crate) fn versions(&self) -> (&str, &str) {
        (&self.from, &self.to)
    }

    /// What it does to a state; that it ran is noted in `ledger`.
    pub(crate) fn noted_in(&self, ledger: &Arc<Ledger>) -> Migrate {
        let own = self.clone();
        let ledger = ledger.clone();
        Arc::new(move |state| {
            ledger.write(|pages| pages.migrations.push(format!("{}->{}", own.from, own.to)));
            own.effect.apply(state)
        })
    }

    pub(super) fn register(&self, policy: SessionPolicy, ledger: &Arc<Ledger>) -> Result<SessionPolicy, EngineError> {
        policy.migration(&self.from, &self.to, self.noted_in(ledger))
    }
}

impl Effect {
    /// Understands `identity_passthrough`, `should_not_run`, `raises_KIND`, `add_NUMBER_to_FIELD`,
    /// `multiply_FIELD_by_NUMBER`, `rename_FIELD_to_FIELD`, `drop_FIELD`, `add_VERSION_field` and `add_FIELD`.
    fn named(name: &str) -> Option<Self> {
        match name {
            "identity" | "identity_passthrough" | "irrelevant" | "noop" => return Some(Self::Nothing),
            "should_not_run" => return Some(Self::Raise("AssertionError: the migration should not run".to_owned())),
            // What this one adds stands beside it in the fixture, not in its name.
            "add_new_field_default" => return Some(Self::Set("new_field".to_owned(), "v2_default".into())),
            _ => {}
        }
        if let Some(kind) = name.strip_prefix("raises_").or_else(|| name.strip_prefix("raise_")) {
            return Some(Self::Raise(format!("{}: raised by the migration", error_kind(kind))));
        }
        if let Some(field) = name.strip_prefix("double_") {
            return Some(Self::Multiply(field.to_owned(), 2));
        }
        if let Some(field) = name.strip_prefix("drop_").or_else(|| name.strip_prefix("remove_")) {
            return Some(Self::Remove(field.to_owned()));
        }
        if let Some((from, to)) = name.strip_prefix("rename_").and_then(|rest| rest.split_once("_to_")) {
            return Some(Self::Rename(from.to_owned(), to.to_owned()));
        }
        if let Some((field, factor)) = name.strip_prefix("multiply_").and_then(|rest| rest.rsplit_once("_by_")) {
            return Some(Self::Multiply(field.to_owned(), number(factor)?));
        }
        let added = name.strip_prefix("add_")?;
        if let Some((amount, field)) = added.split_once("_to_") {
            return Some(Self::Add(field.to_owned(), number(amount)?));
        }
        match added.strip_suffix("_field") {
            Some(version) if is_version(version) => {
                Some(Self::Set(added.to_owned(), format!("{version}_default").into()))
            }
            // A field that is added comes with its declared default, which the graph gives it anyway.
            Some(_) | None => Some(Self::Nothing),
        }
    }

    fn apply(&self, mut state: Map) -> Result<Map, String> {
        match self {
            Self::Nothing => {}
            Self::Raise(text) => return Err(text.clone()),
            Self::Add(field, amount) => change(&mut state, field, |number| number + amount)?,
            Self::Multiply(field, factor) => change(&mut state, field, |number| number * factor)?,
            Self::Set(field, value) => {
                state.insert(field.clone(), value.clone());
            }
            Self::Rename(from, to) => {
                let value = state.shift_remove(from).ok_or_else(|| format!("KeyError: `{from}`"))?;
                state.insert(to.clone(), value);
            }
            Self::Remove(field) => {
                state.shift_remove(field);
            }
        }
        Ok(state)
    }
}

fn change(state: &mut Map, field: &str, compute: impl FnOnce(i64) -> i64) -> Result<(), String> {
    let number = state.get(field).and_then(Value::as_i64).ok_or_else(|| format!("KeyError: `{field}`"))?;
    state.insert(field.to_owned(), compute(number).into());
    Ok(())
}

/// `keyerror` is `KeyError`.
fn error_kind(name: &str) -> String {
    let stem = name.replace('_', "");
    let stem = stem.strip_suffix("error").unwrap_or(&stem);
    let mut letters = stem.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    format!("{}{}Error", first.map_or_else(String::new, String::from), letters.as_str())
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v').is_some_and(|digits| digits.parse::<u32>().is_ok())
}

/// A number in digits or as a word.
pub(crate) fn number(text: &str) -> Option<i64> {
    const WORDS: &[(&str, i64)] = &[
        ("one", 1),
        ("two", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("twenty", 20),
        ("fifty", 50),
        ("hundred", 100),
        ("one_hundred", 100),
        ("thousand", 1000),
    ];
    let word = WORDS.iter().find(|(word, _)| *word == text);
    word.map_or_else(|| text.parse().ok(), |(_, number)| Some(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_migration_does() {
        let field = |name: &str| name.to_owned();
        for (name, effect) in [
            ("add_ten_to_value", Effect::Add(field("value"), 10)),
            ("multiply_value_by_two", Effect::Multiply(field("value"), 2)),
            ("rename_old_name_to_name", Effect::Rename(field("old_name"), field("name"))),
            ("add_v2_field", Effect::Set(field("v2_field"), "v2_default".into())),
            ("drop_scratch", Effect::Remove(field("scratch"))),
            ("raises_keyerror", Effect::Raise("KeyError: raised by the migration".to_owned())),
            ("identity_passthrough", Effect::Nothing),
        ] {
            assert_eq!(Effect::named(name), Some(effect), "{name}");
        }
        assert_eq!(Effect::named("turn_everything_around"), None);
    }
}
