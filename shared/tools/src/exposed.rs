//! A part of the tools of a source, under a prefix.

use std::collections::BTreeSet;

use async_trait::async_trait;
use dormouse_ports::tool::{ToolCall, ToolError, ToolErrorKind, ToolReply, ToolSource, ToolSpec};
use wildmatch::WildMatch;

use crate::names;

/// The tools of a source as they are offered: under a prefix, without those that are excluded, and without those with
/// names that are reserved for other tools. A tool that is not offered cannot be called either.
///
/// It is for callers without a dispatcher of their own that does the same.
#[derive(Debug)]
pub struct Exposed<S> {
    source: S,
    prefix: Option<String>,
    include: Vec<String>,
    exclude: Vec<String>,
    reserved: BTreeSet<String>,
}

/// Error of a prefix that no name can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{prefix}` cannot stand before the names of tools: {message}")]
pub struct ExposedError {
    /// The prefix.
    pub prefix: String,
    /// Message that says what is wrong with it.
    pub message: String,
}

impl<S: ToolSource> Exposed<S> {
    /// All tools of `source`, under their own names.
    pub fn new(source: S) -> Self {
        Self { source, prefix: None, include: Vec::new(), exclude: Vec::new(), reserved: BTreeSet::new() }
    }

    /// Puts `prefix` and a dot before each name.
    ///
    /// # Errors
    /// [`ExposedError`] for a prefix that has other than letters, digits, `_`, `-`, `.` and `/`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self, ExposedError> {
        let prefix = prefix.into();
        match names::check(&prefix) {
            Ok(()) => self.prefix = Some(prefix),
            Err(message) => return Err(ExposedError { prefix, message }),
        }
        Ok(self)
    }

    /// Offers only tools with a name that, with or without the prefix, matches one of `patterns` (`*` and `?`); all
    /// where there is none.
    #[must_use]
    pub fn include(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.include = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Leaves out tools with a name that, with or without the prefix, matches one of `patterns`, even if they are
    /// included.
    #[must_use]
    pub fn exclude(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.exclude = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Refuses tools that would be offered under one of `names`, in upper or lower case: the names of native tools.
    #[must_use]
    pub fn reserved(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.reserved = names.into_iter().map(|name| name.into().to_lowercase()).collect();
        self
    }

    /// The name under which the tool `plain` is offered, if it is.
    ///
    /// # Errors
    /// The reason for which it is not offered.
    fn offered(&self, plain: &str) -> Result<String, String> {
        let name = self.prefix.as_deref().map_or_else(|| plain.to_owned(), |prefix| format!("{prefix}.{plain}"));
        let matches = |patterns: &[String]| {
            patterns.iter().map(|pattern| WildMatch::new(pattern)).any(|p| p.matches(plain) || p.matches(&name))
        };
        names::check(&name)?;
        if self.reserved.contains(&name.to_lowercase()) {
            return Err("its name is that of a native tool; give its source a `tool_prefix`".to_owned());
        }
        match (self.include.is_empty() || matches(&self.include)) && !matches(&self.exclude) {
            true => Ok(name),
            false => Err("it is not included".to_owned()),
        }
    }

    fn plain<'n>(&self, name: &'n str) -> Option<&'n str> {
        let plain = match &self.prefix {
            Some(prefix) => name.strip_prefix(prefix.as_str())?.strip_prefix('.')?,
            None => name,
        };
        self.offered(plain).is_ok().then_some(plain)
    }
}

#[async_trait]
impl<S: ToolSource> ToolSource for Exposed<S> {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        let mut offered = Vec::new();
        for spec in self.source.list().await? {
            match self.offered(&spec.name) {
                Ok(name) => offered.push(ToolSpec { name, ..spec }),
                Err(reason) => tracing::debug!(tool = spec.name, reason, "a tool is not offered"),
            }
        }
        Ok(offered)
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let Some(plain) = self.plain(&call.name) else {
            return Err(ToolError::new(ToolErrorKind::NotFound, format!("there is no tool `{}`", call.name)));
        };
        self.source.call(&ToolCall { name: plain.to_owned(), ..call.clone() }).await
    }
}

#[cfg(test)]
mod tests {
    use dormouse_ports::Map;
    use dormouse_ports::tool::ToolOutput;
    use futures::executor::block_on;

    use super::*;
    use crate::{RustTool, RustTools};

    fn source() -> RustTools {
        let tool = |name: &str| {
            let said = name.to_owned();
            RustTool::new(name).run(move |_: Map| {
                let said = said.clone();
                async move { Ok::<_, String>(said) }
            })
        };
        RustTools::new(["search", "search_old", "Read"].map(tool)).expect("tools")
    }

    fn names(source: &impl ToolSource) -> Vec<String> {
        block_on(source.list()).expect("a list").into_iter().map(|spec| spec.name).collect()
    }

    #[test]
    fn tools_are_filtered_under_both_names_and_prefixed() {
        let exposed = Exposed::new(source()).prefix("docs").expect("a prefix");
        assert_eq!(names(&exposed.include(["search*"]).exclude(["docs.*_old"])), ["docs.search"]);
    }

    #[test]
    fn a_native_name_is_refused_in_any_case_and_free_behind_a_prefix() {
        assert_eq!(names(&Exposed::new(source()).reserved(["READ"])), ["search", "search_old"]);
        let prefixed = Exposed::new(source()).prefix("docs").expect("a prefix").reserved(["Read"]);
        assert_eq!(names(&prefixed), ["docs.search", "docs.search_old", "docs.Read"]);
    }

    #[test]
    fn what_is_not_offered_cannot_be_called() {
        let exposed = Exposed::new(source()).prefix("docs").expect("a prefix").exclude(["Read"]);
        let call = |name: &str| block_on(exposed.call(&ToolCall::new("1", name, Map::new())));
        assert_eq!(call("docs.search"), Ok(ToolReply::Done(ToolOutput::text("search"))));
        for name in ["docs.Read", "search", "docs.nothing", "docsearch"] {
            assert_eq!(call(name).map_err(|error| error.kind), Err(ToolErrorKind::NotFound), "{name}");
        }
    }

    #[test]
    fn a_prefix_is_part_of_a_name() {
        assert!(Exposed::new(source()).prefix("two words").is_err());
    }
}
