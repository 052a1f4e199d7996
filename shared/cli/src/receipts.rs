//! Receipts: taken from a server, verified without one, and the key that signs them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use dormouse_http::percent::encode;
use dormouse_local::RECEIPT_RING;
use dormouse_ports::SignerError;
use dormouse_receipts::chain::Report;
use dormouse_receipts::{Export, ExportError, KeyRing, Keys, KmsRing, PublicKey, Ring, limits};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::talk::{Client, ServerArgs, TalkError};
use crate::target::{TargetError, access, kms_key, tell_of_workspace, usual_data};
use crate::terminal::{self, plain};

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptsCommand {
    /// List the receipts of a task, the newest first.
    List(ListReceiptsArgs),
    /// Write all receipts of a session, with the public keys of the server, one JSON object in each line.
    Export(ExportArgs),
    /// Verify receipts without a server: each by itself, and that none is missing, moved or in the place of another.
    ///
    /// Without --anchor the keys of the file itself count: that proves that its receipts fit together, and not who signed
    /// them. Ends with 3 if anything is wrong.
    Verify(VerifyArgs),
    /// Make a new key that signs from the next start of `dormouse dev` on. What the one before signed stays valid.
    Rotate(RotateArgs),
    /// Revoke a former key: nothing that it signed is to be believed from now on.
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListReceiptsArgs {
    /// The task.
    #[arg(value_name = "TASK_ID")]
    task: String,
    /// Print one JSON object in each line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The session.
    #[arg(long, value_name = "SESSION_ID")]
    session: String,
    /// File that is written; the standard output without it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Files of receipts, or folders of such files (`.json`, `.jsonl`), which are read one behind the other in the order of
    /// their names.
    #[arg(value_name = "FILE|FOLDER", required = true)]
    places: Vec<PathBuf>,
    /// A public key that is trusted (`base64:…`), or a file of public keys as `/v1/keys` gives them.
    #[arg(long, value_name = "KEY|FILE")]
    anchor: Vec<String>,
    /// Time at which the keys are to be believed, that of now without it.
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// The hash with which the chain of a session must end, as an earlier verification printed it.
    #[arg(long, value_name = "SESSION=HASH", value_parser = head)]
    head: Vec<(String, String)>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// Data folder of local mode. Where there is no `.dormouse`, it is that of the workspace in the current folder.
    #[arg(long, default_value_os_t = usual_data(), value_name = "FOLDER")]
    data: PathBuf,
    /// Let this key of AWS KMS sign, of the key spec ECC_NIST_EDWARDS25519. Only functions on AWS sign with such a key: the
    /// folder must be one that nobody serves, and may be empty. Credentials are read as with --table of other commands.
    #[arg(long, value_name = "ARN")]
    kms_key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The id of a key.
    #[arg(value_name = "KEY_ID")]
    key: String,
    /// Data folder of local mode. Where there is no `.dormouse`, it is that of the workspace in the current folder.
    #[arg(long, default_value_os_t = usual_data(), value_name = "FOLDER")]
    data: PathBuf,
}

fn head(text: &str) -> Result<(String, String), String> {
    let (session, hash) = text.split_once('=').ok_or("write it as SESSION_ID=sha256:…")?;
    Ok((session.to_owned(), hash.to_owned()))
}

/// Reason for which a command failed. Each message contains the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiptsError {
    #[error(transparent)]
    Talk(#[from] TalkError),
    #[error("{}: {error}", .place.display())]
    File { place: PathBuf, error: io::Error },
    #[error("{}: {error}", .place.display())]
    Export { place: PathBuf, error: ExportError },
    #[error("{0:?} is neither a public key (`base64:…`) nor a file of public keys as `/v1/keys` gives them")]
    Anchor(String),
    #[error("there is no file of receipts (`.json`, `.jsonl`) in {}", .0.display())]
    NoFile(PathBuf),
    #[error("there is no former key {0}; the one that signs has to be rotated first")]
    NoKey(String),
    #[error(
        "the key {0} was put in its place at the same time, and signs from the next start on: nothing was changed; \
         `dormouse receipts rotate` again replaces that one"
    )]
    Overtaken(String),
    #[error("the key {0} is revoked: nothing was changed; rotate to another one")]
    Revoked(String),
    #[error("{}: there are no keys that sign receipts", .0.display())]
    NoRing(PathBuf),
    #[error("{0:?} is no ARN of a key of AWS KMS: arn:aws:kms:REGION:ACCOUNT:key/ID")]
    NoArn(String),
    #[error(transparent)]
    Access(#[from] TargetError),
    #[error(transparent)]
    Kms(#[from] SignerError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ReceiptsError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Talk(error) => error.exit_code(),
            Self::NoKey(_) | Self::NoRing(_) | Self::NoFile(_) => ExitCode::from(4),
            Self::File { .. }
            | Self::Export { .. }
            | Self::Anchor(_)
            | Self::Overtaken(_)
            | Self::Revoked(_)
            | Self::NoArn(_)
            | Self::Access(_)
            | Self::Kms(_)
            | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `command`; false where receipts were found wrong.
pub(crate) async fn receipts(command: ReceiptsCommand) -> Result<bool, ReceiptsError> {
    match command {
        ReceiptsCommand::List(asked) => list(&asked).await.map(|()| true),
        ReceiptsCommand::Export(asked) => export(&asked).await.map(|()| true),
        ReceiptsCommand::Verify(asked) => verify(&asked),
        ReceiptsCommand::Rotate(asked) => rotate(&asked).await.map(|()| true),
        ReceiptsCommand::Revoke(asked) => revoke(&asked).map(|()| true),
    }
}

async fn list(asked: &ListReceiptsArgs) -> Result<(), ReceiptsError> {
    let client = Client::open(&asked.server)?;
    let mut out = io::stdout().lock();
    let mut pages = client.pages(&format!("/v1/tasks/{}/receipts", encode(&asked.task)), "cursor");
    while let Some(page) = pages.next().await? {
        for receipt in page {
            match asked.json {
                true => writeln!(out, "{}", terminal::json(&receipt, false))?,
                false => {
                    let text = |name: &str| plain(receipt[name].as_str().unwrap_or_default());
                    writeln!(out, "{}  {}  {}", text("issued_at"), text("id"), text("summary"))?;
                }
            }
        }
    }
    Ok(())
}

async fn export(asked: &ExportArgs) -> Result<(), ReceiptsError> {
    let client = Client::open(&asked.server)?;
    let keys: Value = client.read("/v1/keys").await?;
    let mut lines = vec![keys.to_string()];
    let mut pages = client.pages(&format!("/v1/sessions/{}/events", encode(&asked.session)), "after_event_id");
    while let Some(page) = pages.next().await? {
        let issued = page.iter().filter(|event| event["event"] == "receipt.issued");
        lines.extend(issued.map(|event| event["payload"]["receipt"].to_string()));
    }
    let count = lines.len() - 1;
    let text = lines.join("\n") + "\n";
    match &asked.out {
        Some(place) => {
            fs::write(place, text).map_err(|error| ReceiptsError::File { place: place.clone(), error })?;
            writeln!(io::stdout(), "{count} receipts of {} are in {}", asked.session, place.display())?;
        }
        None => io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn verify(asked: &VerifyArgs) -> Result<bool, ReceiptsError> {
    let anchors = asked.anchor.iter().map(|anchor| anchored(anchor)).collect::<Result<Vec<_>, _>>()?;
    let anchors: Keys = Keys::from(anchors.into_iter().flatten());
    let at = asked.at.unwrap_or_else(Timestamp::now);
    let heads: BTreeMap<String, String> = asked.head.iter().cloned().collect();
    let mut all = Vec::new();
    for place in &asked.places {
        let export = exported(place)?;
        let keys = if anchors.is_empty() { &export.keys } else { &anchors };
        all.push((place.clone(), export.receipts.len(), export.verify(keys, at).expecting(&heads)));
    }
    // A session whose receipts are all gone has no end that could be compared.
    let seen =
        |session: &str| all.iter().any(|(_, _, report)| report.chains.iter().any(|chain| chain.session_id == session));
    let missing: Vec<&String> = heads.keys().filter(|session| !seen(session)).collect();
    let sound = missing.is_empty() && all.iter().all(|(_, _, report)| report.is_sound());
    let mut out = io::stdout().lock();
    if asked.json {
        let files: Vec<Value> = all.iter().map(|(place, count, report)| as_json(place, *count, report)).collect();
        let told = json!({ "valid": sound, "anchored": !anchors.is_empty(), "missing": missing, "files": files });
        writeln!(out, "{}", terminal::json(&told, false))?;
        return Ok(sound);
    }
    for (place, count, report) in &all {
        print(&mut out, place, *count, report)?;
    }
    for session in missing {
        writeln!(out, "NOT VALID: there is no receipt of {session}, whose chain --head says to be there")?;
    }
    if anchors.is_empty() {
        writeln!(
            out,
            "no --anchor: the keys are those of the files themselves, which proves nothing about who signed"
        )?;
    }
    Ok(sound)
}

/// The keys that `anchor` is or holds.
fn anchored(anchor: &str) -> Result<Vec<PublicKey>, ReceiptsError> {
    if let Ok(key) = PublicKey::parse(anchor) {
        return Ok(vec![key]);
    }
    let wrong = || ReceiptsError::Anchor(anchor.to_owned());
    let text = read(Path::new(anchor)).map_err(|_| wrong())?;
    let mut value: Value = serde_json::from_slice(&text).map_err(|_| wrong())?;
    serde_json::from_value(value["data"].take()).map_err(|_| wrong())
}

/// The content of a file, unless it is larger than any of receipts.
fn read(place: &Path) -> Result<Vec<u8>, ReceiptsError> {
    let failed = |error| ReceiptsError::File { place: place.to_owned(), error };
    let bytes = usize::try_from(fs::metadata(place).map_err(failed)?.len()).unwrap_or(usize::MAX);
    if bytes > limits::FILE {
        return Err(ReceiptsError::Export { place: place.to_owned(), error: ExportError::TooLarge { bytes } });
    }
    fs::read(place).map_err(failed)
}

/// The receipts of the file `place`, or of all files of that folder.
fn exported(place: &Path) -> Result<Export, ReceiptsError> {
    let failed = |error| ReceiptsError::File { place: place.to_owned(), error };
    if !fs::metadata(place).map_err(failed)?.is_dir() {
        return parsed(place);
    }
    let entries = fs::read_dir(place).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let is_of_receipts = |path: &PathBuf| path.extension().is_some_and(|end| end == "json" || end == "jsonl");
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_of_receipts).collect();
    files.sort();
    let mut whole = Export::default();
    for file in &files {
        let Export { keys, receipts } = parsed(file)?;
        whole.keys = Keys::from(whole.keys.iter().chain(keys.iter()).cloned().collect::<Vec<_>>());
        whole.receipts.extend(receipts);
    }
    if whole.receipts.is_empty() { Err(ReceiptsError::NoFile(place.to_owned())) } else { Ok(whole) }
}

fn parsed(place: &Path) -> Result<Export, ReceiptsError> {
    Export::parse(&read(place)?).map_err(|error| ReceiptsError::Export { place: place.to_owned(), error })
}

/// Prints what came of the file `place`. Its ids are those of whoever wrote it, who may be a stranger that wants another
/// verdict to be seen.
fn print(out: &mut impl Write, place: &Path, count: usize, report: &Report) -> io::Result<()> {
    let verdict = if report.is_sound() { "valid" } else { "NOT VALID" };
    writeln!(out, "{}: {count} receipts, {verdict}", plain(&place.display().to_string()))?;
    for finding in &report.findings {
        let number = finding.position + 1;
        let told = format!("receipt {number} {}: {} ({})", finding.receipt_id, finding.flaw, finding.flaw.code());
        writeln!(out, "  {}", plain(&told))?;
    }
    for chain in &report.chains {
        let told = format!("{}: {} receipts up to {}", chain.session_id, chain.receipts, chain.head);
        writeln!(out, "  {}", plain(&told))?;
    }
    Ok(())
}

fn as_json(place: &Path, count: usize, report: &Report) -> Value {
    let findings = report.findings.iter().map(|finding| {
        json!({
            "receipt": finding.position + 1,
            "receipt_id": finding.receipt_id,
            "code": finding.flaw.code(),
            "reason": finding.flaw.to_string(),
        })
    });
    let chains = report
        .chains
        .iter()
        .map(|chain| json!({ "session_id": chain.session_id, "receipts": chain.receipts, "head": chain.head }));
    json!({
        "file": place.display().to_string(),
        "valid": report.is_sound(),
        "receipts": count,
        "findings": findings.collect::<Vec<_>>(),
        "chains": chains.collect::<Vec<_>>(),
    })
}

async fn rotate(asked: &RotateArgs) -> Result<(), ReceiptsError> {
    tell_of_workspace(&asked.data);
    let now = Timestamp::now();
    // The first key of a ring for functions is made in an empty folder.
    let is_first = asked.kms_key.is_some() && !asked.data.join(RECEIPT_RING).exists();
    let before = if is_first { None } else { Some(dormouse_local::receipt_ring(&asked.data)?.signs()) };
    let next = match &asked.kms_key {
        Some(key) => in_kms(key, now).await?,
        None => Ring::Held(KeyRing::new(dormouse_local::seed()?, Some(now))),
    };
    let ring = dormouse_local::change_receipt_ring(&asked.data, |stands| match (stands, &before) {
        (None, None) => Ok(next),
        (Some(stands), Some(before)) if stands.signs() == *before => {
            let id = next.signs();
            stands.replaced(next, now).ok_or(ReceiptsError::Revoked(id))
        }
        (Some(stands), _) => Err(ReceiptsError::Overtaken(stands.signs())),
        (None, Some(_)) => Err(ReceiptsError::NoRing(asked.data.join(RECEIPT_RING))),
    })?;
    let mut out = io::stdout();
    match &ring {
        Ring::Held(ring) => {
            let id = ring.active().public().id;
            writeln!(
                out,
                "{id} signs from the next start of `dormouse dev` on; `/v1/keys` goes on to show the keys before"
            )?;
        }
        Ring::Kms(ring) => {
            let file = asked.data.join(RECEIPT_RING);
            writeln!(
                out,
                "{} signs where the functions are given what is in {}: make it the secret receipt-keys, and deploy",
                ring.public().id,
                file.display()
            )?;
        }
    }
    Ok(())
}

/// The ring of the key of AWS KMS with the ARN `key`, which is asked for its public half.
async fn in_kms(key: &str, now: Timestamp) -> Result<Ring, ReceiptsError> {
    let public = kms_key(&access(None)?, key).public_key().await?;
    let public = PublicKey::parse(&public).map_err(|error| ReceiptsError::Anchor(error.0))?;
    KmsRing::new(key, public, Some(now)).map(Ring::Kms).ok_or_else(|| ReceiptsError::NoArn(key.to_owned()))
}

fn revoke(asked: &RevokeArgs) -> Result<(), ReceiptsError> {
    tell_of_workspace(&asked.data);
    dormouse_local::change_receipt_ring(&asked.data, |stands| {
        let stands = stands.ok_or_else(|| ReceiptsError::NoRing(asked.data.join(RECEIPT_RING)))?;
        stands.revoked(&asked.key, Timestamp::now()).ok_or_else(|| ReceiptsError::NoKey(asked.key.clone()))
    })?;
    writeln!(io::stdout(), "{} is revoked; give out the keys of `/v1/keys` anew after the next start", asked.key)?;
    Ok(())
}
