//! Which files of a folder are read, and what is told of those that are not.

use std::collections::BTreeMap;

use async_trait::async_trait;
use dormouse_agent::bundle::Bundle;
use dormouse_agent::workspace::{FileContent, Severity, ToolOrigin, load, read};
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceFile, WorkspaceSource};

use crate::workspace::{MODELS, SETTINGS, files, lines, platform, sound, with};

#[test]
fn files_that_look_like_definitions_and_are_not_read_are_named() {
    let files_of = |path: &'static str| lines(&with(path, "name: x\n"));
    for (path, advice) in [
        (".openharness/actions/refund/refund.yaml", "call it `ACTION.yaml`"),
        (".openharness/actions/refund.yaml", "a folder with a file `ACTION.yaml`"),
        (".openharness/tools/setting.yaml", "call it `settings.yaml`"),
        (".openharness/skills/pack.md", "a folder with a file `SKILL.md`"),
        (".openharness/agents/other.txt", "call it `NAME.md`"),
        (".openharness/hook/one.yaml", "did you mean `.openharness/hooks`?"),
        (".openharness/AGENTS.md", "move it to `AGENTS.md`, beside `.openharness`"),
        (".openharness/agents.md", "move it to `AGENTS.md`, beside `.openharness`"),
        (".openharness/triage.md", "an agent belongs in `.openharness/agents`"),
        (".openharness/models.yaml", "models belong in `.openharness/models`"),
        (".openharness/tools.yaml", "servers of tools belong in `.openharness/tools/settings.yaml`"),
        (".openharness/settings.yml", "did you mean `.openharness/settings.yaml`?"),
        (".openharness/prompts.yml", "did you mean `.openharness/prompts.yaml`?"),
        (".openharness/tools/settings.yml", "call it `settings.yaml`"),
        (".openharness/tools/mcp.json", "servers of tools belong in `settings.yaml`"),
        (".openharness/actions/refund/ACTION.yml", "call it `ACTION.yaml`"),
        (".openharness/agents/other.yml", "call it `NAME.md`"),
        (".openharness/memory/other.yml", "call it `NAME.md`"),
        (".openharness/agents/other.MD", "call it `NAME.md`"),
        (".openharness/agents/team/other.MD", "move it into `.openharness/agents` itself"),
        (".openharness/models/more.YAML", "call it `NAME.yaml`"),
        (".openharness/tools/settings.YAML", "call it `settings.yaml`"),
        (".openharness/tools/settings.yaml.txt", "call it `settings.yaml`"),
        (".openharness/actions/refund/ACTION.YML", "call it `ACTION.yaml`"),
        (".openharness/skills/pack/SKILL.MD", "call it `SKILL.md`"),
        (".openharness/skills/pack/SKILL.md.txt", "call it `SKILL.md`"),
        (".openharness/skills/legal/terms/SKILL.md", "right in `.openharness/skills`: move its folder there"),
        (".openharness/skills/legal/uk/terms/SKILL.md", "right in `.openharness/skills`: move its folder there"),
        (".openharness/actions/shop/refund/ACTION.yaml", "right in `.openharness/actions`: move its folder there"),
    ] {
        let told = files_of(path);
        assert!(told.iter().any(|line| line.starts_with(path) && line.contains(advice)), "{path}: {told:?}");
    }
    let skill = "---\ndescription: Terms\n---\nRead them.\n";
    let mut all = sound();
    all.push((".openharness/skills/legal/SKILL.md", skill));
    all.push((".openharness/skills/legal/uk/terms/SKILL.md", skill));
    all.push((".openharness/skills/shop/terms/SKILL.md", skill));
    all.retain(|(path, _)| *path != SETTINGS);
    let settings =
        "default_agent: assistant\nskill_dirs: [.openharness/skills/shop]\nmodels: {fast: workspace/small}\n";
    all.push((SETTINGS, settings));
    let nested = load(&files(&all), &platform());
    assert_eq!(lines(&nested), [] as [&str; 0], "a file of a skill, and a folder that is named");
    assert_eq!(nested.skills.keys().collect::<Vec<_>>(), ["legal", "terms"]);
    let model = with(".openharness/models/more.yml", "large: {provider: openai, name: x}\n");
    assert!(model.models.contains_key("large") && lines(&model).is_empty(), "{:?}", lines(&model));
    let hook = "events: [run_completed]\nhandler: {type: command, command: 'true'}\n";
    let hook = with(".openharness/hooks/one.yml", hook);
    assert!(hook.hooks.contains_key("one") && lines(&hook).is_empty(), "{:?}", lines(&hook));
}

#[test]
fn a_hook_in_a_file_of_another_ending_may_have_forbidden_anything() {
    let hook = "events: [before_tool_dispatch]\nhandler: {type: command, command: 'true'}\n";
    let told = |path: &'static str, text: &'static str| {
        let workspace = with(path, text);
        let asks = workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true);
        (lines(&workspace), asks)
    };
    for name in ["guard.YAML", "guard.Yml", "guard.yaml.txt", "guard.txt", "guard.md", "guard", "guard.JSON"] {
        let path: &'static str = format!(".openharness/hooks/{name}").leak();
        let (lines, asks) = told(path, hook);
        let expected = format!("{path}: error: the file is not read: a hook is a file `NAME.yaml`; until then");
        assert!(asks && lines.len() == 1 && lines[0].starts_with(&expected), "{name}: {lines:#?}");
    }
    let (lines, asks) = told(".openharness/hooks/more/guard.YML", hook);
    assert!(asks && lines[0].contains("move it into `.openharness/hooks` itself"), "{lines:#?}");
    let script = "events = []\ndef handler(events):\n    pass\n";
    let shown = "# Hooks\n```yaml\nevents: [run_failed]\nhandler: {type: command, command: x}\n```\n";
    for (name, text) in
        [("guard.py", script), ("rules.YAML", "events: [a]\n"), ("README.md", "# Events of a handler\n")]
            .into_iter()
            .chain(["guard.yaml.off", "guard.yaml.example", "guard.sh", "README.md", "README"].map(|name| (name, hook)))
            .chain([("notes.md", shown)])
    {
        let (lines, asks) = told(format!(".openharness/hooks/{name}").leak(), text);
        assert!(!asks && lines.is_empty(), "{name}: {lines:#?}");
    }
}

#[test]
fn a_file_in_the_place_of_a_folder_of_definitions_is_named() {
    for folder in ["agents", "hooks", "models", "tools", "actions", "skills", "memory"] {
        let path: &'static str = format!(".openharness/{folder}").leak();
        let workspace = with(path, "x\n");
        let told = format!("{path}: warning: the file is not read: definitions of this kind stand in a folder");
        let found = lines(&workspace);
        assert!(found.len() == 1 && found[0].starts_with(&told), "{path}: {found:#?}");
        assert!(!workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "{path}");
    }
    let guard = with(".openharness/hooks", "events: [run_failed]\nhandler: {type: command, command: x}\n");
    assert!(guard.settings.approval.asks(ToolOrigin::Native, &["Read"], true), "{:#?}", lines(&guard));
}

#[test]
fn a_folder_that_may_not_be_read_is_told_with_the_reason_and_the_rest_is_looked_at() {
    for (folder, reason, asks) in [
        (".openharness/hooks", "nothing in it is read: denied", true),
        (".openharness/actions", "nothing in it is read: denied", false),
        (".openharness/skills/draw", "it cannot be read: denied", false),
    ] {
        let mut all = files(&sound());
        all.insert(folder.to_owned(), FileContent::Unreadable("denied".to_owned()));
        let workspace = load(&all, &platform());
        assert_eq!(lines(&workspace), [format!("{folder}: error: {reason}")]);
        assert_eq!(workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true), asks, "{folder}");
        assert_eq!(workspace.enabled_agents().count(), 1, "{folder}");
        assert!(!workspace.is_sound(), "{folder}: it is not published without");
        assert_eq!(Bundle::of_readable(&all).is_err(), asks, "{folder}");
    }
}

#[test]
fn what_tells_of_a_folder_and_what_keeps_it_is_no_slip() {
    let mut all = sound();
    for folder in ["", "agents/", "models/", "tools/", "actions/", "skills/", "hooks/", "memory/", "templates/"] {
        for name in [".gitkeep", ".gitignore", "README", "README.txt"] {
            let path: &'static str = format!(".openharness/{folder}{name}").leak();
            all.push((path, "events: [x]\nhandler: x\n"));
        }
    }
    for folder in ["", "agents/", "models/", "tools/", "actions/", "skills/", "hooks/"] {
        let path: &'static str = format!(".openharness/{folder}README.md").leak();
        all.push((path, "# What is here\n"));
    }
    let workspace = load(&files(&all), &platform());
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    assert_eq!(workspace.agents.keys().collect::<Vec<_>>(), ["assistant"]);
    assert!(!workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true));
    let meant = with(".openharness/agents/README.md", "---\nmodel: fast\n---\nRead to people.\n");
    assert!(meant.agents.contains_key("README"), "{:#?}", lines(&meant));
    let skill = with(".openharness/skills/pack/README.md", "Pack.\n");
    assert!(lines(&skill).iter().any(|line| line.contains("call it `SKILL.md`")), "{:#?}", lines(&skill));
}

#[test]
fn what_is_not_read_is_named() {
    let mut all = sound();
    all.push((".openharness/agent/x.md", "x"));
    all.push((".openharness/memory/a.md", "x: 1"));
    all.push(("agents.md", "x"));
    all.push(("AGENTS.MD", "x"));
    let workspace = load(&files(&all), &platform());
    assert!(workspace.problems.iter().all(|problem| problem.severity == Severity::Warning), "{:#?}", lines(&workspace));
    let found = lines(&workspace);
    assert_eq!(workspace.memory["a"], "x: 1");
    for expected in [
        "did you mean `.openharness/agents`?",
        "agents.md: warning: the file is not read: call it `AGENTS.md`",
        "AGENTS.MD: warn",
    ] {
        assert!(found.iter().any(|line| line.contains(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn bombs_cycles_and_giants_are_refused() {
    let bomb = with(MODELS, "a: &a [x]\nb: [*a, *a]\n");
    assert!(lines(&bomb).iter().any(|line| line.contains("an anchor")), "{:?}", lines(&bomb));
    let include = with(SETTINGS, "models: !include settings.yaml\n");
    assert!(lines(&include).iter().any(|line| line.contains("nothing is included")), "{:?}", lines(&include));
    let mut giant = files(&sound());
    giant.insert("AGENTS.md".to_owned(), FileContent::TooLarge(5_000_000));
    let giant = load(&giant, &platform());
    assert_eq!(
        giant.problems[0].to_string(),
        "AGENTS.md: error: the file has 5000000 bytes, and may have 262144: shorten it"
    );
    assert_eq!(giant.enabled_agents().count(), 1, "the agents go on without it");
    let mut odd = files(&sound());
    odd.insert("AGENTS.md".to_owned(), FileContent::Bytes(b"a\nb\xff\xfe".to_vec()));
    assert_eq!(load(&odd, &platform()).problems[0].line, Some(2));
}

#[test]
fn the_digest_is_that_of_the_definitions() {
    let digest = |list: &[(&str, &str)]| load(&files(list), &platform()).digest;
    let mut all = sound();
    let before = digest(&all);
    all.push((".openharness/data/history.db", "x"));
    all.push(("src/main.rs", "x"));
    assert_eq!(digest(&all), before, "a run's own data and other files do not count");
    all.reverse();
    assert_eq!(digest(&all), before);
    all.retain(|(path, _)| *path != "AGENTS.md");
    all.push(("AGENTS.md", "Be kinder.\n"));
    assert_ne!(digest(&all), before);
}

/// A folder with these files, which are all empty but for those of the sound workspace.
#[derive(Debug)]
struct Crowded(BTreeMap<String, String>);

impl Crowded {
    fn with(more: impl Iterator<Item = String>) -> Self {
        let sound = sound().into_iter().map(|(path, text)| (path.to_owned(), text.to_owned()));
        Self(sound.chain(more.map(|path| (path, String::new()))).collect())
    }
}

#[async_trait]
impl WorkspaceSource for Crowded {
    async fn list(&self, limits: &ListLimits) -> Result<Vec<WorkspaceFile>, WorkspaceError> {
        let is_in = |path: &str, folders: &[String]| {
            folders.iter().any(|folder| path == folder || path.starts_with(&format!("{folder}/")))
        };
        let found = self.0.iter().filter(|(path, _)| {
            is_in(path, &limits.under) && !is_in(path, &limits.except) && path.matches('/').count() <= limits.depth
        });
        let file = |(path, text): (&String, &String)| WorkspaceFile {
            path: path.clone(),
            size: text.len() as u64,
            version: None,
        };
        let found: Vec<_> = found.map(file).collect();
        match found.len() > limits.files {
            true => {
                Err(WorkspaceError::TooLarge { what: "the number of files".to_owned(), limit: limits.files as u64 })
            }
            false => Ok(found),
        }
    }

    async fn read(&self, path: &str, _: u64) -> Result<Vec<u8>, WorkspaceError> {
        self.0.get(path).map(|text| text.clone().into_bytes()).ok_or_else(|| WorkspaceError::NotFound(path.to_owned()))
    }
}

#[test]
fn a_crowded_folder_takes_no_other_along() {
    let crowd = |folder: &str| {
        let folder = folder.to_owned();
        Crowded::with((0..2_100).map(move |number| format!("{folder}/{number}.md")))
    };
    for (folder, error, asks) in [
        (".openharness/node_modules/x", false, false),
        (".openharness/skills/big/assets", true, false),
        (".openharness/hooks", true, true),
    ] {
        let files = futures::executor::block_on(read(&crowd(folder))).expect("files");
        let workspace = load(&files, &platform());
        let told = lines(&workspace).join("; ");
        assert_eq!(workspace.is_sound(), !error, "{folder}: {told}");
        assert!(told.contains("there are more than 2000, and none of them is read"), "{folder}: {told}");
        let named = folder.split('/').take(if error { 2 } else { 1 }).collect::<Vec<_>>().join("/");
        assert!(told.starts_with(&named), "the folder is named: {told}");
        assert!(workspace.default_agent().is_some_and(|agent| agent.name == "assistant"), "{folder}");
        let approval = &workspace.settings.approval;
        assert_eq!(approval.asks(ToolOrigin::Native, &["Read"], true), asks, "{folder}: a hook may have forbidden it");
        assert_eq!(Bundle::of(&files).is_err(), error, "{folder}: what is left out silently is not published");
        assert_eq!(Bundle::of_readable(&files).is_err(), asks, "{folder}");
    }
}

#[test]
fn what_systems_and_editors_leave_behind_is_no_part_of_a_workspace() {
    let read = |more: &[&str]| {
        let folder = Crowded::with(more.iter().map(|path| (*path).to_owned()));
        futures::executor::block_on(read(&folder)).expect("files")
    };
    let (hooks, skill) = (".openharness/hooks", ".openharness/skills/draw");
    let left = [format!("{hooks}/._guard.yaml"), format!("{skill}/.git/config"), ".openharness/.DS_Store".to_owned()];
    let files = read(&left.each_ref().map(String::as_str));
    assert_eq!(files, read(&[]), "neither read nor published");
    // A bundle of before, in which there is such a file.
    let mut before = files;
    before.insert(left[0].clone(), FileContent::Bytes(vec![0, 5, 22, 7, 0xff]));
    let workspace = load(&before, &platform());
    assert_eq!(lines(&workspace), [] as [&str; 0]);
    assert!(
        !workspace.settings.approval.asks(ToolOrigin::Native, &["Read"], true),
        "it is no hook that cannot be read"
    );
}

#[test]
fn files_deep_in_skills_and_actions_are_read_and_what_is_too_deep_is_named() {
    let read = |more: &[String]| {
        let files = futures::executor::block_on(read(&Crowded::with(more.iter().cloned()))).expect("files");
        (load(&files, &platform()), files)
    };
    let (skill, action) = (".openharness/skills/draw", ".openharness/actions/deploy");
    let (_, plain) = read(&[]);
    let deep = [format!("{skill}/assets/fonts/a/b/c/x.ttf"), format!("{action}/lib/util/x.sh")];
    let (_, files) = read(&deep);
    for path in &deep {
        assert_eq!(files.get(path), Some(&FileContent::Bytes(Vec::new())), "{path}");
    }
    let too_deep = ["x.ttf", "y.ttf", "g/z.ttf"].map(|name| format!("{skill}/a/b/c/d/e/f/{name}"));
    let (workspace, files) = read(&too_deep);
    let told = lines(&workspace).join("; ");
    let named = format!("{} and 2 more are left out: files of a skill or an action may stand five", too_deep[2]);
    assert!(workspace.is_sound() && told.contains(&named), "{told}");
    assert_eq!(
        Bundle::of(&files).expect("a bundle"),
        Bundle::of(&plain).expect("a bundle"),
        "and nothing else changes"
    );
    assert_eq!(workspace.digest, Bundle::of(&files).expect("a bundle").digest());
    let crowd: Vec<String> = (0..2_100).map(|number| format!("{action}/lib/node_modules/p/{number}.js")).collect();
    let (workspace, files) = read(&crowd);
    let told = lines(&workspace).join("; ");
    assert!(workspace.is_sound() && told.contains("with what stands deep in this folder there are more"), "{told}");
    assert!(Bundle::of(&files).is_ok(), "it is published without");
}

#[test]
fn what_stands_deep_is_left_out_where_the_definitions_would_be_too_large_with_it() {
    let mut folder = Crowded::with(std::iter::empty());
    let large = "x".repeat(200 * 1024);
    let deep = |number: u32| format!(".openharness/actions/deploy/lib/util/{number}.js");
    folder.0.extend((0..30).map(|number| (deep(number), large.clone())));
    let files = futures::executor::block_on(read(&folder)).expect("files");
    let workspace = load(&files, &platform());
    let told = lines(&workspace).join("; ");
    let reason = "lib/util/0.js and 29 more are left out: with it the definitions have more bytes";
    assert!(workspace.is_sound() && told.contains(reason), "{told}");
    assert!(Bundle::of(&files).is_ok(), "{told}");
}

#[test]
fn a_memory_that_is_full_keeps_no_agent_from_running() {
    let mut folder = Crowded::with(std::iter::empty());
    let large = "x".repeat(200 * 1024);
    folder.0.extend((0..30).map(|number| (format!(".openharness/memory/{number}.md"), large.clone())));
    folder.0.insert(".openharness/memory/MEMORY.md".to_owned(), "First.\n".to_owned());
    let files = futures::executor::block_on(read(&folder)).expect("files");
    let workspace = load(&files, &platform());
    let told = lines(&workspace).join("; ");
    let reason = "memory/1.md and 28 more are left out: with it the memory has more than 256 KiB";
    assert!(workspace.is_sound() && told.contains(reason), "{told}");
    assert_eq!(workspace.memory.keys().collect::<Vec<_>>(), ["MEMORY", "0"]);
    assert!(workspace.default_agent().is_some_and(|agent| agent.name == "assistant"), "{told}");
    assert!(Bundle::of(&files).is_ok(), "{told}");
}

#[test]
fn notes_in_the_memory_take_no_skill_along_from_a_folder_that_is_named() {
    let mut folder = Crowded::with((0..1_990).map(|number| format!(".openharness/memory/{number}.md")));
    let settings = "default_agent: assistant\nskill_dirs: [docs/skills]\nmodels: {fast: workspace/small}\n";
    folder.0.insert(SETTINGS.to_owned(), settings.to_owned());
    folder.0.extend((0..20).map(|number| {
        let skill = format!("---\ndescription: Terms of {number}\n---\nRead them.\n");
        (format!("docs/skills/terms-{number}/SKILL.md"), skill)
    }));
    let files = futures::executor::block_on(read(&folder)).expect("files");
    let workspace = load(&files, &platform());
    assert_eq!((workspace.skills.len(), workspace.memory.len()), (20, 0), "{}", lines(&workspace).join("; "));
}
