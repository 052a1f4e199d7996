//! Pages of lists of resources, the newest first.
//!
//! A cursor holds the id of the last resource of its page, so what is written between two pages changes neither: newer
//! resources come before the first page.

use dormouse_ports::{ListRequest, limits};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::envelope::List;
use dormouse_protocol::request::{Filters, ListQuery};
use dormouse_protocol::resource::{Session, Task};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::api::{Api, found};
use crate::documents::{self, Resource, Stored};
use crate::refusal::{internal, store};
use crate::{Answer, Call};

/// Validity of a cursor.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Number of pages of the store that are read for one of ours, where most of what they hold is not wanted.
const MOST_READS: usize = 8;

impl Api {
    /// The page that `call` asks for of the `R`s that belong to `parent`, or of all of them; `wanted` leaves out more.
    ///
    /// # Errors
    /// For a bad limit or cursor.
    pub(crate) async fn page<R: Resource>(
        &self,
        call: &Call,
        parent: Option<&str>,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<Answer, ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let list = documents::list::<R>(&call.actor.tenant, parent);
        let scope = scope(call, &list);
        let mut after = self.position(call, &scope, query.cursor.as_deref())?.into_iter().next();
        if !self.sees_what_it_narrows_to(call).await? {
            return found(&List::page(Vec::<R>::new(), None));
        }
        let mut kept: Vec<R> = Vec::new();
        for _ in 0..MOST_READS {
            let request =
                ListRequest { list: list.clone(), after, limit: query.limit + 1, newest_first: true, now: call.now };
            let page = self.records().documents(&request).await.map_err(store)?;
            for document in page.items {
                let one: Stored<R> = match Stored::read(document) {
                    Ok(one) => one,
                    Err(error) => {
                        tracing::error!(%error, "a list passes over a document that cannot be read");
                        continue;
                    }
                };
                if one.is_seen_by(&call.actor) && wanted(&one.kept.resource) {
                    kept.push(one.kept.resource.shown());
                }
            }
            after = page.next;
            if after.is_none() || kept.len() > query.limit {
                break;
            }
        }
        let fitting = fitting(&kept, query.limit)?;
        if kept.len() > fitting {
            kept.truncate(fitting);
            after = kept.last().map(|last| last.envelope().id.as_ref().to_owned());
        }
        let next = after.map(|after| self.cursor(call, &scope, &[after])).transpose()?;
        found(&List::page(kept, next))
    }

    /// True if the caller may know of what the list is narrowed to. Lists are those of a tenant, so that only a key
    /// that is bound to workspaces may not.
    async fn sees_what_it_narrows_to(&self, call: &Call) -> Result<bool, ProtocolError> {
        let (Filters { workspace_id, session_id, task_id }, actor) = (Filters::read(&call.query), &call.actor);
        if actor.workspaces.is_none() {
            return Ok(true);
        }
        let sees_session = match &session_id {
            Some(id) => self.find::<Session>(id, call.now).await?.is_some_and(|session| session.is_seen_by(actor)),
            None => true,
        };
        let sees_task = match &task_id {
            Some(id) => self.find::<Task>(id, call.now).await?.is_some_and(|task| task.is_seen_by(actor)),
            None => true,
        };
        Ok(actor.reaches(workspace_id.as_ref()) && sees_session && sees_task)
    }

    /// The position that `cursor` holds; empty without one.
    pub(crate) fn position(
        &self,
        call: &Call,
        scope: &str,
        cursor: Option<&str>,
    ) -> Result<Vec<String>, ProtocolError> {
        cursor.map_or(Ok(Vec::new()), |cursor| self.parts().cursors.open(scope, cursor, call.now))
    }

    /// The cursor behind `position`.
    pub(crate) fn cursor(&self, call: &Call, scope: &str, position: &[String]) -> Result<String, ProtocolError> {
        let expires: Timestamp = call.now.checked_add(GOOD_FOR).map_err(|error| internal(&error))?;
        Ok(self.parts().cursors.seal(scope, position, expires))
    }
}

/// Number of `elements` that one page holds: at most `limit`, and [so many bytes](limits::PAGE), but one if there is
/// any.
///
/// # Errors
/// `internal_error` for an element that cannot be JSON.
pub(crate) fn fitting<'e, T: Serialize + 'e>(
    elements: impl IntoIterator<Item = &'e T>,
    limit: usize,
) -> Result<usize, ProtocolError> {
    let (mut count, mut bytes) = (0, 0);
    for element in elements.into_iter().take(limit) {
        bytes += dormouse_json::length(element).map_err(|error| internal(&error))?;
        if bytes > limits::PAGE {
            return Ok(count.max(1));
        }
        count += 1;
    }
    Ok(count)
}

/// Scope of a cursor: the list, its reader and its filters.
pub(crate) fn scope(call: &Call, list: &str) -> String {
    let query = call.operation.spec().query.iter().map(|name| call.query.get(name).unwrap_or_default());
    let narrowed = query.collect::<Vec<_>>().join("/");
    format!("{}/{} {} {list} {narrowed}", call.actor.tenant, call.actor.name, call.operation.spec().id)
}
