//! `portcullis completions`: completion scripts for shells, and manual pages.

use std::{io, path::Path, process::ExitCode};

use clap::CommandFactory as _;

use crate::{
    cli::{Cli, CompletionsOptions},
    error::CliError,
    output::{stream, text},
};

pub(crate) fn run(options: &CompletionsOptions) -> Result<ExitCode, CliError> {
    match (options.shell, &options.man) {
        (Some(shell), _) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "portcullis", &mut script);
            stream::write_output(&String::from_utf8_lossy(&script))?;
        }
        (None, Some(folder)) => {
            write_pages(folder).map_err(|source| CliError::ManualPages { folder: folder.clone(), source })?;
            let folder = folder.display().to_string();
            stream::write_output(&format!("the manual pages are in {}\n", text::inline(&folder)))?;
        }
        // The options require one of the two.
        (None, None) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes `portcullis.1` and a page for each subcommand.
fn write_pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pages(folder.path()).expect("written");
        for page in
            ["portcullis.1", "portcullis-call.1", "portcullis-audit-verify.1", "portcullis-tool-new.1"]
        {
            let text = std::fs::read_to_string(folder.path().join(page)).expect(page);
            assert!(text.contains(".TH"), "{page}: {text}");
        }
    }

    #[test]
    fn each_shell_completes_the_commands() {
        use clap::ValueEnum as _;
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "portcullis", &mut script);
            let script = String::from_utf8(script).expect("the output is UTF-8");
            assert!(script.contains("portcullis") && script.contains("doctor"), "{shell}");
        }
    }
}
