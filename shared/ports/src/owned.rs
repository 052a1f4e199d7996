//! Ids of what callers of `/graphs` and `/chat` name themselves: sessions are their caller's, invocations their tenant's, so
//! that knowing a name reaches nothing of others.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::{InvocationId, SessionId};

/// Prefix of the stored ids of what belongs to somebody.
const OWNED: &str = "owned_";
/// Number of hexadecimal digits of the owner's digest that stand behind it.
const OWNER_DIGITS: usize = 32;
/// Separates the digest of an owner of sessions from everything else that is digested.
const OWNER_DOMAIN: &[u8] = b"dormouse session owner 1\0";
/// The same for an owner of invocations.
const TENANT_DOMAIN: &[u8] = b"dormouse invocation tenant 1\0";

/// Number of characters that stand before a name in the id of what belongs to somebody.
pub const PREFIX: usize = OWNED.len() + OWNER_DIGITS + 1;

/// Name of the owner of the sessions that keys and tokens of an actor begin. Names of tenants hold no slash.
pub fn owner_of(tenant: &str, actor: &str) -> String {
    format!("key:{tenant}/{actor}")
}

/// Stored id of the session that `owner` calls `name`.
pub fn session(owner: &str, name: &str) -> SessionId {
    format!("{}{name}", prefix(OWNER_DOMAIN, owner)).into()
}

/// Stored id of the invocation that callers of `tenant` call `name`.
pub fn invocation(tenant: &str, name: &str) -> InvocationId {
    format!("{}{name}", tenants(tenant)).into()
}

/// What stands before the names that callers of `tenant` give their invocations.
pub(crate) fn tenants(tenant: &str) -> String {
    prefix(TENANT_DOMAIN, tenant)
}

/// `text` as it would be if the id of an invocation in it were the name that its owner gave it.
pub(crate) fn named(text: &str) -> Cow<'_, str> {
    let starts = text.match_indices(OWNED).map(|(at, _)| at);
    let owned =
        starts.filter_map(|at| Some((at, text.get(at..at + PREFIX)?))).find(|(_, part)| name_within(part) == Some(""));
    match owned {
        Some((at, part)) => Cow::Owned([&text[..at], &text[at + part.len()..]].concat()),
        None => Cow::Borrowed(text),
    }
}

/// The name that its owner gave what is stored as `id`; `None` where it belongs to nobody.
pub fn name_within(id: &str) -> Option<&str> {
    let (owner, name) = id.strip_prefix(OWNED)?.split_once(':')?;
    let is_digest = owner.len() == OWNER_DIGITS && owner.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_digest.then_some(name)
}

/// The name by which its owner knows what is stored as `id`.
pub fn name_of(id: &str) -> &str {
    name_within(id).unwrap_or(id)
}

/// True if the session `id` belongs to a caller, or works for one that does.
pub fn is_owned(id: &SessionId) -> bool {
    id.as_str().starts_with(OWNED)
}

fn prefix(domain: &[u8], owner: &str) -> String {
    let digest = Sha256::new().chain_update(domain).chain_update(owner).finalize();
    format!("{OWNED}{}:", hex::encode(&digest[..OWNER_DIGITS / 2]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_another_id_for_each_owner() {
        let ada = session(&owner_of("acme", "ada"), "team/7");
        assert_eq!(ada, session("key:acme/ada", "team/7"));
        assert_ne!(ada, session(&owner_of("acme", "grace"), "team/7"));
        assert_eq!((name_within(ada.as_str()), ada.as_str().len()), (Some("team/7"), PREFIX + 6));
        assert_ne!(invocation("acme", "o1"), invocation("evil", "o1"));
        let stored = invocation("acme", "o1");
        assert_eq!(name_of(stored.as_str()), "o1");
        assert_eq!((named(&format!("leave-{stored}/2")), named("leave-o1")), ("leave-o1/2".into(), "leave-o1".into()));
        assert_eq!(named("owned_x:owned_"), "owned_x:owned_");
        for id in ["team/7", "owned_by_ada:1", "owned_:x"] {
            assert_eq!((name_within(id), name_of(id)), (None, id));
        }
    }
}
