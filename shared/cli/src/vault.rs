//! `dormouse vault`: the file of sealed secrets that vaults with the provider `file` take theirs from.

use std::io::{self, Read};
use std::process::ExitCode;

use clap::Subcommand;
use dormouse_local::{SealedVault, VaultError};
use dormouse_ports::Secret;
use serde_json::json;

use crate::inspect::Printer;

/// The longest value, in bytes.
const LONGEST: u64 = 64 * 1024;

/// Commands for the file.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Seal what comes in at standard input as TENANT.NAME, in place of what was there.
    #[command(
        after_help = "Example:\n  export DORMOUSE_VAULT_FILE=vaults.sealed DORMOUSE_VAULT_KEY_FILE=vault-key\n  \
        openssl rand -hex 32 > vault-key && chmod 600 vault-key\n  pass show hook | dormouse vault set default.HOOK\n\n\
        A line end at the end is left out.\nJSON: {\"sealed\"}"
    )]
    Set(SealedName),
    /// List the names of the secrets.
    #[command(after_help = "JSON: {\"names\"}")]
    List(ListNames),
    /// Remove a secret.
    #[command(after_help = "JSON: {\"removed\"}\nExit code 4: there is no such secret.")]
    Remove(SealedName),
}

/// A secret of the file.
#[derive(Debug, clap::Args)]
pub(crate) struct SealedName {
    /// Its tenant and its name.
    #[arg(value_name = "TENANT.NAME")]
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How the names are shown.
#[derive(Debug, clap::Args)]
pub(crate) struct ListNames {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VaultCommandError {
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("standard input has to be a text of 1 to {LONGEST} bytes")]
    Value,
    #[error("there is no secret `{0}` in the file")]
    Missing(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl VaultCommandError {
    /// With which code the process ends.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Missing(_) => ExitCode::from(4),
            Self::Vault(_) | Self::Value | Self::Io(_) => ExitCode::FAILURE,
        }
    }
}

/// Executes `ask`.
pub(crate) fn vault(ask: VaultCommand) -> Result<(), VaultCommandError> {
    let vault = SealedVault::of_environment()?;
    match ask {
        VaultCommand::Set(SealedName { name, json }) => {
            vault.put(&name, &value()?)?;
            Ok(Printer::new(json).fields(&json!({ "sealed": name }))?)
        }
        VaultCommand::List(ListNames { json }) => Ok(Printer::new(json).fields(&json!({ "names": vault.names()? }))?),
        VaultCommand::Remove(SealedName { name, json }) => match vault.remove(&name)? {
            true => Ok(Printer::new(json).fields(&json!({ "removed": name }))?),
            false => Err(VaultCommandError::Missing(name)),
        },
    }
}

fn value() -> Result<Secret, VaultCommandError> {
    let mut text = String::new();
    let read = io::stdin().take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(
        |error| if error.kind() == io::ErrorKind::InvalidData { VaultCommandError::Value } else { error.into() },
    )?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() || text.len() as u64 > LONGEST { Err(VaultCommandError::Value) } else { Ok(Secret::new(value)) }
}
