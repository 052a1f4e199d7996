//! A part of the tools of a source, under a prefix.

use std::collections::BTreeSet;

use async_trait::async_trait;
use dormouse_ports::tool::{ToolCall, ToolError, ToolErrorKind, ToolOutput, ToolReply, ToolSource, ToolSpec};
use serde_json::Value;
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

    /// Those of the tools `listed` that are offered, under their names.
    fn offers(&self, listed: Vec<ToolSpec>) -> Vec<ToolSpec> {
        let mut offered = Vec::new();
        for spec in listed {
            match self.offered(&spec.name) {
                Ok(name) => offered.push(ToolSpec { name, ..spec }),
                Err(reason) => tracing::debug!(tool = spec.name, reason, "a tool is not offered"),
            }
        }
        offered
    }
}

#[async_trait]
impl<S: ToolSource> ToolSource for Exposed<S> {
    async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.source.list().await.map(|listed| self.offers(listed))
    }

    async fn list_briefly(&self) -> Result<Vec<ToolSpec>, ToolError> {
        self.source.list_briefly().await.map(|listed| self.offers(listed))
    }

    async fn left_out(&self) -> Vec<(String, String)> {
        let left_out = self.source.left_out().await.into_iter();
        left_out.filter_map(|(tool, reason)| Some((self.offered(&tool).ok()?, reason))).collect()
    }

    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolError> {
        let Some(plain) = self.plain(&call.name) else {
            return Err(ToolError::new(ToolErrorKind::NotFound, format!("there is no tool `{}`", call.name)));
        };
        self.source.call(&ToolCall { name: plain.to_owned(), ..call.clone() }).await
    }

    async fn withdraw(&self, name: &str, state: &Value) -> Result<(), ToolError> {
        match self.plain(name) {
            Some(plain) => self.source.withdraw(plain, state).await,
            None => Ok(()),
        }
    }

    async fn recall(&self, name: &str) {
        if let Some(plain) = self.plain(name) {
            self.source.recall(plain).await;
        }
    }

    fn masked(&self, call_id: &str, output: ToolOutput) -> ToolOutput {
        self.source.masked(call_id, output)
    }

    fn lists_offline(&self) -> bool {
        self.source.lists_offline()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dormouse_ports::Map;
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

    /// A server with a tool of its own and one that is left out, which notes what it is told.
    #[derive(Debug, Default)]
    struct Server(Mutex<Vec<String>>);

    impl Server {
        fn told(&self, word: &str, name: &str) {
            self.0.lock().expect("not poisoned").push(format!("{word} {name}"));
        }
    }

    #[async_trait]
    impl ToolSource for Server {
        async fn list(&self) -> Result<Vec<ToolSpec>, ToolError> {
            Err(ToolError::transient("only in brief"))
        }

        async fn list_briefly(&self) -> Result<Vec<ToolSpec>, ToolError> {
            Ok(vec![ToolSpec::new("search"), ToolSpec::new("purge")])
        }

        async fn left_out(&self) -> Vec<(String, String)> {
            ["broken", "purge"].map(|tool| (tool.to_owned(), "why".to_owned())).into()
        }

        async fn call(&self, _: &ToolCall) -> Result<ToolReply, ToolError> {
            Err(ToolError::transient("no connection"))
        }

        async fn withdraw(&self, name: &str, _: &Value) -> Result<(), ToolError> {
            self.told("withdraw", name);
            Ok(())
        }

        async fn recall(&self, name: &str) {
            self.told("recall", name);
        }

        fn masked(&self, _: &str, _: ToolOutput) -> ToolOutput {
            ToolOutput::text("masked")
        }

        fn lists_offline(&self) -> bool {
            false
        }
    }

    #[test]
    fn what_else_a_source_is_asked_goes_through_to_it() {
        let exposed = Exposed::new(Server::default()).prefix("docs").expect("a prefix").exclude(["purge"]);
        let listed = block_on(exposed.list_briefly()).expect("a list");
        assert_eq!(listed.into_iter().map(|spec| spec.name).collect::<Vec<_>>(), ["docs.search"]);
        assert_eq!(block_on(exposed.left_out()), [("docs.broken".to_owned(), "why".to_owned())]);
        for name in ["docs.search", "docs.purge", "search"] {
            block_on(exposed.withdraw(name, &Value::Null)).expect("it is told");
            block_on(exposed.recall(name));
        }
        assert_eq!(*exposed.source.0.lock().expect("not poisoned"), ["withdraw search", "recall search"]);
        assert_eq!(exposed.masked("1", ToolOutput::text("hush")), ToolOutput::text("masked"));
        assert!(!exposed.lists_offline(), "a replay needs its list");
    }

    #[test]
    fn a_prefix_is_part_of_a_name() {
        assert!(Exposed::new(source()).prefix("two words").is_err());
    }
}
