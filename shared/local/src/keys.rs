//! API keys as they are made on this machine.

use dormouse_api::Keys;
use dormouse_api::keys::{CHANCE, Grant, KeyToken};
use dormouse_ports::{Commit, CommitError, Commits, IdSource, Journal, StoreError};
use dormouse_protocol::Scope;
use dormouse_system::RandomIds;
use jiff::Timestamp;
use rand::TryRngCore;
use rand::rngs::OsRng;

/// The tenant of local mode, and of keys that name none.
pub const TENANT: &str = "default";
/// The actor of the development key, which the commands of this machine answer as.
pub const DEVELOPER: &str = "developer";
/// Actor of the key with which this process follows its own events.
pub(crate) const FOLLOWER: &str = "follower";

/// Reason for which a key cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system's random source fails.
    #[error("this machine gives no random numbers: {0}")]
    NoChance(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not take it.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// A new key, by the random source of the operating system.
///
/// # Errors
/// [`KeyError::NoChance`].
pub fn generate() -> Result<KeyToken, KeyError> {
    let mut chance = [0; CHANCE];
    OsRng.try_fill_bytes(&mut chance).map_err(|error| KeyError::NoChance(error.to_string()))?;
    Ok(KeyToken::generate(chance))
}

/// Writes `journal`, the making or the revocation of a key.
///
/// # Errors
/// [`KeyError::Commit`].
pub async fn keep(store: &dyn Commits, journal: Journal, now: Timestamp) -> Result<(), KeyError> {
    Ok(store.commit(&Commit { journal, ..Commit::new(RandomIds.fresh(), now) }).await?)
}

/// Sees to it that `key` is one of `actor` in local mode, for `scopes`.
pub(crate) async fn admit(
    store: &dyn Commits,
    keys: &Keys,
    key: &KeyToken,
    (actor, scopes): (&str, &[Scope]),
    now: Timestamp,
) -> Result<(), KeyError> {
    let grant = Grant {
        actor: actor.to_owned(),
        tenant: TENANT.to_owned(),
        workspaces: None,
        scopes: scopes.iter().copied().collect(),
        expires_at: None,
    };
    match keys.revocation(key.id(), now).await? {
        Some(_) => Ok(()),
        None => keep(store, Keys::creation(key, grant, now), now).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_are_never_the_same() {
        assert_ne!(generate().expect("chance").reveal(), generate().expect("chance").reveal());
    }
}
