//! Where notifications go, as an operator describes it, and how they get there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dormouse_api::standard_signature;
use dormouse_ports::{Fetch, FetchLimits, FetchRequest, Method, Secret, Sign};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::words::Notice;

/// Limits of one attempt. What the other side says beside its status is not read.
const LIMITS: FetchLimits =
    FetchLimits { total: Duration::from_secs(8), idle: Duration::from_secs(8), most_bytes: 64 * 1024 };
/// The most addresses of one channel.
const MOST_ADDRESSES: usize = 50;

/// The channels, by their names.
#[derive(Clone, Default)]
pub struct Notifications(BTreeMap<String, Channel>);

impl fmt::Debug for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// One way to a recipient.
#[derive(Clone)]
pub(super) enum Channel {
    /// An incoming webhook of Slack: its address is its secret.
    Slack(Secret),
    /// An address, and the secret by which what goes there is signed (Standard Webhooks).
    Webhook(Secret, Option<Secret>),
    /// E-mail.
    Email { from: String, to: Vec<String> },
}

/// A channel as it is described.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelSettings {
    slack: Option<String>,
    webhook: Option<String>,
    secret: Option<String>,
    email: Option<Vec<String>>,
    from: Option<String>,
}

/// Reason for which a description of channels cannot be used. Says what to change, and repeats no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotificationsError {
    /// It is no JSON of that form.
    #[error(
        "expected a JSON object of channels, each `{{\"slack\": URL}}`, `{{\"webhook\": URL, \"secret\": \"whsec_…\"}}` or \
         `{{\"email\": [ADDRESS], \"from\": ADDRESS}}`: {0}"
    )]
    Form(String),
    /// A channel is wrong.
    #[error("channel `{0}`: {1}")]
    Channel(String, &'static str),
}

impl Notifications {
    /// Reads a JSON object of channels; addresses on this machine only where `loopback` allows them.
    ///
    /// # Errors
    /// [`NotificationsError`] for the first that is wrong.
    pub fn read(text: &str, loopback: bool) -> Result<Self, NotificationsError> {
        let all: BTreeMap<String, ChannelSettings> = serde_json::from_str(text).map_err(|error| {
            // The text around the place may be a secret.
            NotificationsError::Form(format!("line {} column {}", error.line(), error.column()))
        })?;
        let read = |(name, described): (String, ChannelSettings)| match described.channel(loopback) {
            Ok(channel) => Ok((name, channel)),
            Err(what) => Err(NotificationsError::Channel(name, what)),
        };
        all.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if one of them is e-mail.
    pub fn has_email(&self) -> bool {
        self.0.values().any(|channel| matches!(channel, Channel::Email { .. }))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Channel> {
        self.0.get(name)
    }
}

impl ChannelSettings {
    fn channel(self, loopback: bool) -> Result<Channel, &'static str> {
        let is_safe = |url: &str| {
            let local = ["http://127.0.0.1", "http://localhost", "http://[::1]"];
            let is_local =
                local.iter().any(|start| url.strip_prefix(start).is_some_and(|rest| rest.starts_with([':', '/'])));
            (url.starts_with("https://") || (loopback && is_local)) && url.bytes().all(|byte| byte.is_ascii_graphic())
        };
        match self {
            Self { slack: Some(url), webhook: None, secret: None, email: None, from: None } if is_safe(&url) => {
                Ok(Channel::Slack(Secret::new(url)))
            }
            Self { slack: None, webhook: Some(url), secret, email: None, from: None } if is_safe(&url) => {
                match secret.as_deref().is_none_or(is_secret) {
                    true => Ok(Channel::Webhook(Secret::new(url), secret.map(Secret::new))),
                    false => Err("its `secret` is `whsec_` and Base64"),
                }
            }
            Self { slack: None, webhook: None, secret: None, email: Some(to), from: Some(from) } => {
                let is_address = |text: &String| {
                    text.split_once('@').is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
                        && text.bytes().all(|byte| byte.is_ascii_graphic())
                };
                match (1..=MOST_ADDRESSES).contains(&to.len()) && to.iter().chain([&from]).all(is_address) {
                    true => Ok(Channel::Email { from, to }),
                    false => Err("its `email` has 1 to 50 addresses, and its `from` one"),
                }
            }
            Self { .. } => Err(
                "it is one of `slack` or `webhook` with an address that begins with https://, or `email` with `from`",
            ),
        }
    }
}

fn is_secret(text: &str) -> bool {
    text.strip_prefix("whsec_").and_then(|rest| STANDARD.decode(rest).ok()).is_some_and(|key| key.len() >= 16)
}

/// Sends notifications.
pub(super) struct Sender<'s> {
    pub(super) fetch: &'s dyn Fetch,
    /// Signs requests to the service that sends e-mail, and its address.
    pub(super) email: Option<(&'s Arc<dyn Sign>, &'s str)>,
    pub(super) now: Timestamp,
}

impl Sender<'_> {
    /// Sends `notice` over `channel`, once.
    ///
    /// # Errors
    /// Why it was not taken, without an address.
    pub(super) async fn send(&self, channel: &Channel, notice: &Notice<'_>) -> Result<(), String> {
        match channel {
            Channel::Slack(url) => {
                let request = FetchRequest::new(Method::Post, url.expose());
                self.post(request.json(notice.slack().to_string().into_bytes())).await
            }
            Channel::Webhook(url, secret) => self.post(self.webhook(url, secret.as_ref(), notice)).await,
            Channel::Email { from, to } => self.mail(from, to, notice).await,
        }
    }

    fn webhook(&self, url: &Secret, secret: Option<&Secret>, notice: &Notice<'_>) -> FetchRequest {
        let at = self.now.to_string();
        let body = json!({ "type": "approval.notification", "timestamp": at, "data": notice.data() });
        let bytes = body.to_string().into_bytes();
        let seconds = self.now.as_second();
        let mut request = FetchRequest::new(Method::Post, url.expose())
            .header("webhook-id", notice.id.as_str())
            .header("webhook-timestamp", seconds.to_string());
        let signed = secret.and_then(|secret| standard_signature(secret, &notice.id, seconds, &bytes));
        if let Some(signature) = signed {
            request = request.header("webhook-signature", signature);
        }
        request.json(bytes)
    }

    /// By Amazon SES: `SendEmail` of its API in version 2.
    async fn mail(&self, from: &str, to: &[String], notice: &Notice<'_>) -> Result<(), String> {
        let Some((sign, address)) = self.email else {
            return Err("this server sends no e-mail: that is for a deployment on AWS".to_owned());
        };
        let text = |data: String| json!({ "Data": data, "Charset": "UTF-8" });
        let body = json!({
            "FromEmailAddress": from,
            "Destination": { "ToAddresses": to },
            "Content": { "Simple": { "Subject": text(notice.subject()), "Body": { "Text": text(notice.text()) } } },
        });
        let url = format!("{address}/v2/email/outbound-emails");
        let mut request = FetchRequest::new(Method::Post, url).json(body.to_string().into_bytes());
        request.limits = LIMITS;
        sign.sign(&mut request).await.map_err(|error| error.to_string())?;
        self.sent(request).await
    }

    async fn post(&self, mut request: FetchRequest) -> Result<(), String> {
        request.limits = LIMITS;
        self.sent(request).await
    }

    async fn sent(&self, request: FetchRequest) -> Result<(), String> {
        match self.fetch.fetch(request).await {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => Err(format!("it answered {}", answer.status)),
            // The error may name the address, which is a secret of Slack's.
            Err(_) => Err("no answer came".to_owned()),
        }
    }
}
