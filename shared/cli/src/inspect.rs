//! The commands that look at what sleeps: `pending`, `show`, `signal`, `cancel`, `migrate` and `doctor`.
//!
//! Each prints for people, or with `--json` one JSON document for scripts. Neither has more or less to say.

mod ask;
mod asked;
mod cancel;
mod form;
pub(crate) mod hint;
mod migrate;
mod named;
mod print;
mod retry;

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::process::ExitCode;

use dormouse_api::Agents;
use dormouse_harness::{Overruled, Transmission, TurnError, TurnOutcome};
use dormouse_local::EmbeddedError;
use dormouse_maintenance::doctor::{Diagnosis, Finding, in_words, not_kept, then};
use dormouse_maintenance::{ParkedSignal, doctor, parked_signals, put_aside};
use dormouse_ports::{
    Category, InvocationId, InvocationRecord, InvocationStatus, Map, PendingRow, SignalId, SignalState, StoreError,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::target::{OpenedStore, Purpose, StoreTarget, TargetError};
use crate::terminal::object_of;
pub(crate) use ask::OperatorCommand;
pub(crate) use asked::asked_of;
pub(crate) use form::fields_of;
use hint::AnswerCommands;
pub(crate) use named::named;
use print::Row;
pub(crate) use print::{Printer, bounded, moment};

/// Emitted where a wake-up is to be registered and there is nothing to register it with.
const LEFT_TO_THE_SWEEP: &str = "no scheduler and no event bus can be reached from here; the next sweep of those who \
    serve the store registers it: see that one runs";

/// Number of invocations that the store is asked about at once.
const TOGETHER: usize = 100;
/// The most invocations that are asked for in one request, however many are listed.
const LARGEST_PAGE: i32 = 1000;

/// Outcome of a command. Arguments that clap refuses end with 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InspectOutcome {
    /// Done, and nothing is wrong.
    Fine,
    /// Done, and something was found that is still wrong.
    Trouble,
    /// There is no such invocation.
    NotFound,
}

impl From<InspectOutcome> for ExitCode {
    fn from(ending: InspectOutcome) -> Self {
        match ending {
            InspectOutcome::Fine => Self::SUCCESS,
            InspectOutcome::Trouble => Self::from(3),
            InspectOutcome::NotFound => Self::from(4),
        }
    }
}

/// Reason for which a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error("{}: {}", .0.category, .0.message)]
    Turn(TurnError),
    #[error("the payload must be a JSON object: {0}")]
    Payload(String),
    #[error("{0}")]
    Answer(String),
    #[error("{}{}", .0.message(), in_words_of(.0))]
    Overruled(Overruled),
    #[error("several begin with `{typed}`; type more of the one that you mean: {}", in_a_row(found))]
    Ambiguous { typed: String, found: Vec<InvocationId> },
    #[error("there is no invocation `{0}`, and the beginning of an id needs four characters at least")]
    TooShort(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl InspectError {
    /// With what the process ends: 2 for an argument that makes no sense, 4 for what is not there, 1 for everything
    /// else.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Ambiguous { .. } => ExitCode::from(2),
            Self::TooShort(_) => ExitCode::from(4),
            Self::Target(_)
            | Self::Store(_)
            | Self::Embedded(_)
            | Self::Turn(_)
            | Self::Payload(_)
            | Self::Answer(_)
            | Self::Overruled(_)
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

fn in_words_of(overruled: &Overruled) -> String {
    match overruled {
        Overruled::Answered(Some(decided)) => format!(": {}", Value::Object(decided.clone())),
        Overruled::Answered(None) | Overruled::Others | Overruled::Time | Overruled::Earlier => String::new(),
    }
}

fn in_a_row(ids: &[InvocationId]) -> String {
    ids.iter().map(InvocationId::as_str).collect::<Vec<_>>().join(", ")
}

impl From<TurnError> for InspectError {
    fn from(error: TurnError) -> Self {
        Self::Turn(error)
    }
}

/// Executes `ask`.
pub(crate) async fn inspect(ask: OperatorCommand, agents: &Agents) -> Result<InspectOutcome, InspectError> {
    match ask {
        OperatorCommand::Pending(ask) => {
            let page = ask.filter.limit.min(LARGEST_PAGE);
            let opened = ask.target.open_by(agents, Purpose::Look, page).await?;
            on(opened, async |opened| pending(opened, ask.filter, &ask.target, ask.json).await).await
        }
        OperatorCommand::Show(ask) => {
            let opened = ask.target.open(agents, Purpose::Look).await?;
            on(opened, async |opened| show(opened, &named(opened, &ask.id).await?, &ask.target, ask.json).await).await
        }
        OperatorCommand::Signal(ask) => {
            let payload = payload(ask.payload().map(str::to_owned))?;
            ask.target.tell_of_receipts();
            let opened = ask.target.open(agents, Purpose::Change).await?;
            on(opened, async |opened| {
                let transmission = match (&ask.invocation, &ask.signal_id) {
                    (Some(id), _) => Transmission::callback(named(opened, id).await?, None, payload),
                    (None, id) => Transmission::signal(SignalId::from(id.as_deref().unwrap_or_default()), payload),
                };
                signal(opened, transmission, ask.json).await
            })
            .await
        }
        OperatorCommand::Cancel(ask) => {
            ask.target.tell_of_receipts();
            let opened = ask.target.open(agents, Purpose::Change).await?;
            on(opened, async |opened| {
                // What has not begun yet is named in full.
                let id = if ask.ahead { ask.id.into() } else { named(opened, &ask.id).await? };
                cancel::cancel(opened, id, ask.reason, (ask.ahead, ask.json)).await
            })
            .await
        }
        OperatorCommand::Retry(ask) => {
            ask.target.tell_of_receipts();
            let opened = ask.target.open(agents, Purpose::Change).await?;
            on(opened, async |opened| retry::retry(opened, &named(opened, &ask.id).await?, ask.json).await).await
        }
        OperatorCommand::Migrate(ask) => {
            let opened = ask.target.open(agents, Purpose::Look).await?;
            on(opened, async |opened| migrate::report(opened, &ask.bounds, ask.json).await).await
        }
        OperatorCommand::Doctor(ask) => {
            let purpose = if ask.repair { Purpose::Change } else { Purpose::Look };
            let opened = ask.target.open(agents, purpose).await?;
            on(opened, async |opened| match &ask.id {
                Some(id) => examine_one(opened, &named(opened, id).await?, ask.repair, ask.json).await,
                None => examine_all(opened, ask.repair, ask.json).await,
            })
            .await
        }
    }
}

/// Does `work` on what is opened, and closes it, also where the work failed.
pub(crate) async fn on<T, E: From<EmbeddedError>>(
    opened: OpenedStore,
    work: impl AsyncFnOnce(&OpenedStore) -> Result<T, E>,
) -> Result<T, E> {
    let ended = work(&opened).await;
    opened.close().await?;
    ended
}

fn payload(text: Option<String>) -> Result<Map, InspectError> {
    let text = match text.as_deref() {
        None => return Ok(Map::new()),
        Some("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text)?;
            text
        }
        Some(text) => text.to_owned(),
    };
    object_of(&text).map_err(InspectError::Payload)
}

async fn pending(
    opened: &OpenedStore,
    filter: ask::Filter,
    target: &StoreTarget,
    json: bool,
) -> Result<InspectOutcome, InspectError> {
    let now = Timestamp::now();
    let (rows, cursor) = match &filter.signal {
        Some(signal) => (who_waits_for(opened, signal, &filter, target).await?, None),
        None => asleep(opened, &filter, target).await?,
    };
    let printer = Printer::new(json);
    if json {
        let rows: Vec<Value> = rows.into_iter().map(Row::into_json).collect();
        printer.json(&json!({ "pending": rows, "next": cursor }))?;
    } else if rows.is_empty() {
        printer.line("nothing sleeps here")?;
        if let Some(graph) = filter.graph.filter(|graph| opened.harness.graphs().get(graph).is_err()) {
            let known = opened.harness.graphs().offered_names().collect::<Vec<_>>().join(", ");
            printer.line(&format!(
                "this program has no graph `{graph}`: it is one that only a server has, such as an agent of a folder, or a slip; \
                 there are {known}"
            ))?;
        }
    } else {
        printer.listing(Row::HEAD, rows.iter().map(|row| (row.cells(now), row.below())).collect())?;
        if rows.iter().any(|row| row.answer_with.may_deny()) {
            printer.line("who denies may say why: --reason 'not this month'")?;
        }
        if let Some(next) = cursor {
            printer.line(&format!("more follows: --cursor {next}"))?;
        }
    }
    Ok(InspectOutcome::Fine)
}

/// Invocations that sleep and pass the filter, page by page.
async fn asleep(
    opened: &OpenedStore,
    filter: &ask::Filter,
    target: &StoreTarget,
) -> Result<(Vec<Row>, Option<String>), InspectError> {
    let store = opened.store();
    let mut rows = Vec::new();
    let mut cursor = filter.cursor.clone();
    loop {
        let page = store.list_pending(filter.due_by, cursor.as_deref()).await?;
        for page in page.items.chunks(TOGETHER) {
            let ids: Vec<_> = page.iter().map(|row| row.invocation_id.clone()).collect();
            for (row, record) in page.iter().zip(store.load_invocations(&ids).await?) {
                match record {
                    Ok(record) => {
                        rows.extend(record.filter(|it| filter.takes(it)).map(|it| pending_row(row, &it, target)));
                    }
                    // It may be the one that is looked for.
                    Err(error) => rows.push(unreadable_row(row, &error.to_string(), Timestamp::now())),
                }
            }
        }
        cursor = page.next;
        if cursor.is_none() || rows.len() >= usize::try_from(filter.limit).unwrap_or(usize::MAX) {
            return Ok((rows, cursor));
        }
    }
}

/// Invocations that wait for `signal`, found by its key and not by going through all that sleep.
async fn who_waits_for(
    opened: &OpenedStore,
    signal: &str,
    filter: &ask::Filter,
    target: &StoreTarget,
) -> Result<Vec<Row>, InspectError> {
    let store = opened.store();
    let known = store.load_signal(&SignalId::from(signal), Timestamp::now()).await?;
    let Some(SignalState::Waiting { invocation_id, .. }) = known.map(|record| record.state) else {
        return Ok(Vec::new());
    };
    let record = store.load_invocation(&invocation_id).await?.filter(|record| filter.takes(record));
    let Some(record) = record else { return Ok(Vec::new()) };
    let row = store.pending_row(&record.paused).await?;
    let row = row.filter(|row| filter.due_by.is_none_or(|by| row.due_at.is_some_and(|due| due <= by)));
    Ok(row.iter().map(|row| pending_row(row, &record, target)).collect())
}

fn pending_row(row: &PendingRow, record: &InvocationRecord, target: &StoreTarget) -> Row {
    // What it waited for last is no news of one that goes on or has ended.
    let asleep = Some(&record.paused).filter(|_| record.status == InvocationStatus::Suspended);
    let metadata = asleep.and_then(|paused| paused.descriptor.metadata.as_ref());
    Row {
        answer_with: asleep.map(|paused| hint::commands(paused, target)).unwrap_or_default(),
        invocation_id: row.invocation_id.to_string(),
        graph: record.paused.graph.clone(),
        status: print::status(record),
        since: record.paused.suspended_at,
        waits_for: print::waits_for(&record.paused),
        description: asleep.and_then(print::description),
        calls: metadata.map(|metadata| asked_of(metadata, None)).unwrap_or_default(),
        due_at: row.due_at,
        then: asleep.and_then(then),
    }
}

fn unreadable_row(row: &PendingRow, reason: &str, now: Timestamp) -> Row {
    Row {
        invocation_id: row.invocation_id.to_string(),
        graph: String::new(),
        status: "unreadable",
        since: row.since.unwrap_or(now),
        waits_for: format!("nobody knows: its record cannot be read ({reason}); it can be canceled"),
        description: None,
        calls: Vec::new(),
        due_at: row.due_at,
        then: None,
        answer_with: AnswerCommands::default(),
    }
}

async fn show(
    opened: &OpenedStore,
    id: &InvocationId,
    target: &StoreTarget,
    json: bool,
) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    match opened.store().load_invocation(id).await? {
        None => not_found(&printer, id),
        Some(record) => {
            let mut told = print::invocation(&record);
            if record.status == InvocationStatus::Suspended {
                let commands = hint::commands(&record.paused, target);
                let (first, others) = commands.first();
                told["answer_with"] = json!(first);
                if !others.is_empty() {
                    told["or_with"] = json!(others);
                }
                told["fill_in"] = json!(commands.template);
            }
            printer.fields(&told)?;
            Ok(InspectOutcome::Fine)
        }
    }
}

pub(crate) fn not_found(printer: &Printer, id: &InvocationId) -> Result<InspectOutcome, InspectError> {
    printer.complain(&not_kept(id))?;
    Ok(InspectOutcome::NotFound)
}

/// Sends a signal, also one that has come in an earlier pause: that it is repeated is told.
async fn signal(opened: &OpenedStore, transmission: Transmission, json: bool) -> Result<InspectOutcome, InspectError> {
    let outcome = opened.harness.turn(transmission).await.outcome;
    tell(outcome, json, |overruled| match overruled {
        Overruled::Answered(_) | Overruled::Others | Overruled::Time => true,
        // What counts is not known.
        Overruled::Earlier => false,
    })
}

/// Sends an answer to the pause that it is for, which has to count.
pub(crate) async fn answered(
    opened: &OpenedStore,
    transmission: Transmission,
    json: bool,
) -> Result<InspectOutcome, InspectError> {
    tell(opened.harness.turn(transmission).await.outcome, json, |_| true)
}

/// Tells what came of a signal; it is an error where another resolution counts that `is_error`.
fn tell(
    outcome: TurnOutcome,
    json: bool,
    is_error: impl Fn(&Overruled) -> bool,
) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    let told = match outcome {
        TurnOutcome::Completed(turn) => {
            if let Some(overruled) = turn.overruled.filter(is_error) {
                return Err(InspectError::Overruled(overruled));
            }
            json!({ "status": "completed", "invocation_id": turn.invocation_id, "repeated": turn.repeated,
                "state": turn.state })
        }
        TurnOutcome::Suspended(turn) => {
            if let Some(overruled) = turn.overruled.filter(is_error) {
                return Err(InspectError::Overruled(overruled));
            }
            json!({ "status": "suspended", "invocation_id": turn.invocation_id,
                "waits_for": turn.descriptor.signal_id, "repeated": turn.repeated,
                "answered": turn.tally.as_ref().map(|tally| &tally.answered),
                "missing": turn.tally.as_ref().map(|tally| &tally.missing) })
        }
        TurnOutcome::Buffered { signal_id, expires_at } => {
            json!({ "status": "parked", "signal_id": signal_id, "until": expires_at })
        }
        TurnOutcome::Stale { invocation_id } => json!({ "status": "over", "invocation_id": invocation_id }),
        TurnOutcome::Errored(error) if error.category == Category::HarnessSignalCorrelationFailed => {
            printer.complain(&error.message)?;
            return Ok(InspectOutcome::NotFound);
        }
        TurnOutcome::Errored(error) => return Err((*error).into()),
    };
    printer.fields(&told)?;
    Ok(InspectOutcome::Fine)
}

async fn examine_one(
    opened: &OpenedStore,
    id: &InvocationId,
    repair: bool,
    json: bool,
) -> Result<InspectOutcome, InspectError> {
    let printer = Printer::new(json);
    match opened.diagnose(id).await {
        Err(error) if error.category == Category::NotFound => not_found(&printer, id),
        Err(error) => Err(error.into()),
        Ok(mut diagnosis) => {
            diagnosis.mind(&parked_signals(&opened.harness, &opened.maintenance).await?);
            let report = treat(opened, diagnosis, repair).await;
            printer.report(&report)?;
            Ok(if is_trouble(&report) { InspectOutcome::Trouble } else { InspectOutcome::Fine })
        }
    }
}

/// Everything that sleeps or was put aside; prints only what is wrong, and the signals that no invocation waits for.
async fn examine_all(opened: &OpenedStore, repair: bool, json: bool) -> Result<InspectOutcome, InspectError> {
    let store = opened.store();
    let printer = Printer::new(json);
    let mut examined = 0_usize;
    let mut reports = Vec::new();
    let mut cursor = None;
    let mut awaited = BTreeSet::new();
    loop {
        let page = store.list_pending(None, cursor.as_deref()).await?;
        let ids: Vec<_> = page.items.into_iter().map(|row| row.invocation_id).collect();
        let diagnoses = opened.doctor().await.diagnose_all(&ids).await?;
        for (id, diagnosis) in ids.iter().zip(diagnoses) {
            examined += 1;
            match diagnosis {
                Ok(diagnosis) if diagnosis.is_trouble() => {
                    awaited.extend(diagnosis.record.paused.waits());
                    reports.push(treat(opened, diagnosis, repair).await);
                }
                Ok(_) => {}
                Err(error) => reports.push(unreadable(id, &error)),
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for id in store.dead_claims(Timestamp::now()).await? {
        let diagnosis = opened.diagnose(&id).await;
        // What has begun was in the index.
        if let Ok(diagnosis) = diagnosis
            && !diagnosis.record.paused.has_paused()
        {
            examined += 1;
            if diagnosis.is_trouble() {
                reports.push(treat(opened, diagnosis, repair).await);
            }
        }
    }
    let aside = put_aside(&opened.maintenance).await?;
    for id in &aside.ids {
        examined += 1;
        match opened.diagnose(id).await {
            Ok(diagnosis) if diagnosis.is_trouble() => reports.push(treat(opened, diagnosis, repair).await),
            Ok(_) => {}
            Err(error) => reports.push(unreadable(id, &error)),
        }
    }
    let mut parked = parked_signals(&opened.harness, &opened.maintenance).await?;
    parked.retain(|signal| !awaited.contains(&signal.stored_as()));
    let troubles = reports.iter().filter(|report| is_trouble(report)).count();
    if json {
        printer.json(&json!({ "examined": examined, "in_trouble": troubles, "invocations": reports,
            "parked_signals": parked, "more_put_aside": aside.more }))?;
    } else {
        printer.findings(&reports)?;
        if aside.more {
            printer.line("  more were put aside: look again when these were tried again or canceled")?;
        }
        parked.iter().try_for_each(|signal| printer.line(&astray(signal)))?;
        printer.line(&format!("{examined} examined, {troubles} in trouble"))?;
    }
    Ok(if troubles > 0 { InspectOutcome::Trouble } else { InspectOutcome::Fine })
}

/// A parked signal, for people.
fn astray(signal: &ParkedSignal) -> String {
    let ParkedSignal { signal_id, event_shape, tenant, received_at, expires_at } = signal;
    let ago = in_words(Timestamp::now().duration_since(*received_at));
    let (way, whose) = match (event_shape, tenant) {
        (Some(_), _) => (" with an event".to_owned(), " with that pattern"),
        (None, Some(tenant)) => (format!(" with a key of tenant `{tenant}`"), " there"),
        (None, None) => (String::new(), ""),
    };
    format!("signal `{signal_id}` came {ago} ago{way} and nobody waits for it{whose}; it is forgotten at {expires_at}")
}

fn unreadable(id: &InvocationId, error: &TurnError) -> Value {
    let remark = json!({ "finding": "unreadable", "trouble": true, "sentence": error.message });
    json!({ "invocation_id": id, "remarks": [remark] })
}

/// Diagnosis of the doctor, and with `repair` the outcomes of the remedies. One that moves the invocation is the last.
async fn treat(opened: &OpenedStore, diagnosis: Diagnosis, repair: bool) -> Value {
    let mut remarks = Vec::new();
    let mut found = diagnosis.remarks;
    found.sort_by_key(|remark| repair && moves(remark.finding));
    for remark in found {
        let mut told = json!({ "finding": remark.finding, "trouble": remark.finding.is_trouble(),
            "sentence": remark.sentence });
        if let Some(remedy) = remark.finding.remedy() {
            match repair {
                false => told["remedy"] = remedy.into(),
                true if registers(remark.finding) && !opened.registers() => {
                    told["not_repaired"] = LEFT_TO_THE_SWEEP.into();
                }
                true => match doctor::repair(&opened.harness, &opened.maintenance, &diagnosis.record, remark.finding)
                    .await
                {
                    Ok(done) => told["repaired"] = done.into(),
                    Err(error) => told["not_repaired"] = format!("{}: {}", error.category, error.message).into(),
                },
            }
        }
        remarks.push(told);
    }
    let paused = &diagnosis.record.paused;
    json!({ "invocation_id": paused.invocation_id, "graph": paused.graph, "generation": paused.generation,
        "status": print::status(&diagnosis.record), "remarks": remarks })
}

/// True if the remedy needs a scheduler or an event bus.
fn registers(finding: Finding) -> bool {
    matches!(finding, Finding::Unregistered | Finding::RuleMissing)
}

fn moves(finding: Finding) -> bool {
    matches!(finding, Finding::ClaimExpired | Finding::ClaimStuck | Finding::Overdue | Finding::SignalParked)
}

/// True if something is wrong, and not repaired.
fn is_trouble(report: &Value) -> bool {
    let remarks = report["remarks"].as_array();
    remarks.is_some_and(|remarks| remarks.iter().any(|told| told["trouble"] == true && told["repaired"].is_null()))
}
