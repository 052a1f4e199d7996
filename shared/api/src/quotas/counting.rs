//! What is counted, and when nothing is left.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_ports::{
    Commit, CommitError, Commits, CounterChange, CounterWrite, Counters, DocumentKey, Journal, JournalEntry, Records,
    StoreError,
};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::id::QuotaId;
use dormouse_protocol::resource::Quota;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::documents::Stored;

/// The kind of the counters' names.
pub(crate) const KIND: &str = "counters";

/// Limits that are counted.
pub(super) const TASKS: &str = "tasks";
pub(super) const OPEN: &str = "concurrent_tasks";
pub(super) const TOKENS: &str = "tokens";
pub(super) const COST: &str = "cost_micros";
pub(super) const ACTIVE: &str = "active_ms";
/// All of them, of each of which a task needs something left to be accepted.
pub(crate) const NAMES: [&str; 5] = [TASKS, OPEN, TOKENS, COST, ACTIVE];

/// Limits that start again with each period, and those that a task uses up while it runs.
pub(super) const PERIODIC: [&str; 4] = [TASKS, TOKENS, COST, ACTIVE];
pub(crate) const WHILE_RUNNING: [&str; 3] = [TOKENS, COST, ACTIVE];

/// Kinds of the entries of calls of models that are no step: for summaries, whether there is one or not, and those whose answer
/// was thrown away.
const BESIDE_STEPS: [&str; 3] =
    ["vendor.dormouse.context_compacted", "vendor.dormouse.context_kept", "vendor.dormouse.answer_lost"];

/// Remainder of an amount without a limit: more than any task uses.
pub(super) const UNLIMITED: i64 = 1_000_000_000_000_000;

/// Seconds after which a task may come again that found too many at work, and the longest that a client is told to wait.
const SOON: u32 = 5;
const LATEST: i64 = 24 * 3600;

/// Reason for which a take from counters did not happen.
pub(crate) enum Verdict {
    /// What was in its way is gone: it may be tried again.
    TryAgain,
    /// Nothing is left of `limit`; it may work in `seconds`, where time brings something back.
    UsedUp { id: QuotaId, limit: &'static str, seconds: Option<u32> },
    /// There is no such quota.
    Unknown { id: QuotaId },
}

/// What a task takes from each of `quotas` when it is accepted.
pub(crate) fn accepted(quotas: &BTreeSet<QuotaId>) -> impl Iterator<Item = CounterWrite> {
    let take = || CounterChange::Take { needs: ones(&NAMES), amounts: ones(&[TASKS, OPEN]) };
    quotas.iter().map(move |id| CounterWrite { key: key(id), change: take() })
}

/// What a durable step of a task takes, which recorded `entries`. It fails where nothing was left before it.
pub(crate) fn stepped(quotas: &BTreeSet<QuotaId>, entries: &[JournalEntry]) -> impl Iterator<Item = CounterWrite> {
    let amounts = amounts_of(entries);
    let take = move || CounterChange::Take { needs: ones(&WHILE_RUNNING), amounts: amounts.clone() };
    quotas.iter().map(move |id| CounterWrite { key: key(id), change: take() })
}

/// What was used by `entries` in another way. It never fails.
pub(crate) fn used(quotas: &BTreeSet<QuotaId>, entries: &[JournalEntry]) -> impl Iterator<Item = CounterWrite> {
    let used = amounts_of(entries).into_iter().map(|(name, amount)| (name, -amount)).collect::<BTreeMap<_, _>>();
    let add = move |id| CounterWrite { key: key(id), change: CounterChange::Add { amounts: used.clone() } };
    let counts = entries.iter().any(|entry| !amounts_of(std::slice::from_ref(entry)).is_empty());
    quotas.iter().filter(move |_| counts).map(add)
}

/// What a task that ends gives back.
pub(crate) fn ended(quotas: &BTreeSet<QuotaId>) -> impl Iterator<Item = CounterWrite> {
    quotas.iter().map(|id| CounterWrite { key: key(id), change: CounterChange::Add { amounts: ones(&[OPEN]) } })
}

/// Looks why a take from the counters of `key`, which needs something left of each of `needs`, did not happen, and begins
/// their next period where it was time for that. What is gone of other limits refuses nothing: a task that runs has its own
/// place among those that run at once.
///
/// # Errors
/// [`CommitError`] when the store did not answer.
pub(crate) async fn judged(
    records: &dyn Records,
    commits: &dyn Commits,
    (key, now): (&DocumentKey, Timestamp),
    needs: &[&'static str],
    commit_id: String,
) -> Result<Verdict, CommitError> {
    let id = QuotaId::from(key.id.as_str());
    let Some(quota) = Stored::<Quota>::load(records, &id, now).await? else {
        return Ok(Verdict::Unknown { id });
    };
    let counters = records.counters(key).await?.unwrap_or_default();
    if counters.ends_at.is_some_and(|end| end <= now) {
        let begin = begin_period(&quota, &counters, now).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        return match commits.commit(&Commit { journal: begin, ..Commit::new(commit_id, now) }).await {
            // Of several that begin it one does.
            Ok(()) | Err(CommitError::Journal(_)) => Ok(Verdict::TryAgain),
            Err(error) => Err(error),
        };
    }
    // Others may have given back meanwhile.
    let Some(limit) = exhausted(&counters, needs) else { return Ok(Verdict::TryAgain) };
    Ok(Verdict::UsedUp { id, limit, seconds: wait(limit, &counters, now) })
}

/// Begins the period behind that of `counters`, as long as the limits of `quota` are these.
fn begin_period(quota: &Stored<Quota>, counters: &Counters, now: Timestamp) -> Result<Journal, ProtocolError> {
    let resource = &quota.kept.resource;
    let left = PERIODIC.iter().map(|name| ((*name).to_owned(), at_first(resource, name))).collect();
    let ends_at = quota.kept.own.period.and_then(|seconds| period_end(now, seconds));
    let change = CounterChange::Begin { ending: counters.ends_at, left, ends_at, forget_at: None };
    let counters = vec![CounterWrite { key: key(&resource.envelope.id), change }];
    Ok(Journal { counters, ..Journal::new(vec![quota.write()?], Vec::new()) })
}

/// Seconds after which something of `limit` comes back; without a period nothing does but tasks that end.
fn wait(limit: &str, counters: &Counters, now: Timestamp) -> Option<u32> {
    if limit == OPEN {
        return Some(SOON);
    }
    let left = counters.ends_at?.duration_since(now).as_secs().clamp(0, LATEST) + 1;
    Some(u32::try_from(left).unwrap_or(SOON))
}

pub(super) fn key(id: &QuotaId) -> DocumentKey {
    DocumentKey::new(KIND, id.as_str())
}

/// What is left of `name` when nothing is used.
pub(super) fn at_first(quota: &Quota, name: &str) -> i64 {
    let limit = quota.limits.get(name).and_then(serde_json::Number::as_i64);
    match (limit, quota.hard_limit) {
        (Some(limit), true) => limit,
        (Some(limit), false) => limit.saturating_add(UNLIMITED),
        (None, _) => UNLIMITED,
    }
}

/// The limit of `needs` of which nothing is left.
fn exhausted(counters: &Counters, needs: &[&'static str]) -> Option<&'static str> {
    let is_gone = |name: &&&str| counters.left.get(**name).is_some_and(|left| *left < 1);
    needs.iter().find(is_gone).copied()
}

pub(super) fn period_end(now: Timestamp, seconds: u64) -> Option<Timestamp> {
    now.checked_add(SignedDuration::from_secs(i64::try_from(seconds).ok()?)).ok()
}

fn ones(names: &[&str]) -> BTreeMap<String, i64> {
    names.iter().map(|name| ((*name).to_owned(), 1)).collect()
}

/// What `entries` say was used: the calls of models and tools that they record.
fn amounts_of(entries: &[JournalEntry]) -> BTreeMap<String, i64> {
    let mut amounts = BTreeMap::new();
    let mut count = |name: &str, amount: i64| {
        if amount > 0 {
            let sum: &mut i64 = amounts.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(amount);
        }
    };
    for entry in entries {
        let is_chat = entry.payload.get("gen_ai.operation.name").and_then(Value::as_str) == Some("chat");
        let is_call = is_chat || BESIDE_STEPS.contains(&entry.kind.as_str());
        if is_call {
            count(TOKENS, tokens_of(&entry.payload));
            count(COST, micros_of(&entry.payload));
        }
        let is_tool = matches!(entry.kind.as_str(), "tool.completed" | "tool.failed");
        if is_call || is_tool {
            count(ACTIVE, entry.payload.get("duration_ms").and_then(Value::as_i64).unwrap_or_default());
        }
    }
    amounts
}

/// Tokens of a call, as its provider told them, and no more than [`UNLIMITED`]: sums of those still fit.
fn tokens_of(payload: &dormouse_ports::Map) -> i64 {
    let field = |name: &str| payload.get("usage")?.get(name)?.as_u64();
    let each = ["prompt_tokens", "completion_tokens"].map(|name| field(name).unwrap_or_default());
    let sum = each.into_iter().fold(0, u64::saturating_add);
    i64::try_from(field("total_tokens").unwrap_or_default().max(sum)).unwrap_or(UNLIMITED).min(UNLIMITED)
}

/// Millionths of the currency of the models' prices, rounded up.
fn micros_of(payload: &dormouse_ports::Map) -> i64 {
    let cost = payload.get("cost").and_then(Value::as_f64).unwrap_or_default();
    let micros = (cost * 1_000_000.0).ceil().clamp(0.0, 1e15);
    format!("{micros:.0}").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use dormouse_ports::EntryKind;
    use serde_json::json;

    use super::*;

    #[test]
    fn tokens_without_end_are_more_than_any_limit_and_no_sum_of_them_begins_again() {
        let answers = [
            (json!({ "prompt_tokens": u64::MAX, "completion_tokens": 1 }), UNLIMITED),
            (json!({ "prompt_tokens": i64::MAX, "completion_tokens": i64::MAX }), UNLIMITED),
            (json!({ "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 14 }), 14),
            (json!({ "prompt_tokens": -9, "completion_tokens": 3 }), 3),
        ];
        for (usage, taken) in answers {
            let entry = JournalEntry::new(EntryKind::SpanCompleted).with("gen_ai.operation.name", "chat");
            let entry = entry.with("usage", usage);
            assert_eq!(amounts_of(std::slice::from_ref(&entry)).get(TOKENS), Some(&taken));
            assert!(amounts_of(&vec![entry; 9])[TOKENS] >= taken);
        }
    }
}
