//! Ids as people type them: whole, or as much of their beginning as no other id has.

use dormouse_maintenance::put_aside;
use dormouse_ports::InvocationId;

use super::InspectError;
use crate::target::OpenedStore;

/// Fewest characters of an id that is not whole.
const SHORTEST: usize = 4;
/// Number of ids that are named of those that begin alike.
const NAMED: usize = 5;

/// The invocation that `typed` names: the one of that id, or else the only one that sleeps or was put aside with an id
/// that begins so. Where there is none, `typed` itself: the reader of the store reports that it is not there.
///
/// # Errors
/// If several begin so, if it is too short for a beginning, or if the store does not answer.
pub(crate) async fn named(opened: &OpenedStore, typed: &str) -> Result<InvocationId, InspectError> {
    let id = InvocationId::from(typed);
    let is_known = opened.store().glance(std::slice::from_ref(&id)).await?.iter().any(Option::is_some);
    if is_known {
        return Ok(id);
    }
    if typed.chars().count() < SHORTEST {
        return Err(InspectError::TooShort(typed.to_owned()));
    }
    let mut found = beginning_with(opened, typed).await?;
    match (found.pop(), found.is_empty()) {
        (None, _) => Ok(id),
        (Some(only), true) => Ok(only),
        (Some(last), false) => {
            found.push(last);
            Err(InspectError::Ambiguous { typed: typed.to_owned(), found })
        }
    }
}

/// Those that sleep or were put aside and have an id that begins with `typed`, as far as they are named.
async fn beginning_with(opened: &OpenedStore, typed: &str) -> Result<Vec<InvocationId>, InspectError> {
    let begins = |id: &InvocationId| id.as_str().starts_with(typed);
    let mut found: Vec<InvocationId> = put_aside(&opened.maintenance).await?.ids.into_iter().filter(begins).collect();
    let mut cursor = None;
    while found.len() <= NAMED {
        let page = opened.store().list_pending(None, cursor.as_deref()).await?;
        found.extend(page.items.into_iter().map(|row| row.invocation_id).filter(begins));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    found.truncate(NAMED);
    found.sort_unstable();
    Ok(found)
}
