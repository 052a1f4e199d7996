use std::collections::BTreeMap;

use serde::Serialize;

/// A mistake in the files of a workspace, or something that looks like one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Path of the file.
    pub file: String,
    /// Line in the file, from 1; absent where the file as a whole is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Severity of the problem.
    pub severity: Severity,
    /// Problem, and what to do about it.
    pub message: String,
    /// The definition that it disables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disables: Option<DefinitionName>,
}

/// Severity of a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The definition works, though perhaps not as it was meant.
    Warning,
    /// The definition is disabled, or a part of it does not count.
    Error,
}

/// Kind of a definition of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionKind {
    /// `AGENTS.md`.
    Instructions,
    /// `.openharness/settings.yaml`.
    Settings,
    /// An agent.
    Agent,
    /// A model.
    Model,
    /// A server of tools, or a tool of its own.
    Tool,
    /// An action.
    Action,
    /// A skill.
    Skill,
    /// A hook.
    Hook,
    /// `.openharness/prompts.yaml`.
    Prompts,
}

/// Names a definition of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DefinitionName {
    /// Its kind.
    pub kind: DefinitionKind,
    /// Its name among those of its kind.
    pub name: String,
}

impl DefinitionName {
    pub(crate) fn new(kind: DefinitionKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        match self.line {
            Some(line) => write!(f, "{}:{line}: {severity}: {}", self.file, self.message),
            None => write!(f, "{}: {severity}: {}", self.file, self.message),
        }
    }
}

/// Where names stand, by file and name: the line on which a field or a list first has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(BTreeMap<(String, String), usize>);

impl Places {
    /// Keeps those whose name has this beginning.
    pub(crate) fn keep(&mut self, beginning: &str) {
        self.0.retain(|(_, name), _| name.starts_with(beginning));
    }

    /// The line of `file` on which `name` first stands.
    pub(crate) fn line(&self, file: &str, name: &str) -> Option<usize> {
        self.0.get(&(file.to_owned(), name.to_owned())).copied()
    }

    /// Notes those of one file.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

/// Problems of one file, as they are found while a definition of it is read.
#[derive(Debug)]
pub(crate) struct FileProblems<'f> {
    file: &'f str,
    definition: Option<DefinitionName>,
    /// Line on which the definition is named.
    named_on: Option<usize>,
    found: Vec<Problem>,
    places: Places,
}

impl<'f> FileProblems<'f> {
    pub(crate) fn new(file: &'f str) -> Self {
        Self { file, definition: None, named_on: None, found: Vec::new(), places: Places::default() }
    }

    /// What is found from now on is about `definition`.
    pub(crate) fn about(&mut self, definition: DefinitionName) {
        self.definition = Some(definition);
    }

    /// What is found from now on is about the file, and disables no definition that is in it.
    pub(crate) fn about_file(&mut self) {
        self.definition = None;
    }

    /// The definition is named on `line`.
    pub(crate) fn named_on(&mut self, line: Option<usize>) {
        self.named_on = line;
    }

    /// An error of the name of the definition.
    pub(crate) fn name_error(&mut self, message: impl Into<String>) {
        self.error(self.named_on, message);
    }

    /// True if there is no `first` file that declares `name` already. Where there is, that one counts, and this file's is
    /// an error.
    pub(crate) fn is_first(&mut self, (kind, word): (DefinitionKind, &str), name: &str, first: Option<&str>) -> bool {
        let Some(first) = first else { return true };
        self.about(DefinitionName::new(kind, self.file));
        self.name_error(format!("{word} `{name}` is declared in {first} already, which counts: rename one"));
        false
    }

    /// An error that disables the definition.
    pub(crate) fn error(&mut self, line: impl Into<Option<usize>>, message: impl Into<String>) {
        self.found.push(Problem {
            file: self.file.to_owned(),
            line: line.into(),
            severity: Severity::Error,
            message: message.into(),
            disables: self.definition.clone(),
        });
    }

    pub(crate) fn warning(&mut self, line: impl Into<Option<usize>>, message: impl Into<String>) {
        self.found.push(Problem {
            file: self.file.to_owned(),
            line: line.into(),
            severity: Severity::Warning,
            message: message.into(),
            disables: None,
        });
    }

    /// Notes that `name` stands on `line`.
    pub(crate) fn note(&mut self, name: &str, line: usize) {
        self.places.0.entry((self.file.to_owned(), name.to_owned())).or_insert(line);
    }

    /// True if a definition is disabled by them.
    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|problem| problem.severity == Severity::Error)
    }

    pub(crate) fn into_found(self) -> Vec<Problem> {
        self.found
    }

    /// What was found, and where the names stand that were noted.
    pub(crate) fn into_parts(self) -> (Vec<Problem>, Places) {
        (self.found, self.places)
    }
}
