//! Secrets by their names, each a parameter below one path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dormouse_ports::{Clock, Secret, SecretError, Secrets};
use jiff::Timestamp;

use super::{ParameterError, Parameters};

/// Time for which a value that was read counts, so that a new one does without new processes.
const KEPT: Duration = Duration::from_secs(300);
/// The same of a name that has no value to be had: whoever sends what is proved by it asks for it each time, and processes that begin
/// share what Parameter Store answers in a second.
const MISSED: Duration = Duration::from_secs(30);

/// Encrypted parameters below a path as [`Secrets`]: the secret `NAME` is the parameter `PATH/NAME`. It is read when it is
/// used for the first time, and again when five minutes have passed; one that is not there, or may not be read, after half a
/// minute.
#[derive(Clone)]
pub struct ParameterSecrets {
    parameters: Parameters,
    path: String,
    clock: Arc<dyn Clock>,
    kept: Arc<Mutex<BTreeMap<String, KeptSecret>>>,
}

#[derive(Clone)]
struct KeptSecret {
    read: Result<Secret, SecretError>,
    read_at: Timestamp,
}

impl KeptSecret {
    fn counts(&self, now: Timestamp) -> bool {
        now.duration_since(self.read_at).unsigned_abs() < if self.read.is_ok() { KEPT } else { MISSED }
    }
}

impl ParameterSecrets {
    /// The secrets below `path`, which has no slash at its end.
    pub fn new(parameters: Parameters, path: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self { parameters, path: path.into(), clock, kept: Arc::default() }
    }

    fn kept(&self, name: &str) -> Option<Result<Secret, SecretError>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name).filter(|found| found.counts(self.clock.now())).map(|found| found.read.clone())
    }

    fn keep(&self, name: &str, read: &Result<Secret, SecretError>) {
        let now = self.clock.now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, found| found.counts(now));
        kept.insert(name.to_owned(), KeptSecret { read: read.clone(), read_at: now });
    }

    async fn read(&self, name: &str) -> Result<Secret, SecretError> {
        let parameter = format!("{}/{name}", self.path);
        let found = self.parameters.secure(&[&parameter]).await.map_err(|error| refused(parameter.clone(), error))?;
        let text = found.into_iter().next().flatten().ok_or(SecretError::Missing(parameter))?;
        Ok(Secret::new(text.reveal()))
    }
}

impl fmt::Debug for ParameterSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterSecrets").field("path", &self.path).finish_non_exhaustive()
    }
}

/// True for a name that leads to no other path.
fn is_plain(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[async_trait]
impl Secrets for ParameterSecrets {
    async fn resolve(&self, name: &str) -> Result<Secret, SecretError> {
        if !is_plain(name) {
            return Err(SecretError::Missing(name.to_owned()));
        }
        if let Some(read) = self.kept(name) {
            return read;
        }
        let read = self.read(name).await;
        if !matches!(read, Err(SecretError::Unavailable(_))) {
            self.keep(name, &read);
        }
        read
    }
}

fn refused(parameter: String, error: ParameterError) -> SecretError {
    match error {
        ParameterError::Plain(name) => {
            tracing::warn!(name, "the parameter is not encrypted and is not used: make it a SecureString");
            SecretError::Denied(parameter)
        }
        ParameterError::Denied(reason) => {
            tracing::warn!(reason, "a secret of a workspace may not be read");
            SecretError::Denied(parameter)
        }
        ParameterError::Unavailable(reason) | ParameterError::Refused(reason) => SecretError::Unavailable(reason),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::config::Credentials;
    use dormouse_testkit::ManualClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{AwsAccess, Endpoints};

    /// Each answer is given once: a request more fails.
    #[tokio::test]
    async fn what_is_not_there_is_asked_for_twice_a_minute_at_most() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let answers = [
            r#"{"Parameters":[],"InvalidParameters":["/vaults/acme.HOOK"]}"#,
            r#"{"Parameters":[{"Name":"/vaults/acme.HOOK","Type":"SecureString","Value":"hush"}],"InvalidParameters":[]}"#,
        ];
        let served = tokio::spawn(async move {
            for answer in answers {
                let (mut client, _) = listener.accept().await.expect("a client");
                let mut heard = Vec::new();
                while !String::from_utf8_lossy(&heard).ends_with('}') {
                    client.read_buf(&mut heard).await.expect("a request");
                }
                let length = answer.len();
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                client.write_all(format!("{head}{answer}").as_bytes()).await.expect("it is answered");
            }
        });
        let access = AwsAccess {
            region: "us-east-1".to_owned(),
            credentials: Credentials::new("a", "b", None, None, "test"),
            endpoints: Endpoints { all: Some(address), ..Endpoints::default() },
        };
        let clock = Arc::new(ManualClock::default());
        let secrets = ParameterSecrets::new(access.clients().parameters, "/vaults", clock.clone());
        for _ in 0..3 {
            let missing = secrets.resolve("acme.HOOK").await.expect_err("there is none");
            assert_eq!(missing, SecretError::Missing("/vaults/acme.HOOK".to_owned()));
        }
        clock.advance(MISSED);
        for _ in 0..3 {
            assert_eq!(secrets.resolve("acme.HOOK").await.expect("it is there").expose(), "hush");
        }
        served.await.expect("it was asked twice");
    }

    #[test]
    fn a_name_leads_to_no_other_path() {
        for name in ["OPENAI_KEY", "a.b-c_9"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "../callback-secret", "a/b", "a b", "a:1", "ä", &"x".repeat(129)] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
