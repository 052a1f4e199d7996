//! `dormouse workspace publish`: makes a folder the bundle with which runs on AWS begin.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use dormouse_agent::bundle::{Bundle, BundleError, BundleStore, BundleStoreError, FileChange, Publication};
use dormouse_agent::workspace::{FileContent, Files, Platform, ToolSourceDefinition, Workspace, load, looks_secret};
use dormouse_api::Agents;
use dormouse_aws::S3Objects;
use dormouse_fetch::NetworkFetch;
use dormouse_ports::WorkspaceError;
use dormouse_system::SystemClock;
use serde_json::json;

use super::{commands, definitions, is_path, platform_with, tell_problems};
use crate::target::{TargetError, access, endpoint};
use crate::terminal::plain;

/// Bundle and place of a publication.
#[derive(Debug, clap::Args)]
pub(crate) struct PublishArgs {
    /// The folder.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The bucket; an output of the stack says which (`WorkspaceBucket`).
    #[arg(long)]
    bucket: String,
    /// Name of the workspace: lower-case letters, digits and `-`.
    #[arg(long)]
    name: String,
    /// Beginning of the keys in the bucket, as the functions know it.
    #[arg(long, default_value = "workspaces/")]
    prefix: String,
    /// Address of S3, if not that of the region; credentials and region come from the environment.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    endpoint_url: Option<String>,
    /// Check, and say what would change; write nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

/// Reason for which nothing was published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishFailure {
    #[error("the workspace cannot be read: {0}")]
    Read(#[from] WorkspaceError),
    #[error("the workspace cannot be published: {0}")]
    Bundle(#[from] BundleError),
    #[error("the workspace cannot be published: {0}")]
    Store(#[from] BundleStoreError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// Executes `asked`. What is wrong with the workspace is told, and nothing is published then: the exit code is 3.
pub(crate) async fn publish(asked: PublishArgs, agents: &Agents) -> Result<ExitCode, PublishFailure> {
    let files = definitions(&asked.folder).await?;
    let platform = Platform { processes: false, ..platform_with(agents.crate_tools()) };
    let workspace = load(&files, &platform);
    let mut objections = objections(&workspace, &files);
    objections.extend(unpublished(&workspace, &files, &asked.folder));
    objections.extend(secrets(&files));
    let mut err = io::stderr();
    tell_problems(&workspace, &mut err)?;
    for told in absent_folders(&workspace, &files).chain(objections.iter().cloned()) {
        writeln!(err, "{}", plain(&told))?;
    }
    if !workspace.is_sound() || !objections.is_empty() {
        writeln!(err, "nothing was published: mend what is wrong first")?;
        return Ok(ExitCode::from(3));
    }
    let bundle = Bundle::of(&files)?;
    // A bundle that is too large is refused before anything is asked.
    bundle.to_bytes()?;
    let store = store(&asked)?;
    let current = store.current(&asked.name).await?;
    let before = match &current {
        Some(current) if current.digest != bundle.digest() => store.load(&asked.name, &current.digest).await?,
        Some(_) => Some(bundle.clone()),
        None => None,
    };
    let done = match asked.dry_run {
        true => None,
        false => Some(store.publish(&asked.name, &bundle, current.as_ref()).await?),
    };
    let told = PublishReport {
        name: &asked.name,
        bundle: bundle.digest(),
        before: current.as_ref().map(|current| current.digest.as_str()),
        changes: bundle.changes_from(before.as_ref()),
        done,
    };
    tell(&told, asked.json, &mut io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn store(asked: &PublishArgs) -> Result<BundleStore, PublishFailure> {
    let mut access = access(None)?;
    access.endpoints.s3 = asked.endpoint_url.clone().or(access.endpoints.s3);
    let fetch = Arc::new(NetworkFetch::new());
    let clock = Arc::new(SystemClock::default());
    let objects = S3Objects::new(&access, &asked.bucket, fetch, clock);
    Ok(BundleStore::new(Arc::new(objects), asked.prefix.clone()))
}

/// What works on this machine, and not in a function.
fn objections(workspace: &Workspace, files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    if workspace.enabled_agents().next().is_none() {
        found.push("error: no agent can run: write one in `.openharness/agents/NAME.md`".to_owned());
    }
    for tool in workspace.tools.values().filter(|tool| tool.enabled) {
        if let ToolSourceDefinition::Stdio { .. } = tool.source {
            let name = &tool.name;
            found.push(format!(
                ".openharness/tools/settings.yaml: error: tool server `{name}` is a process, and no function starts one: \
                 serve it over HTTP, or set `enabled: false`"
            ));
        }
    }
    for (path, content) in files.iter().filter(|(path, _)| path.ends_with(".yaml") || path.ends_with(".yml")) {
        if let FileContent::Bytes(bytes) = content {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.lines().enumerate().filter(|(_, line)| refers_to_environment(line));
            found.extend(lines.map(|(number, _)| {
                let line = number + 1;
                format!("{path}:{line}: error: no function has `${{env.…}}`: use `${{secrets.…}}`")
            }));
        }
    }
    found
}

/// Files that would be published, and look as if they held passwords or keys: nobody means to give these to all who may read
/// the bucket.
fn secrets(files: &Files) -> impl Iterator<Item = String> {
    files.iter().filter(|(path, content)| looks_secret(path, content)).map(|(path, _)| {
        format!(
            "{path}: error: the file looks as if it held secrets, and would be published with all others: move it out of the \
             definitions, and refer to its values with `${{secrets.…}}`"
        )
    })
}

/// Programs that run a script which is the word behind them.
const INTERPRETERS: [&str; 7] = ["bash", "node", "perl", "python", "python3", "ruby", "sh"];

/// Scripts in `folder` that hooks and actions run, and that are none of its definitions `files`, which alone are published: such
/// a hook would fail in a function each time, and let everything pass.
fn unpublished(workspace: &Workspace, files: &Files, folder: &Path) -> Vec<String> {
    let complaint = |(file, place, command): (&str, &str, &str)| {
        let mut words = command.split_whitespace();
        let first = words.next()?;
        let behind = words.next().filter(|word| INTERPRETERS.contains(&first) && !word.starts_with('-'));
        let is_there = |word: &&str| folder.join(place).join(word).is_file();
        let script = if is_path(first) { first } else { behind.filter(is_there)? };
        let path = plain_path(place, script);
        let is_published = path.is_some_and(|path| matches!(files.get(&path), Some(FileContent::Bytes(_))));
        let (beside, _) = file.rsplit_once('/').unwrap_or_default();
        let name = script.rsplit('/').next().unwrap_or(script);
        (!is_published).then(|| {
            format!(
                "{file}: error: `command` runs `{script}`, which is no file of the definitions, and nothing else is \
                 published: move it to `{beside}/{name}`, and run it there"
            )
        })
    };
    commands(workspace).filter_map(complaint).collect()
}

/// Actions that are run in a folder without definitions, which a function has only where an agent or a client makes it.
fn absent_folders(workspace: &Workspace, files: &Files) -> impl Iterator<Item = String> {
    workspace.actions.values().filter_map(move |action| {
        let folder = plain_path(&action.entry.folder, "")?;
        let inside = format!("{folder}/");
        let is_there = folder.is_empty() || files.keys().any(|path| path.starts_with(&inside));
        (!is_there).then(|| {
            format!(
                "{}: warning: its command is run in `{folder}`, of which nothing is published: each call fails until an agent or \
                 a client has made that folder; without `cwd` it is run in the folder of the action",
                action.file
            )
        })
    })
}

/// The path of `script`, which is named in `place`, from the root of the workspace on; `None` where it leads out of that.
fn plain_path(place: &str, script: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in place.split('/').chain(script.split('/')).filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn refers_to_environment(line: &str) -> bool {
    !line.trim_start().starts_with('#') && line.replace("$${", "").contains("${env.")
}

/// Outcome of a publication.
struct PublishReport<'t> {
    name: &'t str,
    bundle: &'t str,
    before: Option<&'t str>,
    changes: Vec<FileChange>,
    /// `None` if it only looked.
    done: Option<Publication>,
}

impl PublishReport<'_> {
    fn sentence(&self) -> String {
        let is_current = self.before == Some(self.bundle);
        let name = self.name;
        match (self.done, is_current) {
            (None, true) | (Some(Publication::Unchanged), _) => format!("`{name}` has this bundle already"),
            (None, false) => format!("`{name}` would begin with this bundle; nothing was written"),
            (Some(Publication::Published), _) => {
                format!("published: runs of `{name}` begin with this bundle; what sleeps goes on with its own")
            }
        }
    }
}

fn tell(told: &PublishReport<'_>, as_json: bool, out: &mut impl Write) -> io::Result<()> {
    if as_json {
        let change = |change: &FileChange| {
            let what = match change {
                FileChange::Added(_) => "added",
                FileChange::Changed(_) => "changed",
                FileChange::Removed(_) => "removed",
            };
            json!({ "change": what, "path": change.path() })
        };
        let document = json!({
            "name": told.name,
            "bundle": told.bundle,
            "before": told.before,
            "changes": told.changes.iter().map(change).collect::<Vec<_>>(),
            "published": told.done == Some(Publication::Published),
        });
        return writeln!(out, "{}", crate::terminal::json(&document, true));
    }
    writeln!(out, "bundle {}", told.bundle)?;
    for change in &told.changes {
        writeln!(out, "  {}", plain(&change.to_string()))?;
    }
    writeln!(out, "{}", told.sentence())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let bytes = |text: &str| FileContent::Bytes(text.as_bytes().to_vec());
        list.iter().map(|(path, text)| ((*path).to_owned(), bytes(text))).collect()
    }

    #[test]
    fn what_no_function_can_do_is_named_with_its_place() {
        let all = files(&[
            (".openharness/agents/assistant.md", "---\nmodel: workspace/small\n---\nHelp.\n"),
            (
                ".openharness/models/m.yaml",
                "# ${env.X}\nsmall:\n  provider: openai-compatible\n  name: tiny\n  url: http://127.0.0.1:9/v1\n  key: ${env.KEY}\n",
            ),
            (".openharness/tools/settings.yaml", "files:\n  command: run-files\n"),
        ]);
        let workspace = load(&all, &Platform::default());
        let told = objections(&workspace, &all);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("`files` is a process"), "{told:?}");
        assert!(told[1].starts_with(".openharness/models/m.yaml:6: error"), "{told:?}");
        assert_eq!(objections(&load(&files(&[]), &Platform::default()), &files(&[])).len(), 1);
    }

    #[test]
    fn scripts_that_are_no_definitions_are_named_with_the_place_where_they_are_published() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("guard.py"), "").expect("a script");
        let hook =
            |command: &str| format!("events: [before_tool_dispatch]\nhandler: {{type: command, command: {command}}}\n");
        let action = |entry: &str| format!("name: pay\ndescription: Pays.\nentry: {{{entry}}}\n");
        let (guard, pay) = (".openharness/hooks/guard.yaml", ".openharness/actions/pay/ACTION.yaml");
        for (path, text, place) in [
            (guard, hook("./guard.sh"), Some(".openharness/hooks/guard.sh")),
            (guard, hook("python3 guard.py --all"), Some(".openharness/hooks/guard.py")),
            (guard, hook(".openharness/hooks/guard.sh"), None),
            (guard, hook("sh -c true"), None),
            (guard, hook("grep -q x"), None),
            (pay, action("command: ./pay.sh"), None),
            (pay, action("command: sh ../pay/./pay.sh"), None),
            (pay, action("command: ./pay.sh, cwd: tools"), Some(".openharness/actions/pay/pay.sh")),
            (pay, action("command: ../../../pay.sh"), Some(".openharness/actions/pay/pay.sh")),
            // No place helps a process, which is refused whatever it runs.
            (".openharness/tools/settings.yaml", "pager: {command: ./pager.py}\n".to_owned(), None),
        ] {
            let scripts = [(".openharness/hooks/guard.sh", ""), (".openharness/actions/pay/pay.sh", "")];
            let mut list = vec![(path, text.as_str())];
            list.extend(scripts);
            let all = files(&list);
            let told = unpublished(&load(&all, &Platform::default()), &all, folder.path());
            let expected = place.map(|place| format!("published: move it to `{place}`, and run it there"));
            assert_eq!(told.len(), usize::from(expected.is_some()), "{text}: {told:?}");
            assert!(
                expected.is_none_or(|expected| told[0].starts_with(path) && told[0].ends_with(&expected)),
                "{told:?}"
            );
        }
    }

    #[test]
    fn an_action_in_a_folder_that_is_not_published_is_told() {
        let file = ".openharness/actions/pay/ACTION.yaml";
        for (entry, is_told) in [
            ("command: ./pay.sh", false),
            ("command: ls, cwd: .", false),
            ("command: ls, cwd: ./.openharness/", false),
            ("command: npm test, cwd: src", true),
        ] {
            let text = format!("name: pay\ndescription: Pays.\nentry: {{{entry}}}\n");
            let all = files(&[(file, &text)]);
            let told: Vec<String> = absent_folders(&load(&all, &Platform::default()), &all).collect();
            assert_eq!(told.len(), usize::from(is_told), "{entry}: {told:?}");
            assert!(told.iter().all(|line| line.starts_with(file) && line.contains("run in `src`")), "{told:?}");
        }
    }

    #[test]
    fn files_with_secrets_are_refused_by_their_names() {
        let all = files(&[
            ("AGENTS.md", "Be kind.\n"),
            (".openharness/.env", "KEY=x\n"),
            (".openharness/.env.example", "KEY=\n"),
            (".openharness/actions/pay/server.key", "x"),
        ]);
        let told: Vec<String> = secrets(&all).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with(".openharness/.env: error: ") && told[0].contains("`${secrets.…}`"), "{told:?}");
        assert!(told[1].starts_with(".openharness/actions/pay/server.key: error: "), "{told:?}");
    }

    #[test]
    fn each_outcome_has_its_sentence() {
        let told = |before: Option<&'static str>, done| PublishReport {
            name: "w",
            bundle: "b",
            before,
            changes: Vec::new(),
            done,
        };
        assert!(told(None, None).sentence().contains("would begin"));
        assert!(told(Some("b"), None).sentence().contains("already"));
        assert!(told(Some("b"), Some(Publication::Unchanged)).sentence().contains("already"));
        assert!(told(Some("a"), Some(Publication::Published)).sentence().starts_with("published"));
    }
}
