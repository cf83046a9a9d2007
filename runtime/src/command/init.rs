//! `portcullis init`: makes an existing folder a project, shows its policy, or removes it.

use std::{
    fs::{self, DirBuilder},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use portcullis_tools::confine::{trusted, user_folders::absolute_variable};

use crate::{
    cli::{CommonOptions, InitOptions},
    error::CliError,
    output::{stream, text},
    project::{self, Project},
    setup::{self, real_path},
    toolchain::FoundToolchains,
};

pub(crate) fn run(common: &CommonOptions, options: &InitOptions) -> Result<ExitCode, CliError> {
    let folder = real_path(&options.folder)
        .map_err(|source| CliError::Workspace { path: options.folder.clone(), source })?;
    let refuse = |problem: &str| CliError::Init { folder: folder.clone(), source: problem.into() };
    let projects = project::projects_folder()
        .ok_or_else(|| refuse("there is no folder for its policy: set XDG_CONFIG_HOME or HOME"))?;
    // A project of a parent folder does not count: this folder can have its own.
    let existing_project = Project::find(&folder)?.filter(|project| project.folder == folder);
    if options.remove {
        let Some(project) = existing_project else {
            return Err(refuse("it is not a project, so there is nothing to remove"));
        };
        return remove(common, &project);
    }
    if !folder.is_dir() {
        return Err(refuse("it is not an existing folder"));
    }
    if let Some(reason) = reason_to_refuse(&folder, &projects) {
        return Err(refuse(&reason));
    }
    if let Some(project) = existing_project {
        let file = project.file.display();
        return Err(refuse(&format!(
            "it is already a project; its policy is `{file}`: edit that file, or run `portcullis init --remove`"
        )));
    }
    let name = options.name.clone().unwrap_or_else(|| project::name_for(&folder));
    // The name becomes a file name, so it must not lead to another folder.
    if name != project::name_for(Path::new(&name)) {
        return Err(refuse(&format!("`{}` is not a file name in plain characters", text::inline(&name))));
    }
    let file = project::file_of(&projects, &name);
    let home = absolute_variable("HOME");
    let toolchains = home.map(|home| FoundToolchains::in_home(&home)).unwrap_or_default();
    let policy = folder
        .to_str()
        .and_then(|folder| project::policy_text(folder, &toolchains).ok())
        .ok_or_else(|| refuse("its path is not UTF-8, and a policy can contain only text"))?;
    if options.show {
        stream::write_stderr(&format!("would be written to {}\n", file.display()));
        stream::write_output(&policy)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&projects, &file, &policy).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            refuse(&format!("`{}` is the file of another project; choose a name with --name", file.display()))
        }
        _ => CliError::Project { file: file.clone(), source: error.into() },
    })?;
    // Load the policy as a later start will, so that a fault is reported immediately.
    check(common, &file)?;
    let found = if toolchains.names.is_empty() {
        String::new()
    } else {
        format!("  commands may read and run the toolchains of {}\n", toolchains.names.join(", "))
    };
    stream::write_output(&format!(
        "project {name}\n  folder   {}\n  policy   {}\n{found}\nIn this folder, try `portcullis tools`, and `portcullis doctor` for what holds.\n",
        text::inline(&folder.display().to_string()),
        text::inline(&file.display().to_string()),
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the reason why a folder cannot be a project: tools would see private files.
fn reason_to_refuse(folder: &Path, projects: &Path) -> Option<String> {
    let home = std::env::var_os("HOME").and_then(|home| real_path(Path::new(&home)).ok());
    if folder.parent().is_none() || home.as_deref().is_some_and(|home| home.starts_with(folder)) {
        return Some(
            "it holds the home folder, with keys and settings of other programs; name a folder below"
                .to_owned(),
        );
    }
    let projects = real_path(projects).ok()?;
    (folder.starts_with(&projects) || projects.starts_with(folder))
        .then(|| format!("it overlaps `{}`, which holds policies", projects.display()))
}

/// Loads the new policy as later commands will. Removes a file that they would refuse.
fn check(common: &CommonOptions, file: &Path) -> Result<(), CliError> {
    let options = CommonOptions { workspace: None, policy: Some(file.to_owned()), ..common.clone() };
    let load_result = setup::envelope(&options).and_then(|envelope| {
        trusted::open_file(file)
            .map_err(|error| CliError::Project { file: file.to_owned(), source: error.into() })?;
        Ok(setup::policy_files(&envelope)?.load(envelope.sandbox_tier)?)
    });
    if load_result.is_err() {
        // Ignore a failure to remove the file, and report the load's error.
        let _ = fs::remove_file(file);
    }
    load_result.map(drop)
}

/// Writes the file atomically, readable only by its owner. An existing file is never replaced.
fn write(projects: &Path, file: &Path, policy: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(projects)?;
    let mut unfinished = tempfile::NamedTempFile::new_in(projects)?;
    unfinished.write_all(policy.as_bytes())?;
    unfinished.as_file().sync_all()?;
    unfinished.persist_noclobber(file)?;
    Ok(())
}

fn remove(common: &CommonOptions, project: &Project) -> Result<ExitCode, CliError> {
    let options = CommonOptions { workspace: None, policy: Some(project.file.clone()), ..common.clone() };
    let state = setup::envelope(&options)?.state.parent().map(PathBuf::from);
    fs::remove_file(&project.file)
        .map_err(|error| CliError::Project { file: project.file.clone(), source: error.into() })?;
    let kept_state = state.filter(|state| state.exists()).map_or_else(String::new, |state| {
        format!("its audit log, `tmp` and `vault` stay in {}\n", text::inline(&state.display().to_string()))
    });
    let file = text::inline(&project.file.display().to_string());
    stream::write_output(&format!("removed {file}\n{kept_state}"))?;
    Ok(ExitCode::SUCCESS)
}
