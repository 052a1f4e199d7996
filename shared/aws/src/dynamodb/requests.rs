//! The table that requests are sent to. What they are is beside what they ask for: single items and changes (`write`),
//! many items and ranges (`batch`), the whole table (`scan`), rows of several partitions (`rows`).

use std::fmt;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use super::RetryPolicy;

/// Number of requests of one operation that travel at a time.
pub(super) const CONCURRENT: usize = 8;

/// One table, and how it is asked.
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    /// Number of items that a page of a listing reads.
    pub(super) page_size: i32,
    pub(super) retry: RetryPolicy,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Table {
    /// A query that is not sent yet.
    pub(super) fn query(&self) -> QueryFluentBuilder {
        self.client.query().table_name(&self.name)
    }
}
