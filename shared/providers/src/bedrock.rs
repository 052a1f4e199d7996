//! Amazon Bedrock Converse. The specification has no mapping of it; this one follows its rules for the others.

mod errors;
mod request;
mod response;
mod stream;

use std::sync::Arc;

use dormouse_ports::model::{CompletionRequest, ModelError};
use dormouse_ports::{FetchRequest, Method, Secret, Sign};
use serde_json::Value;

use crate::Provider;
use crate::frames::Framing;
use crate::ids::IdRule;
use crate::setup::{Capabilities, ProviderSetup};
use crate::wire::{Assembler, Encoded, ErrorAnswer, Malformed, ReadAnswer, Refusal, Wire, segment};

/// A model of Amazon Bedrock in `region`, over its Converse operations. The model is named by its id, its inference
/// profile or its ARN.
///
/// `sign` authenticates each request for the service `bedrock`; a key of the setup is sent as a bearer instead, and
/// then nothing is signed. `seed` and the penalties are refused, since Converse has none; extras become
/// `additionalModelRequestFields`. A schema becomes the one tool that must be called, or an instruction where the
/// caller brings tools, whatever [`Capabilities::structured_output`] says. Images are inline or at `s3://`.
pub fn bedrock(mut setup: ProviderSetup, region: &str, sign: Arc<dyn Sign>) -> Provider {
    let has_key = setup.key.is_some();
    // Converse has no field for a schema: it would be left out.
    setup.capabilities = setup.capabilities.map(|set| Capabilities { structured_output: false, ..set });
    let wire = Bedrock { region: region.to_owned(), is_elsewhere: setup.base_url.is_some() };
    let provider = Provider::new(wire, setup);
    if has_key { provider } else { provider.signed(sign) }
}

/// Collections in which what an ARN names is described, where that is no foundation model, by a part of the ARN.
const COLLECTIONS: [(&str, &str); 6] = [
    ("inference-profile/", "inference-profiles"),
    ("provisioned-model/", "provisioned-model-throughput"),
    ("imported-model/", "imported-models"),
    ("custom-model-deployment/", "model-customization/custom-model-deployments"),
    ("prompt-router/", "prompt-routers"),
    (":endpoint/", "marketplace-model/endpoints"),
];

/// The collection in which `model` is described. Ids of profiles begin with where, `eu.anthropic.…`, those of models with a
/// vendor, and no vendor has two letters.
fn collection_of(model: &str) -> &'static str {
    let area = model.split_once('.').map_or("", |(area, _)| area);
    if area.len() == 2 || matches!(area, "apac" | "global" | "us-gov") {
        return "inference-profiles";
    }
    let found = COLLECTIONS.iter().find(|(part, _)| model.contains(*part));
    found.map_or("foundation-models", |(_, collection)| collection)
}

/// Name of the wire, and origin of its reasoning.
const SYSTEM: &str = "aws.bedrock";

struct Bedrock {
    region: String,
    /// The address is not Amazon's own: models are described there too.
    is_elsewhere: bool,
}

impl Bedrock {
    fn host(&self, name: &str) -> String {
        let suffix = if self.region.starts_with("cn-") { ".cn" } else { "" };
        format!("https://{name}.{}.amazonaws.com{suffix}", self.region)
    }
}

impl Wire for Bedrock {
    fn system(&self) -> &'static str {
        SYSTEM
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { structured_output: false, ..Capabilities::ALL }
    }

    fn base(&self) -> String {
        self.host("bedrock-runtime")
    }

    fn coerces(&self) -> bool {
        true
    }

    fn ids(&self) -> IdRule {
        IdRule { longest: 64, is_plain: true, ..IdRule::ANY }
    }

    fn authenticate(&self, request: FetchRequest, key: Option<&Secret>) -> FetchRequest {
        crate::openai::bearer(request, key)
    }

    fn encode(&self, model: &str, request: &CompletionRequest) -> Result<Encoded, ModelError> {
        let operation = if request.stream { "converse-stream" } else { "converse" };
        Ok(Encoded { path: format!("/model/{}/{operation}", segment(model)), body: request::encode(request)? })
    }

    fn decode(&self, body: &Value) -> Result<ReadAnswer, Malformed> {
        response::decode(body)
    }

    fn refusal(&self, answer: ErrorAnswer<'_>) -> Refusal {
        errors::refusal(answer)
    }

    fn framing(&self) -> Framing {
        Framing::Messages
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::<stream::BedrockEvents>::default()
    }

    fn probe(&self, model: &str) -> (Method, String) {
        let collection = collection_of(model);
        let control = if self.is_elsewhere { String::new() } else { self.host("bedrock") };
        (Method::Get, format!("{control}/{collection}/{}", segment(model)))
    }

    fn judge_probe(&self, _: &str, body: &Value) -> Result<(), ModelError> {
        errors::described(body)
    }
}
