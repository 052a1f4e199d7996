//! One conditional change of one item, before it is known whether it goes alone or inside a transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
};
use dormouse_ports::StoreError;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::fault::{RequestFault, fault};
use super::item::{Item, text_value};
use super::keys::{Key, PK, SK, TTL};
use super::requests::{CONCURRENT, Table};

/// Name of the attribute [`TTL`] in an expression, in which that word is reserved.
pub(super) const TTL_NAME: &str = "#ttl";

/// The effect of a change on its item.
#[derive(Clone, Debug, PartialEq)]
enum ItemChange {
    Put(Item),
    Update {
        key: Item,
        expression: String,
    },
    Delete {
        key: Item,
    },
    /// Nothing, and its condition must hold; only inside a transaction.
    Check {
        key: Item,
    },
}

/// A change with its condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ItemWrite {
    change: ItemChange,
    condition: Option<String>,
    values: Item,
    tells_what_was: bool,
}

/// The answer to a conditional change.
#[derive(Debug)]
pub(super) enum WriteOutcome {
    /// It happened; the item after an update, or before a put, where that was asked for.
    Done(Item),
    /// Its condition did not hold; the item as it is, if it exists.
    Refused(Option<Item>),
}

impl ItemWrite {
    /// Replaces the item at `key`.
    pub(super) fn put(key: &Key, mut attributes: Item) -> Self {
        attributes.extend(key_item(key));
        Self::of(ItemChange::Put(attributes))
    }

    /// Changes single attributes of the item at `key`, which may not exist yet.
    pub(super) fn update(key: &Key, expression: impl Into<String>) -> Self {
        Self::of(ItemChange::Update { key: key_item(key), expression: expression.into() })
    }

    /// Removes the item at `key`.
    pub(super) fn delete(key: &Key) -> Self {
        Self::of(ItemChange::Delete { key: key_item(key) })
    }

    /// Changes nothing: only demands a condition of the item at `key`.
    pub(super) fn check(key: &Key) -> Self {
        Self::of(ItemChange::Check { key: key_item(key) })
    }

    /// True if it must go inside of a transaction: a condition alone is no write, and a removal leaves nothing by which
    /// its success could be recognised.
    pub(super) fn needs_transaction(&self) -> bool {
        matches!(self.change, ItemChange::Check { .. } | ItemChange::Delete { .. })
    }

    /// Approximate number of bytes that it sends.
    pub(super) fn size(&self) -> usize {
        let change = match &self.change {
            ItemChange::Put(item) => bytes_of(item),
            ItemChange::Update { key, expression } => bytes_of(key) + expression.len(),
            ItemChange::Delete { key } | ItemChange::Check { key } => bytes_of(key),
        };
        change + self.condition.as_ref().map_or(0, String::len) + bytes_of(&self.values)
    }

    fn of(change: ItemChange) -> Self {
        Self { change, condition: None, values: Item::new(), tells_what_was: false }
    }

    /// Adds a condition; all of them must hold.
    pub(super) fn when(mut self, condition: &str) -> Self {
        self.condition = Some(match self.condition.take() {
            Some(earlier) => format!("{earlier} AND ({condition})"),
            None => format!("({condition})"),
        });
        self
    }

    /// Gives the placeholder `name` its value.
    pub(super) fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Sets one attribute more of a put.
    pub(super) fn having(mut self, name: &str, value: AttributeValue) -> Self {
        if let ItemChange::Put(item) = &mut self.change {
            item.insert(name.to_owned(), value);
        }
        self
    }

    /// A put that goes alone answers with the item that it replaced.
    pub(super) fn telling_what_was(self) -> Self {
        Self { tells_what_was: true, ..self }
    }

    fn placeholders(&self) -> Option<Item> {
        (!self.values.is_empty()).then(|| self.values.clone())
    }

    /// The change as a part of a transaction on `table`.
    pub(super) fn in_transaction(&self, table: &str) -> Result<TransactWriteItem, StoreError> {
        let old = self.condition.is_some().then_some(ReturnValuesOnConditionCheckFailure::AllOld);
        let part = TransactWriteItem::builder();
        let part = match &self.change {
            ItemChange::Put(item) => {
                let put = Put::builder().table_name(table).set_item(Some(item.clone()));
                let put = put.set_condition_expression(self.condition.clone());
                let put = put.set_expression_attribute_values(self.placeholders());
                part.put(put.set_return_values_on_condition_check_failure(old).build().map_err(malformed)?)
            }
            ItemChange::Update { key, expression } => {
                let update = Update::builder().table_name(table).set_key(Some(key.clone()));
                let update = update.update_expression(expression).set_condition_expression(self.condition.clone());
                let update = update.set_expression_attribute_values(self.placeholders());
                let update = update.set_expression_attribute_names(names(expression));
                part.update(update.set_return_values_on_condition_check_failure(old).build().map_err(malformed)?)
            }
            ItemChange::Delete { key } => {
                let delete = Delete::builder().table_name(table).set_key(Some(key.clone()));
                let delete = delete.set_condition_expression(self.condition.clone());
                let delete = delete.set_expression_attribute_values(self.placeholders());
                part.delete(delete.set_return_values_on_condition_check_failure(old).build().map_err(malformed)?)
            }
            ItemChange::Check { key } => {
                let check = ConditionCheck::builder().table_name(table).set_key(Some(key.clone()));
                let check = check.set_condition_expression(self.condition.clone());
                let check = check.set_expression_attribute_values(self.placeholders());
                part.condition_check(
                    check.set_return_values_on_condition_check_failure(old).build().map_err(malformed)?,
                )
            }
        };
        Ok(part.build())
    }
}

/// The attributes that `expression` cannot name by their own names.
fn names(expression: &str) -> Option<HashMap<String, String>> {
    expression.contains(TTL_NAME).then(|| HashMap::from([(TTL_NAME.to_owned(), TTL.to_owned())]))
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn malformed(error: aws_sdk_dynamodb::error::BuildError) -> StoreError {
    StoreError::Invalid(error.to_string())
}

fn bytes_of(item: &Item) -> usize {
    let value = |value: &AttributeValue| {
        let bytes = value.as_b().map(|bytes| bytes.as_ref().len());
        bytes.or_else(|_| value.as_s().or_else(|_| value.as_n()).map(String::len)).unwrap_or(1)
    };
    item.iter().map(|(name, attribute)| name.len() + value(attribute)).sum()
}

/// The attributes of `key`.
pub(super) fn key_item(key: &Key) -> Item {
    Item::from([(PK.to_owned(), text_value(&key.pk)), (SK.to_owned(), text_value(&key.sk))])
}

impl Table {
    /// Does `write` alone.
    pub(super) async fn write_alone(&self, write: &ItemWrite) -> Result<WriteOutcome, StoreError> {
        self.retry.run(|| self.attempt(write)).await
    }

    /// Does `write`, which is a put, alone: a program that writes by nothing else has no other request in it.
    pub(super) async fn put_alone(&self, write: &ItemWrite) -> Result<WriteOutcome, StoreError> {
        let ItemChange::Put(item) = &write.change else {
            return Err(StoreError::Invalid("expected a write that puts an item".to_owned()));
        };
        self.retry.run(|| self.attempt_put(write, item)).await
    }

    /// Does `write` alone, whether or not its condition holds.
    pub(super) async fn put_plainly(&self, write: ItemWrite) -> Result<(), StoreError> {
        self.write_alone(&write).await.map(|_| ())
    }

    /// Does `puts`, which have no conditions, in no order.
    pub(super) async fn put_all(&self, puts: Vec<ItemWrite>) -> Result<(), StoreError> {
        stream::iter(puts).map(|put| self.put_plainly(put)).buffer_unordered(CONCURRENT).try_collect().await
    }

    /// Does `write` once.
    pub(super) async fn attempt(&self, write: &ItemWrite) -> Result<WriteOutcome, RequestFault> {
        match &write.change {
            ItemChange::Put(item) => self.attempt_put(write, item).await,
            ItemChange::Update { key, expression } => self.attempt_update(write, key, expression).await,
            ItemChange::Delete { key } => self.attempt_delete(write, key).await,
            ItemChange::Check { .. } => {
                Err(RequestFault::Permanent(StoreError::Invalid("a condition alone is no write".to_owned())))
            }
        }
    }

    async fn attempt_delete(&self, write: &ItemWrite, key: &Item) -> Result<WriteOutcome, RequestFault> {
        let request = self.client.delete_item().table_name(&self.name).set_key(Some(key.clone()));
        let request = request.set_condition_expression(write.condition.clone());
        match request.set_expression_attribute_values(write.placeholders()).send().await {
            Ok(_) => Ok(WriteOutcome::Done(Item::new())),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                Ok(WriteOutcome::Refused(None))
            }
            Err(error) => Err(fault("DeleteItem", &self.name, &error)),
        }
    }

    async fn attempt_put(&self, write: &ItemWrite, item: &Item) -> Result<WriteOutcome, RequestFault> {
        let old = write.condition.is_some().then_some(ReturnValuesOnConditionCheckFailure::AllOld);
        let request = self.client.put_item().table_name(&self.name).set_item(Some(item.clone()));
        let request = request.set_condition_expression(write.condition.clone());
        let request = request.set_expression_attribute_values(write.placeholders());
        let request = request.set_return_values(write.tells_what_was.then_some(ReturnValue::AllOld));
        match request.set_return_values_on_condition_check_failure(old).send().await {
            Ok(answer) => Ok(WriteOutcome::Done(answer.attributes.unwrap_or_default())),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                let PutItemError::ConditionalCheckFailedException(refused) = error.into_err() else {
                    return Ok(WriteOutcome::Refused(None));
                };
                Ok(WriteOutcome::Refused(refused.item))
            }
            Err(error) => Err(fault("PutItem", &self.name, &error)),
        }
    }

    async fn attempt_update(
        &self,
        write: &ItemWrite,
        key: &Item,
        expression: &str,
    ) -> Result<WriteOutcome, RequestFault> {
        let old = write.condition.is_some().then_some(ReturnValuesOnConditionCheckFailure::AllOld);
        let request = self.client.update_item().table_name(&self.name).set_key(Some(key.clone()));
        let request = request.update_expression(expression).set_condition_expression(write.condition.clone());
        let request = request.set_expression_attribute_values(write.placeholders());
        let request = request.set_expression_attribute_names(names(expression));
        let request = request.set_return_values_on_condition_check_failure(old).return_values(ReturnValue::AllNew);
        match request.send().await {
            Ok(answer) => Ok(WriteOutcome::Done(answer.attributes.unwrap_or_default())),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => {
                let UpdateItemError::ConditionalCheckFailedException(refused) = error.into_err() else {
                    return Ok(WriteOutcome::Refused(None));
                };
                Ok(WriteOutcome::Refused(refused.item))
            }
            Err(error) => Err(fault("UpdateItem", &self.name, &error)),
        }
    }

    /// The item at `key`, as of now.
    pub(super) async fn get_item(&self, key: Key) -> Result<Option<Item>, StoreError> {
        self.retry.run(|| self.attempt_get(&key)).await
    }

    /// Asks once for the item at `key`.
    pub(super) async fn attempt_get(&self, key: &Key) -> Result<Option<Item>, RequestFault> {
        let request = self.client.get_item().table_name(&self.name).set_key(Some(key_item(key)));
        let answer = request.consistent_read(true).send().await;
        answer.map(|answer| answer.item).map_err(|error| fault("GetItem", &self.name, &error))
    }
}
