//! `portcullis tool new`: creates a crate with one tool from the files of `new/template`.

mod lockfile;
mod names;
mod sdk;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use portcullis_tools::modules::shipped_name_like;
use portcullis_types::ToolName;

use self::names::TemplateNames;
use crate::{
    atomic_dir,
    cli::NewOptions,
    error::{AuthorError, CliError},
    output::stream,
    setup,
};

/// The paths and texts of the crate's files. [`TemplateNames`] fills in the placeholders of the texts.
const TEMPLATE: [(&str, &str); 6] = [
    ("Cargo.toml", include_str!("new/template/Cargo.toml")),
    ("src/main.rs", include_str!("new/template/src/main.rs")),
    ("README.md", include_str!("new/template/README.md")),
    ("rust-toolchain.toml", include_str!("new/template/rust-toolchain.toml")),
    (".gitignore", include_str!("new/template/gitignore")),
    (".cargo/config.toml", include_str!("new/template/.cargo/config.toml")),
];

/// Creates the crate and prints the next steps.
pub(crate) fn run(options: &NewOptions) -> Result<ExitCode, CliError> {
    let name = ToolName::parse(options.name.as_str()).map_err(AuthorError::from)?;
    if let Some(shipped) = shipped_name_like(&name) {
        return Err(AuthorError::Shipped { name: name.to_string(), shipped }.into());
    }
    let crate_dir = options.dir.clone().unwrap_or_else(|| PathBuf::from(name.as_str()));
    let failed = |source| AuthorError::Make { path: crate_dir.clone(), source };
    if crate_dir.symlink_metadata().is_ok() {
        return Err(AuthorError::Exists { path: crate_dir }.into());
    }
    let folder = setup::real_path(&crate_dir).map_err(failed)?;
    let sdk = sdk::find(options.sdk.as_deref(), &folder)?;
    let names = TemplateNames::new(&name, &sdk::dependency_path(&folder, &sdk)?);
    atomic_dir::create_folder(&folder, 0o755, |unfinished| fill(unfinished, &names, &sdk)).map_err(
        |error| match error {
            NewCrateError::Author(error) => error,
            NewCrateError::Io(source) if source.kind() == io::ErrorKind::AlreadyExists => {
                AuthorError::Exists { path: crate_dir.clone() }
            }
            NewCrateError::Io(source) => AuthorError::Make { path: crate_dir.clone(), source },
        },
    )?;
    stream::write_output(&format!(
        "made {}: a crate with the tool `{name}`, its test and a README\n\nnext:\n  cd {}\n  portcullis tool build\n  portcullis tool try {name} '{{\"path\": \"/shared/README.md\"}}'\n  portcullis tool test\n",
        crate_dir.display(),
        crate_dir.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the crate's files, and lets cargo create the lock file.
fn fill(folder: &Path, names: &TemplateNames, sdk: &Path) -> Result<(), NewCrateError> {
    for (path, text) in TEMPLATE {
        let path = folder.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, names.fill(text))?;
    }
    Ok(lockfile::create_lockfile(folder, sdk)?)
}

/// The reason why the crate was not created. The incomplete folder is then removed.
#[derive(Debug)]
enum NewCrateError {
    Author(AuthorError),
    Io(io::Error),
}

impl From<AuthorError> for NewCrateError {
    fn from(error: AuthorError) -> Self {
        Self::Author(error)
    }
}

impl From<io::Error> for NewCrateError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_the_template_is_filled_in() {
        let name = ToolName::parse("3d-type").expect("a name");
        let names = TemplateNames::new(&name, "/the/sdk");
        for (path, text) in TEMPLATE {
            let filled = names.fill(text);
            assert!(!filled.contains("TEMPLATE"), "{path}: {filled}");
        }
    }

    #[test]
    fn the_template_and_the_sdk_are_built_with_one_compiler() {
        let channel = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("channel = ")).map(str::to_owned);
            line.expect("a channel")
        };
        assert_eq!(
            channel(include_str!("new/template/rust-toolchain.toml")),
            channel(include_str!("../../../../rust-toolchain.toml"))
        );
    }
}
