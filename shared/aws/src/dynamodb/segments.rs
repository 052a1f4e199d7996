//! Lists that only grow, kept as immutable pieces apart from the states that they belong to.
//!
//! An item with such lists in its state refers to each by its length and a digest of its content ([`StoredList`]). The
//! pieces are in the partition of the session, or of the invocation where there is no session; each names the digest of
//! the items before it, so that a reference leads back from piece to piece to the first item. The turn that appended
//! writes one more piece and refers to the longer list. The older references, of a pause or of a head that another turn
//! wrote meanwhile, stay good; two turns that append to the same list make a fork that neither of them notices.
//!
//! A save writes a *tail*. When the tails together reach [`MERGE_BYTES`], the next save writes their items once more,
//! as *blocks*. Keys sort so that one query finds all blocks and, before them, the tails that came after them.
//!
//! # Invariants
//! - A key contains the digest of all content up to the end of its piece, and where the piece begins: a piece that is
//!   written twice is the same, and nothing is ever changed. A piece from which no reference is reached by going back,
//!   left by a crash or replaced by a block, stays for as long as its session or invocation (`collect`).
//! - Pieces are written before, or together with, the first item that refers to them.
//! - It is never assumed that a list begins with the stored one: digests are compared before only a tail is written,
//!   and again after loading.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use dormouse_json::{Items, Part};
use dormouse_ports::{Map, SharedBeginning, SharedField, SharedMap, StoreError, StoredList};
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::Value;

use super::blobs::Bodies;
use super::codec;
use super::encode::Encoder;
use super::fault::{RequestFault, fault};
use super::item::{Item, text, text_value, time_value};
use super::keys::{BEFORE, CHUNK, Key, LIST_REFS, PieceKey, PieceLevel, SK, WRITTEN_AT};
use super::marks::Marks;

/// Bytes of JSON in tails that are worth being written again as blocks.
const MERGE_BYTES: usize = 64 * 1024;
/// Bytes of JSON that a block holds, not counting its last item.
const BLOCK_BYTES: usize = 256 * 1024;
/// A list of fewer bytes of JSON stays where it is.
const SMALLEST: usize = 512;
/// A longer name would not fit into a key.
const LONGEST_NAME: usize = 512;

/// A state that is to be stored.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ToStore<'m> {
    Shared(&'m SharedMap),
    Whole(&'m Map),
}

impl<'m> ToStore<'m> {
    fn items(self, field: &str) -> Option<Items<'m>> {
        match self {
            Self::Shared(state) => state.items(field),
            Self::Whole(state) => state.get(field).and_then(Items::of),
        }
    }

    fn fields(self) -> impl Iterator<Item = (&'m str, Part<'m>)> {
        let (shared, whole) = match self {
            Self::Shared(state) => (Some(state), None),
            Self::Whole(state) => (None, Some(state)),
        };
        shared.into_iter().flat_map(SharedMap::fields).chain(whole.into_iter().flat_map(dormouse_json::fields_of))
    }

    /// `field` as other states of the same commit may share it.
    fn shared(self, field: &str) -> Option<&'m SharedField> {
        match self {
            Self::Shared(state) => state.shared(field),
            Self::Whole(_) => None,
        }
    }
}

impl Encoder<'_> {
    /// `state` without the growing lists that are stored apart, in the partition `home`, and the references to those; `None`
    /// where none is.
    pub(super) fn cut(&mut self, home: &str, state: ToStore<'_>) -> Result<(Option<Map>, Vec<StoredList>), StoreError> {
        let mut grown = Vec::new();
        let growing = self.growing;
        for field in &growing.fields {
            if let Some(items) = state.items(field)
                && !items.is_empty()
                && field.len() <= LONGEST_NAME
            {
                let marks = self.marks_of(items, state.shared(field))?;
                let base = self.base(home, field, &marks);
                grown.push((&**field, items, marks, base));
            }
        }
        grown.retain(|(.., marks, base)| base.is_some() || marks.bytes(0, marks.count()) >= SMALLEST);
        let is_new = grown.iter().all(|(.., base)| base.is_none());
        if grown.is_empty() || (is_new && codec::encode(&state)?.len() <= self.whole_limit) {
            return Ok((None, Vec::new()));
        }
        let rest = state.fields().map(|(name, part)| match grown.iter().any(|(field, ..)| *field == name) {
            true => (name.to_owned(), Value::Array(Vec::new())),
            false => (name.to_owned(), part.to_value()),
        });
        let rest = rest.collect();
        let lists = grown.into_iter().map(|(field, items, marks, base)| {
            let base = base.unwrap_or_else(|| nothing(home, field));
            self.grow(base, items, &marks)
        });
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        self.referred.extend(lists.iter().cloned());
        Ok((Some(rest), lists))
    }

    /// The marks of `items`, which are those of the `owner`. A list that several states share is looked at once, and one that
    /// grew out of a known one only behind that.
    fn marks_of(&mut self, items: Items<'_>, owner: Option<&SharedField>) -> Result<Arc<Marks>, StoreError> {
        let Some(owner) = owner else { return Marks::of(items).map(Arc::new) };
        if let Some((_, marks)) = self.marks.iter().find(|(own, _)| own.is(owner)) {
            return Ok(marks.clone());
        }
        let marks = match self.known.iter().find(|(beginning, _)| begins(owner, beginning)) {
            Some((_, before)) => before.longer(items)?,
            None => Marks::of(items)?,
        };
        let marks = Arc::new(marks);
        self.marks.push((owner.clone(), marks.clone()));
        Ok(marks)
    }

    /// The longest stored list with which a list of these marks begins.
    fn base(&self, home: &str, field: &str, marks: &Marks) -> Option<StoredList> {
        let stored = self.growing.stored.iter().chain(&self.referred);
        let fitting = stored.filter(|list| {
            list.home == home
                && list.field == field
                && list.merged <= list.count
                && marks.digest(list.count).as_deref() == Some(&list.digest)
        });
        fitting.max_by_key(|list| list.count).cloned()
    }

    /// Writes the part of `items` behind `base`.
    fn grow(&mut self, base: StoredList, items: Items<'_>, marks: &Marks) -> Result<StoredList, StoreError> {
        let count = items.len();
        if base.count == count {
            return Ok(base);
        }
        let mut list = StoredList { count, digest: digest(marks, count)?, ..base.clone() };
        if marks.bytes(base.merged, count) < MERGE_BYTES {
            self.piece(&list, PieceLevel::Tail, (base.count, count), items, marks)?;
        } else {
            for block in blocks(marks, base.merged) {
                self.piece(&list, PieceLevel::Block, block, items, marks)?;
            }
            list.merged = count;
        }
        Ok(list)
    }

    fn piece(
        &mut self,
        list: &StoredList,
        level: PieceLevel,
        (from, to): (usize, usize),
        items: Items<'_>,
        marks: &Marks,
    ) -> Result<(), StoreError> {
        let key = PieceKey { field: list.field.clone(), level, from, to, digest: digest(marks, to)? };
        let key = Key { pk: list.home.clone(), sk: key.to_string() };
        let item = Item::from([
            (CHUNK.to_owned(), self.piece_body(&key, items.within(from, to))?),
            (BEFORE.to_owned(), text_value(digest(marks, from)?)),
            (WRITTEN_AT.to_owned(), time_value(self.origin.now)),
        ]);
        self.pieces.insert(key, item);
        Ok(())
    }
}

/// True if `list` grew out of one of this `beginning`, or is that.
fn begins(list: &SharedField, beginning: &SharedBeginning) -> bool {
    match list {
        SharedField::Items(items) => items.begin_with(beginning),
        SharedField::Value(_) => false,
    }
}

fn nothing(home: &str, field: &str) -> StoredList {
    StoredList { home: home.to_owned(), field: field.to_owned(), count: 0, merged: 0, digest: String::new() }
}

fn digest(marks: &Marks, count: usize) -> Result<String, StoreError> {
    marks.digest(count).ok_or_else(|| StoreError::Invalid(format!("a list of {count} items ends before that")))
}

/// Beginning and end of each block behind the first `from` items.
fn blocks(marks: &Marks, mut from: usize) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    for to in from + 1..=marks.count() {
        if to == marks.count() || marks.bytes(from, to) >= BLOCK_BYTES {
            blocks.push((from, to));
            from = to;
        }
    }
    blocks
}

/// The attribute that holds `lists`, if there are any.
pub(super) fn references(lists: &[StoredList]) -> Result<Option<AttributeValue>, StoreError> {
    if lists.is_empty() {
        return Ok(None);
    }
    let rows: Vec<_> = lists.iter().map(|list| (&list.field, list.count, list.merged, &list.digest)).collect();
    let json = serde_json::to_string(&rows).map_err(|error| StoreError::Invalid(error.to_string()))?;
    Ok(Some(text_value(json)))
}

/// The lists, in the partition `home`, to which `item` refers.
pub(super) fn referred(home: &str, item: &Item) -> Result<Vec<StoredList>, StoreError> {
    if !item.contains_key(LIST_REFS) {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, usize, usize, String)> = serde_json::from_str(text(item, LIST_REFS)?)
        .map_err(|error| StoreError::Corrupt(format!("{LIST_REFS}: {error}")))?;
    let list = |(field, count, merged, digest)| StoredList { home: home.to_owned(), field, count, merged, digest };
    Ok(rows.into_iter().map(list).collect())
}

impl Bodies {
    /// Reads `lists` and puts them where they belong in `state`.
    pub(super) async fn refill(&self, lists: &[StoredList], state: &mut Map) -> Result<(), StoreError> {
        let read = try_join_all(lists.iter().map(|list| self.read_list(list))).await?;
        for (list, items) in lists.iter().zip(read) {
            state.insert(list.field.clone(), Value::Array(items));
        }
        Ok(())
    }

    async fn read_list(&self, list: &StoredList) -> Result<Vec<Value>, StoreError> {
        let mut found = Vec::new();
        let mut start = None;
        loop {
            let (items, last) = self.table.retry.run(|| self.query_pieces(list, start.as_ref())).await?;
            found.extend(items);
            match last {
                Some(last) => start = Some(last),
                None => break,
            }
        }
        let mut items = Vec::with_capacity(list.count);
        for piece in lead(list, &found)? {
            items.extend(self.body::<Vec<Value>>(piece, CHUNK).await?);
        }
        let marks = Marks::of(Items::Plain(&items))?;
        if marks.digest(list.count).as_deref() != Some(&list.digest) || items.len() != list.count {
            return Err(StoreError::Corrupt(format!("list {} does not match its digest", list.field)));
        }
        Ok(items)
    }

    async fn query_pieces(
        &self,
        list: &StoredList,
        start: Option<&Item>,
    ) -> Result<(Vec<Item>, Option<Item>), RequestFault> {
        let (low, high) = PieceKey::bounds(&list.field, list.count, list.merged);
        let request = self.table.query().consistent_read(true);
        let request = request.key_condition_expression("pk = :home AND sk BETWEEN :low AND :high");
        let request = request.expression_attribute_values(":home", text_value(&list.home));
        let request = request.expression_attribute_values(":low", text_value(low));
        let request = request.expression_attribute_values(":high", text_value(high));
        let answer = request.set_exclusive_start_key(start.cloned()).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.table.name, &error))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}

/// The pieces among `found` that lead from the first item of `list` to its last.
fn lead<'i>(list: &StoredList, found: &'i [Item]) -> Result<Vec<&'i Item>, StoreError> {
    let mut pieces: Vec<(PieceKey, &Item)> = Vec::with_capacity(found.len());
    for item in found {
        pieces.extend(PieceKey::parse(text(item, SK)?).filter(|key| key.field == list.field).map(|key| (key, item)));
    }
    // A piece comes behind those that it may follow; of two that end alike the longer one comes first.
    pieces.sort_by_key(|(key, _)| (key.to, key.from));
    let mut reached: HashMap<(usize, &str), (usize, &str, &'i Item)> = HashMap::new();
    for (key, item) in &pieces {
        let before = text(item, BEFORE)?;
        if key.from == 0 || reached.contains_key(&(key.from, before)) {
            reached.entry((key.to, &key.digest)).or_insert((key.from, before, item));
        }
    }
    let mut path = Vec::new();
    let mut count = list.count;
    let mut digest = list.digest.as_str();
    while count > 0 {
        let Some((from, before, item)) = reached.get(&(count, digest)) else {
            return Err(StoreError::Corrupt(format!("a piece of list {} is missing", list.field)));
        };
        path.push(*item);
        (count, digest) = (*from, before);
    }
    path.reverse();
    Ok(path)
}

#[cfg(test)]
mod tests {
    use dormouse_ports::{GrowingLists, SharedItems};
    use jiff::Timestamp;
    use serde_json::json;

    use super::super::StoreConfig;
    use super::super::blobs::BlobOrigin;
    use super::*;

    #[test]
    fn a_list_that_two_states_share_is_looked_at_once_and_another_is_told_from_it() {
        let list = |text: &str| SharedField::Items(SharedItems::default().grown(&[json!(text.repeat(SMALLEST))]));
        let (own, others) = (list("a"), list("b"));
        let of = |list: &SharedField| SharedMap::of_fields([("list".into(), list.clone())]);
        let growing = GrowingLists { fields: vec!["list".into()], stored: Vec::new() };
        let config = StoreConfig { whole_limit: 0, ..StoreConfig::default() };
        let origin = BlobOrigin { owners: Vec::new(), now: Timestamp::UNIX_EPOCH };
        let mut encoder = Encoder::knowing(&config, &growing, origin);
        let mut stored = |state: ToStore<'_>| {
            let (rest, mut lists) = encoder.cut("home", state).expect("it is cut");
            assert_eq!(rest.map(Value::Object), Some(json!({ "list": [] })));
            (lists.pop().expect("a list"), encoder.marks.len())
        };
        let (first, looked_at) = stored(ToStore::Shared(&of(&own)));
        assert_eq!((first.count, looked_at), (1, 1));
        assert_eq!(stored(ToStore::Shared(&of(&own))), (first.clone(), 1));
        assert_eq!(stored(ToStore::Whole(&of(&own))), (first.clone(), 1));
        let (second, looked_at) = stored(ToStore::Shared(&of(&others)));
        assert!(second.digest != first.digest && looked_at == 2, "{second:?}");
    }

    #[test]
    fn a_list_that_grew_has_the_marks_of_one_that_nobody_knew() {
        let lists = [json!([1, "b"]), json!([1, "b", { "c": 1.5 }])];
        let [before, now] = [0, 1].map(|at| Items::of(&lists[at]).expect("a list"));
        let short = SharedItems::default().grown(lists[0].as_array().expect("a list"));
        let long = SharedField::Items(short.grown(lists[1].as_array().expect("a list")));
        let config = StoreConfig::default();
        let mut encoder = Encoder::new(&config, BlobOrigin { owners: Vec::new(), now: Timestamp::UNIX_EPOCH });
        let anew = encoder.marks_of(now, None).expect("marks");
        encoder.known.push((short.beginning(), Arc::new(Marks::of(before).expect("marks"))));
        let behind = encoder.marks_of(now, Some(&long)).expect("marks");
        assert_eq!((behind.count(), behind.digest(3), behind.bytes(0, 3)), (3, anew.digest(3), anew.bytes(0, 3)));
        // What is known is believed, and is not made again.
        let others = Marks::of(Items::Plain(&[json!("of"), json!("others")])).expect("marks");
        (encoder.marks, encoder.known) = (Vec::new(), vec![(short.beginning(), Arc::new(others))]);
        assert_ne!(encoder.marks_of(now, Some(&long)).expect("marks").digest(3), anew.digest(3));
    }
}
