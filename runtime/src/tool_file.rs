//! Reads the files of external tools that the command line names.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use portcullis_adapters::hsafa::{InvalidConfigurations, MAX_CONFIGURATION_BYTES, read_configurations};
use portcullis_tools::{ExternalTool, RegistryBuilder, confine::bounded};
use thiserror::Error;

/// The tools of the command line. They are process-wide, as the command line is: a program builds registries at several
/// places, and each must know the tools, because the policy can name them.
static TOOLS: OnceLock<Vec<ExternalTool>> = OnceLock::new();

/// Why a file of external tools cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ToolFileError {
    /// It cannot be read.
    #[error("cannot read the tool file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Its text has mistakes.
    #[error("the tool file `{}` has mistakes", path.display())]
    Invalid { path: PathBuf, source: InvalidConfigurations },
}

/// Reads the files, for all registries of this process.
pub(crate) fn read(files: &[PathBuf]) -> Result<(), ToolFileError> {
    if files.is_empty() || TOOLS.get().is_some() {
        return Ok(());
    }
    let mut tools = Vec::new();
    for file in files {
        tools.extend(read_file(file)?);
    }
    let _ = TOOLS.get_or_init(|| tools);
    Ok(())
}

/// Adds the tools to a registry.
pub(crate) fn add_to(builder: RegistryBuilder) -> RegistryBuilder {
    TOOLS.get().into_iter().flatten().cloned().fold(builder, RegistryBuilder::external_tool)
}

fn read_file(path: &Path) -> Result<Vec<ExternalTool>, ToolFileError> {
    let text = File::open(path)
        .and_then(|file| bounded::read_text(file, MAX_CONFIGURATION_BYTES as u64))
        .map_err(|source| ToolFileError::Read { path: path.to_owned(), source })?;
    read_configurations(&text).map_err(|source| ToolFileError::Invalid { path: path.to_owned(), source })
}
