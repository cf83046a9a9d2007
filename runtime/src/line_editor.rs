//! Reads lines from a person at the terminal, with editing and a history.

mod history;

use std::{io, path::Path};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::{
    Behavior, Config, Editor,
    error::ReadlineError,
    history::{History as _, MemHistory},
};

use self::history::{HistoryFile, MAX_HISTORY_LINES};
use crate::error::CliError;

/// A line editor with the history of one command.
pub(crate) struct LineEditor {
    editor: Editor<(), MemHistory>,
    history: HistoryFile,
}

/// The person's input at a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// A line, without its line break. A pasted text can have several lines.
    Line(String),
    /// Ctrl-C, which drops the line.
    Cleared,
    /// Ctrl-D, which ends the input.
    End,
}

impl LineEditor {
    /// Opens an editor on this process's terminal, with the history `name` in an existing state folder.
    ///
    /// # Errors
    /// [`CliError::History`] if the history cannot be read, [`CliError::Terminal`] if there is no terminal.
    pub(crate) fn open(state: &Path, name: &str) -> Result<Self, CliError> {
        // Use the terminal itself, so that no prompt goes into a file that standard output is redirected to.
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .history_ignore_space(true)
            .max_history_size(MAX_HISTORY_LINES)
            .map_err(failed)?
            .build();
        let (history, lines) = HistoryFile::open(state, name)?;
        let mut memory = MemHistory::with_config(&config);
        for line in &lines {
            memory.add(line).map_err(failed)?;
        }
        Ok(Self { editor: Editor::with_history(config, memory).map_err(failed)?, history })
    }

    /// Reads a line after a prompt, and adds it to the history. A line that begins with a blank, or repeats
    /// the previous line, is not added. This blocks until the person has typed the line.
    ///
    /// # Errors
    /// [`CliError::Terminal`] if the terminal fails, [`CliError::History`] if the history cannot be written.
    pub(crate) fn read(&mut self, prompt: &str) -> Result<Input, CliError> {
        let line = match self.editor.readline(prompt) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => return Ok(Input::Cleared),
            Err(ReadlineError::Eof) => return Ok(Input::End),
            Err(error) => return Err(failed(error)),
        };
        if self.editor.add_history_entry(&line).map_err(failed)? {
            self.history.append(&line)?;
        }
        Ok(Input::Line(line))
    }
}

fn failed(error: ReadlineError) -> CliError {
    let source = match error {
        ReadlineError::Io(source) => source,
        other => io::Error::other(other),
    };
    CliError::Terminal { source }
}

/// The original mode of the terminal. While a line is edited, the terminal is in another mode.
#[derive(Debug)]
pub(crate) struct TerminalMode(Option<Termios>);

impl TerminalMode {
    /// Saves the mode of standard input, if it is a terminal.
    pub(crate) fn remember() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }

    /// Restores the mode. Needed if the program ends while a line is edited.
    pub(crate) fn restore(&self) {
        if let Some(mode) = &self.0 {
            // Ignore the error: the program ends, and there is no other way to restore the terminal.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
        }
    }
}
