//! Bash's own commands and variables that hide code: text that bash runs later, or in an unexpected context.

use super::{UnreadableCommand, run_targets, words::CommandWord};

/// Variables that bash itself reads or runs.
const READ_BY_BASH: &[&str] =
    &["BASH_ALIASES", "BASH_CMDS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4"];

/// Commands whose arguments may be arithmetic: bash runs the command in `x[$(command)]` even if the word was quoted.
const COUNTING: &[&str] = &[
    "let",
    "test",
    "[",
    "read",
    "declare",
    "typeset",
    "local",
    "export",
    "readonly",
    "unset",
    "printf",
    "mapfile",
    "readarray",
    "getopts",
    "wait",
    "shift",
    "return",
    "exit",
];

/// Checks that the words of a call show everything that the call runs.
///
/// # Errors
/// The reason why they do not.
pub(super) fn ensure_readable(words: &[CommandWord]) -> Result<(), UnreadableCommand> {
    let Some(name) = words.first().and_then(CommandWord::program) else { return Ok(()) };
    let arguments = &words[1..];
    if matches!(name, "compgen" | "complete" | "bind" | "enable") {
        return Err(UnreadableCommand::MayRunArguments(name.to_owned()));
    }
    let is_option = |word: &CommandWord, letter| {
        word.literal().is_some_and(|text| text.starts_with('-') && text.contains(letter))
    };
    if matches!(name, "mapfile" | "readarray") && arguments.iter().any(|word| is_option(word, 'C')) {
        return Err(UnreadableCommand::RunsCallback(name.to_owned()));
    }
    if COUNTING.contains(&name) {
        arguments.iter().try_for_each(ensure_no_hidden_index)?;
        if name == "let" {
            arguments.iter().try_for_each(ensure_no_hidden_command)?;
        }
    }
    let (sets_by_name, runs_others) = (COUNTING.contains(&name), run_targets::runs_its_arguments(name));
    for variable in READ_BY_BASH {
        let sets = |word: &CommandWord| {
            // `NAME`, `NAME=`, `NAME+=` and `NAME[` all set the variable.
            let rest = word.literal().and_then(|text| text.strip_prefix(variable));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', '+', '[']))
        };
        // `env` and similar programs set a variable only by `NAME=VALUE`; there, a bare name is not an assignment.
        if arguments.iter().any(|word| sets(word) && (sets_by_name || runs_others && word.contains("="))) {
            ensure_harmless(variable)?;
        }
    }
    Ok(())
}

/// Checks that a variable may be set. Bash itself reads or runs the values of some variables.
///
/// # Errors
/// [`UnreadableCommand::VariableOfBash`] if bash itself reads or runs the variable's value.
pub(super) fn ensure_harmless(variable: &str) -> Result<(), UnreadableCommand> {
    if READ_BY_BASH.contains(&variable) {
        return Err(UnreadableCommand::VariableOfBash(variable.to_owned()));
    }
    Ok(())
}

/// Returns whether a call may change the search path of programs.
pub(super) fn may_set_path(words: &[CommandWord]) -> bool {
    // `hash -p FILE NAME` counts too, because it makes a name run another program.
    words.iter().any(|word| {
        word.literal()
            .is_some_and(|text| text == "PATH" || text.starts_with("PATH=") || text.starts_with("PATH+="))
    }) || words.first().and_then(CommandWord::program) == Some("hash")
}

/// Checks that a word contains no command that would run if bash evaluated the word as arithmetic.
///
/// # Errors
/// [`UnreadableCommand::CommandInArithmetic`] if the word contains `$(` or a backtick.
pub(super) fn ensure_no_hidden_command(word: &CommandWord) -> Result<(), UnreadableCommand> {
    if word.contains("$(") || word.contains("`") {
        return Err(UnreadableCommand::CommandInArithmetic);
    }
    Ok(())
}

/// Like [`ensure_no_hidden_command`], for words of which bash evaluates only the index of a list.
///
/// # Errors
/// [`UnreadableCommand::CommandInArithmetic`] if the word contains `[`, and `$(` or a backtick.
pub(super) fn ensure_no_hidden_index(word: &CommandWord) -> Result<(), UnreadableCommand> {
    if word.contains("[") { ensure_no_hidden_command(word) } else { Ok(()) }
}
