//! *Export job*: dispatches a job and waits for the event that reports it as done.

use std::sync::Arc;

use dormouse::{
    Answer, CompiledGraph, Delay, END, EngineError, Event, EventBus, EventWait, Graph, NodeError, Rule, Update, Wait,
    invocation_id, state,
};
use serde::{Deserialize, Serialize};

/// Name of the graph.
pub const EXPORT_JOB: &str = "export-job";

/// Progress of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportStatus {
    /// Not dispatched yet.
    #[default]
    New,
    /// Dispatched.
    Running,
    /// The exporter reported success.
    Succeeded,
    /// The exporter reported a failure.
    Failed,
    /// The exporter reported nothing for an hour.
    TimedOut,
}

state! {
    /// State of an export.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Export {
        /// Dataset to export.
        pub dataset: String,
        /// Into which format; `csv` when empty.
        pub format: String,
        /// The job: what the events carry to find each other.
        pub job_id: String,
        /// Progress; the completion event carries it.
        pub status: ExportStatus,
        /// Address of the result; the completion event carries it.
        pub url: String,
        /// Outcome, in a sentence.
        pub result: String,
    }
}

/// `dispatch -> wait -> report`.
pub(crate) fn graph(bus: Arc<dyn EventBus>) -> Result<CompiledGraph, EngineError> {
    Graph::<Export>::new(EXPORT_JOB)
        .version("1")
        .inputs((Export::dataset, Export::format))
        .events([finished()])
        .entry("dispatch")
        .node("dispatch", move |export: Export| {
            let bus = bus.clone();
            async move { dispatch(&*bus, export).await }
        })
        .wait("wait", |export| Ok(wait_for_completion(export)))
        .node("report", async |export: Export| Ok(Export::result.set(report(&export))))
        .edge("dispatch", "wait")
        .edge("wait", "report")
        .edge("report", END)
        .compile()
}

/// Request to the exporter.
#[derive(Serialize)]
struct ExportRequest<'e> {
    job_id: &'e str,
    dataset: &'e str,
    format: &'e str,
}

/// Announces the job. Its id comes from the invocation, so that doing this twice announces one job twice, not two.
async fn dispatch(bus: &dyn EventBus, export: Export) -> Result<Update<Export>, NodeError> {
    let job_id = format!("export-{}", invocation_id()?);
    let format = if export.format.is_empty() { "csv".to_owned() } else { export.format };
    let request = ExportRequest { job_id: &job_id, dataset: &export.dataset, format: &format };
    bus.publish(Event::telling("dormouse.export", "Export Requested", &request)?).await?;
    Ok(Export::job_id.set(job_id).set(Export::format, format).set(Export::status, ExportStatus::Running))
}

/// The event that reports that a job is done.
fn finished() -> EventWait {
    EventWait::matching("exporter", "Export Finished", format!("$.detail.{}", Export::job_id))
}

fn wait_for_completion(export: &Export) -> Wait<Export> {
    let answer = Answer::new()
        .required(Export::status, Rule::one_of([ExportStatus::Succeeded, ExportStatus::Failed]))
        .optional(Export::url, Rule::text().at_most(4000));
    Wait::event(export.job_id.as_str(), finished(), answer)
        .kind("job")
        .or_default(Delay::hours(1), Export::status.set(ExportStatus::TimedOut))
}

fn report(export: &Export) -> String {
    match export.status {
        ExportStatus::Succeeded => format!("{} is exported: {}", export.dataset, export.url),
        ExportStatus::Failed => format!("the export of {} failed", export.dataset),
        ExportStatus::TimedOut => format!("the exporter did not answer about {}", export.dataset),
        ExportStatus::New | ExportStatus::Running => {
            format!("the exporter said nothing of use about {}", export.dataset)
        }
    }
}
