//! What deliveries are believed by.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_ports::{Secret, Secrets};
use dormouse_protocol::id::{VaultId, WorkspaceId};
use dormouse_protocol::resource::{Connector, Vault};
use dormouse_protocol::{ErrorCode, Map, ProtocolError};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::read;
use crate::Call;
use crate::documents::Stored;
use crate::reads::Reads;
use crate::signature::SignatureScheme;

/// Right of a vault that its secrets prove deliveries.
pub(crate) const VERIFY: &str = "webhooks:verify";

/// Expected proof of a connector.
const PROOF_FORM: &str = "expected scheme (standard_webhooks, github, slack or hmac), vault_id and secrets";

/// The longest name of a header, in bytes, and the headers that have a meaning of their own.
const LONGEST_HEADER: usize = 64;
const OTHER_HEADERS: [&str; 9] =
    ["authorization", "connection", "cookie", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"];
const OTHER_FAMILIES: [&str; 3] = ["content-", "proxy-", "sec-"];

/// Proof of the deliveries of a connector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DeliveryProof {
    pub(super) scheme: SignatureScheme,
    vault_id: VaultId,
    /// The names of the secrets in the vault; any of them is good.
    secrets: Vec<String>,
    /// The header of the signature, of plain HMAC.
    #[serde(default = "usual_header")]
    pub(super) header: String,
}

fn usual_header() -> String {
    "x-signature".to_owned()
}

/// True if the header `name` can hold a signature: a name of one in small letters that says nothing else.
fn is_for_signatures(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = (1..=LONGEST_HEADER).contains(&name.len()) && name.bytes().all(is_token);
    is_name && !OTHER_HEADERS.contains(&name) && !OTHER_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// What deliveries are believed by.
pub(crate) struct Proofs {
    pub(crate) reads: Reads,
    /// Providers, by the names that vaults call them.
    pub(crate) secrets: BTreeMap<String, Arc<dyn Secrets>>,
}

impl Proofs {
    /// The proof that `auth` describes, once its vault may give it.
    pub(super) async fn chosen(
        &self,
        call: &Call,
        auth: &Map,
        workspace: &WorkspaceId,
    ) -> Result<DeliveryProof, ProtocolError> {
        let mut proof: DeliveryProof = read("auth", auth, PROOF_FORM)?;
        proof.header.make_ascii_lowercase();
        if proof.scheme == SignatureScheme::Hmac && !is_for_signatures(&proof.header) {
            let message =
                "expected the name of the header with the signature, of 1 to 64 characters; `x-signature` without it";
            return Err(ProtocolError::invalid("auth.header", message));
        }
        let is_name = |name: &String| {
            (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if !(1..=3).contains(&proof.secrets.len()) || !proof.secrets.iter().all(is_name) {
            return Err(ProtocolError::invalid("auth.secrets", "expected the names of 1 to 3 secrets of the vault"));
        }
        let vault = self.reads.see::<Vault>(call, &proof.vault_id).await?;
        if vault.kept.workspace.as_ref().is_some_and(|of| of != workspace) {
            return Err(ProtocolError::not_found("vault"));
        }
        check_right(&vault.kept.resource)?;
        // The vault may be one of a server with other providers.
        self.check_provider("auth.vault_id", &vault.kept.resource.provider)?;
        Ok(proof)
    }

    /// Checks that this server has the provider `name` of the vault that the field `param` names.
    pub(crate) fn check_provider(&self, param: &str, name: &str) -> Result<(), ProtocolError> {
        if self.secrets.contains_key(name) {
            return Ok(());
        }
        let known: Vec<&str> = self.secrets.keys().map(String::as_str).collect();
        let message = match known.is_empty() {
            true => "this server has no provider of secrets; its operator gives it one".to_owned(),
            false => format!("this server has no such provider of secrets; it has {}", known.join(", ")),
        };
        Err(ProtocolError::invalid(param, message).with_detail("providers", known))
    }

    /// The secrets that prove deliveries of `connector`. What the vault allows now counts.
    pub(super) async fn secrets_of(
        &self,
        connector: &Stored<Connector>,
        proof: &DeliveryProof,
        now: Timestamp,
    ) -> Result<Vec<Secret>, ProtocolError> {
        let unusable = |reason: &str| {
            tracing::warn!(connector = %connector.kept.resource.envelope.id, reason, "the secrets of a connector cannot be used");
            ProtocolError::new(ErrorCode::ServiceUnavailable, "the connector cannot check deliveries now")
                .retry_after(60)
        };
        let vault = self.reads.find::<Vault>(&proof.vault_id, now).await?;
        let is_there =
            |vault: &Stored<Vault>| vault.kept.tenant == connector.kept.tenant && vault.kept.deleted.is_none();
        let vault = vault.filter(is_there);
        let vault = vault.ok_or_else(|| unusable("its vault is not there"))?;
        check_right(&vault.kept.resource).map_err(|_| unusable("its vault does not allow it"))?;
        let provider = self.secrets.get(&vault.kept.resource.provider);
        let provider = provider.ok_or_else(|| unusable("this server does not have the provider of its vault"))?;
        let mut secrets = Vec::new();
        for name in &proof.secrets {
            match provider.resolve(&format!("{}.{name}", connector.kept.tenant)).await {
                Ok(secret) => secrets.push(secret),
                Err(error) => {
                    unusable(&error.to_string());
                }
            }
        }
        if secrets.is_empty() { Err(unusable("none of its secrets is there")) } else { Ok(secrets) }
    }
}

fn check_right(vault: &Vault) -> Result<(), ProtocolError> {
    if vault.capabilities.iter().any(|right| right == VERIFY) {
        return Ok(());
    }
    let message = format!("the vault does not allow {VERIFY}");
    Err(ProtocolError::new(ErrorCode::PolicyViolation, message))
}
