//! Several items of one partition, or from anywhere, with few requests.

use std::collections::{HashMap, HashSet};

use aws_sdk_dynamodb::types::KeysAndAttributes;
use dormouse_ports::StoreError;

use super::fault::{RequestFault, fault};
use super::item::{Item, text, text_value};
use super::keys::{Key, PK, SK};
use super::requests::Table;
use super::write::key_item;

/// The most keys that one request takes.
const MOST_KEYS: usize = 100;

/// A part of a partition, in the order of its sort keys.
#[derive(Clone, Debug)]
pub(super) struct KeyRange {
    pub(super) pk: String,
    /// The sort key behind which it begins, whether or not an item has it.
    pub(super) after: Option<String>,
    pub(super) backwards: bool,
}

impl Table {
    /// The items at `keys`, as far as there are any; only these `attributes` when they are given, which must include
    /// the key.
    pub(super) async fn get_items(
        &self,
        keys: &[Key],
        attributes: Option<&str>,
    ) -> Result<HashMap<Key, Item>, StoreError> {
        let mut found = HashMap::new();
        for keys in keys.chunks(MOST_KEYS) {
            // A key may be asked for once.
            let mut seen = HashSet::new();
            let mut left: Vec<Item> = keys.iter().filter(|key| seen.insert(*key)).map(key_item).collect();
            while !left.is_empty() {
                let (items, unread) = self.retry.run(|| self.batch_once(&left, attributes)).await?;
                for item in items {
                    let key = Key { pk: text(&item, PK)?.to_owned(), sk: text(&item, SK)?.to_owned() };
                    found.insert(key, item);
                }
                left = unread;
            }
        }
        Ok(found)
    }

    /// The items that were read of `keys`, and the keys that have to be asked for again; at least one is read.
    async fn batch_once(
        &self,
        keys: &[Item],
        attributes: Option<&str>,
    ) -> Result<(Vec<Item>, Vec<Item>), RequestFault> {
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys.to_vec())).consistent_read(true);
        let wanted = wanted.set_projection_expression(attributes.map(str::to_owned)).build();
        let wanted = wanted.map_err(|error| RequestFault::Permanent(StoreError::Invalid(error.to_string())))?;
        let answer = self.client.batch_get_item().request_items(&self.name, wanted).send().await;
        let answer = answer.map_err(|error| fault("BatchGetItem", &self.name, &error))?;
        let items = answer.responses.and_then(|mut tables| tables.remove(&self.name)).unwrap_or_default();
        let unread = answer.unprocessed_keys.and_then(|mut tables| tables.remove(&self.name));
        let unread = unread.map(|rest| rest.keys).unwrap_or_default();
        if items.is_empty() && unread.len() == keys.len() {
            return Err(RequestFault::Transient(StoreError::Unavailable("the table is throttling".to_owned())));
        }
        Ok((items, unread))
    }

    /// The first `limit` items of `range`.
    pub(super) async fn query_range(&self, range: &KeyRange, limit: usize) -> Result<Vec<Item>, StoreError> {
        let mut start = range.after.clone().map(|sk| key_item(&Key { pk: range.pk.clone(), sk }));
        let mut items = Vec::new();
        while items.len() < limit {
            let left = limit - items.len();
            let (page, last) = self.retry.run(|| self.range_once(range, left, start.clone())).await?;
            items.extend(page);
            if last.is_none() {
                break;
            }
            start = last;
        }
        Ok(items)
    }

    /// The first items of `range`, at most `limit`, and no more than one request gives, a megabyte; one at least, if there is
    /// any. And whether the range may go on behind them.
    pub(super) async fn query_once(&self, range: &KeyRange, limit: usize) -> Result<(Vec<Item>, bool), StoreError> {
        let start = range.after.clone().map(|sk| key_item(&Key { pk: range.pk.clone(), sk }));
        let (page, last) = self.retry.run(|| self.range_once(range, limit, start.clone())).await?;
        Ok((page, last.is_some()))
    }

    async fn range_once(
        &self,
        range: &KeyRange,
        limit: usize,
        start: Option<Item>,
    ) -> Result<(Vec<Item>, Option<Item>), RequestFault> {
        let request = self.query().consistent_read(true);
        let request = request.limit(i32::try_from(limit).unwrap_or(i32::MAX)).scan_index_forward(!range.backwards);
        let request = request.key_condition_expression("pk = :pk");
        let request = request.expression_attribute_values(":pk", text_value(&range.pk));
        let answer = request.set_exclusive_start_key(start).send().await;
        let answer = answer.map_err(|error| fault("Query", &self.name, &error))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }
}
