//! Templates that workspaces are made of: those that ship, and those of the platform.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use dormouse_agent::workspace::{FILE_LIMIT, read};
use dormouse_agent::{TemplateFiles, Templates};
use dormouse_local::WorkspaceFolder;
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceSource};

use crate::workspace::{opened_platform, platform_folder};

/// Folder of the platform in which each folder is a template.
const FOLDER: &str = "templates";
/// The most files of a template, and the most folders around one.
const MOST_FILES: usize = 1_000;
const DEEPEST: usize = 8;
/// Data of runs, which no template has.
const OWN: [&str; 2] = [".openharness/data/", ".openharness/state/"];

/// All templates, and what the settings of one may import.
///
/// # Errors
/// [`WorkspaceError`] when the platform cannot be read.
pub(crate) async fn templates() -> Result<Templates, WorkspaceError> {
    let platform = platform_folder();
    match platform {
        Some(platform) => of_platform(&platform).await,
        None => Ok(Templates::default()),
    }
}

async fn of_platform(platform: &Path) -> Result<Templates, WorkspaceError> {
    let folder = opened_platform(platform)?;
    let mut templates = Templates { platform: read(&folder).await?, ..Templates::default() };
    for name in names(&platform.join(FOLDER))? {
        let files = of_template(&folder, &name).await.unwrap_or_else(|error| {
            templates.flaws.insert(name.clone(), error.to_string());
            TemplateFiles::new()
        });
        templates.own.insert(name, files);
    }
    Ok(templates)
}

/// Names of the folders in `place`; none where it is not there.
fn names(place: &Path) -> Result<Vec<String>, WorkspaceError> {
    let unreadable = |error: std::io::Error| WorkspaceError::Denied(format!("{}: {error}", place.display()));
    let entries = match fs::read_dir(place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        if entry.path().is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

async fn of_template(folder: &WorkspaceFolder, name: &str) -> Result<TemplateFiles, WorkspaceError> {
    let under = format!("{FOLDER}/{name}");
    let limits = ListLimits { under: vec![under.clone()], except: Vec::new(), files: MOST_FILES, depth: DEEPEST };
    let mut files = TemplateFiles::new();
    for file in folder.list(&limits).await? {
        let Some(path) = file.path.strip_prefix(&under).and_then(|rest| rest.strip_prefix('/')) else { continue };
        if !OWN.iter().any(|own| path.starts_with(own)) {
            files.insert(path.to_owned(), folder.read(&file.path, FILE_LIMIT).await?);
        }
    }
    Ok(files)
}
