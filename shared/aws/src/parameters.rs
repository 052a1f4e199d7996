//! Parameter Store of AWS Systems Manager, the store of secrets.

mod named;

use std::error::Error;
use std::fmt;

use aws_sdk_ssm::types::{Parameter, ParameterType};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;

use crate::connect::Lazy;
use crate::refusal::{RefusalKind, refusal};

pub use named::ParameterSecrets;

/// Content of a parameter. It is not shown when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// The secret `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for code that signs or compares with it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// Error of reading parameters. Contains their names, and never their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// This one is not encrypted.
    Plain(String),
    /// The role may not read them, or not use the key that they are encrypted with.
    Denied(String),
    /// Parameter Store is busy or away. A later attempt may succeed.
    Unavailable(String),
    /// Parameter Store will never answer the request.
    Refused(String),
}

/// Reads parameters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Parameters {
    client: Lazy<aws_sdk_ssm::Client>,
}

impl Parameters {
    /// Reads them with `client`, which is made at the first read.
    pub fn new(client: impl Into<Lazy<aws_sdk_ssm::Client>>) -> Self {
        Self { client: client.into() }
    }

    /// The content of the encrypted parameters `names`, in that order, without the white space around it, and `None` for
    /// one that does not exist: one request, repeated while Parameter Store is busy. It takes ten names at most.
    ///
    /// # Errors
    /// When one that exists cannot be had.
    pub async fn secure(&self, names: &[&str]) -> Result<Vec<Option<SecretText>>, ParameterError> {
        let client = &self.client;
        let request = client.get_parameters().with_decryption(true);
        let request = names.iter().fold(request, |request, name| request.names(*name));
        let found = request.send().await.map_err(|error| failure(names, &error))?.parameters.unwrap_or_default();
        let of = |name: &str| found.iter().find(|parameter| parameter.name() == Some(name));
        names.iter().map(|name| of(name).map(encrypted).transpose()).collect()
    }
}

fn encrypted(parameter: &Parameter) -> Result<SecretText, ParameterError> {
    match parameter.r#type() {
        Some(ParameterType::SecureString) => Ok(SecretText::new(parameter.value().unwrap_or_default().trim())),
        _ => Err(ParameterError::Plain(parameter.name().unwrap_or_default().to_owned())),
    }
}

fn failure<E>(names: &[&str], error: &SdkError<E, HttpResponse>) -> ParameterError
where
    E: aws_smithy_types::error::metadata::ProvideErrorMetadata + Error + 'static,
{
    let action = "ssm:GetParameters";
    let names = names.join(", ");
    if let SdkError::ResponseError(_) = error {
        // The message of the error might quote the secret.
        return ParameterError::Unavailable(format!("{action} on {names}: an answer that cannot be read"));
    }
    match refusal(action, &names, error) {
        (RefusalKind::Transient, sentence) => ParameterError::Unavailable(sentence),
        (RefusalKind::Denied, sentence) => ParameterError::Denied(sentence),
        (RefusalKind::Refused, sentence) => ParameterError::Refused(sentence),
    }
}
