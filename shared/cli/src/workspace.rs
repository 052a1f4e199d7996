//! `dormouse workspace`: looks at a folder that is an agent.

mod elsewhere;
mod publish;
mod unset;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Subcommand;
use dormouse_agent::workspace::{
    AgentMode, ApprovalPolicy, DefinitionKind, DefinitionName, Files, KnownFiles, PLATFORM as OF_PLATFORM,
    PLATFORM_AGENTS, PLATFORM_MODELS, Platform, Problem, Severity, TOOLS, ToolSourceDefinition, Workspace, load,
};
use dormouse_agent::{Catalog, CatalogEntry, catalog};
use dormouse_api::Agents;
use dormouse_declared::{Presence, PresenceKind, online};
use dormouse_local::WorkspaceFolder;
use dormouse_ports::WorkspaceError;
use dormouse_ports::execution::ExecutionTier;
use dormouse_ports::hook::HookHandlerDefinition;
use dormouse_ports::tool::{CrateTools, NATIVE_TOOLS};
use serde_json::{Value, json};

use crate::terminal::plain;
pub(crate) use publish::{PublishArgs, PublishFailure};
pub(crate) use unset::unset;

/// Commands about a workspace.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkspaceCommand {
    /// Say what is wrong with the definitions of a folder, with file and line. Exits with 3 where there is an error; a warning
    /// is none.
    Check(CheckArgs),
    /// Show the agents, models and tools of a folder, and why something of it is disabled.
    Show(WorkspaceArgs),
    /// Publish a folder to a bucket: runs on AWS begin with it, what sleeps goes on with what it began with. Exits with 3
    /// where something is wrong with the folder.
    Publish(PublishArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct WorkspaceArgs {
    /// The folder.
    #[arg(value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    looked_at: WorkspaceArgs,
    /// Ask the providers whether they know key and model, and the servers of tools what they offer, too. Nothing is generated,
    /// and no tool is called; servers that are commands are started. One that does not answer is an error.
    #[arg(long)]
    online: bool,
}

/// Reason for which a workspace cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceFailure {
    #[error("the workspace cannot be read: {0}")]
    Read(#[from] WorkspaceError),
    #[error(transparent)]
    Publish(#[from] PublishFailure),
    #[error("{0}")]
    Write(#[from] io::Error),
}

/// Bytes of a script in which its first line ends.
const LONGEST_FIRST_LINE: u64 = 256;

/// Models, tools and abilities that this machine brings to a workspace.
pub(crate) fn platform() -> Platform {
    Platform {
        models: Some(Vec::new()),
        native_tools: NATIVE_TOOLS.map(str::to_owned).to_vec(),
        processes: true,
        rust_tools: None,
        tier: Some(ExecutionTier::Local),
    }
}

/// The same, where it is known which tools in Rust the program registers.
pub(crate) fn platform_with(tools: &CrateTools) -> Platform {
    Platform { rust_tools: Some(tools.keys().cloned().collect()), ..platform() }
}

/// The variable with a folder of agents and models that are in every workspace.
pub(crate) const PLATFORM: &str = "DORMOUSE_PLATFORM";
/// The agents in it.
const AGENTS: &str = ".openharness/agents/";
/// The models in it.
const MODELS: &str = ".openharness/models/";

/// The folder of the platform, where there is one.
pub(crate) fn platform_folder() -> Option<PathBuf> {
    std::env::var_os(PLATFORM).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The folder `platform` of the platform, to be read.
pub(crate) fn opened_platform(platform: &Path) -> Result<WorkspaceFolder, WorkspaceError> {
    if !platform.exists() {
        return Err(WorkspaceError::NotFound(format!("{}, which {PLATFORM} names,", platform.display())));
    }
    WorkspaceFolder::open(platform)
}

/// `problem` as it is told where the platform's folder can be read: with the path there.
fn told(problem: &Problem) -> Problem {
    let there = platform_folder().zip(problem.file.strip_prefix(OF_PLATFORM));
    let there = there.map(|(platform, path)| platform.join(".openharness").join(path).display().to_string());
    Problem { file: there.unwrap_or_else(|| problem.file.clone()), ..problem.clone() }
}

/// Loads the definitions of `folder`.
pub(crate) async fn opened(folder: &Path, platform: &Platform) -> Result<Workspace, WorkspaceFailure> {
    Ok(loaded(&definitions(folder).await?, folder, platform))
}

/// The definitions of `folder`, of which `files` were read.
pub(crate) fn loaded(files: &Files, folder: &Path, platform: &Platform) -> Workspace {
    let mut workspace = load(files, platform);
    let scripts = scripts(&workspace, folder);
    workspace.problems.extend(scripts);
    elsewhere::look_for(&mut workspace, folder);
    workspace
}

/// True for a word of a command line that is a path from its folder.
fn is_path(word: &str) -> bool {
    word.contains('/') && !word.starts_with(['/', '~', '"', '\'']) && !word.contains(['=', '$'])
}

/// The commands of hooks and actions: the file of each, the folder in which it is run, and its line.
fn commands(workspace: &Workspace) -> impl Iterator<Item = (&str, &str, &str)> {
    let hooks = workspace.hooks.values().filter_map(|hook| match &hook.handler {
        HookHandlerDefinition::Command { command, .. } => Some((hook.file.as_str(), "", command.as_str())),
        HookHandlerDefinition::Http { .. }
        | HookHandlerDefinition::Prompt { .. }
        | HookHandlerDefinition::Agent { .. } => None,
    });
    let actions = workspace.actions.values();
    let actions =
        actions.map(|action| (action.file.as_str(), action.entry.folder.as_str(), action.entry.command.as_str()));
    hooks.chain(actions)
}

/// The same of servers of tools.
fn server_commands(workspace: &Workspace) -> impl Iterator<Item = (&str, &str, &str)> {
    workspace.tools.values().filter(|tool| tool.enabled).filter_map(|tool| match &tool.source {
        ToolSourceDefinition::Stdio { command, .. } => Some((TOOLS, "", command.as_str())),
        ToolSourceDefinition::Server { .. } | ToolSourceDefinition::Http(_) | ToolSourceDefinition::Rust { .. } => None,
    })
}

/// The line of `file` on which `written` stands, as far as it stands in one: that of the field `key`, or else below it.
fn line_of(file: &Path, key: &str, written: &str) -> Option<usize> {
    let text = std::fs::read_to_string(file).ok()?;
    let first = written.lines().next().filter(|first| !first.is_empty())?;
    let has = |line: &str| line.contains(first) && !line.trim_start().starts_with('#');
    let of_field = text.lines().position(|line| has(line) && line.contains(key));
    of_field.or_else(|| text.lines().position(has)).map(|at| at + 1)
}

/// What keeps the system from finding the interpreter of `script`, which it then calls not found.
fn wrong_beginning(script: &Path) -> Option<&'static str> {
    let mut beginning = Vec::new();
    File::open(script).ok()?.take(LONGEST_FIRST_LINE).read_to_end(&mut beginning).ok()?;
    let first = beginning.split(|byte| *byte == b'\n').next()?;
    match first {
        [0xef, 0xbb, 0xbf, b'#', b'!', ..] => {
            Some("which begins with a byte order mark before its `#!`: save it without")
        }
        [b'#', b'!', .., b'\r'] => Some("whose lines end with CR LF, so that its `#!` names nothing: save it with LF"),
        _ => None,
    }
}

/// The scripts that hooks, actions and servers of tools run by a path, and that are not there or cannot be executed.
fn scripts(workspace: &Workspace, folder: &Path) -> Vec<Problem> {
    let complaint = |(file, place, command): (&str, &str, &str)| {
        let (message, key, written) = if folder.join(place).is_dir() {
            let script = command.split_whitespace().next().filter(|word| is_path(word))?;
            let path = folder.join(place).join(script);
            let what = match path.metadata() {
                Err(_) => "and there is no such file",
                Ok(meta) if meta.permissions().mode() & 0o111 == 0 => "which may not be executed: `chmod +x` it",
                Ok(meta) if meta.is_file() => wrong_beginning(&path)?,
                Ok(_) => return None,
            };
            let shown = if place.is_empty() { "." } else { place };
            (format!("`command` runs `{script}` in `{shown}`, {what}"), "command:", command)
        } else {
            (format!("there is no folder `{place}`, in which its command is run"), "cwd:", place)
        };
        let line = line_of(&folder.join(file), key, written);
        Some(Problem { file: file.to_owned(), line, severity: Severity::Error, message, disables: None })
    };
    commands(workspace).chain(server_commands(workspace)).filter_map(complaint).collect()
}

/// The files of `folder`, each agent of the platform with a name that it does not have, and the models of the platform.
pub(crate) async fn definitions(folder: &Path) -> Result<Files, WorkspaceError> {
    FolderFiles::default().read(Some(folder)).await
}

/// The files of a workspace and of the platform as they were read last.
#[derive(Debug, Default)]
pub(crate) struct FolderFiles {
    own: KnownFiles,
    platform: KnownFiles,
}

impl FolderFiles {
    /// As [`definitions`], always of the same folder: what has not changed is not read again. Without a folder those of the
    /// platform alone.
    pub(crate) async fn read(&mut self, folder: Option<&Path>) -> Result<Files, WorkspaceError> {
        let mut files = match folder {
            Some(folder) => self.own.read(&WorkspaceFolder::open(folder)?).await?,
            None => Files::default(),
        };
        files.retain(|path, _| ![PLATFORM_AGENTS, PLATFORM_MODELS].iter().any(|place| path.starts_with(place)));
        let Some(platform) = platform_folder() else { return Ok(files) };
        for (path, content) in self.platform.read(&opened_platform(&platform)?).await? {
            if let Some(name) = path.strip_prefix(AGENTS) {
                files.insert(format!("{PLATFORM_AGENTS}{name}"), content);
            } else if let Some(name) = path.strip_prefix(MODELS) {
                files.insert(format!("{PLATFORM_MODELS}{name}"), content);
            }
        }
        Ok(files)
    }
}

/// Executes `asked`.
pub(crate) async fn workspace(asked: WorkspaceCommand, agents: &Agents) -> Result<ExitCode, WorkspaceFailure> {
    match asked {
        WorkspaceCommand::Check(asked) => check(&asked, agents).await,
        WorkspaceCommand::Show(asked) => show(&asked, agents).await,
        WorkspaceCommand::Publish(asked) => Ok(publish::publish(asked, agents).await?),
    }
}

async fn check(asked: &CheckArgs, agents: &Agents) -> Result<ExitCode, WorkspaceFailure> {
    let folder = &asked.looked_at.folder;
    let mut workspace = opened(folder, &platform_with(agents.crate_tools())).await?;
    let present = if asked.online { Some(asked_online(folder, &workspace, agents).await?) } else { None };
    if let Some(present) = &present {
        let servers = present.iter().filter(|one| one.kind == PresenceKind::ToolServer && one.outcome.is_ok());
        let offered = servers.map(|one| (one.name.clone(), one.tools.clone())).collect();
        let unmet = workspace.unmet_approvals(&offered);
        workspace.problems.extend(unmet);
    }
    let silent = present.iter().flatten().filter(|one| one.outcome.is_err()).count();
    let is_sound = workspace.is_sound() && silent == 0;
    // What is asked says it itself.
    let unset = if asked.online { BTreeSet::new() } else { unset(&workspace).await };
    let mut out = io::stdout().lock();
    if asked.looked_at.json {
        let problems: Vec<Problem> = workspace.problems.iter().map(told).collect();
        let mut told = json!({ "ok": is_sound, "digest": workspace.digest, "problems": problems });
        if let Some(present) = &present {
            told["online"] = present.iter().map(in_json).collect();
        }
        writeln!(out, "{}", crate::terminal::json(&told, true))?;
    } else {
        tell_problems(&workspace, &mut out)?;
        for note in &unset {
            writeln!(out, "{}", plain(note))?;
        }
        for one in present.iter().flatten() {
            let said = one.outcome.as_ref().map_or_else(|reason| format!("error: {reason}"), Clone::clone);
            writeln!(out, "{}", plain(&format!("{} `{}`: {said}", one.kind.as_str(), one.name)))?;
        }
        let can_run = format!("{} of {} agents can run", workspace.enabled_agents().count(), agents_in(&workspace));
        let rest = match (workspace.problems.len(), silent) {
            (0, 0) => "; nothing is wrong".to_owned(),
            (warnings, 0) if workspace.is_sound() => format!("; {warnings} to look at above"),
            (_, 0) => String::new(),
            (_, silent) => format!("; {silent} of what was asked above did not answer as it should"),
        };
        writeln!(out, "{can_run}{rest}")?;
    }
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// The agents of `workspace`, with those of which nothing could be read.
fn agents_in(workspace: &Workspace) -> usize {
    let is_unread =
        |name: &&DefinitionName| name.kind == DefinitionKind::Agent && !workspace.agents.contains_key(&name.name);
    workspace.agents.len() + workspace.disabled.iter().filter(is_unread).count()
}

/// What the models and servers of tools of `workspace` in `folder` say when they are asked.
async fn asked_online(
    folder: &Path,
    workspace: &Workspace,
    agents: &Agents,
) -> Result<Vec<Presence>, WorkspaceFailure> {
    let mut err = io::stderr();
    if err.is_terminal() {
        writeln!(err, "asking models and servers of tools; one that is fetched first may take a minute")?;
    }
    let tools =
        crate::declared::tools(folder, &crate::declared::data_of(folder))?.with_crate(agents.crate_tools().clone());
    Ok(online(workspace, &crate::declared::ports(Arc::new(tools), None)).await)
}

fn in_json(one: &Presence) -> Value {
    let (kind, name) = (one.kind.as_str(), &one.name);
    match &one.outcome {
        Ok(said) => json!({ "kind": kind, "name": name, "ok": true, "said": said }),
        Err(reason) => json!({ "kind": kind, "name": name, "ok": false, "error": reason }),
    }
}

/// Writes a line for each problem.
pub(crate) fn tell_problems(workspace: &Workspace, out: &mut impl Write) -> io::Result<()> {
    for problem in &workspace.problems {
        writeln!(out, "{}", plain(&told(problem).to_string()))?;
    }
    Ok(())
}

async fn show(asked: &WorkspaceArgs, agents: &Agents) -> Result<ExitCode, WorkspaceFailure> {
    let platform = platform_with(agents.crate_tools());
    let workspace = opened(&asked.folder, &platform).await?;
    let catalog = catalog(&workspace, &platform);
    let unset = unset(&workspace).await;
    let mut out = io::stdout().lock();
    if asked.json {
        writeln!(out, "{}", crate::terminal::json(&json!(catalog), true))?;
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", in_words(&catalog, &workspace))?;
    // What disables an entry of the lists is told there.
    let is_told = |problem: &Problem| problem.disables.as_ref().is_some_and(|name| catalog.lists(name));
    for problem in workspace.problems.iter().filter(|problem| !is_told(problem)) {
        writeln!(out, "{}", plain(&told(problem).to_string()))?;
    }
    for note in &unset {
        writeln!(out, "{}", plain(note))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(catalog: &Catalog, workspace: &Workspace) -> String {
    let mut text = format!("bundle {}\n", &catalog.digest[..12.min(catalog.digest.len())]);
    text.push_str(&format!("tier {}\n", catalog.tier.map_or("none", ExecutionTier::as_str)));
    let parts = [
        ("agents", &catalog.agents),
        ("models", &catalog.models),
        ("tools", &catalog.tools),
        ("actions", &catalog.actions),
        ("skills", &catalog.skills),
        ("hooks", &catalog.hooks),
        ("native tools, for agents that name them under `tools.native`", &catalog.native_tools),
    ];
    for (title, entries) in parts {
        text.push_str(&format!("{title}\n"));
        if entries.is_empty() {
            text.push_str("  none\n");
        }
        for entry in entries {
            let is_default = title == "agents" && catalog.default_agent.as_deref() == Some(&entry.name);
            text.push_str(&line(entry, is_default));
            if let Some(agent) = workspace.agents.get(&entry.name).filter(|_| title == "agents") {
                let policy = agent.policy.approval.or(&workspace.settings.approval);
                text.push_str(&format!("    {}\n", plain(&waiting_calls(&policy))));
            }
        }
    }
    text
}

/// Which calls wait for a person.
fn waiting_calls(policy: &ApprovalPolicy) -> String {
    let lists = [("native", &policy.native), ("actions", &policy.actions), ("external", &policy.external)];
    let lists = lists.into_iter().filter(|(_, patterns)| !patterns.is_empty());
    let manual = policy.manual.then(|| "all that may change something".to_owned());
    let named = lists.map(|(list, patterns)| format!("{list}: {}", once(patterns).join(", ")));
    let asked: Vec<String> = manual.into_iter().chain(named).collect();
    match asked.is_empty() {
        true => "no call waits for a person".to_owned(),
        false => format!("calls that wait for a person: {}", asked.join("; ")),
    }
}

/// Each of `patterns` once: the agent and the settings may both have it.
fn once(patterns: &[String]) -> Vec<&str> {
    let mut once: Vec<&str> = Vec::new();
    for pattern in patterns.iter().map(String::as_str) {
        if !once.contains(&pattern) {
            once.push(pattern);
        }
    }
    once
}

fn line(entry: &CatalogEntry, is_default: bool) -> String {
    let mark = if entry.enabled { "  " } else { "✗ " };
    let default = match entry.mode {
        Some(AgentMode::Subagent) => " (subagent)",
        _ if is_default => " (default)",
        _ => "",
    };
    let told = format!("{mark}{}{default}  {}", plain(&entry.name), plain(&entry.description));
    let mut text = format!("{}\n", told.trim_end());
    for reason in &entry.reasons {
        text.push_str(&format!("    disabled: {}\n", plain(reason)));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_script_that_cannot_run_is_told_with_the_line_that_names_it() {
        let place = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let file = place.path().join(".openharness").join(path);
            fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
            fs::write(file, text).expect("a file");
        };
        let entry = |command: &str| format!("name: pay\ndescription: Pays.\nentry:\n  {command}\n");
        let guard =
            "# ./guard.sh --all\nevents: [run_failed]\nhandler:\n  type: command\n  command: ./guard.sh --all\n";
        write("hooks/guard.yaml", guard);
        write("actions/pay/ACTION.yaml", &entry("command: ./pay.sh").replace("Pays.", "Runs ./pay.sh."));
        write("actions/pay/pay.sh", "#!/bin/sh\n");
        write("actions/send/ACTION.yaml", &entry("command: x\n  cwd: tools/send").replace("name: pay", "name: send"));
        write("tools/settings.yaml", "files: {command: npx -y files}\npager:\n  command: ./pager.py --all\n");
        let workspace = futures::executor::block_on(opened(place.path(), &platform())).expect("it can be read");
        let told: Vec<String> = workspace.problems.iter().map(ToString::to_string).collect();
        for line in [
            ".openharness/hooks/guard.yaml:5: error: `command` runs `./guard.sh` in `.`, and there is no such file",
            ".openharness/actions/pay/ACTION.yaml:4: error: `command` runs `./pay.sh` in `.openharness/actions/pay`, which",
            ".openharness/actions/send/ACTION.yaml:5: error: there is no folder `tools/send`, in which its command is run",
            ".openharness/tools/settings.yaml:3: error: `command` runs `./pager.py` in `.`, and there is no such file",
        ] {
            assert!(told.iter().any(|one| one.starts_with(line)), "{line}: {told:#?}");
        }
    }

    #[test]
    fn a_script_that_was_saved_so_that_its_interpreter_is_not_found_is_told_so() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join(".openharness/actions/pay");
        fs::create_dir_all(&folder).expect("folders");
        let action = "name: pay\ndescription: Pays.\nentry: {command: ./pay.sh}\n";
        fs::write(folder.join("ACTION.yaml"), action).expect("a file");
        let script = folder.join("pay.sh");
        fs::write(&script, "").expect("a file");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("rights");
        for (text, told) in [
            ("#!/bin/sh\r\necho paid\r\n", Some("whose lines end with CR LF")),
            ("\u{feff}#!/bin/sh\necho paid\n", Some("which begins with a byte order mark")),
            ("#!/bin/sh\necho 'a\r'\n", None),
            ("echo paid\r\n", None),
            ("", None),
        ] {
            fs::write(&script, text).expect("a file");
            let workspace = futures::executor::block_on(opened(place.path(), &platform())).expect("it can be read");
            let lines: Vec<String> = workspace.problems.iter().map(ToString::to_string).collect();
            let found = lines.iter().find(|line| line.contains("`command` runs `./pay.sh`"));
            let is_told = told.map(|told| found.is_some_and(|line| line.contains(told)));
            assert!(is_told.unwrap_or(found.is_none()), "{text:?}: {lines:#?}");
        }
    }

    #[test]
    fn a_folder_of_the_platform_that_is_not_there_is_told_with_the_variable_that_names_it() {
        let place = tempfile::tempdir().expect("a folder");
        assert!(opened_platform(place.path()).is_ok());
        let said = opened_platform(&place.path().join("x")).expect_err("it is not there").to_string();
        assert!(said.ends_with("x, which DORMOUSE_PLATFORM names, does not exist"), "{said}");
    }

    #[test]
    fn calls_that_wait_are_told_in_words() {
        let policy = |manual: bool, external: &[&str]| {
            let mut policy = ApprovalPolicy::default();
            policy.external.extend(external.iter().map(|name| (*name).to_owned()));
            policy.manual = manual;
            policy
        };
        assert_eq!(waiting_calls(&policy(false, &[])), "no call waits for a person");
        let all = "calls that wait for a person: all that may change something";
        assert_eq!(waiting_calls(&policy(true, &[])), all);
        assert_eq!(waiting_calls(&policy(true, &["send_mail", "post*"])), format!("{all}; external: send_mail, post*"));
        let twice = waiting_calls(&policy(false, &["*", "post*", "*"]));
        assert_eq!(twice, "calls that wait for a person: external: *, post*");
    }
}
