//! The list of a server's tools.

use std::collections::BTreeSet;
use std::time::Duration;

use dormouse_ports::tool::ToolError;
use rmcp::ServiceError;
use rmcp::model::{PaginatedRequestParams, Tool};

use super::connection::Connection;
use super::failure::unfinished;

/// Pages of a list.
const MOST_PAGES: usize = 100;

/// Asks for page after page.
/// How long they hold is what the server says of the page that holds least.
///
/// # Errors
/// The list cannot be had; asking for it had no effect.
pub(super) async fn pages(connection: &Connection) -> Result<(Vec<Tool>, Option<Duration>), ToolError> {
    let mut tools = Vec::new();
    let mut holds = None;
    let mut cursor = None::<String>;
    let mut seen = BTreeSet::new();
    if !connection.offers_tools() {
        return Ok((tools, holds));
    }
    for _ in 0..MOST_PAGES {
        let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
        let page = connection.peer().list_tools(params).await.map_err(|error| not_listed(&error))?;
        tools.extend(page.tools);
        let page_holds = page.ttl_ms.map(Duration::from_millis);
        holds = match (holds, page_holds) {
            (Some(least), Some(page)) => Some(std::cmp::min::<Duration>(least, page)),
            (one, other) => one.or(other),
        };
        match page.next_cursor {
            Some(next) if seen.insert(next.clone()) => cursor = Some(next),
            Some(_) => return Err(ToolError::permanent("its list of tools leads in a circle: a cursor came twice")),
            None => return Ok((tools, holds)),
        }
    }
    Err(ToolError::permanent(format!("its list of tools has more than {MOST_PAGES} pages")))
}

/// Asking for a list has no effect.
fn not_listed(error: &ServiceError) -> ToolError {
    let failed = match matches!(error, ServiceError::UnexpectedResponse) {
        true => ToolError::permanent("what it lists is no list of tools; it may be of another version of the protocol"),
        false => unfinished(error),
    };
    ToolError { uncertain: false, ..failed }
}
