//! Services of the process that serves a data folder for commands beside it.

use std::time::Duration;

use async_trait::async_trait;
use dormouse_http::percent;
use dormouse_ports::{BusError, Event, EventBus, InvocationId};
use reqwest::redirect::Policy;
use serde_json::{Value, json};

use crate::gateway::EVENTS;

const TIME_TO_ANSWER: Duration = Duration::from_secs(30);

/// The event bus of the process that serves the folder: everything that a graph publishes in a command goes there, and
/// comes to those who wait for it.
#[derive(Debug)]
pub struct ServedBus {
    http: reqwest::Client,
    address: String,
    key: String,
}

impl ServedBus {
    /// The bus of the process at `address`; `key` is its signal key.
    ///
    /// # Errors
    /// If this machine cannot make a client.
    pub(crate) fn at(address: &str, key: String) -> Result<Self, reqwest::Error> {
        // The key opens everything on this machine: it goes to that address and nowhere else.
        let http = reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(TIME_TO_ANSWER).build()?;
        Ok(Self { http, address: address.to_owned(), key })
    }

    /// Has the process cancel the invocation `id`: it has its graph, and tells those who work elsewhere for it. Gives the
    /// status of the answer, and the answer.
    ///
    /// # Errors
    /// If the process does not answer.
    pub async fn cancel(&self, id: &InvocationId, reason: Option<&str>) -> Result<(u16, Value), reqwest::Error> {
        // Callers choose ids, which may look like the rest of an address.
        let url = format!("{}/invocations/{}/cancel", self.address, percent::encode(id.as_str()));
        let answer = self.http.post(url).bearer_auth(&self.key).json(&json!({ "reason": reason })).send().await?;
        let status = answer.status().as_u16();
        Ok((status, answer.json().await?))
    }
}

#[async_trait]
impl EventBus for ServedBus {
    async fn publish(&self, event: Event) -> Result<(), BusError> {
        let body = serde_json::to_vec(&event).map_err(|error| BusError::Rejected(error.to_string()))?;
        let url = format!("{}{EVENTS}", self.address);
        let request = self.http.post(&url).bearer_auth(&self.key).header("content-type", "application/json");
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| BusError::Unavailable(format!("{url}: {error}")))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status if status.is_client_error() => Err(BusError::Rejected(format!("{url} answered {status}"))),
            status => Err(BusError::Unavailable(format!("{url} answered {status}"))),
        }
    }
}
