//! *Export job*: dispatches a job and waits for the event that says it is done.

use std::sync::Arc;

use dormouse_engine::{CompiledGraph, END, EngineError, NodeError, TypedGraph, Update, suspend};
use dormouse_ports::{Event, EventBus, EventWait, Map, SignalDescriptor};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::invocation_id;

/// Name of the graph.
pub const EXPORT_JOB: &str = "export-job";

/// How far an export is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportStatus {
    /// Not dispatched yet.
    #[default]
    New,
    /// Dispatched.
    Running,
    /// The exporter says that it is done.
    Succeeded,
    /// The exporter says that it failed.
    Failed,
    /// The exporter said nothing for an hour.
    TimedOut,
}

/// State of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// What to export.
    pub dataset: String,
    /// Into which format; `csv` when empty.
    pub format: String,
    /// The job: what the events carry to find each other.
    pub job_id: String,
    /// How far it is; the completion event carries it.
    pub status: ExportStatus,
    /// Where the result lies; the completion event carries it.
    pub url: String,
    /// What became of it, in a sentence.
    pub result: String,
}

/// `dispatch -> wait -> report`.
pub(crate) fn graph(bus: Arc<dyn EventBus>) -> Result<CompiledGraph, EngineError> {
    TypedGraph::<Export>::new(EXPORT_JOB)
        .version("1")
        .inputs(["dataset", "format"])
        .events([finished()])
        .entry("dispatch")
        .node("dispatch", move |export: Export| {
            let bus = bus.clone();
            async move { dispatch(&*bus, &export).await }
        })
        .node("wait", async |export: Export| Err(suspend(wait_for_completion(&export)).await))
        .node("report", async |export| Ok(Update::none().with("result", report(&export))))
        .edge("dispatch", "wait")
        .edge("wait", "report")
        .edge("report", END)
        .compile()
}

/// Announces the job. Its id comes from the invocation, so that doing this twice announces one job twice, not two.
async fn dispatch(bus: &dyn EventBus, export: &Export) -> Result<Update, NodeError> {
    let job_id = format!("export-{}", invocation_id()?);
    let format = if export.format.is_empty() { "csv" } else { &export.format };
    let mut detail = Map::new();
    detail.insert("job_id".to_owned(), job_id.clone().into());
    detail.insert("dataset".to_owned(), export.dataset.clone().into());
    detail.insert("format".to_owned(), format.into());
    let (source, detail_type) = ("dormouse.export".to_owned(), "Export Requested".to_owned());
    bus.publish(Event { source, detail_type, detail }).await?;
    Update::none().with("job_id", job_id).with("format", format).try_with("status", ExportStatus::Running)
}

/// The event that says that a job is done.
fn finished() -> EventWait {
    let choices = |choice: &str| json!([choice]);
    let pattern = [("source", choices("exporter")), ("detail-type", choices("Export Finished"))];
    let pattern = pattern.into_iter().map(|(field, choices)| (field.to_owned(), choices)).collect();
    EventWait { pattern, correlation: "$.detail.job_id".to_owned() }
}

fn wait_for_completion(export: &Export) -> SignalDescriptor {
    SignalDescriptor::new(export.job_id.as_str())
        .with("kind", "job")
        .with("event", json!(finished()))
        .with(
            "accepts",
            json!({
                "type": "object",
                "properties": {
                    "status": { "enum": [ExportStatus::Succeeded, ExportStatus::Failed] },
                    "url": { "type": "string", "maxLength": 4000 },
                },
                "required": ["status"],
            }),
        )
        .with("timeout", json!({ "after": "PT1H", "then": { "resume": { "status": ExportStatus::TimedOut } } }))
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
