//! A conversation at a terminal: prompts and answers until Ctrl-D.

use std::{path::Path, process::ExitCode, time::Instant};

use portcullis_runs::Continuation;
use portcullis_types::Content;
use tokio::runtime::Runtime;

use super::{
    images,
    session::RunSession,
    slash::{self, SlashCommand, Typed},
};
use crate::{
    command::{audit, interrupts::INTERRUPTED, policy, progress::Progress, tools, undo},
    error::CliError,
    line_editor::{Input, LineEditor},
    output::{stream, text},
};

/// The text before each line that a person types.
const LINE_START: &str = "you> ";

/// The name of the history of typed prompts.
const HISTORY: &str = "agent";

/// Reads and answers prompts. Reads the terminal outside the runtime, so that the runtime's worker thread
/// can serve the connections while a person types.
pub(super) fn run(
    runtime: &Runtime,
    session: &RunSession,
    state: &Path,
    progress: &Progress,
) -> Result<ExitCode, CliError> {
    let mut editor = LineEditor::open(state, HISTORY)?;
    stream::write_stderr(&format!(
        "conversation {} with {}; /help lists the commands, Ctrl-D ends it\n",
        session.subject.id,
        text::inline(&session.model)
    ));
    if session.was_interrupted {
        stream::write_stderr(&format!(
            "its last answer was interrupted, and continues with the next prompt; without one: portcullis runs resume \
             {}\n",
            session.subject.id
        ));
    }
    let mut images: Vec<Content> = Vec::new();
    while progress.begin_next(true) {
        let line = match editor.read(LINE_START)? {
            Input::Line(line) => line,
            Input::Cleared => continue,
            Input::End => {
                session.show_how_to_continue();
                return Ok(ExitCode::SUCCESS);
            }
        };
        let prompt = match slash::parse(&line) {
            Typed::Prompt("") => continue,
            Typed::Prompt(typed) => images::prompt(typed, images.clone()),
            Typed::Unknown(word) => {
                let word = text::inline(word);
                stream::write_stderr(&format!("there is no command `{word}`; /help lists the commands\n"));
                continue;
            }
            Typed::Command(command, argument) => {
                if let Err(error) = obey(command, argument, session, &mut images) {
                    stream::write_stderr(&error.report());
                }
                continue;
            }
        };
        let prompt = match prompt {
            Ok(prompt) => prompt,
            // The line is in the history, so the person can correct it.
            Err(error) => {
                stream::write_stderr(&error.report());
                continue;
            }
        };
        images.clear();
        let Some(cancel) = progress.begin_work() else { break };
        let began = Instant::now();
        match runtime.block_on(session.continue_run(Continuation::Prompt(prompt), &cancel)) {
            Ok(run) => {
                session.show_answer(&run)?;
                session.show_costs(&run, began.elapsed());
            }
            // The conversation continues: its earlier part is stored, and the store may answer again.
            Err(error) => stream::write_stderr(&error.report()),
        }
    }
    session.show_how_to_continue();
    Ok(ExitCode::from(INTERRUPTED))
}

/// Executes a command.
fn obey(
    command: SlashCommand,
    argument: &str,
    session: &RunSession,
    images: &mut Vec<Content>,
) -> Result<(), CliError> {
    let registry = &session.registry;
    let answer = match command {
        SlashCommand::Help => slash::help(),
        SlashCommand::Tools => {
            let given = session.caller.tools.as_deref();
            format!("{}{}", tools::listing(registry, given), tools::refused_modules(registry))
        }
        SlashCommand::Policy => policy::summary(&session.files, registry.policy()),
        SlashCommand::Log => audit::listing_of_run(&session.audit_log, session.subject.id.as_str())?,
        SlashCommand::Changes => undo::changes_of_run(registry, session.subject.id.as_str())?,
        SlashCommand::Undo => undo::undo_newest_of_run(registry, session.subject.id.as_str())?,
        SlashCommand::Image => {
            return images::add(images, Path::new(argument));
        }
    };
    stream::write_output(&answer)
}
