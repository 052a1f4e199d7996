//! From the files of a workspace to its definitions, and everything that is wrong with them.

mod unread;

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use sha2::{Digest, Sha256};

use super::action;
use super::agent::AgentDefinition;
use super::approval::ApprovalPolicy;
use super::hook::{HookDefinition, MOST_HOOKS};
use super::litter::is_litter;
use super::model::ModelDefinition;
use super::problem::{DefinitionKind, DefinitionName, FileProblems, Problem, Severity};
use super::prompts::Prompts;
use super::references::{check, is_of_all_tools};
use super::settings::{Imports, Settings};
use super::skill::SkillDefinition;
use super::tools;
use super::yaml::{self, NodeValue, YamlEntry, YamlNode};
use super::{Platform, Workspace};
use crate::names::is_reserved;
use dormouse_ports::model::wire_name;

/// Bytes of one file of definitions.
pub const FILE_LIMIT: u64 = 256 * 1024;

/// The file with the instructions for every agent.
pub(crate) const INSTRUCTIONS: &str = "AGENTS.md";
/// The file of the settings.
pub(crate) const SETTINGS: &str = ".openharness/settings.yaml";
const AGENTS: &str = ".openharness/agents/";
pub(super) const MODELS: &str = ".openharness/models/";
/// Agents of the platform, which whoever reads a workspace puts there. One of the workspace's own comes before that of its name.
pub const PLATFORM_AGENTS: &str = ".openharness/platform/agents/";
/// Models of the platform, which whoever reads a workspace puts there.
pub const PLATFORM_MODELS: &str = ".openharness/platform/models/";
/// The folder of what the platform brings.
pub const PLATFORM: &str = ".openharness/platform/";
const ACTIONS: &str = ".openharness/actions/";
const SKILLS: &str = ".openharness/skills/";
/// What agents write down for later, themselves.
pub const MEMORY: &str = ".openharness/memory/";
const HOOKS: &str = ".openharness/hooks/";
/// The field of the settings that names further folders of skills.
const SKILL_DIRS: &[u8] = b"skill_dirs";
const PROMPTS: &str = ".openharness/prompts.yaml";
/// The servers of tools, and tools that are one HTTP request or in Rust.
pub const TOOLS: &str = ".openharness/tools/settings.yaml";

/// A file of a workspace as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Its bytes.
    Bytes(Vec<u8>),
    /// It is larger than [`FILE_LIMIT`], and was not read.
    TooLarge(u64),
    /// It could not be read, for this reason.
    Unreadable(String),
    /// It was not read, for this reason: it stands deep in a folder, or in a memory that is full, and nothing is missed but itself.
    /// Of a folder: what stands deep in it.
    LeftOut(String),
}

impl FileContent {
    /// Bytes of it that were read.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Self::TooLarge(_) | Self::Unreadable(_) | Self::LeftOut(_) => 0,
        }
    }

    /// True for a file that counts as if it were not there.
    pub(crate) fn is_left_out(&self) -> bool {
        matches!(self, Self::LeftOut(_))
    }
}

/// Files of a workspace by their paths.
pub type Files = BTreeMap<String, FileContent>;

/// Reads the definitions of `files`. It never fails: what is wrong is one of the
/// [problems](Workspace::problems) and disables at most the definition that it is in.
pub fn load(files: &Files, platform: &Platform) -> Workspace {
    let mut workspace = Loader::read(files);
    workspace.digest = digest(files);
    check(&mut workspace, platform);
    workspace.settled()
}

pub(super) struct Loader<'f> {
    files: &'f Files,
    workspace: Workspace,
}

impl<'f> Loader<'f> {
    /// The definitions of `files`, each by itself.
    pub(super) fn read(files: &'f Files) -> Workspace {
        let mut loader = Self { files, workspace: Workspace::default() };
        loader.settings();
        loader.instructions();
        loader.prompts();
        loader.agents();
        loader.models();
        loader.tools();
        loader.actions();
        loader.skills();
        loader.hooks();
        loader.memory();
        loader.left_out();
        loader.too_deep();
        loader.others();
        loader.spare_what_counts();
        loader.workspace
    }

    /// What is wrong in one file disables no definition of that name that counts and stands in another one.
    fn spare_what_counts(&mut self) {
        let Workspace { models, platform_models, actions, skills, hooks, problems, .. } = &mut self.workspace;
        for problem in problems {
            let Some(disabled) = &mut problem.disables else { continue };
            let name = disabled.name.as_str();
            let counts = match disabled.kind {
                DefinitionKind::Model => match name.strip_prefix("platform/") {
                    Some(name) => platform_models.get(name).map(|model| &model.file),
                    None => models.get(name).map(|model| &model.file),
                },
                DefinitionKind::Action => actions.get(name).map(|action| &action.file),
                DefinitionKind::Skill => skills.get(name).map(|skill| &skill.file),
                DefinitionKind::Hook => hooks.get(name).map(|hook| &hook.file),
                DefinitionKind::Instructions
                | DefinitionKind::Settings
                | DefinitionKind::Agent
                | DefinitionKind::Tool
                | DefinitionKind::Prompts => None,
            };
            if counts.is_some_and(|file| *file != problem.file) {
                disabled.name.clone_from(&problem.file);
            }
        }
    }

    /// The text of the file at `path`, if it is there and can be read as one.
    fn text(&self, path: &'f str, problems: &mut FileProblems<'_>) -> Option<&'f str> {
        match self.files.get(path)? {
            FileContent::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Some(text),
                Err(error) => {
                    let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
                    problems.error(line, "the file is no UTF-8 text: save it as UTF-8");
                    None
                }
            },
            FileContent::TooLarge(size) => {
                let message = format!("the file has {size} bytes, and may have {FILE_LIMIT}: shorten it");
                problems.error(None, message);
                None
            }
            FileContent::Unreadable(reason) | FileContent::LeftOut(reason) => {
                problems.error(None, format!("the file could not be read: {reason}"));
                None
            }
        }
    }

    fn yaml(&self, path: &'f str, problems: &mut FileProblems<'_>) -> Option<YamlNode> {
        let text = self.text(path, problems)?;
        match yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(text), 1) {
            Ok(node) => Some(node),
            Err(error) => {
                problems.error(error.line, error.message);
                None
            }
        }
    }

    fn keep(&mut self, problems: FileProblems<'_>) {
        let (found, places) = problems.into_parts();
        self.workspace.problems.extend(found);
        self.workspace.places.extend(places);
    }

    fn instructions(&mut self) {
        let mut problems = FileProblems::new(INSTRUCTIONS);
        problems.about(DefinitionName::new(DefinitionKind::Instructions, INSTRUCTIONS));
        self.workspace.instructions = self.text(INSTRUCTIONS, &mut problems).map(str::to_owned);
        let are_lost = problems.has_errors();
        self.keep(problems);
        if are_lost {
            self.workspace.ask_for_everything();
        }
    }

    fn settings(&mut self) {
        let mut problems = FileProblems::new(SETTINGS);
        if self.files.contains_key(SETTINGS) {
            self.workspace.settings = match self.yaml(SETTINGS, &mut problems) {
                Some(node) => Settings::read(&node, &mut problems),
                None => Settings::unreadable(),
            };
            // What is misspelled may have been an approval.
            if problems.has_errors() {
                self.workspace.ask_for_everything();
            }
        }
        self.keep(problems);
    }

    fn prompts(&mut self) {
        if !self.files.contains_key(PROMPTS) {
            return;
        }
        let mut problems = FileProblems::new(PROMPTS);
        problems.about(DefinitionName::new(DefinitionKind::Prompts, PROMPTS));
        let file = |path: &str| match self.files.get(&format!(".openharness/{path}")) {
            Some(FileContent::Bytes(bytes)) => {
                String::from_utf8(bytes.clone()).map_err(|_| format!("`{path}` is no UTF-8 text: save it as UTF-8"))
            }
            Some(FileContent::TooLarge(_) | FileContent::Unreadable(_) | FileContent::LeftOut(_)) => {
                Err(format!("`{path}` cannot be read"))
            }
            None => Err(format!("there is no file `{path}` in `.openharness`")),
        };
        if let Some(node) = self.yaml(PROMPTS, &mut problems) {
            let prompts = Prompts::read(&node, &file, &mut problems);
            if prompts.base.is_some() && self.workspace.settings.system_prompt.is_some() {
                let message = "`base` stands here and `system_prompt` in the settings: leave one of them";
                problems.error(node.line, message);
            }
            self.workspace.prompts = prompts;
        }
        let are_lost = problems.has_errors();
        self.keep(problems);
        if are_lost {
            self.workspace.ask_for_everything();
        }
    }

    /// The files right inside of `folder` with one of these endings, and their names without it.
    fn inside(&self, folder: &'static str, endings: &'static [&'static str]) -> Vec<(&'f str, &'f str)> {
        let named = |path: &'f str| {
            let name = path.strip_prefix(folder)?;
            let name = endings.iter().find_map(|ending| name.strip_suffix(ending))?;
            // What was published by an earlier version may have such files.
            (!name.contains('/') && !is_litter(path)).then_some((path, name))
        };
        self.files.keys().filter_map(|path| named(path)).collect()
    }

    fn agents(&mut self) {
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        let own = self.inside(AGENTS, &[".md"]);
        let mut of_platform = self.inside(PLATFORM_AGENTS, &[".md"]);
        of_platform.retain(|(_, name)| own.iter().all(|(_, own)| own != name));
        for (path, name) in own.into_iter().chain(of_platform) {
            if self.is_for_people(path, name) {
                continue;
            }
            let mut problems = FileProblems::new(path);
            problems.about(DefinitionName::new(DefinitionKind::Agent, name));
            if let Err(reason) = sound_name(name) {
                problems.error(None, format!("the agent cannot be called `{name}`: {reason}; rename the file"));
            }
            match taken.get(&name.to_lowercase()) {
                Some(first) => {
                    let message = format!("the agents `{first}` and `{name}` differ only in their case: rename one");
                    problems.error(None, message);
                }
                None => {
                    taken.insert(name.to_lowercase(), name);
                }
            }
            let text = self.text(path, &mut problems);
            let agent = text.and_then(|text| AgentDefinition::read(name, path, text, &mut problems));
            if let Some(agent) = agent {
                self.workspace.agents.insert(name.to_owned(), agent);
            }
            self.keep(problems);
        }
    }

    /// True for a README among the agents, unless it has settings: it would come before all others.
    fn is_for_people(&self, path: &str, name: &str) -> bool {
        name.eq_ignore_ascii_case("readme")
            && matches!(self.files.get(path), Some(FileContent::Bytes(bytes)) if !bytes.starts_with(b"---"))
    }

    fn models(&mut self) {
        self.workspace.models = self.models_in(MODELS, "");
        self.workspace.platform_models = self.models_in(PLATFORM_MODELS, "platform/");
    }

    /// The models of a folder, whose names begin with `space` where they are told.
    fn models_in(&mut self, folder: &'static str, space: &str) -> IndexMap<String, ModelDefinition> {
        let mut models: IndexMap<String, ModelDefinition> = IndexMap::new();
        for (path, _) in self.inside(folder, &[".yaml", ".yml"]) {
            let mut problems = FileProblems::new(path);
            for entry in self.entries(path, "models by their names", &mut problems) {
                problems.about_file();
                if let Some((space @ ("workspace" | "platform"), name)) = entry.key.split_once('/') {
                    let message = format!(
                        "a model cannot be called `{}`: so others refer to the model `{name}` of the {space}; call it by its name",
                        entry.key
                    );
                    problems.error(Some(entry.line), message);
                    continue;
                }
                if entry.key == "models" && entry.value.holds_mappings() {
                    let message = "leave the level `models` out: models stand by their names at the top of this file";
                    problems.error(Some(entry.line), message);
                    continue;
                }
                problems.named_on(Some(entry.line));
                let first = models.get(&entry.key).map(|first| first.file.as_str());
                if problems.is_first((DefinitionKind::Model, "model"), &entry.key, first) {
                    let name = format!("{space}{}", entry.key);
                    let model = ModelDefinition::read(&name, path, &entry.value, &mut problems);
                    models.extend(model.map(|model| (entry.key.clone(), model)));
                }
            }
            self.keep(problems);
        }
        models
    }

    fn tools(&mut self) {
        let mut problems = FileProblems::new(TOOLS);
        if self.files.contains_key(TOOLS) {
            for entry in self.entries(TOOLS, "servers by their names", &mut problems) {
                let tool = tools::definition(&entry.key, &entry.value, &mut problems);
                self.workspace.tools.extend(tool.map(|tool| (entry.key.clone(), tool)));
            }
        }
        self.keep(problems);
    }

    fn actions(&mut self) {
        for (path, folder, _) in self.folders(ACTIONS, "ACTION.yaml") {
            let mut problems = FileProblems::new(path);
            problems.about(DefinitionName::new(DefinitionKind::Action, folder));
            let place = format!("{ACTIONS}{folder}");
            let action = self.yaml(path, &mut problems);
            let action = action.and_then(|node| action::definition(path, &place, &node, &mut problems));
            if let Some(action) = action {
                let first = self.workspace.actions.get(&action.name).map(|first| first.file.as_str());
                if is_reserved(&wire_name(&action.name)) {
                    let message =
                        format!("the action has the name of a tool of Dormouse, `{}`: rename it", action.name);
                    problems.about(DefinitionName::new(DefinitionKind::Action, &action.name));
                    problems.name_error(message);
                }
                if problems.is_first((DefinitionKind::Action, "action"), &action.name, first) {
                    self.workspace.actions.insert(action.name.clone(), action);
                }
            }
            self.keep(problems);
        }
    }

    /// Those of `.openharness/skills`, and behind them those of the folders that the settings name.
    fn skills(&mut self) {
        self.skills_in(SKILLS);
        for folder in self.workspace.settings.skill_dirs.clone() {
            if self.skills_in(&format!("{folder}/")) == 0 {
                let message = format!("there is no skill in `{folder}` of `skill_dirs`");
                self.workspace.warn(SETTINGS, None, message);
            }
        }
    }

    /// Reads the skills of the folder `root`; gives how many it has.
    fn skills_in(&mut self, root: &str) -> usize {
        let folders = self.folders(root, "SKILL.md");
        for &(path, folder, place) in &folders {
            let mut problems = FileProblems::new(path);
            problems.about(DefinitionName::new(DefinitionKind::Skill, folder));
            let text = self.text(path, &mut problems);
            let skill = text.and_then(|text| SkillDefinition::read(folder, path, text, &mut problems));
            if let Some(mut skill) = skill {
                let first = self.workspace.skills.get(&skill.name).map(|first| first.file.as_str());
                match first.filter(|first| !first.starts_with(root)) {
                    Some(first) => problems.warning(
                        None,
                        format!("the skill `{}` is left out: that of {first} comes before it", skill.name),
                    ),
                    None if problems.is_first((DefinitionKind::Skill, "skill"), &skill.name, first) => {
                        skill.resources = Arc::new(self.beside(path, place, &mut problems));
                        self.workspace.skills.insert(skill.name.clone(), skill);
                    }
                    None => {}
                }
            }
            self.keep(problems);
        }
        folders.len()
    }

    /// A hook that cannot be read may have forbidden anything: then a person is asked.
    fn hooks(&mut self) {
        for (path, stem) in self.inside(HOOKS, &[".yaml", ".yml"]) {
            let mut problems = FileProblems::new(path);
            problems.about(DefinitionName::new(DefinitionKind::Hook, stem));
            if self.workspace.hooks.len() == MOST_HOOKS {
                problems.error(None, format!("a workspace has up to {MOST_HOOKS} hooks: put some of them together"));
                self.workspace.ask_for_everything();
                self.keep(problems);
                break;
            }
            let hook = self.yaml(path, &mut problems);
            let hook = hook.and_then(|node| HookDefinition::read(path, stem, &node, &mut problems));
            if let Some(hook) = hook {
                let first = self.workspace.hooks.get(&hook.name).map(|first| first.file.as_str());
                if problems.is_first((DefinitionKind::Hook, "hook"), &hook.name, first) {
                    self.workspace.hooks.insert(hook.name.clone(), hook);
                }
            }
            if problems.has_errors() {
                self.workspace.ask_for_everything();
            }
            self.keep(problems);
        }
    }

    /// The files called `name` right inside of folders of `parent`: path, name of the folder, and its path with a slash.
    fn folders(&self, parent: &str, name: &'static str) -> Vec<(&'f str, &'f str, &'f str)> {
        let named = |path: &'f str| {
            let folder = path.strip_prefix(parent)?.strip_suffix(name)?.strip_suffix('/')?;
            (!folder.contains('/')).then_some((path, folder, &path[..path.len() - name.len()]))
        };
        self.files.keys().filter_map(|path| named(path)).collect()
    }

    fn memory(&mut self) {
        let mut found = self.inside(MEMORY, &[".md"]);
        found.sort_by_key(|(_, name)| *name != "MEMORY");
        // What is left out is told of all of them together.
        let files = self.files;
        let is_left_out = |path: &str| files.get(path).is_some_and(FileContent::is_left_out);
        for (path, name) in found.into_iter().filter(|(path, _)| !is_left_out(path)) {
            let mut problems = FileProblems::new(path);
            if let Some(text) = self.text(path, &mut problems) {
                self.workspace.memory.insert(name.to_owned(), text.to_owned());
            }
            self.keep(problems);
        }
    }

    /// The files in the folder of a skill but the one at `path`, by their paths from that folder.
    fn beside(&self, path: &str, place: &str, problems: &mut FileProblems<'_>) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        let inside = self.files.iter().filter(|(other, _)| other.starts_with(place) && *other != path);
        for (other, content) in inside {
            match content {
                FileContent::Bytes(bytes) => {
                    found.insert(other[place.len()..].to_owned(), bytes.clone());
                }
                FileContent::TooLarge(size) => {
                    problems.warning(
                        None,
                        format!("{other} has {size} bytes, and is left out: files of skills may have {FILE_LIMIT}"),
                    );
                }
                FileContent::Unreadable(reason) => problems.warning(None, format!("{other} is left out: {reason}")),
                // Told for all of them together.
                FileContent::LeftOut(_) => {}
            }
        }
        found
    }

    /// The entries of a file that is a mapping of `what`.
    fn entries(&self, path: &'f str, what: &str, problems: &mut FileProblems<'_>) -> Vec<YamlEntry> {
        match self.yaml(path, problems).map(|node| (node.line, node.value)) {
            Some((_, NodeValue::Map(entries))) => entries,
            Some((_, NodeValue::Null)) | None => Vec::new(),
            Some((line, _)) => {
                problems.error(line, format!("the file must be a mapping of {what}"));
                Vec::new()
            }
        }
    }
}

/// Checks a name that becomes that of a graph and of a persona.
fn sound_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=64).contains(&name.len()) && name.chars().all(sound) {
        true => Ok(()),
        false => {
            Err("a name has up to 64 letters from `a` to `z`, also large ones, digits, `-`, `_` and `.`".to_owned())
        }
    }
}

/// SHA-256 over the files in the order of their paths, each with the length of its path and content before it. Of one that
/// was not read a mark stands there, and why.
pub(crate) fn digest(files: &Files) -> String {
    let mut hash = Sha256::new();
    let counts = counted(files);
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    for (path, content) in files.iter().filter(|(path, content)| counts(path) && !content.is_left_out()) {
        add(path.as_bytes());
        match content {
            FileContent::Bytes(bytes) => add(bytes),
            FileContent::LeftOut(_) => {}
            FileContent::TooLarge(size) => [u64::MAX, *size].iter().for_each(|part| add(&part.to_be_bytes())),
            FileContent::Unreadable(reason) => {
                add(&u64::MAX.to_be_bytes());
                add(reason.as_bytes());
            }
        }
    }
    hex::encode(hash.finalize())
}

/// Tells files of definitions from others, and from a run's own data.
pub(crate) fn counted(files: &Files) -> impl Fn(&str) -> bool + use<> {
    let skills = skill_folders(files);
    move |path| match path.strip_prefix(".openharness/") {
        Some(inside) => !inside.starts_with("data/") && !inside.starts_with("state/"),
        None => path == INSTRUCTIONS || skills.iter().any(|folder| path.starts_with(folder)),
    }
}

/// All folders of skills, each with a slash behind it.
pub(crate) fn skill_folders(files: &Files) -> Vec<String> {
    let named = skill_dirs(files).into_iter().map(|folder| format!("{folder}/"));
    std::iter::once(SKILLS.to_owned()).chain(named).collect()
}

/// The folders of skills that the settings among `files` name.
pub(crate) fn skill_dirs(files: &Files) -> Vec<String> {
    let named = |bytes: &[u8]| bytes.windows(SKILL_DIRS.len()).any(|part| part == SKILL_DIRS);
    match files.get(SETTINGS) {
        Some(FileContent::Bytes(bytes)) if named(bytes) => {}
        Some(_) | None => return Vec::new(),
    }
    let mut loader = Loader { files, workspace: Workspace::default() };
    loader.settings();
    loader.workspace.settings.skill_dirs
}

/// What the settings in `bytes` import; nothing where they cannot be read.
pub(crate) fn imports_of(bytes: &[u8]) -> Imports {
    let files = Files::from([(SETTINGS.to_owned(), FileContent::Bytes(bytes.to_vec()))]);
    let mut loader = Loader { files: &files, workspace: Workspace::default() };
    loader.settings();
    loader.workspace.settings.imports
}

/// The servers that a file of tools declares, by their names; `None` where it is no mapping.
pub(crate) fn tool_servers(bytes: &[u8]) -> Option<BTreeMap<String, serde_json::Value>> {
    let text = std::str::from_utf8(bytes).ok()?;
    match yaml::parse(text.strip_prefix('\u{feff}').unwrap_or(text), 1).ok()?.value {
        NodeValue::Map(entries) => Some(entries.into_iter().map(|entry| (entry.key, entry.value.to_json())).collect()),
        NodeValue::Null => Some(BTreeMap::new()),
        NodeValue::Bool(_) | NodeValue::Number(_) | NodeValue::Text(_) | NodeValue::List(_) => None,
    }
}

impl Workspace {
    /// The same with what its problems disable, and its problems in order.
    pub(super) fn settled(mut self) -> Self {
        let disabled = self.problems.iter().filter_map(|problem| problem.disables.clone());
        self.disabled = disabled.collect();
        // What is wrong with all tools is the cause of what agents are told of theirs.
        let place = |problem: &Problem| (!is_of_all_tools(problem), problem.file.clone(), problem.line);
        self.problems.sort_by_cached_key(place);
        self
    }

    /// Adds an error that disables `name`.
    pub(super) fn disable(&mut self, file: &str, line: Option<usize>, name: DefinitionName, message: String) {
        let file = file.to_owned();
        let disables = Some(name);
        self.problems.push(Problem { file, line, severity: Severity::Error, message, disables });
    }

    /// Has a person see every call of a tool, until it is known again what was to be seen or forbidden.
    pub(super) fn ask_for_everything(&mut self) {
        self.settings.approval = self.settings.approval.or(&ApprovalPolicy::everything());
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, file: &str, line: Option<usize>, message: String) {
        let file = file.to_owned();
        self.problems.push(Problem { file, line, severity: Severity::Warning, message, disables: None });
    }
}
