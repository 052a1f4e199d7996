//! The list of a server's tools.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_ports::tool::{ToolError, ToolErrorKind};
use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, CustomResult, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ServerResult, Tool,
};
use serde::Deserialize;
use serde_json::Value;

use super::connection::Connection;
use super::failure::{is_expired, unfinished};
use super::http::TOO_LARGE;
use super::specs::LeftOut;
use crate::text::cut;

/// Pages of a list.
const MOST_PAGES: usize = 100;

/// What is wrong with a tool that the SDK takes out of a list.
const MISANNOTATED: &str = "its `x-mcp-header` annotations are not as the protocol has them: each is the name of a header of \
    its own, at a property of the type `string`, `integer` or `boolean` that is reached from the root by `properties` alone";

/// What a server lists.
#[derive(Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<Tool>,
    /// What stands among them and is no tool.
    pub(super) left_out: Vec<LeftOut>,
    /// How long the list holds: what the server says of the page that holds least.
    pub(super) holds: Option<Duration>,
}

/// Reason why there is no list.
pub(super) struct NotListed {
    pub(super) error: ToolError,
    /// True if the server has forgotten the conversation.
    pub(super) is_expired: bool,
}

impl From<ToolError> for NotListed {
    fn from(error: ToolError) -> Self {
        Self { error, is_expired: false }
    }
}

/// A page of a list.
struct ListedPage {
    tools: Vec<Tool>,
    left_out: Vec<LeftOut>,
    next: Option<String>,
    holds: Option<Duration>,
}

impl From<ListToolsResult> for ListedPage {
    fn from(page: ListToolsResult) -> Self {
        let holds = page.ttl_ms.map(Duration::from_millis);
        Self { tools: page.tools, left_out: Vec::new(), next: page.next_cursor, holds }
    }
}

impl ListedPage {
    /// The page, which names what the SDK took out of it: those of the tools called `annotated` that are not there.
    fn without(mut self, annotated: Vec<String>) -> Self {
        let is_gone = |name: &String| self.tools.iter().all(|tool| tool.name != *name);
        let gone = annotated.into_iter().filter(is_gone);
        self.left_out.extend(gone.map(|name| (cut(&name, 200), MISANNOTATED.to_owned())));
        self
    }

    /// The page in `value`, of which something is no tool; `None` where it is no page of tools at all.
    fn read(value: &Value) -> Option<Self> {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let (mut tools, mut left_out) = (Vec::new(), Vec::new());
        for one in value.get("tools")?.as_array()? {
            match Tool::deserialize(one) {
                Ok(tool) => tools.push(tool),
                Err(error) => {
                    let name = text(one, "name").unwrap_or_else(|| "(without a name)".to_owned());
                    left_out.push((cut(&name, 200), format!("it is no tool: {}", cut(&error.to_string(), 300))));
                }
            }
        }
        let holds = value.get("ttlMs").and_then(Value::as_u64).map(Duration::from_millis);
        Some(Self { tools, left_out, next: text(value, "nextCursor"), holds })
    }
}

/// Asks for page after page.
///
/// # Errors
/// The list cannot be had; asking for it had no effect.
pub(super) async fn pages(connection: &Connection) -> Result<Listing, NotListed> {
    let mut listing = Listing::default();
    let mut cursor = None::<String>;
    let mut seen = BTreeSet::new();
    for _ in 0..MOST_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let page = match page(connection, params).await {
            Ok(page) => page,
            Err(error) => {
                let failed = not_listed(&error);
                // Servers written by hand have tools and do not say so; others refuse this.
                let has_none = !connection.offers_tools() && failed.error.kind == ToolErrorKind::Permanent;
                return if has_none { Ok(listing) } else { Err(failed) };
            }
        };
        listing.tools.extend(page.tools);
        listing.left_out.extend(page.left_out);
        listing.holds = match (listing.holds, page.holds) {
            (Some(least), Some(page)) => Some(std::cmp::min::<Duration>(least, page)),
            (one, other) => one.or(other),
        };
        // Some servers end a list with an empty cursor, which most clients take for none.
        match page.next.filter(|next| !next.is_empty()) {
            Some(next) if seen.insert(next.clone()) => cursor = Some(next),
            Some(_) => {
                return Err(ToolError::permanent("its list of tools leads in a circle: a cursor came twice").into());
            }
            None => return Ok(listing),
        }
    }
    Err(ToolError::permanent(format!("its list of tools has more than {MOST_PAGES} pages")).into())
}

/// One page. Where something of it is no tool it is asked for once more, to be read piece by piece.
#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
async fn page(connection: &Connection, params: Option<PaginatedRequestParams>) -> Result<ListedPage, ServiceError> {
    // Those of a list that nobody waited for.
    drop(connection.annotated().take());
    match connection.peer().list_tools(params.clone()).await {
        Ok(page) => return Ok(ListedPage::from(page).without(connection.annotated().take())),
        Err(ServiceError::UnexpectedResponse) => {}
        Err(error) => return Err(error),
    }
    let request = ListToolsRequest { method: Default::default(), params, extensions: Default::default() };
    let answer = connection.peer().send_request(ClientRequest::ListToolsRequest(request)).await?;
    let read = match answer {
        ServerResult::ListToolsResult(page) => Some(page.into()),
        ServerResult::CustomResult(CustomResult(value)) => ListedPage::read(&value),
        _ => None,
    };
    read.ok_or(ServiceError::UnexpectedResponse)
}

/// Asking for a list has no effect.
#[expect(clippy::wildcard_enum_match_arm, reason = "the SDK may add variants, and all others mean the same")]
fn not_listed(error: &ServiceError) -> NotListed {
    let failed = match error {
        ServiceError::UnexpectedResponse => {
            ToolError::permanent("what it lists is no list of tools; it may be of another version of the protocol")
        }
        // That is no error of the server's: its answer was not read.
        ServiceError::McpError(told) if told.code == TOO_LARGE => ToolError::permanent(format!(
            "its list of tools cannot be taken, for {}; have it list in pages (`nextCursor`), or describe its tools in fewer words",
            told.message
        )),
        other => unfinished(other),
    };
    NotListed { error: ToolError { uncertain: false, ..failed }, is_expired: is_expired(error) }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ErrorData;

    use super::*;

    #[test]
    fn a_list_that_is_too_large_is_no_error_of_the_server() {
        let told = ErrorData::new(TOO_LARGE, "the answer is larger than 4194304 bytes", None);
        let NotListed { error, is_expired } = not_listed(&ServiceError::McpError(told));
        assert_eq!((error.kind, error.uncertain, is_expired), (ToolErrorKind::Permanent, false, false));
        assert!(error.message.starts_with("its list of tools cannot be taken, for the answer is larger"), "{error}");
    }
}
