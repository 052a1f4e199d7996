//! Templates that workspaces are made of: those that ship, and those of the platform.

use std::path::Path;

use dormouse_agent::Templates;
use dormouse_agent::workspace::{FILE_LIMIT, read};
use dormouse_local::WorkspaceFolder;
use dormouse_ports::{ListLimits, WorkspaceError, WorkspaceSource};

use crate::workspace::platform_folder;

/// Folder of the platform in which each folder is a template.
const FOLDER: &str = "templates";
/// The most files of all templates, and the most folders around one.
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
    let folder = WorkspaceFolder::open(platform)?;
    let mut templates = Templates { platform: read(&folder).await?, ..Templates::default() };
    let limits = ListLimits { under: vec![FOLDER.to_owned()], except: Vec::new(), files: MOST_FILES, depth: DEEPEST };
    for file in folder.list(&limits).await? {
        let inside = file.path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
        let Some((name, path)) = inside.and_then(|inside| inside.split_once('/')) else { continue };
        if !OWN.iter().any(|own| path.starts_with(own)) {
            let bytes = folder.read(&file.path, FILE_LIMIT).await?;
            templates.own.entry(name.to_owned()).or_default().insert(path.to_owned(), bytes);
        }
    }
    Ok(templates)
}
