//! `dormouse audit`: who did what over HTTP, out of the store itself.

use std::io;

use dormouse_api::{Agents, AuditEntry, AuditQuery, audit_page};
use dormouse_local::EmbeddedError;
use dormouse_ports::{Records, StoreError};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::inspect::{Printer, moment};
use crate::target::{Purpose, StoreTarget, TargetError};

/// Number of entries that are read at once.
const PAGE: usize = 200;

/// Shows who did what. It is kept where `DORMOUSE_AUDIT_DAYS` says for how long.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse audit --since 24h\n  dormouse audit --tenant acme --json > acme.jsonl\n\n\
    JSON: one entry a line: {\"at\", \"name\", \"tenant\", \"proof\", \"credential\", \"action\", \"thing\", \"request_id\", \
    \"outcome\", \"status\"}"
)]
pub(crate) struct AuditArgs {
    /// Only what was done by callers of this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only what this actor did.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only what was done since an instant (`2027-01-31T09:00:00Z`), or as long ago as `24h` at most.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<Timestamp>,
    /// Only what was done before an instant, or longer ago than `24h`.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<Timestamp>,
    /// Print one JSON document a line, for other programs.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

/// Reason for which the command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Executes `ask`.
pub(crate) async fn audit(ask: AuditArgs, agents: &Agents) -> Result<(), AuditError> {
    let opened = ask.target.open(agents, Purpose::Look).await?;
    let printer = Printer::new(ask.json);
    let query = AuditQuery {
        tenant: ask.tenant,
        actor: ask.actor,
        since: ask.since,
        until: ask.until,
        after: None,
        limit: PAGE,
    };
    let records = opened.records();
    let told = tell(&*records, query, &printer, ask.json).await;
    drop(records);
    opened.close().await?;
    told
}

async fn tell(records: &dyn Records, mut query: AuditQuery, printer: &Printer, json: bool) -> Result<(), AuditError> {
    let mut count = 0;
    loop {
        let page = audit_page(records, &query, Timestamp::now()).await?;
        count += page.items.len();
        for entry in &page.items {
            if json { printer.json_line(&json!(entry))? } else { printer.line(&line(entry))? }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None if count == 0 && !json => {
                return Ok(printer.line("nothing is noted; DORMOUSE_AUDIT_DAYS makes a server note who does what")?);
            }
            None => return Ok(()),
        }
    }
}

fn line(entry: &AuditEntry) -> String {
    let principal = &entry.principal;
    let who = match (&principal.tenant, &principal.name) {
        (Some(tenant), Some(name)) => format!("{tenant}/{name}"),
        (None, Some(name)) => name.clone(),
        (Some(_) | None, None) => json!(principal.proof).as_str().unwrap_or_default().to_owned(),
    };
    let status = entry.status.map(|status| format!(" {status}")).unwrap_or_default();
    format!("{}  {who}  {}  {}  {}{status}", moment(entry.at), entry.action, entry.thing, entry.outcome)
}

fn when(text: &str) -> Result<Timestamp, String> {
    let ago = || text.parse::<SignedDuration>().ok().and_then(|ago| Timestamp::now().checked_sub(ago).ok());
    let refusal = || "expected an instant (2027-01-31T09:00:00Z) or a duration (24h)".to_owned();
    text.parse().ok().or_else(ago).ok_or_else(refusal)
}
