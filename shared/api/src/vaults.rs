//! Vaults: places for secrets, known by their provider and by what their secrets may be used for. No operation takes,
//! stores or gives a secret: the provider has them already. A vault whose secrets this server is to use has a provider that it
//! knows.

use dormouse_ports::Journal;
use dormouse_protocol::event::redact;
use dormouse_protocol::id::VaultId;
use dormouse_protocol::request::Filters;
use dormouse_protocol::resource::{CreateVaultRequest, Vault};
use dormouse_protocol::{Envelope, ProtocolError};

use crate::api::{Api, Change, found};
use crate::connectors::VERIFY;
use crate::deletion::place_write;
use crate::documents::Stored;
use crate::lists::Lists;
use crate::page::Narrowed;
use crate::reads::Reads;
use crate::{Call, CallAnswer};

/// The most capabilities of one vault, and the longest of their names and of that of a provider, in bytes.
const MOST_CAPABILITIES: usize = 64;
const LONGEST_WORD: usize = 128;

impl Lists {
    pub(crate) async fn list_vaults(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        let Filters { workspace_id, .. } = Filters::read(&call.query)?;
        let wanted = |vault: &Vault| workspace_id.is_none() || vault.workspace_id == workspace_id;
        self.page::<Vault>(call, Narrowed::to(None, workspace_id.as_ref()), wanted).await
    }
}

impl Reads {
    pub(crate) async fn get_vault(&self, call: &Call) -> Result<CallAnswer, ProtocolError> {
        found(&self.named::<Vault>(call, "vault_id").await?.kept.resource)
    }
}

impl Api {
    pub(crate) async fn create_vault(&self, call: &Call) -> Result<Change, ProtocolError> {
        let request: CreateVaultRequest = call.body.clone().decode()?;
        check_words(&request)?;
        if is_used_here(&request.capabilities) {
            self.proofs.check_provider("provider", &request.provider)?;
        }
        self.reads.check_place(call, request.workspace_id.as_ref()).await?;
        let id: VaultId = self.fresh(call.now);
        let vault = Vault {
            // A secret that a client puts beside the vault by mistake is not published.
            envelope: Envelope::new(id, call.now).with_metadata(redact::object(request.metadata)),
            workspace_id: request.workspace_id.clone(),
            provider: request.provider,
            capabilities: request.capabilities,
        };
        let place = request.workspace_id.as_ref().map(place_write);
        let stored = Stored::new(&call.actor.tenant, request.workspace_id, vault, ());
        let writes = place.into_iter().chain([stored.write()?]).collect();
        Change::new(Journal::new(writes, Vec::new()), 201, &stored.kept.resource)
    }
}

/// True unless all of `capabilities` are for others: those are registered with this server, which asks no provider for them.
fn is_used_here(capabilities: &[String]) -> bool {
    capabilities.is_empty() || capabilities.iter().any(|capability| capability == VERIFY)
}

fn check_words(request: &CreateVaultRequest) -> Result<(), ProtocolError> {
    let is_word =
        |text: &String| (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if !is_word(&request.provider) {
        return Err(ProtocolError::invalid("provider", format!("expected 1 to {LONGEST_WORD} letters without spaces")));
    }
    if request.capabilities.len() > MOST_CAPABILITIES || !request.capabilities.iter().all(is_word) {
        let message = format!("expected at most {MOST_CAPABILITIES} words of 1 to {LONGEST_WORD} letters");
        return Err(ProtocolError::invalid("capabilities", message));
    }
    Ok(())
}
