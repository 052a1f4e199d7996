//! Definitions that stand where nobody looks for them, and folders that have none.

use std::fs;
use std::path::Path;

use dormouse_agent::workspace::{FILE_LIMIT, Problem, Severity, Workspace};

/// The folder of definitions.
const ALL: &str = ".openharness";
/// Place of the warning about a workspace without agents.
const AGENTS: &str = ".openharness/agents";
/// A folder beside the definitions, which the settings may name.
const SKILLS: &str = "skills";
/// The most folders that are named.
const MOST_NAMED: usize = 3;
/// Instructions for every agent.
const EVERYBODYS: &str = "AGENTS.md";

/// Adds to the problems of `workspace`, which is that of `folder`, what stands beside its definitions and was meant to be among
/// them. A folder without any is none, which is an error that names what other programs read there.
pub(super) fn look_for(workspace: &mut Workspace, folder: &Path) {
    let is_inside = folder.canonicalize().is_ok_and(|path| path.ends_with(ALL));
    let has_none = workspace.agents.is_empty() && !folder.join(ALL).is_dir();
    let of_others = if is_inside { Vec::new() } else { of_other_programs(workspace, folder) };
    if has_none {
        workspace.problems.retain(|problem| problem.file != AGENTS);
        let near = match is_inside {
            true => vec![folder.join("..").display().to_string()],
            false => near(folder),
        };
        let others: Vec<&str> = of_others.iter().map(|(path, _)| path.as_str()).collect();
        workspace.problems.push(problem(ALL, Severity::Error, no_workspace(&near, &others)));
    }
    if !is_inside {
        let named = workspace.settings.skill_dirs.iter().any(|named| named == SKILLS);
        let found = beside(folder).into_iter().filter(|(path, _)| !(named && path.starts_with(SKILLS)));
        let found = found.map(|(path, place)| (path, format!("it belongs in `{place}`")));
        let of_others = of_others.into_iter().filter(|_| !has_none).map(|(path, advice)| (path, advice.to_owned()));
        workspace.problems.extend(
            found
                .chain(of_others)
                .map(|(path, advice)| problem(&path, Severity::Warning, format!("the file is not read: {advice}"))),
        );
    }
    if !has_none {
        let included = included(workspace, folder);
        workspace.problems.extend(included);
    }
}

/// What stands in instructions as other programs include a file that is there (`@docs/more.md`): the first of each text.
fn included(workspace: &Workspace, folder: &Path) -> Vec<Problem> {
    let texts = std::iter::once(EVERYBODYS).chain(workspace.agents.values().map(|agent| agent.file.as_str()));
    let found = texts.filter_map(|file| {
        let (line, path) = included_in(&text_of(&folder.join(file)), folder)?;
        let message = format!(
            "`@{path}` is told as it stands, and no file is read for it: write here what stands there, or in a skill"
        );
        Some(Problem { line: Some(line), ..problem(file, Severity::Warning, message) })
    });
    found.collect()
}

/// The first path of a file behind an `@` in `text`, with its line.
fn included_in(text: &str, folder: &Path) -> Option<(usize, String)> {
    let words = text.lines().enumerate().flat_map(|(at, line)| line.split_whitespace().map(move |word| (at + 1, word)));
    let paths = words.filter_map(|(line, word)| Some((line, word.strip_prefix('@')?)));
    let mut paths = paths.map(|(line, path)| (line, path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])));
    let (line, path) = paths.find(|(_, path)| !path.is_empty() && folder.join(path).is_file())?;
    Some((line, path.to_owned()))
}

fn problem(file: &str, severity: Severity, message: String) -> Problem {
    Problem { file: file.to_owned(), line: None, severity, message, disables: None }
}

fn no_workspace(near: &[String], others: &[&str]) -> String {
    let near = match near {
        [] => String::new(),
        [one] => format!("; there is one in `{one}`"),
        several => format!("; there are some in `{}`", several.join("`, `")),
    };
    let others = match others {
        [] => String::new(),
        some => format!(
            "; what other programs read (`{}`) is not read here: \"From other programs\" in the guide says where it goes",
            some.join("`, `")
        ),
    };
    format!("there is no workspace in this folder{near}{others}; `dormouse new FOLDER --template assistant` makes one")
}

/// Workspaces one folder up or down.
fn near(folder: &Path) -> Vec<String> {
    let is_workspace = |path: &Path| path.join(ALL).is_dir();
    let above = folder.canonicalize().ok().and_then(|path| path.parent().map(is_workspace)).unwrap_or(false);
    let mut below: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| is_workspace(path)))
        .map(|path| path.strip_prefix(".").unwrap_or(&path).display().to_string())
        .collect();
    below.sort();
    let above = above.then(|| folder.join("..").display().to_string());
    above.into_iter().chain(below).take(MOST_NAMED).collect()
}

/// Files beside `.openharness` that are definitions by what stands in them, one of each kind, with the places where they belong.
fn beside(folder: &Path) -> Vec<(String, &'static str)> {
    let has = |text: &str, words: &[&str]| words.iter().all(|word| text.contains(*word));
    let mut found = Vec::new();
    let mut look = |inside: &str, endings: &[&str], place: &'static str, is_meant: &dyn Fn(&str) -> bool| {
        let names = names_in(&folder.join(inside));
        // A name that begins with a slash is that of a file in each folder.
        let paths = names.iter().flat_map(|name| {
            endings.iter().filter_map(move |ending| match ending.starts_with('/') {
                true => Some(format!("{inside}/{name}{ending}")),
                false => name.ends_with(*ending).then(|| format!("{inside}/{name}")),
            })
        });
        found.extend(paths.map(|path| (path, place)).find(|(path, _)| is_meant(&text_of(&folder.join(path)))));
    };
    look("agents", &[".md"], ".openharness/agents", &|text: &str| text.starts_with("---"));
    look("models", &[".yaml", ".yml"], ".openharness/models", &|text: &str| has(text, &["provider:", "name:"]));
    look("hooks", &[".yaml", ".yml"], ".openharness/hooks", &|text: &str| has(text, &["events:", "handler:"]));
    look(SKILLS, &["/SKILL.md"], ".openharness/skills", &|text: &str| text.starts_with("---"));
    look("actions", &["/ACTION.yaml"], ".openharness/actions", &|text: &str| has(text, &["entry:", "command:"]));
    look("tools", &["settings.yaml"], ".openharness/tools", &|text: &str| {
        ["command:", "url:", "http:", "rust:"].iter().any(|word| text.contains(*word))
    });
    let settings = text_of(&folder.join("settings.yaml"));
    if has(&settings, &["default_agent:"]) || has(&settings, &["policy:", "approval"]) {
        found.push(("settings.yaml".to_owned(), ALL));
    }
    found
}

/// Files in which other programs keep instructions, agents, skills and servers of tools, with what to do: one of each kind, where
/// the workspace has none of that name, or no such file of its own.
fn of_other_programs(workspace: &Workspace, folder: &Path) -> Vec<(String, &'static str)> {
    const OVERRIDE: &str = "AGENTS.override.md";
    const INSTRUCTIONS: [&str; 4] = ["CLAUDE.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md"];
    const SERVERS: [&str; 4] = [".mcp.json", ".cursor/mcp.json", "opencode.json", "opencode.jsonc"];
    const AGENTS_OF_OTHERS: [&str; 3] = [".claude/agents", ".opencode/agent", ".opencode/agents"];
    let is_file = |path: &str| folder.join(path).is_file();
    let mut found = Vec::new();
    if is_file(OVERRIDE) {
        found.push((OVERRIDE.to_owned(), "instructions stand in `AGENTS.md`"));
    }
    if !is_file(EVERYBODYS) {
        let rules = names_in(&folder.join(".cursor/rules")).into_iter().map(|name| format!(".cursor/rules/{name}"));
        let path = INSTRUCTIONS.map(str::to_owned).into_iter().chain(rules).find(|path| is_file(path));
        found.extend(path.map(|path| (path, "instructions for every agent stand in `AGENTS.md`")));
    }
    if workspace.tools.is_empty() {
        let path = SERVERS.into_iter().find(|path| is_file(path));
        let advice = "servers of tools stand in `.openharness/tools/settings.yaml`, by their names";
        found.extend(path.map(|path| (path.to_owned(), advice)));
    }
    let agents = AGENTS_OF_OTHERS.into_iter().find_map(|of_others| {
        names_in(&folder.join(of_others)).into_iter().find_map(|file| {
            let name = file.strip_suffix(".md").filter(|name| !workspace.agents.contains_key(*name))?;
            let path = format!("{of_others}/{name}.md");
            text_of(&folder.join(&path)).starts_with("---").then_some(path)
        })
    });
    found.extend(agents.map(|path| (path, "an agent stands in `.openharness/agents`")));
    let skills = names_in(&folder.join(".claude/skills")).into_iter().find_map(|name| {
        let path = format!(".claude/skills/{name}/SKILL.md");
        (!workspace.skills.contains_key(&name) && is_file(&path)).then_some(path)
    });
    let advice = "a skill stands in `.openharness/skills`, or in a folder that `skill_dirs` of the settings names";
    found.extend(skills.map(|path| (path, advice)));
    found
}

/// The names in `folder`, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The text of a file that may be a definition; nothing of a larger one.
fn text_of(path: &Path) -> String {
    let is_small = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_LIMIT);
    if is_small { fs::read_to_string(path).unwrap_or_default() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(folder: &Path) -> Vec<String> {
        let mut workspace = Workspace::default();
        look_for(&mut workspace, folder);
        workspace.problems.iter().map(ToString::to_string).collect()
    }

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }

    #[test]
    fn a_folder_without_a_workspace_is_an_error_that_names_one_beside() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("here");
        fs::create_dir(&folder).expect("a folder");
        let none = "there is no workspace in this folder; `dormouse new FOLDER --template assistant` makes one";
        assert_eq!(told(&folder), [format!(".openharness: error: {none}")]);
        let helper = folder.join("helper");
        write(&helper.join(".openharness/settings.yaml"), "default_agent: helper\n");
        assert_eq!(told(&helper), [] as [&str; 0]);
        let there = format!("there is one in `{}`", helper.display());
        assert!(told(&folder)[0].contains(&there), "{:?}", told(&folder));
        let (inside, source) = (helper.join(".openharness"), helper.join("src"));
        fs::create_dir(&source).expect("a folder");
        for other in [&inside, &source] {
            let there = format!("there is one in `{}/..`", other.display());
            assert!(told(other).len() == 1 && told(other)[0].contains(&there), "{:?}", told(other));
        }
    }

    #[test]
    fn definitions_of_other_programs_are_said_not_to_be_read() {
        let place = tempfile::tempdir().expect("a folder");
        write(&place.path().join(".claude/agents/reviewer.md"), "---\nname: reviewer\n---\nReview.\n");
        write(&place.path().join(".mcp.json"), "{}\n");
        let told_there = told(place.path());
        let files = "(`.mcp.json`, `.claude/agents/reviewer.md`) is not read here";
        assert!(told_there.len() == 1 && told_there[0].contains(files), "they are told once: {told_there:?}");
        write(&place.path().join(".openharness/settings.yaml"), "default_agent: helper\n");
        let warned = told(place.path());
        assert!(warned.len() == 2 && warned.iter().all(|line| line.contains("warning: the file")), "{warned:?}");

        let place = tempfile::tempdir().expect("a folder");
        write(&place.path().join(".opencode/agent/plan.md"), "---\nmode: primary\n---\nPlan.\n");
        write(&place.path().join("opencode.json"), "{}\n");
        let files = "(`opencode.json`, `.opencode/agent/plan.md`) is not read here";
        assert!(told(place.path())[0].contains(files), "{:?}", told(place.path()));
    }

    #[test]
    fn a_file_that_other_programs_would_include_is_said_not_to_be_read() {
        let place = tempfile::tempdir().expect("a folder");
        write(&place.path().join(".openharness/settings.yaml"), "default_agent: helper\n");
        let instructions = place.path().join("AGENTS.md");
        write(&instructions, "# Desk\nAsk @ada, or mail desk@docs/more.md; @types/node and @docs are no files.\n");
        write(&place.path().join("docs/more.md"), "Be kind.\n");
        assert_eq!(told(place.path()), [] as [&str; 0]);
        write(&instructions, "# Desk\n\nRead @docs/more.md, and @AGENTS.md.\n@docs/more.md\n");
        let warned = "AGENTS.md:3: warning: `@docs/more.md` is told as it stands, and no file is read for it";
        assert!(told(place.path()).len() == 1 && told(place.path())[0].starts_with(warned), "{:?}", told(place.path()));

        write(&instructions, "Be kind.\n");
        write(&place.path().join(".openharness/agents/helper.md"), "---\ndescription: x\n---\n@docs/more.md\n");
        let platform = crate::workspace::platform();
        let opened = crate::workspace::opened(place.path(), &platform);
        let problems = futures::executor::block_on(opened).expect("it can be read").problems;
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let warned = ".openharness/agents/helper.md:4: warning: `@docs/more.md` is told as it stands";
        assert!(told.iter().any(|line| line.starts_with(warned)), "{told:?}");
    }

    #[test]
    fn definitions_beside_the_folder_of_definitions_are_named() {
        let place = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| write(&place.path().join(path), text);
        write(".openharness/settings.yaml", "default_agent: helper\n");
        for (path, text) in
            [("agents/agent.md", "# Agents\n"), ("models/data.yaml", "a: 1\n"), ("settings.yaml", "a: 1\n")]
        {
            write(path, text);
        }
        assert_eq!(told(place.path()), [] as [&str; 0], "they are of something else");
        write("agents/triage.md", "---\ndescription: Sorts\n---\nSort.\n");
        write("models/models.yaml", "main: {provider: openai, name: x}\n");
        write("skills/terms/SKILL.md", "---\ndescription: Terms\n---\nRead them.\n");
        write("actions/pay/ACTION.yaml", "name: pay\nentry: {command: ./pay.sh}\n");
        write("settings.yaml", "policy: {approval: manual}\n");
        let expected = [
            ("agents/triage.md", "/agents"),
            ("models/models.yaml", "/models"),
            ("skills/terms/SKILL.md", "/skills"),
            ("actions/pay/ACTION.yaml", "/actions"),
            ("tools/settings.yaml", "/tools"),
            ("settings.yaml", ""),
        ];
        let expected = expected.map(|(path, inside)| {
            format!("{path}: warning: the file is not read: it belongs in `.openharness{inside}`")
        });
        for tools in ["pager: {command: python3 pager.py}\n", "shop: {rust: stock}\n"] {
            write("tools/settings.yaml", tools);
            assert_eq!(told(place.path()), expected, "{tools}");
        }
        let mut named = Workspace::default();
        named.settings.skill_dirs.push("skills".to_owned());
        look_for(&mut named, place.path());
        assert!(!named.problems.is_empty() && named.problems.iter().all(|problem| !problem.file.starts_with("skills")));
    }

    #[test]
    fn files_of_other_programs_are_named_where_the_workspace_has_none_of_its_own() {
        let place = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| write(&place.path().join(path), text);
        write(".openharness/settings.yaml", "default_agent: helper\n");
        for path in ["CLAUDE.md", ".cursor/rules/style.mdc", ".mcp.json", ".claude/settings.json"] {
            write(path, "x\n");
        }
        for path in [".claude/agents/triage.md", ".claude/skills/terms/SKILL.md"] {
            write(path, "---\ndescription: x\n---\nSort.\n");
        }
        let named = |told: Vec<String>| -> Vec<String> {
            let file =
                |line: &String| line.split_once(": warning: the file is not read: ").map(|(file, _)| file.to_owned());
            told.iter().filter_map(file).collect()
        };
        let (agent, skill) = (".claude/agents/triage.md", ".claude/skills/terms/SKILL.md");
        assert_eq!(named(told(place.path())), ["CLAUDE.md", ".mcp.json", agent, skill]);
        std::fs::remove_file(place.path().join("CLAUDE.md")).expect("it is removed");
        assert_eq!(named(told(place.path()))[0], ".cursor/rules/style.mdc");
        write("AGENTS.md", "Be kind.\n");
        assert_eq!(named(told(place.path())), [".mcp.json", agent, skill]);
        write("AGENTS.override.md", "Be short.\n");
        assert_eq!(named(told(place.path()))[0], "AGENTS.override.md");
    }
}
