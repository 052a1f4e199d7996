//! What new workspaces may begin with. Who makes the files of a template stands outside of this crate.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use dormouse_protocol::{ErrorCode, ProtocolError};

/// Gives the files of new workspaces that are made of a template.
#[async_trait]
pub trait WorkspaceTemplates: fmt::Debug + Send + Sync {
    /// The files of a new workspace, by their paths: those of the template `name`, and over them `files`.
    ///
    /// # Errors
    /// [`TemplateRefusal`]: no workspace is made then.
    async fn begin(
        &self,
        name: &str,
        files: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, TemplateRefusal>;
}

/// Reason for which no workspace is made of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateRefusal {
    /// There is no such template, or it cannot be filled in.
    Unfit(String),
    /// The templates cannot be read now.
    Away(String),
}

impl From<TemplateRefusal> for ProtocolError {
    fn from(refusal: TemplateRefusal) -> Self {
        match refusal {
            TemplateRefusal::Unfit(message) => Self::invalid("template", message),
            TemplateRefusal::Away(reason) => {
                tracing::warn!(reason, "the templates of workspaces cannot be read");
                Self::new(ErrorCode::ServiceUnavailable, "the templates cannot be read now")
            }
        }
    }
}
