//! `dormouse keys`: makes, lists and revokes API keys, in the store itself.

use std::io;
use std::process::ExitCode;

use clap::Subcommand;
use dormouse_api::keys::{Grant, KeyInfo, KeyToken, Rotation};
use dormouse_api::{Agents, Keys};
use dormouse_local::EmbeddedError;
use dormouse_local::keys::{KeyError, TENANT, generate, keep};
use dormouse_ports::{CommitError, Commits, StoreError};
use dormouse_protocol::Scope;
use dormouse_protocol::id::{QuotaId, WorkspaceId};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::inspect::{Printer, moment};
use crate::target::{Purpose, StoreTarget, TargetError};

/// Number of keys that are listed at once.
const PAGE: usize = 100;
/// Number of attempts at replacing a key that others change at the same time.
const ATTEMPTS: u32 = 3;
/// Time after which a key or its predecessor can end at most; for one that shall not end there is `--never-expires`.
const LONGEST: SignedDuration = SignedDuration::from_hours(36_500 * 24);

/// Commands for keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print it: it is shown this once, and only its hash is kept.
    #[command(
        after_help = "Examples:\n  dormouse keys create --actor ci --scope tasks:write --scope tasks:read --expires-in 30d\n  \
        dormouse keys create --actor grace --all-scopes --never-expires --workspace workspace_01J… --table dormouse\n\n\
        JSON: {\"key\", \"id\", \"created_at\", \"actor\", \"tenant\", \"workspaces\", \"scopes\", \"expires_at\", \"last_used_at\"}\n\
        Exit code 4: there is no such quota or workspace."
    )]
    Create(Create),
    /// Replace a key: make one with the same rights, and refuse the old one after a while, in one step.
    #[command(after_help = "Example:\n  dormouse keys rotate 0123456789abcdef --grace 24h\n\n\
        JSON: as of create, and \"replaced\", \"replaced_until\"\nExit code 4: there is no such key.")]
    Rotate(Rotate),
    /// List the keys, without what is secret of them.
    #[command(
        after_help = "JSON: {\"keys\": [{\"id\", \"created_at\", \"actor\", \"tenant\", \"workspaces\", \"scopes\", \
        \"expires_at\", \"last_used_at\"}], \"next\"}\nThe last use is told to the hour."
    )]
    List(ListKeysArgs),
    /// Refuse a key from now on; streams and sockets that it opened end within two minutes.
    #[command(after_help = "JSON: {\"revoked\"}\nExit code 4: there is no such key.")]
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// The name that resources and events give the holder of the key.
    #[arg(long, value_name = "NAME", value_parser = name)]
    actor: String,
    /// Tenant that owns all resources that it can see at all.
    #[arg(long, default_value = TENANT, value_name = "NAME", value_parser = name)]
    tenant: String,
    /// Only this workspace; may be given again. All of the tenant's without it.
    #[arg(long, value_name = "WORKSPACE_ID")]
    workspace: Vec<String>,
    /// Scope that it has, `tasks:read` for example; may be given again.
    #[arg(long, value_name = "SCOPE", value_parser = scope, required_unless_present = "all_scopes")]
    scope: Vec<Scope>,
    /// It may do everything within its tenant. `operations:read` and `operations:write`, over all that sleeps in the
    /// deployment, are given by name.
    #[arg(long)]
    all_scopes: bool,
    /// The quota that tasks of its holder count against.
    #[arg(long, value_name = "QUOTA_ID")]
    quota: Option<String>,
    /// After which time it is refused, `30d` or `12h` for example.
    #[arg(long, value_name = "DURATION", value_parser = duration, required_unless_present = "never_expires")]
    expires_in: Option<SignedDuration>,
    /// It is good until it is revoked.
    #[arg(long, conflicts_with = "expires_in")]
    never_expires: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Rotate {
    /// Key: the digits behind `dm_`, as `list` shows them; of one that is given whole these are taken.
    #[arg(value_name = "KEY_ID")]
    id: String,
    /// For how long the old key is still taken, `24h` for example.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: SignedDuration,
    /// After which time the new key is refused; when the old one would have been without it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires_in: Option<SignedDuration>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListKeysArgs {
    /// The id of the key behind which the list goes on.
    #[arg(long, value_name = "KEY_ID")]
    after: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Revoke {
    /// Key: the digits behind `dm_`, as `list` shows them; of one that is given whole these are taken.
    #[arg(value_name = "KEY_ID")]
    id: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: StoreTarget,
}

/// Reason for which a command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error("there is no key {0}: `dormouse keys list` shows those that there are")]
    NoKey(String),
    #[error(
        "the key {by} takes the place of {key} already: replace that one, or make another with `dormouse keys create`"
    )]
    Replaced { key: String, by: String },
    #[error(
        "there is no quota {quota} of the tenant {tenant}: GET /v1/quotas lists those that there are, POST /v1/quotas makes one"
    )]
    NoQuota { quota: QuotaId, tenant: String },
    #[error(
        "there is no workspace {workspace} of the tenant {tenant}: GET /v1/workspaces lists those that there are, POST /v1/workspaces makes one"
    )]
    NoWorkspace { workspace: WorkspaceId, tenant: String },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl KeysError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::NoKey(_) | Self::NoQuota { .. } | Self::NoWorkspace { .. } => ExitCode::from(4),
            Self::Replaced { .. }
            | Self::Target(_)
            | Self::Store(_)
            | Self::Key(_)
            | Self::Embedded(_)
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `ask`.
pub(crate) async fn keys(ask: KeysCommand, agents: &Agents) -> Result<(), KeysError> {
    match ask {
        KeysCommand::Create(ask) => create(ask, agents).await,
        KeysCommand::Rotate(ask) => rotate(ask, agents).await,
        KeysCommand::List(ask) => list(ask, agents).await,
        KeysCommand::Revoke(ask) => revoke(ask, agents).await,
    }
}

async fn create(ask: Create, agents: &Agents) -> Result<(), KeysError> {
    let now = Timestamp::now();
    let all = Scope::of_tenant().filter(|_| ask.all_scopes);
    let grant = Grant {
        actor: ask.actor,
        tenant: ask.tenant,
        workspaces: (!ask.workspace.is_empty()).then(|| ask.workspace.into_iter().map(Into::into).collect()),
        scopes: ask.scope.into_iter().chain(all).collect(),
        expires_at: ask.expires_in.map(|duration| now + duration),
    };
    let token = generate()?;
    let opened = ask.target.open(agents, Purpose::Change).await?;
    let quota_id = ask.quota.map(QuotaId::from);
    let kept = make(opened.store(), &Keys::new(opened.records()), (&token, &grant, quota_id.as_ref()), now).await;
    opened.close().await?;
    kept?;
    let mut told = json!(KeyInfo { id: token.id().to_owned(), created_at: now, last_used_at: None, quota_id, grant });
    told["key"] = token.reveal().into();
    Ok(Printer::new(ask.json).fields(&told)?)
}

async fn make(
    store: &dyn Commits,
    keys: &Keys,
    (token, grant, quota): (&KeyToken, &Grant, Option<&QuotaId>),
    now: Timestamp,
) -> Result<(), KeysError> {
    if let Some(quota) = quota
        && !keys.has_quota(&grant.tenant, quota, now).await?
    {
        return Err(KeysError::NoQuota { quota: quota.clone(), tenant: grant.tenant.clone() });
    }
    for workspace in grant.workspaces.iter().flatten() {
        if !keys.has_workspace(&grant.tenant, workspace, now).await? {
            return Err(KeysError::NoWorkspace { workspace: workspace.clone(), tenant: grant.tenant.clone() });
        }
    }
    Ok(keep(store, Keys::creation_limited(token, grant.clone(), quota.cloned(), now), now).await?)
}

async fn rotate(ask: Rotate, agents: &Agents) -> Result<(), KeysError> {
    let now = Timestamp::now();
    let token = generate()?;
    let opened = ask.target.open(agents, Purpose::Change).await?;
    let keys = Keys::new(opened.records());
    let old_until = now + ask.grace;
    let expires_at = ask.expires_in.map(|duration| now + duration);
    let id = id_of(&ask.id);
    let rotated = replace(opened.store(), &keys, (id, &token), (expires_at, old_until, now)).await;
    opened.close().await?;
    let (info, old_until) = rotated?;
    let mut told = json!(info);
    told["key"] = token.reveal().into();
    told["replaced"] = id.into();
    told["replaced_until"] = old_until.to_string().into();
    Ok(Printer::new(ask.json).fields(&told)?)
}

/// Puts `token` in the place of the key `id`, and tells when that one ends. Where others replaced or revoked it at the same
/// time, it is told by which key, or that it is gone.
async fn replace(
    store: &dyn Commits,
    keys: &Keys,
    (id, token): (&str, &KeyToken),
    (expires_at, old_until, now): (Option<Timestamp>, Timestamp, Timestamp),
) -> Result<(KeyInfo, Timestamp), KeysError> {
    let mut attempt = 1;
    loop {
        match keys.rotation(id, token, expires_at, (old_until, now)).await? {
            Rotation::NoKey => return Err(KeysError::NoKey(id.to_owned())),
            Rotation::Replaced(by) => return Err(KeysError::Replaced { key: id.to_owned(), by }),
            Rotation::Made(journal, info, until) => match keep(store, *journal, now).await {
                Ok(()) => return Ok((*info, until)),
                Err(KeyError::Commit(CommitError::Journal(_))) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            },
        }
    }
}

async fn list(ask: ListKeysArgs, agents: &Agents) -> Result<(), KeysError> {
    let opened = ask.target.open(agents, Purpose::Look).await?;
    let page = Keys::new(opened.records()).list(ask.after, PAGE, Timestamp::now()).await;
    opened.close().await?;
    let page = page?;
    let printer = Printer::new(ask.json);
    if ask.json {
        return Ok(printer.json(&json!({ "keys": page.items, "next": page.next }))?);
    }
    if page.items.is_empty() {
        printer.line("there are no keys")?;
        return Ok(());
    }
    let head = ["KEY", "ACTOR", "TENANT", "WORKSPACES", "CREATED", "EXPIRES", "USED", "SCOPES"];
    printer.table(head, &page.items.iter().map(cells).collect::<Vec<_>>())?;
    match page.next {
        Some(next) => Ok(printer.line(&format!("more follows: --after {next}"))?),
        None => Ok(()),
    }
}

fn cells(key: &KeyInfo) -> [String; 8] {
    let grant = &key.grant;
    let workspaces = grant.workspaces.iter().flatten().map(WorkspaceId::as_str).collect::<Vec<_>>().join(" ");
    let scopes = grant.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ");
    let beyond = grant.scopes.iter().filter(|scope| scope.is_of_operators()).map(|scope| scope.as_str());
    let all = ["all"].into_iter().chain(beyond).collect::<Vec<_>>().join(" ");
    [
        key.id.clone(),
        grant.actor.clone(),
        grant.tenant.clone(),
        if grant.workspaces.is_some() { workspaces } else { "all".to_owned() },
        moment(key.created_at),
        grant.expires_at.map_or_else(|| "never".to_owned(), moment),
        key.last_used_at.map_or_else(|| "never".to_owned(), moment),
        if Scope::of_tenant().all(|scope| grant.scopes.contains(&scope)) { all } else { scopes },
    ]
}

async fn revoke(ask: Revoke, agents: &Agents) -> Result<(), KeysError> {
    let now = Timestamp::now();
    let id = id_of(&ask.id);
    let opened = ask.target.open(agents, Purpose::Change).await?;
    let revoked = take_away(opened.store(), &Keys::new(opened.records()), id, now).await;
    opened.close().await?;
    if !revoked? {
        return Err(KeysError::NoKey(id.to_owned()));
    }
    Ok(Printer::new(ask.json).fields(&json!({ "revoked": id }))?)
}

/// The id of the key that `text` is or names: who found a key somewhere has it whole.
fn id_of(text: &str) -> &str {
    let id = text.strip_prefix("dm_").unwrap_or(text);
    id.split_once('_').map_or(id, |(id, _)| id)
}

async fn take_away(store: &dyn Commits, keys: &Keys, id: &str, now: Timestamp) -> Result<bool, KeysError> {
    match keys.revocation(id, now).await? {
        Some(revocation) => Ok(keep(store, revocation, now).await.map(|()| true)?),
        None => Ok(false),
    }
}

fn name(text: &str) -> Result<String, String> {
    let refusal = || "expected 1 to 64 letters, digits, and - _ . @ +".to_owned();
    dormouse_api::keys::is_name(text).then(|| text.to_owned()).ok_or_else(refusal)
}

fn scope(word: &str) -> Result<Scope, String> {
    let known = || Scope::ALL.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ");
    Scope::parse(word).ok_or_else(|| format!("there are: {}", known()))
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let day = |days: &str| days.parse::<i64>().ok().and_then(|days| days.checked_mul(24));
    let duration = match text.strip_suffix('d').and_then(day) {
        Some(hours) => SignedDuration::try_from_hours(hours),
        None => text.parse().ok(),
    };
    // What is longer leads out of the calendar.
    let duration = duration.filter(|duration| duration.is_positive() && *duration <= LONGEST);
    duration.ok_or_else(|| "expected a duration of at most 36500d, 30d or 12h for example".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_days_too() {
        assert_eq!(duration("30d"), Ok(SignedDuration::from_hours(720)));
        assert_eq!(duration("12h"), Ok(SignedDuration::from_hours(12)));
        assert_eq!(duration("PT5M"), Ok(SignedDuration::from_mins(5)));
        assert_eq!(duration("36500d"), Ok(LONGEST));
        let beyond = ["36501d", "100000000d", "999999999999999d", "99999999999999999999d", "9999999999h"];
        for wrong in ["", "d", "0d", "-1d", "soon"].into_iter().chain(beyond) {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_found_by_its_id_and_by_all_of_it() {
        for text in ["a2f21faea3c823e8", "dm_a2f21faea3c823e8", "dm_a2f21faea3c823e8_f51cee38"] {
            assert_eq!(id_of(text), "a2f21faea3c823e8", "{text}");
        }
    }

    #[test]
    fn names_do_not_run_into_others() {
        for good in ["ci", "ada@example.com", "team-1_a.b+c"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for wrong in ["", "a/b", "a b", "\u{e9}", &"x".repeat(65)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
