//! What collectors of typed events hold (conformance-adapter §5.5).

use std::collections::BTreeSet;

use dormouse_ports::Map;
use serde_json::Value;

use super::{Plain, differs, entries, items, same};
use crate::Failure;
use crate::directives::Directives;
use crate::evidence::Evidence;
use crate::typed::{TYPE, type_of};

/// `observers` of an `expected` block: what each collector holds.
pub(super) fn all(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    for (name, expected) in entries(expected)? {
        if !seen.names.observers.contains(name) {
            return Err(Failure::invalid(format!("there is no collector `{name}`")));
        }
        let held = seen.pages.typed.get(name).map_or(&[][..], Vec::as_slice);
        let holds = one(Directives::new(name, expected)?, held, seen);
        holds.map_err(|failure| failure.within(name))?;
    }
    Ok(())
}

fn one(mut expected: Directives<'_>, held: &[Map], seen: &Evidence) -> Result<(), Failure> {
    let is_no_matter = "sentinel_node_event_emission_is_impl_defined";
    if let Some(event) = expected.nested("contains_event")? {
        contains(event, held, seen)?;
    }
    if let Some(kind) = expected.text("contains_event_of_type")? {
        demand(!of_type(held, kind)?.is_empty(), "an event", kind, held)?;
    }
    if let Some(kind) = expected.text("contains_exactly_one_event_of_type")? {
        demand(of_type(held, kind)?.len() == 1, "one event", kind, held)?;
    }
    if let Some(kind) = expected.text("does_not_contain_event_of_type")? {
        demand(of_type(held, kind)?.is_empty(), "no event", kind, held)?;
    }
    for key in ["event_count", "contains_exactly_n_events_of_type"] {
        if let Some(count) = expected.nested(key)? {
            counts(count, held)?;
        }
    }
    for (at, count) in expected.list("event_counts")? {
        counts(Directives::new(at, count)?, held)?;
    }
    if let Some(cover) = expected.nested("captured_event_field_values_cover")? {
        covers(cover, held, seen)?;
    }
    if let Some(fields) = expected.mapping("every_captured_event_has")? {
        held.iter().try_for_each(|event| matches(fields, event, seen))?;
    }
    if let Some(order) = expected.nested("contains_events_in_order")? {
        in_order(order, held, seen)?;
    }
    if let Some(order) = expected.nested("relative_order_of_events_matching")? {
        relative_order(order, held, seen)?;
    }
    if let Some(wanted) = expected.given(is_no_matter) {
        same(wanted, &true.into(), seen)?;
    }
    expected.done()
}

fn demand(holds: bool, what: &str, kind: &str, held: &[Map]) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(differs(format!("{what} of the type `{kind}`"), shown(held))) }
}

fn shown(held: &[Map]) -> Value {
    held.iter().map(|event| Value::Object(event.clone())).collect()
}

fn of_type<'h>(held: &'h [Map], kind: &str) -> Result<Vec<&'h Map>, Failure> {
    let kind = type_of(kind)?;
    Ok(held.iter().filter(|event| event.get(TYPE).and_then(Value::as_str) == Some(kind)).collect())
}

/// Every field that is named has the value that is named; a field that an event does not have is none that is null.
fn matches(fields: &Map, event: &Map, seen: &Evidence) -> Result<(), Failure> {
    for (name, wanted) in fields {
        let actual =
            event.get(name).ok_or_else(|| differs(format!("a field `{name}`"), Value::Object(event.clone())))?;
        same(wanted, actual, seen).map_err(|failure| failure.within(name))?;
    }
    Ok(())
}

/// One of `held` matches; else the failure of the last.
fn any<'h>(
    held: impl IntoIterator<Item = &'h Map>,
    seen: &Evidence,
    check: impl Fn(&Map) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut last = Err(differs("an event", "none"));
    for event in held {
        last = seen.bindings.attempt(|| check(event));
        if last.is_ok() {
            break;
        }
    }
    last
}

fn contains(mut expected: Directives<'_>, held: &[Map], seen: &Evidence) -> Result<(), Failure> {
    let events = of_type(held, expected.required_text(TYPE)?)?;
    let fields = expected.mapping("fields")?.cloned().unwrap_or_default();
    let absent = expected.mapping("fields_absent_keys")?.cloned().unwrap_or_default();
    expected.done()?;
    any(events, seen, |event| {
        matches(&fields, event, seen)?;
        for (field, keys) in &absent {
            let field = event.get(field).map(entries).transpose()?;
            let field = field.ok_or_else(|| differs("a mapping", "none"))?;
            let present = items(keys)?.iter().filter_map(Value::as_str).find(|key| field.contains_key(*key));
            if let Some(key) = present {
                return Err(differs(format!("no key `{key}`"), Value::Object(field.clone())));
            }
        }
        Ok(())
    })
}

fn counts(mut expected: Directives<'_>, held: &[Map]) -> Result<(), Failure> {
    let kind = expected.required_text(TYPE)?;
    let count = expected.integer("count")?.and_then(|count| usize::try_from(count).ok());
    expected.done()?;
    let actual = of_type(held, kind)?.len();
    if count == Some(actual) { Ok(()) } else { Err(differs(format!("{count:?} of `{kind}`"), actual)) }
}

fn covers(mut expected: Directives<'_>, held: &[Map], seen: &Evidence) -> Result<(), Failure> {
    let field = expected.required_text("field")?;
    let values = expected.list("values")?;
    expected.done()?;
    for (_, wanted) in values {
        any(held, seen, |event| same(wanted, event.get(field).unwrap_or(&Value::Null), seen))?;
    }
    Ok(())
}

/// The events are there in that order; others may be between them.
fn follow<'h>(wanted: impl IntoIterator<Item = &'h Map>, held: &[&Map], seen: &Evidence) -> Result<(), Failure> {
    let mut rest = held.iter();
    for wanted in wanted {
        let found = rest.any(|event| seen.bindings.attempt(|| matches(wanted, event, seen)).is_ok());
        if !found {
            let held: Vec<Map> = held.iter().map(|event| (*event).clone()).collect();
            return Err(differs(format!("{} in its place", Value::Object(wanted.clone())), shown(&held)));
        }
    }
    Ok(())
}

fn in_order(mut expected: Directives<'_>, held: &[Map], seen: &Evidence) -> Result<(), Failure> {
    let events = of_type(held, expected.required_text(TYPE)?)?;
    let wanted = expected.list("events")?;
    expected.done()?;
    let wanted = wanted.iter().map(|(_, event)| entries(event)).collect::<Result<Vec<_>, _>>()?;
    follow(wanted, &events, seen)
}

fn relative_order(mut expected: Directives<'_>, held: &[Map], seen: &Evidence) -> Result<(), Failure> {
    let filter = expected.mapping("filter")?.cloned().unwrap_or_default();
    let wanted = expected.list("expected_order")?;
    expected.done()?;
    let fits = |event: &&Map| seen.bindings.attempt(|| matches(&filter, event, seen)).is_ok();
    let events: Vec<&Map> = held.iter().filter(fits).collect();
    let wanted = wanted.iter().map(|(_, event)| entries(event)).collect::<Result<Vec<_>, _>>()?;
    follow(wanted, &events, seen)
}

/// `node_completed_event_carries_error`.
pub(super) fn node_failed(expected: &Value, seen: &Evidence) -> Result<(), Failure> {
    let expected = entries(expected)?;
    let held = seen.pages.typed.values().flatten();
    any(held.filter(|event| event.get("phase").is_some_and(|phase| phase == "completed")), seen, |event| {
        matches(expected, event, seen)
    })
}

/// The predicate of that name over the events of calls.
pub(super) fn invariant(name: &str) -> Option<Plain<Evidence>> {
    type Held<'h> = Vec<&'h Map>;

    fn holds(wanted: &Value, seen: &Evidence, is_so: impl Fn(Held<'_>, Held<'_>) -> bool) -> Result<(), Failure> {
        let held: Vec<&Map> = seen.pages.typed.values().flatten().collect();
        let is_token = |event: &&Map| event.get(TYPE).is_some_and(|kind| kind == "LlmTokenEvent");
        let is_node = |event: &&Map| event.contains_key("phase");
        let tokens: Held<'_> = held.iter().copied().filter(is_token).collect();
        let ends: Held<'_> = held.iter().copied().filter(|event| !is_token(event) && !is_node(event)).collect();
        same(wanted, &is_so(tokens, ends).into(), seen)
    }
    fn ids(events: &[&Map]) -> BTreeSet<String> {
        events.iter().filter_map(|event| event.get("call_id")?.as_str().map(str::to_owned)).collect()
    }
    Some(match name {
        "all_token_event_call_ids_match_terminal_completion_event"
        | "all_token_events_share_one_call_id"
        | "token_event_call_id_matches_terminal_completion_event" => {
            |wanted, seen| holds(wanted, seen, |tokens, ends| ids(&tokens).len() == 1 && ids(&tokens) == ids(&ends))
        }
        "two_call_ids_distinct_and_non_null" | "token_events_group_by_call_id_into_two_streams" => |wanted, seen| {
            holds(wanted, seen, |tokens, ends| ids(&tokens).len() == 2 && ids(&tokens) == ids(&ends) && ends.len() == 2)
        },
        "chunk_index_monotonic_from_zero" | "chunk_index_restarts_at_zero_per_call" => |wanted, seen| {
            holds(wanted, seen, |tokens, _| {
                ids(&tokens).iter().all(|id| {
                    let own = tokens.iter().filter(|event| event.get("call_id").is_some_and(|own| own == id.as_str()));
                    own.enumerate().all(|(at, event)| event.get("chunk_index").is_some_and(|index| *index == at))
                })
            })
        },
        "ordered_deltas_concatenate_to_assembled_content" => |wanted, seen| {
            holds(wanted, seen, |tokens, ends| {
                let deltas: String = tokens.iter().filter_map(|event| event.get("delta")?.as_str()).collect();
                ends.iter().all(|event| event.get("output_content").is_some_and(|text| text == deltas.as_str()))
            })
        },
        "exactly_one_llm_completion_event_observed"
        | "exactly_one_llm_failed_event_observed"
        | "exactly_one_tool_call_event_observed"
        | "exactly_one_tool_call_failed_event_observed"
        | "exactly_one_terminal_llm_completion_event"
        | "exactly_one_terminal_llm_failed_event"
        | "exactly_one_llm_failed_event_per_failed_call" => {
            |wanted, seen| holds(wanted, seen, |_, ends| ends.len() == 1)
        }
        "latency_ms_present" => |wanted, seen| {
            holds(wanted, seen, |_, ends| {
                ends.iter().all(|event| event.get("latency_ms").is_some_and(Value::is_number))
            })
        },
        "no_error_category_field_on_tool_failure_event" => {
            |wanted, seen| holds(wanted, seen, |_, ends| ends.iter().all(|event| !event.contains_key("error_category")))
        }
        "all_token_events_node_level_attempt_index_zero" => |wanted, seen| {
            holds(wanted, seen, |tokens, _| {
                tokens.iter().all(|event| event.get("attempt_index").is_some_and(|index| *index == 0))
            })
        },
        _ => return None,
    })
}
