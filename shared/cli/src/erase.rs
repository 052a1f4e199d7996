//! `dormouse erase`: forgets a session, a workspace or a tenant, and says what it removed.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use dormouse_api::{Agents, Erasure, Forgotten};
use dormouse_aws::{Belongings, Erased, Eraser};
use dormouse_harness::TurnError;
use dormouse_local::EmbeddedError;
use dormouse_ports::{Category, InvocationId, StoreError};
use serde_json::json;

use crate::inspect::Printer;
use crate::mirror::{Mirror, MirrorError};
use crate::target::{OpenedStore, Purpose, StoreTarget, TargetError};

/// Reason that canceled invocations are given.
const REASON: &str = "what it belongs to is erased";
/// Number of rounds after which others are said to write to it all the time.
const ROUNDS: usize = 5;

/// Commands that erase.
#[derive(Debug, Subcommand)]
pub(crate) enum EraseCommand {
    /// Erase a session, and the sessions that were forked of it or work for it.
    Session(EraseArgs),
    /// Erase a workspace with everything in it; also one that was deleted over /v1.
    Workspace(EraseArgs),
    /// Erase a tenant with everything that it has under /v1, its keys among it.
    Tenant(EraseArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse erase session session_01J… --dry-run\n  dormouse erase tenant acme --yes --table TABLE\n\n\
    JSON: {\"canceled\", \"documents\", \"events\", \"invocations\", \"session states\", \"rows\", \"blobs\"}, the number of each, \
    and \"mirrored\" rows where mirrors are named; with --dry-run {\"documents\": {KIND: number}, \"would_cancel\"}\n\
    Reads the whole table twice or more. Exit code 4: there is no such thing."
)]
pub(crate) struct EraseArgs {
    /// Id of the session or workspace, or name of the tenant.
    #[arg(value_name = "ID")]
    id: String,
    /// Only tell what would be erased.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Erase it. There is no way back but a restored table.
    #[arg(long, required_unless_present = "dry_run")]
    yes: bool,
    /// A history mirror from which it goes too; may be named several times.
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    mirror: Vec<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

/// Reason for which the command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EraseError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error("{id} cannot be ended, and nothing was erased: {reason}; run it again")]
    NotEnded { id: InvocationId, reason: String },
    #[error("there is nothing of {0}")]
    Nothing(String),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error("others go on writing to it: close it, revoke the keys, and run it again")]
    Busy,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl EraseError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Nothing(_) => ExitCode::from(4),
            Self::Target(_)
            | Self::Store(_)
            | Self::Embedded(_)
            | Self::NotEnded { .. }
            | Self::Mirror(_)
            | Self::Busy
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `ask`.
pub(crate) async fn erase(ask: EraseCommand, agents: &Agents) -> Result<(), EraseError> {
    let (erasure, ask) = match ask {
        EraseCommand::Session(ask) => (Erasure::Session(ask.id.as_str().into()), ask),
        EraseCommand::Workspace(ask) => (Erasure::Workspace(ask.id.as_str().into()), ask),
        EraseCommand::Tenant(ask) => (Erasure::Tenant(ask.id.clone()), ask),
    };
    let mirrors = ask.mirror.iter().map(|path| Mirror::existing(path)).collect::<Result<Vec<_>, _>>()?;
    let opened = ask.target.open(agents, Purpose::Change, 1).await?;
    let printer = Printer::new(ask.json);
    let told = match ask.dry_run {
        true => looked(&opened, &erasure, &ask.id).await,
        false => erased(&opened, &erasure, &ask.id, &mirrors).await,
    };
    opened.close().await?;
    printer.fields(&told?)?;
    if !ask.json && !ask.dry_run {
        printer.line("what other history mirrors or a backup hold of it stays there until it is removed, too")?;
        if matches!(erasure, Erasure::Tenant(_)) {
            printer.line("sessions of /graphs and /chat, which know no tenant, stay: give its name to nobody else")?;
        }
    }
    Ok(())
}

/// Report of what would be erased.
async fn looked(opened: &OpenedStore, erasure: &Erasure, name: &str) -> Result<serde_json::Value, EraseError> {
    let forgotten = found(&opened.eraser(), erasure, name).await?;
    let mut kinds = std::collections::BTreeMap::<&str, u64>::new();
    for document in &forgotten.documents {
        *kinds.entry(&document.kind).or_default() += 1;
    }
    Ok(json!({ "documents": kinds, "would_cancel": forgotten.open.len() }))
}

/// Ends what runs or sleeps, and erases until nothing is left.
async fn erased(
    opened: &OpenedStore,
    erasure: &Erasure,
    name: &str,
    mirrors: &[Mirror],
) -> Result<serde_json::Value, EraseError> {
    let mut sums = Erased::new();
    let (mut canceled, mut mirrored, mut ids) = (0, 0, BTreeSet::new());
    let mut forgotten = found(&opened.eraser(), erasure, name).await?;
    for _ in 0..ROUNDS {
        for id in &forgotten.open {
            canceled += u64::from(ended(opened, id).await?);
        }
        ids.extend(forgotten.owners.iter().cloned());
        ids.extend(forgotten.documents.iter().map(|document| document.id.clone()));
        // The table still tells of what is to go, if this dies in between.
        mirrored += forget(mirrors, &ids)?;
        let Forgotten { documents, owners, tenant, .. } = forgotten;
        let counts = opened.eraser().erase(&Belongings { documents, owners, tenant }).await?;
        counts.into_iter().for_each(|(what, count)| *sums.entry(what).or_default() += count);
        forgotten = match found(&opened.eraser(), erasure, name).await {
            Ok(more) => more,
            Err(EraseError::Nothing(_)) => {
                let mut told = json!(sums);
                told["canceled"] = canceled.into();
                if !mirrors.is_empty() {
                    // Whoever follows may have read the end of it meanwhile.
                    mirrored += forget(mirrors, &ids)?;
                    told["mirrored"] = mirrored.into();
                }
                return Ok(told);
            }
            Err(error) => return Err(error),
        };
    }
    Err(EraseError::Busy)
}

/// Removes from `mirrors` what they hold of `ids`; the number of rows.
fn forget(mirrors: &[Mirror], ids: &BTreeSet<String>) -> Result<usize, MirrorError> {
    mirrors.iter().map(|mirror| mirror.forget(ids)).sum()
}

/// What there is to erase.
async fn found(eraser: &Eraser, erasure: &Erasure, name: &str) -> Result<Forgotten, EraseError> {
    let documents = eraser.documents_where(&|document| erasure.may_take(document)).await?;
    let forgotten = erasure.forgotten(&documents);
    let is_there = documents.iter().any(|document| forgotten.documents.contains(&document.key));
    if is_there { Ok(forgotten) } else { Err(EraseError::Nothing(name.to_owned())) }
}

/// Ends the invocation `id`, if it has not ended; whether it did that.
async fn ended(opened: &OpenedStore, id: &InvocationId) -> Result<bool, EraseError> {
    match opened.harness.cancel(id, None, Some(REASON.to_owned())).await {
        Ok(_) => Ok(true),
        Err(TurnError { category: Category::SuspensionRecordInvalid | Category::NotFound, .. }) => Ok(false),
        Err(error) => Err(EraseError::NotEnded { id: id.clone(), reason: error.message }),
    }
}
