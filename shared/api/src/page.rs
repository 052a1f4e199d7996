//! Pages of lists of resources, the newest first.
//!
//! A cursor holds the id of the last resource of its page, so what is written between two pages changes neither: newer
//! resources come before the first page.

use dormouse_ports::{Breadth, Document, DocumentKey, ListRequest, limits};
use dormouse_protocol::ProtocolError;
use dormouse_protocol::envelope::{List, Named};
use dormouse_protocol::id::WorkspaceId;
use dormouse_protocol::request::{Filters, ListQuery};
use dormouse_protocol::resource::{Session, Task};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::api::found;
use crate::documents::{self, Resource, Stored};
use crate::lists::Lists;
use crate::refusal::{internal, store};
use crate::{Actor, Call, CallAnswer, ids};

/// Validity of a cursor.
const GOOD_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Number of pages of the store that are read for one of ours, where most of what they hold is not wanted.
const MOST_READS: usize = 8;

/// Part of a tenant that a list is narrowed to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Narrowed<'a> {
    /// All of it.
    Nothing,
    /// A workspace. Entries that earlier versions listed come with it, from all workspaces.
    Workspace(&'a str),
    /// A session or a task.
    Parent(&'a str),
}

impl<'a> Narrowed<'a> {
    /// To `parent`, or else to `workspace`, where there is one.
    pub(crate) fn to(parent: Option<&'a str>, workspace: Option<&'a WorkspaceId>) -> Self {
        let workspace = workspace.map_or(Self::Nothing, |workspace| Self::Workspace(workspace.as_str()));
        parent.map_or(workspace, Self::Parent)
    }
}

/// Documents that a page is made of.
#[derive(Clone, Debug)]
pub(crate) enum PageSource {
    /// Those of a list: the list, how it is narrowed, and the word that its ids begin with.
    List { list: String, breadth: Breadth, word: &'static str },
    /// This one.
    One(DocumentKey),
}

impl PageSource {
    /// The `R`s of `tenant`, as far as they are in what the list is narrowed to.
    pub(crate) fn list<R: Resource>(tenant: &str, narrowed: Narrowed<'_>) -> Self {
        let (parent, breadth) = match narrowed {
            Narrowed::Nothing => (None, Breadth::Wide { label: None }),
            Narrowed::Workspace(workspace) => (None, Breadth::Wide { label: Some(workspace.to_owned()) }),
            Narrowed::Parent(parent) => (Some(parent), Breadth::Narrow),
        };
        Self::List { list: documents::list::<R>(tenant, parent), breadth, word: R::Id::OBJECT }
    }

    /// The name under which cursors know it.
    fn name(&self) -> String {
        match self {
            Self::List { list, .. } => list.clone(),
            Self::One(key) => format!("{}/{}", key.kind, key.id),
        }
    }
}

/// A stretch of a list that is not stored.
#[derive(Debug)]
pub(crate) struct FixedPage {
    /// The places of its elements.
    pub(crate) range: std::ops::Range<usize>,
    /// Cursor of the next page.
    pub(crate) next: Option<String>,
}

/// A stretch of documents of several sources.
#[derive(Debug, Default)]
struct Merged {
    /// The documents, the newest first.
    documents: Vec<Document>,
    /// The id to go on behind; `None` at the end.
    next: Option<String>,
}

impl Lists {
    /// The page that `call` asks for of the `R`s in what the list is narrowed to; `wanted` leaves out more.
    ///
    /// # Errors
    /// For a bad limit or cursor.
    pub(crate) async fn page<R: Resource + Send>(
        &self,
        call: &Call,
        narrowed: Narrowed<'_>,
        wanted: impl Fn(&R) -> bool + Send + Sync,
    ) -> Result<CallAnswer, ProtocolError> {
        let one = |document| {
            let one = Stored::<R>::seen(document, &call.actor).map(|one| one.kept.resource);
            one.filter(&wanted).map(R::shown)
        };
        let all = |documents: Vec<Document>| ready(Ok(documents.into_iter().map(one).collect())).boxed();
        self.page_of(call, &[PageSource::list::<R>(&call.actor.tenant, narrowed)], all).await
    }

    /// The page that `call` asks for of what `pick` makes of each of the documents of `sources`, which are in one order.
    ///
    /// # Errors
    /// For a bad limit or cursor, and those of `pick`.
    pub(crate) async fn page_of<'p, T: Serialize + Send>(
        &self,
        call: &Call,
        sources: &[PageSource],
        pick: impl Fn(Vec<Document>) -> BoxFuture<'p, Result<Vec<Option<T>>, ProtocolError>> + Send + Sync,
    ) -> Result<CallAnswer, ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, &sources.iter().map(PageSource::name).collect::<Vec<_>>().join(" "));
        let mut after = self.position(call, &scope, query.cursor.as_deref())?.into_iter().next();
        if !self.sees_what_it_narrows_to(call).await? {
            return found(&List::page(Vec::<T>::new(), None));
        }
        let mut picked = Vec::<String>::new();
        let mut kept = Vec::new();
        for _ in 0..MOST_READS {
            let stretch = self.merged(call, sources, after.as_deref(), query.limit + 1).await?;
            let ids: Vec<String> = stretch.documents.iter().map(|document| document.key.id.clone()).collect();
            for (id, one) in ids.into_iter().zip(pick(stretch.documents).await?) {
                // Two sources may have the same one: the first counts.
                if picked.last().is_some_and(|last| ids::own(last) == ids::own(&id)) {
                    continue;
                }
                if let Some(one) = one {
                    picked.push(id);
                    kept.push(one);
                }
            }
            after = stretch.next;
            if after.is_none() || kept.len() > query.limit {
                break;
            }
        }
        let fitting = fitting(&kept, query.limit)?;
        if kept.len() > fitting {
            kept.truncate(fitting);
            after = fitting.checked_sub(1).and_then(|last| picked.get(last).cloned());
        }
        let next = after.map(|after| self.cursor(call, &scope, &[after])).transpose()?;
        found(&List::page(kept, next))
    }

    /// The page that `call` asks for of the list called `list`, whose elements have these names.
    ///
    /// # Errors
    /// For a bad limit or cursor.
    pub(crate) fn fixed_page(&self, call: &Call, list: &str, names: &[&str]) -> Result<FixedPage, ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let scope = scope(call, list);
        let after = self.position(call, &scope, query.cursor.as_deref())?.into_iter().next();
        let start = after.map_or(0, |after| behind(names, &after));
        let end = names.len().min(start + query.limit);
        let next = (end < names.len()).then(|| names.get(start..end)).flatten().and_then(<[&str]>::last);
        let next = next.map(|last| self.cursor(call, &scope, &[(*last).to_owned()])).transpose()?;
        Ok(FixedPage { range: start..end, next })
    }

    /// The page that `call` asks for of the stored `R`s of its tenant, and behind those of what comes with the server,
    /// which has these `names`: the elements that are stored, and the stretch of the others.
    ///
    /// # Errors
    /// For a bad limit or cursor.
    pub(crate) async fn page_and_fixed<R: Resource + Send>(
        &self,
        call: &Call,
        names: &[&str],
    ) -> Result<(Vec<Value>, FixedPage), ProtocolError> {
        let query = ListQuery::read(&call.query)?;
        let source = PageSource::list::<R>(&call.actor.tenant, Narrowed::Nothing);
        let scope = scope(call, &source.name());
        let mut stored = Vec::new();
        let start = match self.position(call, &scope, query.cursor.as_deref())?.as_slice() {
            // Behind all that is stored.
            [_, name] => behind(names, name),
            _ => {
                let answer = self.page::<R>(call, Narrowed::Nothing, |_| true).await?;
                let CallAnswer::Json(_, mut page) = answer else { return Err(internal(&"a page is JSON")) };
                if let Some(Value::Array(data)) = page.get_mut("data").map(Value::take) {
                    stored = data;
                }
                if let Some(next) = page["page"]["next_cursor"].as_str() {
                    return Ok((stored, FixedPage { range: 0..0, next: Some(next.to_owned()) }));
                }
                0
            }
        };
        let end = names.len().min(start + query.limit.saturating_sub(stored.len()));
        let last = end.checked_sub(1).and_then(|last| names.get(last)).map_or("", |last| *last);
        let next = (end < names.len()).then(|| self.cursor(call, &scope, &[String::new(), last.to_owned()]));
        Ok((stored, FixedPage { range: start..end, next: next.transpose()? }))
    }

    /// The documents of `sources` that are older than the id `after`, as many of each as `limit` at most. Ids of
    /// different words are ordered by what stands behind the word.
    async fn merged(
        &self,
        call: &Call,
        sources: &[PageSource],
        after: Option<&str>,
        limit: usize,
    ) -> Result<Merged, ProtocolError> {
        let mut documents = Vec::new();
        let mut upto = None::<String>;
        for source in sources {
            match source {
                PageSource::List { list, breadth, word } => {
                    let after = after.map(|after| ids::with_word(word, after));
                    let list = list.clone();
                    let breadth = seen_in(breadth, &call.actor);
                    let request = ListRequest { list, breadth, after, limit, newest_first: true, now: call.now };
                    let page = self.reads.records().documents(&request).await.map_err(store)?;
                    documents.extend(page.items);
                    upto = upto.max(page.next.map(|next| ids::own(&next).to_owned()));
                }
                PageSource::One(key) => {
                    let one = self.reads.records().document(key, call.now).await.map_err(store)?;
                    documents
                        .extend(one.filter(|one| after.is_none_or(|after| ids::own(&one.key.id) < ids::own(after))));
                }
            }
        }
        // Behind the end of a page that goes on may come what stands before the documents of another source.
        documents.retain(|one| upto.as_deref().is_none_or(|upto| ids::own(&one.key.id) >= upto));
        documents.sort_by(|one, other| ids::own(&other.key.id).cmp(ids::own(&one.key.id)));
        Ok(Merged { documents, next: upto })
    }

    /// True if the caller may know of what the list is narrowed to. Lists are those of a tenant, so that only a key
    /// that is bound to workspaces may not.
    async fn sees_what_it_narrows_to(&self, call: &Call) -> Result<bool, ProtocolError> {
        let Filters { workspace_id, session_id, task_id } = Filters::read(&call.query)?;
        let actor = &call.actor;
        if actor.workspaces.is_none() {
            return Ok(true);
        }
        let sees_session = match &session_id {
            Some(id) => {
                self.reads.find::<Session>(id, call.now).await?.is_some_and(|session| session.is_seen_by(actor))
            }
            None => true,
        };
        let sees_task = match &task_id {
            Some(id) => self.reads.find::<Task>(id, call.now).await?.is_some_and(|task| task.is_seen_by(actor)),
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
        cursor.map_or(Ok(Vec::new()), |cursor| self.cursors.open(scope, cursor, call.now))
    }

    /// The cursor behind `position`.
    pub(crate) fn cursor(&self, call: &Call, scope: &str, position: &[String]) -> Result<String, ProtocolError> {
        let expires: Timestamp = call.now.checked_add(GOOD_FOR).map_err(|error| internal(&error))?;
        Ok(self.cursors.seal(scope, position, expires))
    }
}

/// The part of a list of `breadth` in which all stands that `actor` may see: of what is in other workspaces nothing is read.
fn seen_in(breadth: &Breadth, actor: &Actor) -> Breadth {
    match &actor.workspaces {
        Some(mine) if *breadth == (Breadth::Wide { label: None }) => {
            Breadth::Among { labels: mine.iter().map(ToString::to_string).collect() }
        }
        Some(_) | None => breadth.clone(),
    }
}

/// The place behind the element called `name`: the beginning for no name, the end for one that is not there any more.
fn behind(names: &[&str], name: &str) -> usize {
    if name.is_empty() {
        return 0;
    }
    names.iter().position(|known| *known == name).map_or(names.len(), |place| place + 1)
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
    let mut count = 0;
    let mut bytes = 0;
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
