//! `dormouse new` and `dormouse infra`: files for those who write agents of their own.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dormouse_agent::{TemplateError, TemplateFiles};
use dormouse_ports::WorkspaceError;
use futures::executor::block_on;

use crate::templates::templates;
use crate::terminal::{plain, quoted};

/// A file with blanks to fill in, by its place in the package.
const PACKAGE: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("new/package/Cargo.toml.in")),
    ("Makefile", include_str!("new/package/Makefile.in")),
    ("README.md", include_str!("new/package/README.md.in")),
    ("rustfmt.toml", include_str!("new/package/rustfmt.toml.in")),
    (".gitignore", include_str!("new/package/gitignore.in")),
    ("src/lib.rs", include_str!("new/package/src/lib.rs.in")),
    ("src/main.rs", include_str!("new/package/src/main.rs.in")),
    ("src/bin/stream.rs", include_str!("new/package/src/bin/stream.rs.in")),
];
/// The same for each function that knows agents.
const FUNCTION: &str = include_str!("new/package/src/bin/function.rs.in");
const FUNCTIONS: [&str; 4] = ["Inbound", "Signal", "Socket", "Wakeup"];

/// Files that deploy the functions. The scripts can be run.
const INFRA: [(&str, &str); 10] = [
    ("account.sh", include_str!("new/infra/account.sh")),
    ("build.sh", include_str!("new/infra/build.sh")),
    ("changes.sh", include_str!("new/infra/changes.sh")),
    ("deploy.sh", include_str!("new/infra/deploy.sh")),
    ("destroy.sh", include_str!("new/infra/destroy.sh")),
    ("requirements-build.txt", include_str!("new/infra/requirements-build.txt")),
    ("restore.sh", include_str!("new/infra/restore.sh")),
    ("secrets.sh", include_str!("new/infra/secrets.sh")),
    ("template.yaml", include_str!("new/infra/template.yaml")),
    ("venv.sh", include_str!("new/infra/venv.sh")),
];

/// Folder of the models of a workspace.
const MODELS: &str = ".openharness/models/";

/// Folder of the crate for authors in a checkout, seen from this one.
const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dormouse");

/// Makes a package of agents.
#[derive(Debug, clap::Args)]
pub(crate) struct New {
    /// Folder to make; its last part is the name of the package.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Folder of the crate `dormouse` to depend on. Without it: the checkout that this command was built in, if it is
    /// still there, or else the published version.
    #[arg(long, value_name = "FOLDER", conflicts_with = "template")]
    dormouse: Option<PathBuf>,
    /// Make a folder of Markdown and YAML instead, without any Rust: `dormouse chat FOLDER` runs it. `assistant` answers and
    /// uses tools, `approver` prepares payments that a person approves, `reviewer` reviews code; others are folders in
    /// `templates` of the folder that `DORMOUSE_PLATFORM` names.
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
}

/// Writes what deploys the functions.
#[derive(Debug, clap::Args)]
pub(crate) struct Infra {
    /// Folder to write into; made when it is missing. Files of the same names in it are replaced.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Reason for which nothing is written, or not everything.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NewError {
    #[error(
        "`{0}` cannot name a package: begin with a small letter, then up to 63 small letters, digits or single dashes \
         between them"
    )]
    Name(String),
    #[error("`{0}` is a word of the language or the name of a crate that is used: choose another name")]
    Reserved(String),
    #[error("{} is there already, and is not changed: name another folder", .0.display())]
    There(PathBuf),
    #[error("there is no crate `dormouse` in {}: --dormouse names the folder with its Cargo.toml", .0.display())]
    NoCrate(PathBuf),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("the templates cannot be read: {0}")]
    Platform(#[from] WorkspaceError),
    #[error("{} cannot be written: {error}", .path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// Makes the package, and prints the next steps.
pub(crate) fn new(ask: &New) -> Result<(), NewError> {
    match &ask.template {
        Some(template) => new_workspace(&ask.folder, template),
        None => new_package(ask),
    }
}

fn new_workspace(folder: &Path, template: &str) -> Result<(), NewError> {
    let files = block_on(templates())?.begin(template, TemplateFiles::new())?;
    // A folder with other files in it may become a workspace; no file is replaced.
    if let Some(place) = files.keys().find(|place| folder.join(place).exists()) {
        return Err(NewError::There(folder.join(place)));
    }
    files.iter().try_for_each(|(place, bytes)| write(&folder.join(place), bytes))?;
    // What is made of a template of a platform may have no models of its own.
    let models = files.keys().find(|place| place.starts_with(MODELS));
    say(&steps_of_workspace(&folder.display().to_string(), models.map(String::as_str)))
}

/// What is told of the workspace in `folder`, whose models are in the file `models`.
fn steps_of_workspace(folder: &str, models: Option<&str>) -> String {
    let models =
        models.map(|models| format!("  export OPENAI_API_KEY=...   or name another model in {folder}/{models}\n"));
    let typed = quoted(folder);
    format!(
        "made {folder}: an agent in Markdown and YAML\n\n{}  dormouse workspace check {typed} --online\n  dormouse chat {typed}\n",
        models.unwrap_or_default()
    )
}

fn new_package(ask: &New) -> Result<(), NewError> {
    let name = package_name(&ask.folder)?;
    if ask.folder.exists() {
        return Err(NewError::There(ask.folder.clone()));
    }
    let dependency = dependency(ask.dormouse.as_deref())?;
    let crate_name = name.replace('-', "_");
    let fill = |text: &str| {
        text.replace("{name}", &name).replace("{crate}", &crate_name).replace("{dependency}", &dependency.toml)
    };
    for (place, text) in PACKAGE {
        write(&ask.folder.join(place), fill(text))?;
    }
    for function in FUNCTIONS {
        let place = ask.folder.join(format!("src/bin/{}.rs", function.to_lowercase()));
        let text = fill(FUNCTION).replace("{function}", &function.to_lowercase()).replace("{Function}", function);
        write(&place, &text)?;
    }
    if let Some(checkout) = &dependency.checkout {
        take_versions_along(checkout, &ask.folder)?;
    }
    let folder = ask.folder.display().to_string();
    let next = format!(
        "made {folder}: an agent that has leave approved, with tests that let three days pass\n\n  cd {}\n  make test\n  \
         make run        then follow README.md\n",
        quoted(&folder)
    );
    say(&next)
}

/// Writes what deploys.
pub(crate) fn infra(ask: &Infra) -> Result<(), NewError> {
    INFRA.iter().try_for_each(|(place, text)| write(&ask.folder.join(place), text))
}

fn package_name(folder: &Path) -> Result<String, NewError> {
    let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    if !begins || name.len() > 64 || !name.split('-').all(is_word) {
        return Err(NewError::Name(plain(name)));
    }
    let taken = ["dormouse", "core", "std", "alloc", "test", "inbound", "signal", "socket", "stream", "wakeup"];
    let keywords = [
        "as", "async", "await", "break", "const", "continue", "crate", "dyn", "else", "enum", "extern", "false", "fn",
        "for", "gen", "if", "impl", "in", "let", "loop", "match", "mod", "move", "mut", "pub", "ref", "return", "self",
        "static", "struct", "super", "trait", "true", "type", "unsafe", "use", "where", "while",
    ];
    match taken.contains(&name) || keywords.contains(&name) {
        true => Err(NewError::Reserved(name.to_owned())),
        false => Ok(name.to_owned()),
    }
}

/// Dependency of the package on the crate for authors, as TOML.
fn dependency(given: Option<&Path>) -> Result<Dependency, NewError> {
    let is_crate = |folder: &Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        manifest.lines().any(|line| line == "name = \"dormouse\"")
    };
    let inside = given.map(|given| given.join("shared/dormouse"));
    let folder = match given {
        Some(given) if is_crate(given) => Some(given),
        // The root of the repository.
        Some(given) => {
            let inside = inside.as_deref().filter(|inside| is_crate(inside));
            Some(inside.ok_or_else(|| NewError::NoCrate(given.to_owned()))?)
        }
        None => Some(Path::new(BESIDE)).filter(|beside| is_crate(beside)),
    };
    let Some(folder) = folder else {
        return Ok(Dependency { toml: format!("{:?}", env!("CARGO_PKG_VERSION")), checkout: None });
    };
    let folder = folder.canonicalize().map_err(|error| NewError::Write { path: folder.to_owned(), error })?;
    let toml = format!("{{ path = {:?} }}", folder.to_string_lossy());
    Ok(Dependency { toml, checkout: folder.ancestors().nth(2).map(Path::to_owned) })
}

/// The crate for authors, as a package depends on it.
struct Dependency {
    toml: String,
    /// The folder with the workspace that it is in, unless it is published.
    checkout: Option<PathBuf>,
}

/// Takes the compiler and the versions of `checkout` along: the package is built with what the crate was tested with.
fn take_versions_along(checkout: &Path, package: &Path) -> Result<(), NewError> {
    for name in ["rust-toolchain.toml", "Cargo.lock"] {
        match fs::read_to_string(checkout.join(name)) {
            Ok(text) => write(&package.join(name), &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(NewError::Write { path: checkout.join(name), error }),
        }
    }
    Ok(())
}

/// Writes a file; a script can be run.
fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), NewError> {
    let failed = |error| NewError::Write { path: path.to_owned(), error };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let bytes = text.as_ref();
    let mode = if bytes.starts_with(b"#!") { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(bytes).map_err(failed)
}

fn say(text: &str) -> Result<(), NewError> {
    let written = io::stdout().lock().write_all(text.as_bytes());
    written.map_err(|error| NewError::Write { path: "the standard output".into(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_names_of_packages() {
        for right in ["leave", "own-agent", "a1", "agents-of-2027"] {
            assert_eq!(package_name(Path::new("somewhere").join(right).as_path()).unwrap(), right);
        }
        for wrong in ["", "Leave", "1leave", "own--agent", "own_agent", "-leave", "leave-", "l\u{e9}", ".."] {
            assert!(matches!(package_name(Path::new(wrong)), Err(NewError::Name(_))), "{wrong}");
        }
        for taken in ["dormouse", "async", "inbound", "test"] {
            assert!(matches!(package_name(Path::new(taken)), Err(NewError::Reserved(_))), "{taken}");
        }
    }

    #[test]
    fn the_next_steps_can_be_pasted() {
        let told = steps_of_workspace("my agent", Some(".openharness/models/models.yaml"));
        for line in ["  dormouse workspace check 'my agent' --online\n", "  dormouse chat 'my agent'\n"] {
            assert!(told.contains(line), "{told}");
        }
        assert!(!steps_of_workspace("helper", None).contains("OPENAI_API_KEY"));
    }

    #[test]
    fn what_is_there_is_not_changed() {
        let place = tempfile::tempdir().unwrap();
        let ask = New { folder: place.path().join("leave"), dormouse: None, template: None };
        new(&ask).unwrap();
        fs::write(ask.folder.join("src/lib.rs"), "mine").unwrap();
        assert!(matches!(new(&ask), Err(NewError::There(_))));
        assert_eq!(fs::read_to_string(ask.folder.join("src/lib.rs")).unwrap(), "mine");
    }

    #[test]
    fn no_blank_is_left_and_scripts_can_be_run() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let ask = New { folder: place.path().join("own-agent"), dormouse: None, template: None };
        new(&ask).unwrap();
        for place in ["Cargo.toml", "README.md", "src/lib.rs", "src/main.rs", "src/bin/stream.rs"] {
            let text = fs::read_to_string(ask.folder.join(place)).unwrap();
            for blank in ["{name}", "{crate}", "{dependency}", "{function}", "{Function}"] {
                assert!(!text.contains(blank), "{place}: {blank}");
            }
        }
        infra(&Infra { folder: ask.folder.join("build/infra") }).unwrap();
        let script = fs::metadata(ask.folder.join("build/infra/deploy.sh")).unwrap();
        assert_eq!(script.permissions().mode() & 0o111, 0o111);
        for (name, text) in INFRA {
            for sourced in text.lines().filter_map(|line| line.strip_prefix(". ./")) {
                assert!(ask.folder.join("build/infra").join(sourced).is_file(), "{name} sources {sourced}");
            }
        }
    }
}
