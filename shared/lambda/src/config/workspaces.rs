use dormouse_agent::bundle::sound_workspace_name;

use super::VariableReader;

const NAMES: &str = "DORMOUSE_WORKSPACES";
const BUCKET: &str = "DORMOUSE_WORKSPACES_BUCKET";
const PREFIX: &str = "DORMOUSE_WORKSPACES_PREFIX";
const SECRETS: &str = "DORMOUSE_AGENT_SECRETS";
const TOOLS: &str = "DORMOUSE_TOOLS_FUNCTION";

/// Published workspaces with agents that a function serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceConfig {
    /// Their names, in the order in which agents of the same name count.
    pub names: Vec<String>,
    /// The bucket of their bundles.
    pub bucket: String,
    /// Beginning of the keys of their bundles: nothing, or a text that ends with `/`.
    pub prefix: String,
    /// Path of the parameters that `${secrets.NAME}` stands for.
    pub secrets: Option<String>,
    /// The function in which native tools and actions work; without it there are `WebFetch` and `TodoWrite`.
    pub tools: Option<String>,
}

impl<F: Fn(&str) -> Option<String>> VariableReader<F> {
    /// The workspaces; `None` where none is named, even if other settings are.
    pub(super) fn workspaces(&mut self) -> Option<WorkspaceConfig> {
        let names = self.0.optional(NAMES)?;
        let names: Vec<String> =
            names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.is_empty() {
            return None;
        }
        if let Some(name) = names.iter().find(|name| !sound_workspace_name(name)) {
            self.0.fault(format!("{NAMES}: {name:?} is no name of a workspace"));
        }
        let bucket = self.0.needed(BUCKET);
        let is_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if !bucket.bytes().all(is_bucket) {
            self.0.fault(format!("{BUCKET} must be the name of a bucket"));
        }
        let prefix = self.0.optional(PREFIX).unwrap_or_else(|| "workspaces/".to_owned());
        let is_part = |part: &str| {
            !["", ".", ".."].contains(&part) && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if !prefix.strip_suffix('/').is_some_and(|parts| parts.split('/').all(is_part)) {
            self.0.fault(format!(
                "{PREFIX} must be like workspaces/: letters, digits, `-`, `_`, `.`, and a slash at its end"
            ));
        }
        let secrets = self.parameter_path(SECRETS);
        let tools = self.0.optional(TOOLS);
        let is_name = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if tools.as_ref().is_some_and(|name| !is_name(name)) {
            self.0.fault(format!("{TOOLS} must be the name of a function"));
        }
        Some(WorkspaceConfig { names, bucket, prefix, secrets, tools })
    }
}

#[cfg(test)]
mod tests {
    use dormouse_http::Variables;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Option<WorkspaceConfig>, Vec<String>) {
        let given = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        let mut reader = VariableReader(Variables::new(given));
        (reader.workspaces(), reader.0.faults().to_vec())
    }

    #[test]
    fn without_names_there_are_none() {
        assert_eq!(read(&[(BUCKET, "agents"), (NAMES, "")]), (None, Vec::new()));
        assert_eq!(read(&[(NAMES, " , ")]), (None, Vec::new()));
    }

    #[test]
    fn names_need_a_bucket() {
        let (found, faults) = read(&[(NAMES, "support, sales"), (BUCKET, "agents"), (SECRETS, "/dormouse/dev/agents")]);
        let found = found.expect("workspaces");
        assert_eq!((found.names, found.bucket.as_str()), (vec!["support".to_owned(), "sales".to_owned()], "agents"));
        assert_eq!((found.prefix.as_str(), found.secrets.as_deref()), ("workspaces/", Some("/dormouse/dev/agents")));
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(read(&[(NAMES, "support")]).1, ["DORMOUSE_WORKSPACES_BUCKET is missing"]);
    }

    #[test]
    fn what_is_malformed_is_named() {
        let (_, faults) =
            read(&[(NAMES, "a/b"), (BUCKET, "Agents!"), (PREFIX, "../x"), (SECRETS, "x"), (TOOLS, "arn:x")]);
        let named: Vec<&str> = faults.iter().filter_map(|fault| fault.split([':', ' ']).next()).collect();
        assert_eq!(named, [NAMES, BUCKET, PREFIX, SECRETS, TOOLS]);
    }
}
