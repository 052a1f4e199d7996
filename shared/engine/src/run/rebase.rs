//! Carrying the session of a turn that lost a race over onto the newer record (sessions §8.2).

use std::sync::Arc;

use dormouse_ports::Map;
use serde_json::Value;

use crate::{Reducer, StateSchema};

/// Carries `mine`, which started from `base`, over onto `theirs`: appended items are appended, merged entries are merged, changed
/// fields win, fields left alone give way. Those that are `by_entry` are carried over by what changed in them.
pub(super) fn rebase(schema: &StateSchema, by_entry: impl Fn(&str) -> bool, [base, mine, theirs]: [&Map; 3]) -> Map {
    let mut result = theirs.clone();
    for (name, value) in mine {
        let reducer = schema.get(name).map(|(_, field)| &field.reducer);
        let grew = reducer.and_then(|reducer| Some((reducer, appended(reducer, base.get(name), value)?)));
        if let (Some((reducer, tail)), Some(theirs)) = (grew, result.get_mut(name))
            && append(reducer, tail, theirs)
        {
            continue;
        }
        match result.get_mut(name) {
            Some(_) if base.get(name) == Some(value) => {}
            Some(theirs) if by_entry(name) => carry(base.get(name), value, theirs, true),
            Some(theirs) if reducer.is_some_and(Reducer::merges_entries) => {
                carry(base.get(name), value, theirs, false);
            }
            Some(_) | None => {
                result.insert(name.clone(), value.clone());
            }
        }
    }
    result
}

/// Makes the change from `base` to `mine` in `theirs`: entry by entry where all are mappings, each as a whole, as the reducers of
/// mappings do. `inside` makes the same of the entries; what changed then stands behind what did not.
fn carry(base: Option<&Value>, mine: &Value, theirs: &mut Value, inside: bool) {
    let nothing = Map::new();
    let (Value::Object(mine), Value::Object(theirs)) = (mine, &mut *theirs) else {
        return theirs.clone_from(mine);
    };
    let base = base.and_then(Value::as_object).unwrap_or(&nothing);
    for name in base.keys().filter(|name| !mine.contains_key(*name)) {
        theirs.shift_remove(name);
    }
    for (name, value) in mine.iter().filter(|(name, value)| base.get(*name) != Some(value)) {
        if inside {
            let mut entry = theirs.shift_remove(name).unwrap_or_default();
            carry(base.get(name), value, &mut entry, true);
            theirs.insert(name.clone(), entry);
        } else {
            theirs.insert(name.clone(), value.clone());
        }
    }
}

/// Items that were put into a field since it was `base`. Where only the newest stay, some of those in front may be gone; by their
/// keys they may stand in the places of others.
fn appended(reducer: &Reducer, base: Option<&Value>, mine: &Value) -> Option<Vec<Value>> {
    let before = base.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let now = mine.as_array()?.as_slice();
    match reducer {
        Reducer::Append | Reducer::ConcatFlatten | Reducer::DedupeAppend { .. } => {
            now.strip_prefix(before).map(<[Value]>::to_vec)
        }
        Reducer::BoundedAppend { .. } => {
            (0..=before.len()).find_map(|gone| now.strip_prefix(&before[gone..])).map(<[Value]>::to_vec)
        }
        Reducer::MergeByKey { .. } => {
            let is_new = |(at, item): &(usize, &Value)| before.get(*at) != Some(*item);
            Some(now.iter().enumerate().filter(is_new).map(|(_, item)| item.clone()).collect())
        }
        Reducer::LastWriteWins | Reducer::Merge | Reducer::MergeAll | Reducer::Custom { .. } => None,
    }
}

/// Puts `items` into `theirs`, as the reducer of the field does; false where that is not possible.
fn append(reducer: &Reducer, items: Vec<Value>, theirs: &mut Value) -> bool {
    if matches!(reducer, Reducer::Append | Reducer::ConcatFlatten) {
        return theirs.as_array_mut().map(|list| list.extend(items)).is_some();
    }
    let Ok(change) = reducer.prepare(theirs, Value::Array(items)) else { return false };
    let mut slot = Arc::new(theirs.take());
    change.apply(&mut slot);
    *theirs = Arc::unwrap_or_clone(slot);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Field, FieldType};

    #[test]
    fn what_two_turns_appended_is_kept_of_both() {
        for reducer in [Reducer::Append, Reducer::ConcatFlatten] {
            let list = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(reducer.clone());
            let schema = StateSchema::new().field("list", list);
            let of = |list: Value| Map::from_iter([("list".to_owned(), list)]);
            let base = of(json!([1]));
            let mine = of(json!([1, 2]));
            let theirs = of(json!([1, 3]));
            let rebased = rebase(&schema, |_| false, [&base, &mine, &theirs]);
            assert_eq!(rebased, of(json!([1, 3, 2])), "{reducer:?}");
        }
    }

    #[test]
    fn what_two_turns_appended_is_put_together_as_the_reducer_of_the_field_does() {
        let dedupe = || Reducer::DedupeAppend { key: None };
        let bounded = || Reducer::BoundedAppend { max_len: 3 };
        let by_key = || Reducer::MergeByKey { key: Some(Reducer::key_field("k")) };
        let of = |key: u8, value: u8| json!({ "k": key, "v": value });
        for (reducer, base, mine, theirs, both) in [
            (dedupe(), json!([1]), json!([1, 2, 4]), json!([1, 3, 2]), json!([1, 3, 2, 4])),
            (dedupe(), json!([1]), json!([1]), json!([1, 3]), json!([1, 3])),
            (bounded(), json!([1, 2, 3]), json!([2, 3, 4]), json!([3, 5, 6]), json!([5, 6, 4])),
            (bounded(), json!([1]), json!([1, 4]), json!([1, 5]), json!([1, 5, 4])),
            (bounded(), json!([1, 2, 3]), json!([7, 8, 9]), json!([2, 3, 5]), json!([7, 8, 9])),
            (bounded(), json!([1, 2, 3]), json!([1, 2, 3]), json!([2, 3, 5]), json!([2, 3, 5])),
            (
                by_key(),
                json!([of(1, 1), of(2, 1)]),
                json!([of(1, 2), of(2, 1), of(4, 2)]),
                json!([of(1, 3), of(2, 3), of(3, 3), of(4, 3)]),
                json!([of(1, 2), of(2, 3), of(3, 3), of(4, 2)]),
            ),
        ] {
            let list = Field::new(FieldType::List(Box::new(FieldType::Any)), json!([])).reduced_by(reducer.clone());
            let schema = StateSchema::new().field("list", list);
            let [base, mine, theirs, both] =
                [base, mine, theirs, both].map(|list| Map::from_iter([("list".to_owned(), list)]));
            assert_eq!(rebase(&schema, |_| false, [&base, &mine, &theirs]), both, "{reducer:?}");
        }
    }

    #[test]
    fn what_two_turns_merged_into_a_mapping_is_kept_of_both() {
        let of = |notes: Value| Map::from_iter([("notes".to_owned(), notes)]);
        let base = of(json!({ "a": 1, "b": { "x": 1 }, "c": 1, "gone": 1 }));
        let mine = of(json!({ "a": 2, "b": { "y": 1 }, "c": 1, "mine": 1 }));
        let theirs = of(json!({ "a": 3, "b": { "z": 1 }, "c": 4, "gone": 1, "theirs": 1 }));
        let both = of(json!({ "a": 2, "b": { "y": 1 }, "c": 4, "theirs": 1, "mine": 1 }));
        for reducer in [Reducer::Merge, Reducer::MergeAll] {
            let notes = Field::new(FieldType::Any, json!({})).reduced_by(reducer.clone());
            let schema = StateSchema::new().field("notes", notes);
            assert_eq!(rebase(&schema, |_| false, [&base, &mine, &theirs]), both, "{reducer:?}");
        }
    }

    #[test]
    fn what_two_turns_changed_in_a_mapping_is_kept_of_both_where_it_is_carried_over_by_entry() {
        let schema = StateSchema::new().field("notes", Field::new(FieldType::Any, json!({})));
        let of = |notes: Value| Map::from_iter([("notes".to_owned(), notes)]);
        let base = of(json!({ "a": { "old": 1, "gone": 1, "same": 1 }, "list": [1] }));
        let mine = of(json!({ "a": { "old": 2, "same": 1, "mine": { "x": 1 } }, "list": [1, 2] }));
        let theirs = of(json!({ "a": { "old": 3, "gone": 1, "same": 4, "mine": { "y": 1 } }, "list": [3] }));
        let both = of(json!({ "a": { "same": 4, "old": 2, "mine": { "y": 1, "x": 1 } }, "list": [1, 2] }));
        assert_eq!(rebase(&schema, |_| true, [&base, &mine, &theirs]), both);
        assert_eq!(rebase(&schema, |_| false, [&base, &mine, &theirs]), mine, "else the whole field is taken over");
    }
}
