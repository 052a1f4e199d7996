use std::sync::Arc;

use async_trait::async_trait;
use dormouse_json::Schemas;
use dormouse_ports::model::{CallOptions, CompletionRequest, ModelError, ModelIdentity, ModelProvider, Response};
use dormouse_ports::{FetchError, FetchLimits, FetchRequest, FetchResponse, Method, Sign};
use futures::stream;

use crate::attempt::{Answering, within};
use crate::canonical::canonical;
use crate::check::check_request;
use crate::failure::{of_fetch, of_malformed, of_sign};
use crate::judge::Judge;
use crate::mask::masked;
use crate::setup::{Capabilities, ProviderSetup};
use crate::structured::Structured;
use crate::wire::{Encoded, Malformed, Wire};
use crate::{ready, retry};

/// One model of one provider, over its wire.
#[derive(Clone)]
pub struct Provider {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) setup: ProviderSetup,
    pub(crate) schemas: Schemas,
    sign: Option<Arc<dyn Sign>>,
    base: String,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("system", &self.wire.system())
            .field("model", &self.setup.model)
            .finish_non_exhaustive()
    }
}

impl Provider {
    pub(crate) fn new(wire: impl Wire, setup: ProviderSetup) -> Self {
        let base = match &setup.base_url {
            Some(url) => match url.split_once('?') {
                Some((url, query)) => format!("{}?{query}", wire.adjust_base(url.trim_end_matches('/').to_owned())),
                None => wire.adjust_base(url.trim_end_matches('/').to_owned()),
            },
            None => wire.base(),
        };
        Self { wire: Arc::new(wire), setup, schemas: Schemas::default(), sign: None, base }
    }

    pub(crate) fn signed(mut self, sign: Arc<dyn Sign>) -> Self {
        self.sign = Some(sign);
        self
    }

    /// Capabilities of the model here.
    pub fn capabilities(&self) -> Capabilities {
        self.setup.capabilities.unwrap_or_else(|| self.wire.capabilities())
    }

    /// One attempt, without any other.
    pub(crate) async fn attempt(
        &self,
        request: &CompletionRequest,
        options: &CallOptions,
    ) -> Result<Response, ModelError> {
        let capabilities = self.capabilities();
        check_request(request, capabilities, &self.schemas)?;
        let structured = Structured::of(request, capabilities.structured_output, self.wire.coerces());
        let sent = structured.prepare(request, self.wire.ids(), self.wire.origin());
        let Encoded { path, body } = self.wire.encode(&self.setup.model, &sent)?;
        let outbound = self.request(Method::Post, &path).await?.json(canonical(body).to_string().into_bytes());
        let answer = self.send(within(outbound, options.timeout)).await?;
        let answering = Answering {
            wire: &*self.wire,
            clock: &*self.setup.ports.clock,
            sent: &sent,
            judge: Judge { request, structured, origin: self.wire.origin(), schemas: &self.schemas },
            observer: &*options.observer,
        };
        answering.read(answer, self.setup.limits.most_bytes).await
    }

    /// A request to `path`, with the key in it.
    pub(crate) async fn request(&self, method: Method, path: &str) -> Result<FetchRequest, ModelError> {
        let key = match &self.setup.key {
            Some(key) => Some(key.resolve().await?),
            None => None,
        };
        let url = if path.starts_with('/') { joined(&self.base, path) } else { path.to_owned() };
        let mut request = FetchRequest::new(method, url);
        request.limits = self.setup.limits;
        request = match (&key, &self.setup.key_header) {
            (Some(key), Some(name)) => self.wire.authenticate(request, None).header(name, key.clone()),
            (key, _) => self.wire.authenticate(request, key.as_ref()),
        };
        request.headers.extend(self.setup.headers.iter().cloned());
        Ok(request)
    }

    /// The same, for what is answered without a model: it is not waited for as long as for one that thinks.
    pub(crate) async fn quick_request(&self, method: Method, path: &str) -> Result<FetchRequest, ModelError> {
        let mut request = self.request(method, path).await?;
        request.limits.idle = request.limits.idle.min(FetchLimits::default().idle);
        Ok(request)
    }

    pub(crate) async fn send(&self, mut request: FetchRequest) -> Result<FetchResponse, ModelError> {
        if let Some(sign) = &self.sign {
            sign.sign(&mut request).await.map_err(|error| of_sign(&error))?;
        }
        // It is no part of what is signed, which proxies may change on the way.
        request.headers.push(("accept-encoding".to_owned(), "identity".into()));
        let answer = self.setup.ports.fetch.fetch(request).await.map_err(|error| of_fetch(&error))?;
        match answer.header("content-encoding").map(|coding| coding.trim().to_owned()).as_deref() {
            None | Some("" | "identity") => Ok(answer),
            Some(coding) if (200..300).contains(&answer.status) => Err(of_malformed(
                Malformed(format!(
                    "it is compressed (`content-encoding: {coding}`), though it was asked for as it is; have the server, or \
                     the proxy before it, leave that"
                )),
                None,
            )),
            // What is wrong is told by the status.
            Some(coding) => {
                let words = format!("what it says is compressed (`content-encoding: {coding}`)").into_bytes();
                Ok(FetchResponse { body: Box::pin(stream::iter([Ok::<_, FetchError>(words)])), ..answer })
            }
        }
    }
}

/// `path` behind `base`, whose query comes last.
fn joined(base: &str, path: &str) -> String {
    let Some((base, query)) = base.split_once('?') else { return format!("{base}{path}") };
    let sign = if path.contains('?') { '&' } else { '?' };
    format!("{base}{path}{sign}{query}")
}

#[async_trait]
impl ModelProvider for Provider {
    fn identity(&self) -> ModelIdentity {
        let host = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        ModelIdentity {
            system: self.setup.system.clone().unwrap_or_else(|| self.wire.system().to_owned()),
            model: self.setup.model.clone(),
            server: host
                .split(['/', '?'])
                .next()
                .and_then(|host| host.rsplit('@').next())
                .unwrap_or_default()
                .to_owned(),
        }
    }

    async fn ready(&self) -> Result<(), ModelError> {
        masked(self, ready::ready(self).await).await
    }

    async fn complete(&self, request: &CompletionRequest, options: &CallOptions) -> Result<Response, ModelError> {
        retry::complete(self, request, options).await
    }
}
