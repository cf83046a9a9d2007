//! Bash's own commands and variables with hidden code: texts that run later, or in unexpected places.

use super::{runs, words::CommandWord};

/// Variables that bash itself reads or runs.
const READ_BY_BASH: &[&str] =
    &["BASH_ALIASES", "BASH_CMDS", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4"];

/// Commands whose arguments may be arithmetic: `x[$(command)]` runs the command even if it was quoted.
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

/// Checks that a call can be judged by its words.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn ensure_readable(words: &[CommandWord]) -> Result<(), String> {
    let Some(name) = words.first().and_then(CommandWord::program) else { return Ok(()) };
    let arguments = &words[1..];
    if matches!(name, "compgen" | "complete" | "bind" | "enable") {
        return Err(format!("`{name}` may run its arguments"));
    }
    let is_option = |word: &CommandWord, letter| {
        word.literal().is_some_and(|text| text.starts_with('-') && text.contains(letter))
    };
    if matches!(name, "mapfile" | "readarray") && arguments.iter().any(|word| is_option(word, 'C')) {
        return Err(format!("`{name} -C` runs its argument"));
    }
    if COUNTING.contains(&name) {
        arguments.iter().try_for_each(ensure_no_hidden_index)?;
        if name == "let" {
            arguments.iter().try_for_each(ensure_no_hidden_command)?;
        }
    }
    let (sets_by_name, runs_others) = (COUNTING.contains(&name), runs::runs_others(name));
    for variable in READ_BY_BASH {
        let sets = |word: &CommandWord| {
            // `NAME`, `NAME=`, `NAME+=` and `NAME[` all set the variable.
            let rest = word.literal().and_then(|text| text.strip_prefix(variable));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['=', '+', '[']))
        };
        // To `env` and the like a bare name is no assignment: only `NAME=VALUE` sets.
        if arguments.iter().any(|word| sets(word) && (sets_by_name || runs_others && word.contains("="))) {
            ensure_harmless(variable)?;
        }
    }
    Ok(())
}

/// Checks that a variable may be set: bash itself reads or runs some.
///
/// # Errors
/// A message if it may not be set.
pub(super) fn ensure_harmless(variable: &str) -> Result<(), String> {
    if READ_BY_BASH.contains(&variable) {
        return Err(format!("bash runs the value of `{variable}`"));
    }
    Ok(())
}

/// Whether a call may change the search path of programs.
pub(super) fn may_set_path(words: &[CommandWord]) -> bool {
    // `hash -p FILE NAME` too: it gives a name another program.
    words.iter().any(|word| {
        word.literal()
            .is_some_and(|text| text == "PATH" || text.starts_with("PATH=") || text.starts_with("PATH+="))
    }) || words.first().and_then(CommandWord::program) == Some("hash")
}

/// Checks that a word has no command that would run if the word were evaluated as arithmetic.
///
/// # Errors
/// A message if it has one.
pub(super) fn ensure_no_hidden_command(word: &CommandWord) -> Result<(), String> {
    if word.contains("$(") || word.contains("`") {
        return Err("an arithmetic expression contains a command".to_owned());
    }
    Ok(())
}

/// Like [`ensure_no_hidden_command`], where bash would evaluate only the index of a list.
///
/// # Errors
/// A message if it has one.
pub(super) fn ensure_no_hidden_index(word: &CommandWord) -> Result<(), String> {
    if word.contains("[") { ensure_no_hidden_command(word) } else { Ok(()) }
}
