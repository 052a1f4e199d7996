use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::pin::Pin;

use async_trait::async_trait;
use dormouse_agent::{TemplateFiles, Templates};
use dormouse_api::{TemplateRefusal, WorkspaceTemplates};

type TemplateReading = Pin<Box<dyn Future<Output = Result<Templates, String>> + Send>>;
type ReadTemplates = dyn Fn() -> TemplateReading + Send + Sync;

/// The templates of a server, read anew for each workspace that is made.
pub struct ServedTemplates(Box<ReadTemplates>);

impl ServedTemplates {
    /// Those that ship, and nothing to import.
    pub fn shipped() -> Self {
        Self::read_by(|| Box::pin(ready(Ok(Templates::default()))))
    }

    /// Those that `read` gives.
    pub fn read_by(read: impl Fn() -> TemplateReading + Send + Sync + 'static) -> Self {
        Self(Box::new(read))
    }
}

impl fmt::Debug for ServedTemplates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServedTemplates")
    }
}

#[async_trait]
impl WorkspaceTemplates for ServedTemplates {
    async fn begin(
        &self,
        name: &str,
        files: BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, TemplateRefusal> {
        let templates = (self.0)().await.map_err(TemplateRefusal::Away)?;
        let files: TemplateFiles = files.into_iter().map(|(path, text)| (path, text.into_bytes())).collect();
        let made = templates.begin(name, files).map_err(|error| TemplateRefusal::Unfit(error.to_string()))?;
        let text = |(path, bytes): (String, Vec<u8>)| match String::from_utf8(bytes) {
            Ok(text) => Ok((path, text)),
            Err(_) => Err(TemplateRefusal::Unfit(format!("`{path}` of the template is no text"))),
        };
        made.into_iter().map(text).collect()
    }
}
