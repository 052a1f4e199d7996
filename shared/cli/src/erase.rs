//! `dormouse erase`: forgets a session, a workspace or a tenant, and says what it removed.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use dormouse_agent::graph::sessions_asked_by;
use dormouse_api::{Agents, Erasure, Forgotten, Keys, shutting};
use dormouse_aws::{Belongings, EraseSearch, Erased, Eraser};
use dormouse_harness::TurnError;
use dormouse_local::EmbeddedError;
use dormouse_local::keys::{KeyError, keep};
use dormouse_ports::{Category, CommitError, Commits, DocumentKey, InvocationId, Journal, StoreError};
use futures::future::LocalBoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::inspect::Printer;
use crate::mirror::{Mirror, MirrorError};
use crate::target::{OpenedStore, Purpose, StoreTarget, TargetError};

/// Reason that canceled invocations are given.
const REASON: &str = "what it belongs to is erased";
/// Field of the number of states that do not say whose they are.
const OF_NO_TENANT: &str = "of_no_tenant";
/// Number of attempts at a write for which others are too fast.
const ATTEMPTS: usize = 50;
/// Number of rounds after which others are said to write to it all the time.
const ROUNDS: usize = 5;
/// Seconds in which every request has ended that was let in: the longest turn takes 900.
const LONGEST_REQUEST: u64 = 960;
/// Number of items of the table that are read at once, of which a page has a megabyte at most.
const ITEMS_A_PAGE: i32 = 1_000;
/// Number of keys that are read at once.
const KEYS_A_PAGE: usize = 100;

/// Commands that erase.
#[derive(Debug, Subcommand)]
pub(crate) enum EraseCommand {
    /// Erase a session, and the sessions that were forked of it or work for it; with --tenant one of /graphs and /chat.
    Session(SessionArgs),
    /// Erase a workspace with everything in it; also one that was deleted over /v1.
    Workspace(EraseArgs),
    /// Erase a tenant with everything that it has, its keys and its sessions of /graphs and /chat among it.
    Tenant(TenantArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TenantArgs {
    /// Seconds after which it looks again for what requests have written that were let in before the keys were closed. It does
    /// not wait where nobody else has the data folder, and need not where nothing serves the table: 0.
    #[arg(long, value_name = "SECONDS", default_value_t = LONGEST_REQUEST)]
    #[arg(value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
    #[command(flatten)]
    erase: EraseArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SessionArgs {
    /// The tenant of a session of /graphs or /chat, which ID is the name of: it goes for all of the tenant's actors that have
    /// one of that name. Without it, ID is that of a session of /v1, or of one that began without a key.
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    erase: EraseArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dormouse erase session session_01J… --dry-run\n  dormouse erase session support-7 --tenant acme --yes\n  \
    dormouse erase tenant acme --yes --table TABLE\n\n\
    JSON: {\"canceled\", \"documents\", \"events\", \"invocations\", \"session states\", \"rows\", \"blobs\"}, the number of each, \
    and \"mirrored\" rows where mirrors are named; with --dry-run {\"documents\": {KIND: number}, \"sessions\", \
    \"invocations\", \"would_cancel\"}, the two of /graphs and /chat alone. Of a tenant also \"counters\" of requests of its \
    keys, and \"of_no_tenant\": sessions and invocations that name no tenant\n\
    Reads the whole table at least four times, with --dry-run once; of a tenant six times, the last two after --wait. \
    Exit code 4: there is no such thing."
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
    #[error("a key of the tenant cannot be closed, and nothing was erased: {0}; run it again")]
    NotClosed(#[from] KeyError),
    #[error("{id} cannot be shut: {error}; run it again")]
    NotShut { id: String, error: KeyError },
    #[error("{id} cannot be ended: {reason}; run it again, it goes on from here")]
    NotEnded { id: InvocationId, reason: String },
    #[error("there is nothing of {0}")]
    Nothing(String),
    #[error(
        "there is nothing that says it is of {name}; of_no_tenant: {count}, sessions and invocations that do not say whose \
         they are; `dormouse erase session NAME` takes one"
    )]
    NothingNamed { name: String, count: usize },
    #[error("there is no session {0}; one that began with a key of a tenant is found with --tenant")]
    NoSession(String),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(
        "others go on writing to it: end those who write, and run it again. Keys of a tenant are closed already; revoke none \
         before: by them sessions of earlier versions are found"
    )]
    Busy,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl EraseError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Nothing(_) | Self::NothingNamed { .. } | Self::NoSession(_) => ExitCode::from(4),
            Self::Target(_)
            | Self::Store(_)
            | Self::Embedded(_)
            | Self::NotClosed(_)
            | Self::NotShut { .. }
            | Self::NotEnded { .. }
            | Self::Mirror(_)
            | Self::Busy
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `ask`.
pub(crate) async fn erase(ask: EraseCommand, agents: &Agents) -> Result<(), EraseError> {
    let (erasure, ask, wait) = match ask {
        EraseCommand::Session(SessionArgs { tenant: None, erase }) if erase.id.starts_with("session_") => {
            (Erasure::Session(erase.id.as_str().into()), erase, 0)
        }
        EraseCommand::Session(SessionArgs { tenant, erase }) => {
            (Erasure::Conversation { name: erase.id.clone(), tenant }, erase, 0)
        }
        EraseCommand::Workspace(ask) => (Erasure::Workspace(ask.id.as_str().into()), ask, 0),
        EraseCommand::Tenant(TenantArgs { wait, erase }) => (Erasure::Tenant(erase.id.clone()), erase, wait),
    };
    let mirrors = ask.mirror.iter().map(|path| Mirror::existing(path)).collect::<Result<Vec<_>, _>>()?;
    let opened = ask.target.open_by(agents, Purpose::Change, ITEMS_A_PAGE).await?;
    let printer = Printer::new(ask.json);
    // Who has the folder for himself is the only one that writes.
    let wait = if opened.registers() { 0 } else { wait };
    let settled = (wait > 0).then(|| -> LocalBoxFuture<'_, ()> { Box::pin(settle(wait)) });
    let told = match ask.dry_run {
        true => looked(&opened, &erasure, &ask.id).await,
        false => erased(&opened, &erasure, &ask.id, &mirrors, settled).await,
    };
    opened.close().await?;
    let told = told?;
    printer.fields(&told)?;
    if !ask.json && told.get(OF_NO_TENANT).and_then(Value::as_u64) > Some(0) {
        printer.line(
            "of_no_tenant: sessions and invocations of /graphs and /chat that began without a key or token, or in an earlier \
             version, do not say whose they are and stay: while there are such, give the tenant's name to nobody else; \
             `dormouse erase session NAME` takes one",
        )?;
    }
    if !ask.json && !ask.dry_run {
        printer.line("what other history mirrors or a backup hold of it stays there until it is removed, too")?;
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
    let (sessions, invocations) = (forgotten.sessions.len(), forgotten.invocations.len());
    let told = json!({
        "documents": kinds, "sessions": sessions, "invocations": invocations, "would_cancel": forgotten.open.len()
    });
    Ok(with_nobodys(told, erasure, forgotten.nobodys))
}

/// `told` with the number of states that do not say whose they are, of a tenant.
fn with_nobodys(mut told: Value, erasure: &Erasure, count: usize) -> Value {
    if matches!(erasure, Erasure::Tenant(_)) {
        told[OF_NO_TENANT] = count.into();
    }
    told
}

/// Waits until every request has ended that was let in before.
async fn settle(wait: u64) {
    // A terminal that is gone shows no note.
    let _ = writeln!(
        io::stderr(),
        "note: what was there is erased, and the keys are refused; what requests write that were let in before is looked for in \
         {wait} seconds. Where this ends before, run it again then; with --wait 0 it does not wait"
    );
    tokio::time::sleep(Duration::from_secs(wait)).await;
}

/// Ends what runs or sleeps, and erases until nothing is left: neither what belongs to it nor a row that leads to that. Who
/// writes meanwhile may leave rows when everything else is gone. It looks once more when `settled` has completed.
async fn erased(
    opened: &OpenedStore,
    erasure: &Erasure,
    name: &str,
    mirrors: &[Mirror],
    mut settled: Option<LocalBoxFuture<'_, ()>>,
) -> Result<serde_json::Value, EraseError> {
    let eraser = opened.eraser();
    let mut sums = Erased::new();
    let (mut canceled, mut mirrored) = (0, 0);
    let mut nobodys = None;
    // Mirrors may still have what is not in the table any more.
    let (tenant, mut ids) = match erasure {
        Erasure::Tenant(name) => (Some(name.clone()), BTreeSet::new()),
        Erasure::Session(_) | Erasure::Workspace(_) => (None, BTreeSet::from([name.to_owned()])),
        Erasure::Conversation { .. } => (None, BTreeSet::new()),
    };
    let counters = erasure.counters();
    let mut all = Belongings { tenant, counters: counters.clone(), ..Belongings::default() };
    if let Erasure::Tenant(name) = erasure {
        close_keys(opened, name).await?;
    }
    let mut rounds = 0..ROUNDS;
    while rounds.next().is_some() {
        let (nothing, count) = match found(&eraser, erasure, name).await {
            Ok(forgotten) => {
                nobodys.get_or_insert(forgotten.nobodys);
                for key in &forgotten.documents {
                    shut(opened, key).await?;
                }
                for id in &forgotten.open {
                    canceled += u64::from(ended(opened, id).await?);
                }
                ids.extend(forgotten.owners.iter().cloned());
                ids.extend(forgotten.documents.iter().map(|document| document.id.clone()));
                // The table still tells of what is to go, if this dies in between.
                mirrored += forget(mirrors, &ids)?;
                let Forgotten { documents, owners, sessions, invocations, tenant, .. } = forgotten;
                let counters = counters.clone();
                let belongings = Belongings { documents, owners, sessions, invocations, tenant, counters };
                add(&mut sums, eraser.erase(&belongings).await?);
                all.owners.extend(belongings.owners);
                all.sessions.extend(belongings.sessions);
                all.invocations.extend(belongings.invocations);
                continue;
            }
            Err(error @ EraseError::NothingNamed { count, .. }) => (error, count),
            Err(error @ (EraseError::Nothing(_) | EraseError::NoSession(_))) => (error, 0),
            Err(error) => return Err(error),
        };
        let left = if sums.is_empty() && all.tenant.is_none() { Erased::new() } else { eraser.erase(&all).await? };
        let is_clean = left.values().all(|count| *count == 0);
        add(&mut sums, left);
        if !is_clean {
            continue;
        }
        // Whoever follows may have read the end of it meanwhile.
        mirrored += forget(mirrors, &ids)?;
        if mirrored == 0 && sums.values().all(|count| *count == 0) {
            return Err(nothing);
        }
        if let Some(settled) = settled.take() {
            settled.await;
            rounds = 0..ROUNDS;
            continue;
        }
        let mut told = json!(sums);
        told["canceled"] = canceled.into();
        if !mirrors.is_empty() {
            told["mirrored"] = mirrored.into();
        }
        return Ok(with_nobodys(told, erasure, nobodys.unwrap_or(count)));
    }
    Err(EraseError::Busy)
}

/// Closes the keys of `tenant`, so that nobody writes by them what was erased just now. They are not revoked: by them are
/// found sessions of earlier versions, also when this has to be run again.
async fn close_keys(opened: &OpenedStore, tenant: &str) -> Result<(), EraseError> {
    let keys = Keys::new(opened.records());
    let mut after = None;
    loop {
        let page = keys.list(after, KEYS_A_PAGE, Timestamp::now()).await?;
        for key in page.items.iter().filter(|key| key.grant.tenant == tenant) {
            close_key(opened.store(), &keys, &key.id).await?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Sees to it that nobody can bring anything new to the session or workspace `key`.
async fn shut(opened: &OpenedStore, key: &DocumentKey) -> Result<(), EraseError> {
    let records = opened.records();
    let written = written(opened.store(), ATTEMPTS, async |now| shutting(&*records, key, now).await);
    written.await?.map_err(|error| EraseError::NotShut { id: key.id.clone(), error })
}

/// Closes the key `id`. Others may replace or revoke it meanwhile.
async fn close_key(store: &dyn Commits, keys: &Keys, id: &str) -> Result<(), EraseError> {
    Ok(written(store, ROUNDS, async |now| keys.closing(id, now).await).await??)
}

/// Commits the journal that `made` makes of what there is now, if it makes one; again where others were faster, so many times.
async fn written(
    store: &dyn Commits,
    attempts: usize,
    made: impl AsyncFn(Timestamp) -> Result<Option<Journal>, StoreError>,
) -> Result<Result<(), KeyError>, EraseError> {
    for _ in 0..attempts {
        let now = Timestamp::now();
        let Some(journal) = made(now).await? else { return Ok(Ok(())) };
        match keep(store, journal, now).await {
            Err(KeyError::Commit(CommitError::Journal(_))) => {}
            other => return Ok(other),
        }
    }
    Err(EraseError::Busy)
}

fn add(sums: &mut Erased, counts: Erased) {
    counts.into_iter().for_each(|(what, count)| *sums.entry(what).or_default() += count);
}

/// Removes from `mirrors` what they hold of `ids`; the number of rows.
fn forget(mirrors: &[Mirror], ids: &BTreeSet<String>) -> Result<usize, MirrorError> {
    mirrors.iter().map(|mirror| mirror.forget(ids)).sum()
}

/// What there is to erase.
async fn found(eraser: &Eraser, erasure: &Erasure, name: &str) -> Result<Forgotten, EraseError> {
    let search = EraseSearch {
        documents: &|document| erasure.may_take(document),
        states: &|state| erasure.may_take_state(state),
        by_session: erasure.is_by_session(),
    };
    let (documents, states) = eraser.find(&search).await?;
    let forgotten = erasure.forgotten(&documents, &states, sessions_asked_by);
    if !forgotten.is_empty(&documents) {
        return Ok(forgotten);
    }
    Err(nothing_of(erasure, name, forgotten.nobodys))
}

/// Tells that there is nothing to erase, and of how many states it is not said whose they are.
fn nothing_of(erasure: &Erasure, name: &str, nobodys: usize) -> EraseError {
    let name = name.to_owned();
    match erasure {
        Erasure::Conversation { tenant: None, .. } => EraseError::NoSession(name),
        Erasure::Tenant(_) if nobodys > 0 => EraseError::NothingNamed { name, count: nobodys },
        Erasure::Session(_) | Erasure::Workspace(_) | Erasure::Tenant(_) | Erasure::Conversation { .. } => {
            EraseError::Nothing(name)
        }
    }
}

/// Ends the invocation `id`, if it has not ended; whether it did that.
async fn ended(opened: &OpenedStore, id: &InvocationId) -> Result<bool, EraseError> {
    match opened.harness.cancel(id, None, Some(REASON.to_owned())).await {
        Ok(_) => Ok(true),
        Err(TurnError { category: Category::SuspensionRecordInvalid | Category::NotFound, .. }) => Ok(false),
        Err(error) => Err(EraseError::NotEnded { id: id.clone(), reason: error.message }),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_api::keys::Grant;
    use dormouse_aws::ensure_table;
    use dormouse_engine::{END, GraphBuilder, State, StateSchema, Update};
    use dormouse_local::keys::generate;
    use dormouse_local::{EmbeddedDynamoDb, StoreLocation, TABLE};
    use dormouse_ports::{DocumentWrite, Map};
    use futures::FutureExt;

    use super::*;

    /// A document of the tenant `acme`.
    fn memory(id: &str) -> DocumentKey {
        DocumentKey::new("memory", id)
    }

    async fn write(opened: &OpenedStore, id: &str) {
        let body = Map::from_iter([("tenant".to_owned(), json!("acme"))]);
        let write =
            DocumentWrite { key: memory(id), expect: 0, body: Some(body), listed: Vec::new(), expires_at: None };
        let journal = Journal::new(vec![write], Vec::new());
        keep(opened.store(), journal, Timestamp::now()).await.expect("it is written");
    }

    async fn is_there(opened: &OpenedStore, id: &str) -> bool {
        opened.records().document(&memory(id), Timestamp::now()).await.expect("an answer").is_some()
    }

    #[tokio::test]
    async fn what_a_request_writes_that_was_let_in_before_is_erased_with_its_tenant() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = EmbeddedDynamoDb::start(&StoreLocation::Folder(folder.path().to_owned())).await.expect("a store");
        ensure_table(&made.client(), TABLE).await.expect("a table");
        made.stop().await.expect("it stops");
        let target = StoreTarget::folder(folder.path().to_owned());
        let agents = Agents::new().graph(|_| {
            let node = async |_: State| Ok(Update::none());
            GraphBuilder::new("idle", StateSchema::new())
                .function("rest", node)
                .entry("rest")
                .edge("rest", END)
                .compile()
        });
        let opened = target.open_by(&agents, Purpose::Change, ITEMS_A_PAGE).await.expect("it opens");

        let token = generate().expect("chance");
        let grant = Grant {
            actor: "ada".to_owned(),
            tenant: "acme".to_owned(),
            workspaces: None,
            scopes: BTreeSet::new(),
            expires_at: None,
        };
        let now = Timestamp::now();
        keep(opened.store(), Keys::creation(&token, grant, now), now).await.expect("a key");
        write(&opened, "before").await;
        let header = format!("Bearer {}", token.reveal());
        let late = async {
            let holder = Keys::new(opened.records()).holder(Some(&header), Timestamp::now()).await;
            assert!(holder.expect("an answer").is_none(), "the key is refused");
            assert!(!is_there(&opened, "before").await, "what was there is gone before anybody waits");
            write(&opened, "late").await;
        };
        let acme = Erasure::Tenant("acme".to_owned());
        let told = erased(&opened, &acme, "acme", &[], Some(late.boxed_local())).await.expect("it is erased");
        assert!(!is_there(&opened, "late").await, "{told}");
        let waits = write(&opened, "later").boxed_local();
        let nothing = erased(&opened, &acme, "acme", &[], Some(waits)).await;
        assert!(matches!(nothing, Err(EraseError::Nothing(_))), "{nothing:?}");
        assert!(!is_there(&opened, "later").await, "where there is nothing, nobody waits");
        opened.close().await.expect("it closes");
    }

    #[test]
    fn who_finds_nothing_is_told_of_what_names_no_tenant() {
        let acme = Erasure::Tenant("acme".to_owned());
        assert_eq!(nothing_of(&acme, "acme", 0).to_string(), "there is nothing of acme");
        let told = nothing_of(&acme, "acme", 3);
        assert!(told.to_string().contains("of_no_tenant: 3"), "{told}");
        assert_eq!(format!("{:?}", told.exit_code()), format!("{:?}", ExitCode::from(4)));
    }
}
