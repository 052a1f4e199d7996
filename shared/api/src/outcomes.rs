//! Outcomes: written in the transaction that ends a task, one for each, in the document of the task if they are small.

use dormouse_ports::Document;
use dormouse_protocol::ProtocolError;
use dormouse_protocol::envelope::Named;
use dormouse_protocol::id::OutcomeId;
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{Outcome, Task};
use futures::FutureExt;
use futures::future::try_join_all;

use crate::api::found;
use crate::documents::{self, Stored};
use crate::lists::Lists;
use crate::page::{Narrowed, PageSource};
use crate::reads::Reads;
use crate::{Call, CallAnswer, ids};

impl Lists {
    /// The outcomes of the tasks that have ended, or of one.
    pub(crate) async fn list_outcomes(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let source = match Filters::read(&call.query)?.task_id {
            Some(task) => PageSource::One(documents::key::<Task>(task.as_str())),
            None => PageSource::list::<Task>(&call.actor.tenant, Narrowed::Nothing),
        };
        let outcome = async |document| match Stored::<Task>::seen(document, &call.actor) {
            Some(task) => self.reads.outcome_of(&task, call).await,
            None => Ok(None),
        };
        let all = |documents: Vec<Document>| try_join_all(documents.into_iter().map(outcome)).boxed();
        self.page_of(call, &[source], all).await
    }
}

impl Reads {
    pub(crate) async fn get_outcome(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let id = OutcomeId::from(call.params.get("outcome_id").to_owned());
        let task = self.find::<Task>(&ids::of(&id), call.now).await?.filter(|task| task.is_seen_by(&call.actor));
        let outcome = match task {
            Some(task) => self.outcome_of(&task, call).await?,
            None => None,
        };
        let outcome = outcome.filter(|outcome| outcome.envelope.id == id);
        found(&outcome.ok_or_else(|| ProtocolError::not_found(OutcomeId::OBJECT))?)
    }

    /// Outcome of `task`, if it has ended.
    pub(crate) async fn outcome_of(&self, task: &Stored<Task>, call: &Call) -> Result<Option<Outcome>, ProtocolError> {
        match (&task.kept.own.outcome, &task.kept.resource.outcome_id) {
            (Some(outcome), _) => Ok(Some((**outcome).clone())),
            (None, Some(id)) => Ok(self.find::<Outcome>(id, call.now).await?.map(|found| found.kept.resource)),
            (None, None) => Ok(None),
        }
    }
}
