//! Files that are not read, and look as if they were meant to be.

use std::collections::BTreeMap;

use super::{FileContent, HOOKS, INSTRUCTIONS, Loader, MEMORY, PLATFORM_AGENTS, PLATFORM_MODELS, SETTINGS};
use crate::names::nearest;
use crate::workspace::problem::FileProblems;
use crate::workspace::read::{FOLDERS, TOO_MANY};

impl Loader<'_> {
    /// Folders that were not looked into. One of hooks may have forbidden anything.
    pub(super) fn left_out(&mut self) {
        let named = self.workspace.settings.skill_dirs.clone();
        for (path, content) in self.files {
            let is_folder = match path.strip_prefix(".openharness") {
                Some("") => true,
                Some(inside) => FOLDERS.iter().any(|folder| inside.strip_prefix('/') == Some(folder)),
                None => named.contains(path),
            };
            let FileContent::Unreadable(reason) = content else { continue };
            if !is_folder {
                continue;
            }
            let mut problems = FileProblems::new(path);
            match path.as_str() {
                ".openharness" => problems.warning(None, format!("{reason}, besides definitions: remove what is none")),
                _ if reason == TOO_MANY => problems.error(None, format!("{reason}: remove what is no definition")),
                _ => problems.error(None, format!("nothing in it is read: {reason}")),
            }
            if path.as_str() == HOOKS.trim_end_matches('/') {
                self.workspace.ask_for_everything();
            }
            self.keep(problems);
        }
    }

    /// Files that stand too deep in a folder to be read, or in a memory that is full: one warning for each skill and each
    /// action, and one for the memory.
    pub(super) fn too_deep(&mut self) {
        let mut found: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (path, content) in self.files {
            let FileContent::LeftOut(reason) = content else { continue };
            let folder = match path.starts_with(MEMORY) {
                true => MEMORY.trim_end_matches('/'),
                false => path.match_indices('/').nth(2).map_or(path.as_str(), |(at, _)| &path[..at]),
            };
            found.entry((folder, reason)).or_default().push(path);
        }
        for ((folder, reason), paths) in found {
            let mut problems = FileProblems::new(folder);
            let message = match paths[..] {
                [path] if path == folder => reason.to_owned(),
                [path] => format!("{path} is left out: {reason}"),
                [path, ..] => format!("{path} and {} more are left out: {reason}", paths.len() - 1),
                [] => continue,
            };
            problems.warning(None, message);
            self.keep(problems);
        }
    }

    /// Files that look as if they were to be read, and are not.
    pub(super) fn others(&mut self) {
        for path in self.files.keys() {
            if let Some(inside) = path.strip_prefix(".openharness/") {
                if is_beside(inside) {
                    continue;
                }
                match inside.split_once('/').map_or(inside, |(folder, _)| folder) {
                    "agents" | "models" | "tools" | "actions" | "skills" | "hooks" => self.unread(path, inside),
                    "memory" => self.unread(path, inside),
                    "settings.yaml" | "prompts.yaml" | "prompts" | "data" | "state" => {}
                    "platform" if [PLATFORM_AGENTS, PLATFORM_MODELS].iter().any(|place| path.starts_with(place)) => {}
                    part => self.stray(path, part),
                }
            } else if path != INSTRUCTIONS && path.eq_ignore_ascii_case(INSTRUCTIONS) {
                let mut problems = FileProblems::new(path);
                problems.warning(None, format!("the file is not read: call it `{INSTRUCTIONS}`"));
                self.keep(problems);
            }
        }
    }

    /// A file in a folder of definitions that is none, and belongs to none.
    fn unread(&mut self, path: &str, inside: &str) {
        let within: Vec<&str> = inside.split('/').collect();
        // Some programs save in capitals, and some add an ending of their own.
        let folded = path.to_lowercase();
        let folded = folded.strip_suffix(".txt").unwrap_or(&folded);
        let ends = |endings: &[&str]| endings.iter().any(|ending| folded.ends_with(ending));
        let is_definition =
            |file: &str| self.files.contains_key(&format!(".openharness/{}/{}/{file}", within[0], within[1]));
        let advice = match within[..] {
            ["agents", name] if !name.ends_with(".md") => "call it `NAME.md`",
            ["agents", _, _] if ends(&[".md"]) => "move it into `.openharness/agents` itself",
            ["memory", name] if !name.ends_with(".md") => "call it `NAME.md`",
            ["memory", _, _] if ends(&[".md"]) => "move it into `.openharness/memory` itself",
            ["hooks", name] if !is_yaml(name) && self.is_meant_as_hook(path, folded) => {
                return self.unread_guard(path, "a hook is a file `NAME.yaml`");
            }
            ["hooks", _, _] if ends(&[".yaml", ".yml", ".json"]) && self.looks_like_a_hook(path) => {
                return self.unread_guard(path, "move it into `.openharness/hooks` itself, as `NAME.yaml`");
            }
            ["models", name] if !is_yaml(name) => "call it `NAME.yaml`",
            ["tools", name] if name != "settings.yaml" && ends(&[".yaml", ".yml"]) => "call it `settings.yaml`",
            ["tools", "settings.json" | "mcp.json" | ".mcp.json" | "servers.json"] => {
                "servers of tools belong in `settings.yaml`, by their names"
            }
            ["actions", _] => "an action is a folder with a file `ACTION.yaml`",
            ["skills", _] => "a skill is a folder with a file `SKILL.md`",
            ["actions", _, _] if !is_definition("ACTION.yaml") && ends(&[".yaml", ".yml"]) => "call it `ACTION.yaml`",
            ["skills", _, _] if !is_definition("SKILL.md") && ends(&[".md"]) => "call it `SKILL.md`",
            ["actions", _, .., _, name]
                if name.eq_ignore_ascii_case("ACTION.yaml") && !is_definition("ACTION.yaml") =>
            {
                "an action is a folder right in `.openharness/actions`: move its folder there"
            }
            ["skills", _, .., _, name]
                if name.eq_ignore_ascii_case("SKILL.md")
                    && !is_definition("SKILL.md")
                    && !self.is_in_named_folder(path) =>
            {
                "a skill is a folder right in `.openharness/skills`: move its folder there"
            }
            ["hooks"] if self.looks_like_a_hook(path) => {
                return self.unread_guard(path, "a hook stands in a folder of this name, as `NAME.yaml`");
            }
            [_] if self.is_file(path) => "definitions of this kind stand in a folder of this name",
            _ => return,
        };
        let mut problems = FileProblems::new(path);
        match self.files.get(path) {
            Some(FileContent::Unreadable(reason)) => problems.error(None, format!("it cannot be read: {reason}")),
            Some(FileContent::Bytes(_) | FileContent::TooLarge(_) | FileContent::LeftOut(_)) | None => {
                problems.warning(None, format!("the file is not read: {advice}"));
            }
        }
        self.keep(problems);
    }

    /// True for the file of a skill whose folder stands right in one that `skill_dirs` names.
    fn is_in_named_folder(&self, path: &str) -> bool {
        let parent = path.rsplitn(3, '/').nth(2);
        parent.is_some_and(|parent| self.workspace.settings.skill_dirs.iter().any(|named| named == parent))
    }

    /// True for what has a content, unlike a note about a folder.
    fn is_file(&self, path: &str) -> bool {
        matches!(self.files.get(path), Some(FileContent::Bytes(_) | FileContent::TooLarge(_)))
    }

    /// True for a file of `.openharness/hooks` that is no script and no data of one: `folded` is its path in small letters,
    /// without `.txt`. With any other ending (`guard.yaml.off`) somebody has put it aside.
    fn is_meant_as_hook(&self, path: &str, folded: &str) -> bool {
        let name = folded.rsplit('/').next().unwrap_or(folded);
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("json" | "toml" | "yaml" | "yml") => self.looks_like_a_hook(path),
            Some("md") | None => self.sets_fields_of_a_hook(path),
            Some(_) => false,
        }
    }

    /// True for a text that sets the two fields of each hook, in a line each, and does not show how that is done.
    fn sets_fields_of_a_hook(&self, path: &str) -> bool {
        let Some(FileContent::Bytes(bytes)) = self.files.get(path) else { return false };
        let text = String::from_utf8_lossy(bytes);
        let sets = |field: &&str| text.lines().any(|line| line.starts_with(*field));
        ["events:", "handler:"].iter().all(sets) && !text.contains("```")
    }

    /// True for a file that names events and a handler; others are data of scripts.
    fn looks_like_a_hook(&self, path: &str) -> bool {
        let Some(FileContent::Bytes(bytes)) = self.files.get(path) else { return false };
        let text = String::from_utf8_lossy(bytes);
        text.contains("events") && text.contains("handler")
    }

    /// A file that may have been meant to keep calls from being made.
    fn unread_guard(&mut self, path: &str, advice: &str) {
        let mut problems = FileProblems::new(path);
        let message = format!("the file is not read: {advice}; until then every call of a tool waits for a person");
        problems.error(None, message);
        self.workspace.ask_for_everything();
        self.keep(problems);
    }

    fn stray(&mut self, path: &str, part: &str) {
        if part.eq_ignore_ascii_case(INSTRUCTIONS) {
            let mut problems = FileProblems::new(path);
            problems.warning(None, format!("the file is not read: move it to `{INSTRUCTIONS}`, beside `.openharness`"));
            return self.keep(problems);
        }
        if path.strip_prefix(".openharness/") == Some(part) {
            if is_yaml(&part.to_lowercase()) && self.looks_like_a_hook(path) {
                return self.unread_guard(path, "a hook belongs in `.openharness/hooks`, as `NAME.yaml`");
            }
            if let Some(place) = place_of(part) {
                let mut problems = FileProblems::new(path);
                problems.warning(None, format!("the file is not read: {place}"));
                return self.keep(problems);
            }
        }
        let guess =
            nearest(part, ["agents", "models", "tools", "actions", "skills", "hooks", "prompts.yaml", "settings.yaml"]);
        if let Some(guard @ ("hooks" | "settings.yaml")) = guess
            && !(guard == "settings.yaml" && self.files.contains_key(SETTINGS))
        {
            return self.unread_guard(path, &format!("did you mean `.openharness/{guard}`?"));
        }
        let guess = guess.map(|name| format!(": did you mean `.openharness/{name}`?")).unwrap_or_default();
        let mut problems = FileProblems::new(path);
        problems.warning(None, format!("the file is not read{guess}"));
        self.keep(problems);
    }
}

/// True for a file that tells of its folder, or is there for version control and editors: nobody means it as a definition.
fn is_beside(inside: &str) -> bool {
    const NAMES: [&str; 5] = [".editorconfig", ".gitattributes", ".gitignore", ".gitkeep", ".keep"];
    let name = inside.rsplit('/').next().unwrap_or(inside).to_lowercase();
    let is_readme = name.strip_prefix("readme").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    // The only file of a skill may be one that is called so.
    NAMES.contains(&name.as_str()) || (is_readme && inside.matches('/').count() < 2)
}

/// True for a file that is read as YAML, by its `name`.
fn is_yaml(name: &str) -> bool {
    [".yaml", ".yml"].iter().any(|ending| name.ends_with(ending))
}

/// Where a file belongs that stands right in `.openharness`, as far as its name tells.
fn place_of(name: &str) -> Option<&'static str> {
    let (stem, ending) = name.rsplit_once('.')?;
    match (stem.to_lowercase().as_str(), ending) {
        ("memory", "md") => Some("it belongs in `.openharness/memory`"),
        ("skill", "md") => Some("a skill belongs in a folder of `.openharness/skills`, as `SKILL.md`"),
        (_, "md") => Some("an agent belongs in `.openharness/agents`"),
        ("action" | "actions", "yaml" | "yml") => {
            Some("an action belongs in a folder of `.openharness/actions`, as `ACTION.yaml`")
        }
        ("model" | "models", "yaml" | "yml") => Some("models belong in `.openharness/models`"),
        ("tool" | "tools" | "server" | "servers" | "mcp", "yaml" | "yml" | "json") => {
            Some("servers of tools belong in `.openharness/tools/settings.yaml`")
        }
        (_, _) => None,
    }
}
