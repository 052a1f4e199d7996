//! Workspaces to begin with. What is made of a template is its author's and leaves no trace of it: a template, and what
//! the settings of it import, count when a workspace is made, and never when one runs.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::workspace::{FileContent, Files, Imports, SETTINGS, TOOLS, imports_of, tool_servers};

const SKILLS: &str = ".openharness/skills/";

/// Files by their paths in a workspace.
pub type TemplateFiles = BTreeMap<String, Vec<u8>>;

/// A template that ships.
type Shipped = (&'static str, &'static [(&'static str, &'static str)]);

const MODELS: (&str, &str) = (".openharness/models/models.yaml", include_str!("template/assistant/models.yaml"));

const SHIPPED: [Shipped; 3] = [
    (
        "assistant",
        &[
            ("AGENTS.md", include_str!("template/assistant/AGENTS.md")),
            ("README.md", include_str!("template/assistant/README.md")),
            (SETTINGS, include_str!("template/assistant/settings.yaml")),
            (".openharness/agents/assistant.md", include_str!("template/assistant/assistant.md")),
            MODELS,
            (TOOLS, include_str!("template/assistant/tools.yaml")),
        ],
    ),
    (
        "approver",
        &[
            ("AGENTS.md", include_str!("template/approver/AGENTS.md")),
            ("README.md", include_str!("template/approver/README.md")),
            (SETTINGS, include_str!("template/approver/settings.yaml")),
            (".openharness/agents/approver.md", include_str!("template/approver/approver.md")),
            (".openharness/actions/pay/ACTION.yaml", include_str!("template/approver/ACTION.yaml")),
            (".openharness/actions/pay/pay.sh", include_str!("template/approver/pay.sh")),
            MODELS,
        ],
    ),
    (
        "reviewer",
        &[
            ("AGENTS.md", include_str!("template/reviewer/AGENTS.md")),
            ("README.md", include_str!("template/reviewer/README.md")),
            (SETTINGS, include_str!("template/reviewer/settings.yaml")),
            (".openharness/agents/reviewer.md", include_str!("template/reviewer/reviewer.md")),
            (".openharness/agents/explainer.md", include_str!("template/reviewer/explainer.md")),
            (".openharness/skills/review/SKILL.md", include_str!("template/reviewer/SKILL.md")),
            (".openharness/skills/review/references/list.md", include_str!("template/reviewer/list.md")),
            MODELS,
        ],
    ),
];

/// Reason for which no workspace is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no such template.
    #[error("there is no template `{name}`: there are {known}")]
    Unknown {
        /// Its name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It has a file that cannot be read.
    #[error("the template `{name}` cannot be used: {reason}")]
    Flawed {
        /// Its name.
        name: String,
        /// The reason, in a sentence.
        reason: String,
    },
    /// Something that the settings import cannot be had.
    #[error("`imports` of the settings: {0}")]
    Import(String),
}

/// What workspaces begin with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    /// Templates of the platform by their names; they come before those that ship.
    pub own: BTreeMap<String, TemplateFiles>,
    /// Why some of these cannot be used, in sentences.
    pub flaws: BTreeMap<String, String>,
    /// The files of the platform, of which the settings of a template import skills and servers of tools.
    pub platform: Files,
}

impl Templates {
    /// Names of all templates.
    pub fn names(&self) -> Vec<&str> {
        let shipped = SHIPPED.iter().map(|(name, _)| *name).filter(|name| !self.own.contains_key(*name));
        self.own.keys().map(String::as_str).chain(shipped).collect()
    }

    /// The files of a new workspace: those of the template `name`, over them `files`, and what the settings import.
    ///
    /// # Errors
    /// [`TemplateError`]: nothing is to be made then.
    pub fn begin(&self, name: &str, files: TemplateFiles) -> Result<TemplateFiles, TemplateError> {
        let mut all = self.files_of(name)?;
        all.extend(files);
        let imports = all.get(SETTINGS).map_or_else(Imports::default, |bytes| imports_of(bytes));
        for skill in &imports.skills {
            self.import_skill(skill, &mut all)?;
        }
        self.import_tools(&imports.tools, &mut all)?;
        Ok(all)
    }

    fn files_of(&self, name: &str) -> Result<TemplateFiles, TemplateError> {
        if let Some(reason) = self.flaws.get(name) {
            return Err(TemplateError::Flawed { name: name.to_owned(), reason: reason.clone() });
        }
        if let Some(files) = self.own.get(name) {
            return Ok(files.clone());
        }
        let shipped = SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, files)| files);
        let shipped = shipped.ok_or_else(|| TemplateError::Unknown {
            name: name.to_owned(),
            known: self.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        })?;
        Ok(shipped.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect())
    }

    /// Takes the skill in the folder `name` of the platform along, unless the workspace has one there.
    fn import_skill(&self, name: &str, all: &mut TemplateFiles) -> Result<(), TemplateError> {
        let folder = format!("{SKILLS}{name}/");
        let file = format!("{folder}SKILL.md");
        if all.contains_key(&file) {
            return Ok(());
        }
        if name.contains('/') || !self.platform.contains_key(&file) {
            return Err(TemplateError::Import(format!("the platform has no skill `{name}`")));
        }
        for (path, content) in self.platform.iter().filter(|(path, _)| path.starts_with(&folder)) {
            let FileContent::Bytes(bytes) = content else {
                return Err(TemplateError::Import(format!("`{path}` of the platform is too large, or cannot be read")));
            };
            all.entry(path.clone()).or_insert_with(|| bytes.clone());
        }
        Ok(())
    }

    /// Adds the servers `names` of the platform to those of the workspace, where it has none of these names.
    fn import_tools(&self, names: &[String], all: &mut TemplateFiles) -> Result<(), TemplateError> {
        let refused = |reason: String| Err(TemplateError::Import(reason));
        let own = tool_servers(all.get(TOOLS).map_or(&[], Vec::as_slice));
        let Some(own) = own else { return refused(format!("nothing can be added to `{TOOLS}`, which is no mapping")) };
        let wanted: Vec<&String> = names.iter().filter(|name| !own.contains_key(*name)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let platform = match self.platform.get(TOOLS) {
            Some(FileContent::Bytes(bytes)) => tool_servers(bytes).unwrap_or_default(),
            Some(FileContent::TooLarge(_) | FileContent::Unreadable(_) | FileContent::LeftOut(_)) | None => {
                BTreeMap::new()
            }
        };
        let mut text = String::from_utf8_lossy(all.get(TOOLS).map_or(&[], Vec::as_slice)).into_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for name in &wanted {
            let Some(server) = platform.get(*name) else {
                return refused(format!("the platform has no server of tools `{name}`"));
            };
            // JSON is YAML.
            text.push_str(&format!("{}: {server}\n", Value::from(name.as_str())));
        }
        if tool_servers(text.as_bytes()).is_none_or(|servers| servers.len() != own.len() + wanted.len()) {
            return refused(format!("nothing can be added to `{TOOLS}`: write its servers on lines of their own"));
        }
        all.insert(TOOLS.to_owned(), text.into_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: &str = "docs:\n  url: https://docs.example.com/mcp\n  headers: {authorization: 'Bearer ${secrets.DOCS}'}\nmore:\n  url: https://more.example.com/mcp\n";

    fn templates(settings: &str, tools: &str) -> Templates {
        let file = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
        let mut template = TemplateFiles::from([(SETTINGS.to_owned(), settings.as_bytes().to_vec())]);
        if !tools.is_empty() {
            template.insert(TOOLS.to_owned(), tools.as_bytes().to_vec());
        }
        Templates {
            flaws: BTreeMap::new(),
            own: BTreeMap::from([("desk".to_owned(), template)]),
            platform: Files::from([
                (TOOLS.to_owned(), file(SERVERS)),
                (format!("{SKILLS}review/SKILL.md"), file("Look twice.")),
                (format!("{SKILLS}review/references/list.md"), file("- names")),
            ]),
        }
    }

    fn text(files: &TemplateFiles, path: &str) -> String {
        String::from_utf8(files[path].clone()).expect("text")
    }

    #[test]
    fn what_the_settings_import_is_copied_from_the_platform() {
        let settings = "imports: {skills: [review], tools: [docs]}\n";
        for tools in ["", "mine:\n  url: https://mine.example.com/mcp"] {
            let files = templates(settings, tools).begin("desk", TemplateFiles::new()).expect("a workspace");
            assert_eq!(text(&files, &format!("{SKILLS}review/SKILL.md")), "Look twice.");
            assert!(files.contains_key(&format!("{SKILLS}review/references/list.md")));
            let servers = tool_servers(&files[TOOLS]).expect("servers");
            assert_eq!(servers["docs"]["headers"]["authorization"], "Bearer ${secrets.DOCS}");
            assert_eq!(servers.len(), if tools.is_empty() { 1 } else { 2 }, "what is not named is not imported");
        }
    }

    #[test]
    fn what_the_workspace_has_comes_before_what_is_imported() {
        let own = [(format!("{SKILLS}review/SKILL.md"), b"Ours.".to_vec())];
        let templates =
            templates("imports: {skills: [review], tools: [docs]}\n", "docs: {url: 'https://own.example.com'}\n");
        let files = templates.begin("desk", TemplateFiles::from(own)).expect("a workspace");
        assert_eq!(text(&files, &format!("{SKILLS}review/SKILL.md")), "Ours.");
        assert!(!files.contains_key(&format!("{SKILLS}review/references/list.md")), "nor is a half of it");
        assert!(text(&files, TOOLS).contains("own.example.com") && !text(&files, TOOLS).contains("docs.example.com"));
    }

    #[test]
    fn nothing_is_made_where_an_import_cannot_be_had() {
        for (settings, tools, told) in [
            ("imports: {skills: [other]}\n", "", "no skill `other`"),
            ("imports: {skills: ['../agents']}\n", "", "no skill `../agents`"),
            ("imports: {tools: [other]}\n", "", "no server of tools `other`"),
            ("imports: {tools: [docs]}\n", "{a: {url: 'https://a.example.com'}}\n", "lines of their own"),
            ("imports: {tools: [docs]}\n", "- a\n", "no mapping"),
        ] {
            let refused = templates(settings, tools).begin("desk", TemplateFiles::new()).expect_err(settings);
            assert!(refused.to_string().contains(told), "{settings}: {refused}");
        }
        let refused = Templates::default().begin("desk", TemplateFiles::new()).expect_err("no template");
        assert_eq!(refused.to_string(), "there is no template `desk`: there are `assistant`, `approver`, `reviewer`");
    }
}
