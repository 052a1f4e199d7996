//! Listings for people and sweeps: they read the table page by page, and in no order.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dormouse_ports::StoreError;

use super::fault::{RequestFault, fault};
use super::item::{Item, text};
use super::keys::{Key, PK, SK};
use super::requests::Table;
use super::write::key_item;

/// Selection of the items to list, and of their attributes.
pub(super) struct ScanSelection {
    pub(super) condition: String,
    pub(super) values: Item,
    pub(super) attributes: &'static [&'static str],
}

impl Table {
    /// The next items behind `cursor` that pass, and where the page after them starts.
    pub(super) async fn scan(
        &self,
        listing: &ScanSelection,
        cursor: Option<&str>,
    ) -> Result<(Vec<Item>, Option<String>), StoreError> {
        let mut start = cursor.map(parse_cursor).transpose()?;
        loop {
            let (items, last) = self.retry.run(|| self.scan_once(listing, start.as_ref())).await?;
            if items.is_empty() && last.is_some() {
                start = last;
                continue;
            }
            return Ok((items, last.as_ref().map(cursor_of)));
        }
    }

    async fn scan_once(
        &self,
        listing: &ScanSelection,
        start: Option<&Key>,
    ) -> Result<(Vec<Item>, Option<Key>), RequestFault> {
        let request = self.client.scan().table_name(&self.name).consistent_read(true).limit(self.page_size);
        let request = request.filter_expression(&listing.condition);
        let request = request.set_expression_attribute_values(Some(listing.values.clone()));
        let request = request.projection_expression(listing.attributes.join(", "));
        let answer = request.set_exclusive_start_key(start.map(key_item)).send().await;
        let answer = answer.map_err(|error| fault("Scan", &self.name, &error))?;
        let last = answer.last_evaluated_key.as_ref().map(key_of).transpose().map_err(RequestFault::Permanent)?;
        Ok((answer.items.unwrap_or_default(), last))
    }
}

pub(super) fn key_of(item: &Item) -> Result<Key, StoreError> {
    Ok(Key { pk: text(item, PK)?.to_owned(), sk: text(item, SK)?.to_owned() })
}

fn cursor_of(key: &Key) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::json!([key.pk, key.sk]).to_string())
}

fn parse_cursor(cursor: &str) -> Result<Key, StoreError> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let parts: Option<(String, String)> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let (pk, sk) = parts.ok_or_else(|| StoreError::Invalid(format!("{cursor:?} is not a cursor of this listing")))?;
    Ok(Key { pk, sk })
}
