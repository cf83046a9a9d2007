//! `portcullis tool build`: builds a crate's module and shows its declarations.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use portcullis_tools::{RegisteredTool, sandbox::MAX_MODULE_BYTES};

use super::cargo::ToolCrate;
use crate::{
    cli::{BuildOptions, CommonOptions},
    error::{AuthorError, CliError},
    output::{stream, table, text},
    setup, sidecar,
};

/// Builds and loads the crate's modules, and shows their tools.
pub(crate) fn run(common: &CommonOptions, options: &BuildOptions) -> Result<ExitCode, CliError> {
    let modules = ToolCrate::find(&options.package.dir)?.modules()?;
    let mut report = String::new();
    for module in &modules {
        let size = size(module)?;
        // Writing to a string cannot fail.
        let _ = writeln!(report, "module   {}", text::inline(&relative_to_current_folder(module)));
        let _ = writeln!(
            report,
            "size     {} of at most {}",
            text::bytes(size),
            text::bytes(MAX_MODULE_BYTES as u64)
        );
    }
    let mut envelope = setup::envelope(common)?;
    envelope.modules.clone_from(&modules);
    let runtime = setup::runtime()?;
    let registry = match runtime.block_on(setup::registry(&envelope, sidecar::shell_source(common))) {
        Ok(registry) => registry,
        Err(error) => {
            // Show the built module first: the error below is about its content.
            stream::write_stderr(&report);
            return Err(error);
        }
    };
    report.push_str("imports  nothing but what guests get\n\n");
    let tools = registry.tools();
    let rows = tools.iter().filter(|tool| is_from_modules(tool, &modules)).map(|tool| {
        let declared = tool.declared().map(portcullis_tools::modules::DeclarationSummary::properties);
        let property =
            |name| declared.and_then(|properties| properties.get(name)).cloned().unwrap_or_default();
        [
            tool.decl().name.clone(),
            property("tier"),
            property("timeout"),
            property("roles"),
            property("profile"),
        ]
    });
    report.push_str(&table::render(["TOOL", "TIER", "TIMEOUT", "ROLES", "PROFILE"], rows));
    stream::write_output(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the size of a module, if the module is small enough to be loaded.
fn size(module: &Path) -> Result<u64, AuthorError> {
    let file =
        fs::metadata(module).map_err(|source| AuthorError::Module { path: module.to_owned(), source })?;
    if file.len() > MAX_MODULE_BYTES as u64 {
        let (path, bytes) = (module.to_owned(), file.len());
        return Err(AuthorError::TooLarge { path, bytes, limit: MAX_MODULE_BYTES });
    }
    Ok(file.len())
}

/// Returns whether a tool belongs to one of these modules.
pub(super) fn is_from_modules(tool: &RegisteredTool, modules: &[PathBuf]) -> bool {
    tool.module_name().is_some_and(|name| modules.iter().any(|module| module.display().to_string() == name))
}

/// Formats a path, relative to the current folder if it lies below that folder.
pub(super) fn relative_to_current_folder(path: &Path) -> String {
    let relative_path = setup::real_path(Path::new(".")).ok();
    let relative_path =
        relative_path.and_then(|current_folder| path.strip_prefix(current_folder).ok().map(Path::to_owned));
    relative_path.unwrap_or_else(|| path.to_owned()).display().to_string()
}
