//! Reads the files of configured tools that the command line names.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use portcullis_adapters::hsafa::{
    InvalidConfigurations, MAX_CONFIGURATION_BYTES, ToolConfiguration, read_configurations,
};
use portcullis_tools::{ConfiguredTool, RegistryBuilder, confine::bounded};
use thiserror::Error;

/// The tools of the command line. They are process-wide, like the command line: a program builds registries
/// in several places, and each must know the tools, because the policy can name them.
static TOOLS: OnceLock<Vec<ConfiguredTool>> = OnceLock::new();

/// The reason why a file of tools cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ToolFileError {
    /// The file cannot be read.
    #[error("cannot read the tool file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file's text has mistakes.
    #[error("the tool file `{}` has mistakes", path.display())]
    Invalid { path: PathBuf, source: InvalidConfigurations },
}

/// Reads the files for all registries of this process.
pub(crate) fn read(files: &[PathBuf]) -> Result<(), ToolFileError> {
    if files.is_empty() || TOOLS.get().is_some() {
        return Ok(());
    }
    let mut tools = Vec::new();
    for file in files {
        tools.extend(read_file(file)?.iter().map(ToolConfiguration::to_tool));
    }
    let _ = TOOLS.get_or_init(|| tools);
    Ok(())
}

/// Adds the tools to a registry.
pub(crate) fn add_to(builder: RegistryBuilder) -> RegistryBuilder {
    tools().cloned().fold(builder, RegistryBuilder::configured_tool)
}

/// Returns whether the command line names any tool.
pub(crate) fn have_any() -> bool {
    tools().next().is_some()
}

/// Returns whether the results of some tool are submitted from outside.
pub(crate) fn have_external() -> bool {
    tools().any(|tool| matches!(tool, ConfiguredTool::External(_)))
}

fn tools() -> impl Iterator<Item = &'static ConfiguredTool> {
    TOOLS.get().into_iter().flatten()
}

fn read_file(path: &Path) -> Result<Vec<ToolConfiguration>, ToolFileError> {
    let text = File::open(path)
        .and_then(|file| bounded::read_text(file, MAX_CONFIGURATION_BYTES as u64))
        .map_err(|source| ToolFileError::Read { path: path.to_owned(), source })?;
    read_configurations(&text).map_err(|source| ToolFileError::Invalid { path: path.to_owned(), source })
}
