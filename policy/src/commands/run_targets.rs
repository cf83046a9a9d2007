//! Finds the programs that a program runs in turn: those of shells, `eval` and `find -exec`, and, with
//! [`wrappers`](super::wrappers), those named after a wrapper's options.

use super::{
    UnreadableCommand,
    words::CommandWord,
    wrappers::{WRAPPERS, wrapped_targets},
};

/// A target that a program runs in turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RunTarget {
    /// A text that is run as a command.
    Text(String),
    /// A program with its arguments.
    Program(Vec<CommandWord>),
}

/// Shells. A shell runs a text as a command.
const SHELLS: &[&str] = &[
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "ksh93",
    "mksh",
    "oksh",
    "lksh",
    "ash",
    "hush",
    "rbash",
    "rzsh",
    "yash",
    "posh",
    "fish",
    "csh",
    "tcsh",
    "sash",
    "bash-static",
    "zsh-static",
];

/// Programs that start another user's shell, or a shell whose session is recorded.
const SHELL_STARTERS: &[&str] = &["su", "runuser", "script", "sg", "newgrp", "login"];

/// Programs that run the lines of their input.
const INPUT_RUNNERS: &[&str] = &["parallel", "sem", "at", "batch", "crontab", "gparallel"];

/// Paths from which a shell would read its command as input.
const INPUTS: &[&str] = &["/dev/stdin", "/dev/fd/", "/proc/self/fd/", "/dev/tcp/", "/dev/udp/"];

/// Refuses a program that runs its input, because the command's text does not contain the input.
pub(super) fn refuse_input_reader<T>(name: &str) -> Result<T, UnreadableCommand> {
    Err(UnreadableCommand::RunsInput(name.to_owned()))
}

/// Returns the programs and texts that a call runs in turn, as far as the call's words show them.
///
/// # Errors
/// The reason why the programs cannot be determined.
pub(super) fn run_targets(words: &[CommandWord]) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let Some((program, arguments)) = words.split_first() else { return Ok(Vec::new()) };
    let Some(name) = program.program() else { return Ok(Vec::new()) };
    if SHELLS.contains(&name) {
        return shell_targets(name, arguments);
    }
    match name {
        "eval" => Ok(vec![join_words(name, skip_end_of_options(arguments))?]),
        "trap" => {
            let first_argument = skip_end_of_options(arguments).first();
            first_argument.map_or(Ok(Vec::new()), |word| Ok(vec![text_target(name, word)?]))
        }
        "alias" => arguments
            .iter()
            .map(|word| literal_text(name, word))
            .map(|text| Ok(alias_target(&text?)))
            .collect(),
        "source" | "." => file_targets(name, skip_end_of_options(arguments)),
        // `hash -p FILE NAME` makes NAME run FILE, so FILE is judged as a program.
        "hash" => Ok(arguments
            .windows(2)
            .filter(|pair| is_cluster_with(&pair[0], 'p'))
            .map(|pair| RunTarget::Program(vec![pair[1].clone()]))
            .collect()),
        "find" | "gfind" | "fd" | "fdfind" => find_targets(arguments),
        _ if SHELL_STARTERS.contains(&name) => login_targets(name, arguments),
        _ if INPUT_RUNNERS.contains(&name) => refuse_input_reader(name),
        // `command -v` only looks up a program.
        "command" if arguments.first().is_some_and(|word| matches!(word.literal(), Some("-v" | "-V"))) => {
            Ok(Vec::new())
        }
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name)) {
            Some(wrapper) => wrapped_targets(name, wrapper, arguments),
            None => Ok(Vec::new()),
        },
    }
}

pub(super) fn literal_text(program: &str, word: &CommandWord) -> Result<String, UnreadableCommand> {
    word.literal().map(str::to_owned).ok_or_else(|| UnreadableCommand::UnknownText(program.to_owned()))
}

/// Returns a word that the program runs as a command.
pub(super) fn text_target(program: &str, word: &CommandWord) -> Result<RunTarget, UnreadableCommand> {
    literal_text(program, word).map(RunTarget::Text)
}

/// Returns words that the program joins and runs as a command.
pub(super) fn join_words(program: &str, words: &[CommandWord]) -> Result<RunTarget, UnreadableCommand> {
    let texts = words.iter().map(|word| literal_text(program, word)).collect::<Result<Vec<_>, _>>()?;
    Ok(RunTarget::Text(texts.join(" ")))
}

/// Returns the words after a leading `--`, which ends options.
fn skip_end_of_options(words: &[CommandWord]) -> &[CommandWord] {
    match words.split_first() {
        Some((first, rest)) if first.literal() == Some("--") => rest,
        Some(_) | None => words,
    }
}

/// Returns whether a word is a cluster of one-letter options that contains this letter.
fn is_cluster_with(word: &CommandWord, letter: char) -> bool {
    word.literal()
        .is_some_and(|text| text.starts_with('-') && !text.starts_with("--") && text[1..].contains(letter))
}

/// Returns the text that `alias NAME=VALUE` makes the name run, followed by arguments that are not known yet.
fn alias_target(text: &str) -> RunTarget {
    RunTarget::Text(match text.split_once('=') {
        Some((_, value)) => format!("{value} \"$@\""),
        // `alias NAME` only prints the alias.
        None => ":".to_owned(),
    })
}

/// Returns the file that a command sources. It is judged like any other program, unless it is the shell's
/// input.
fn file_targets(name: &str, words: &[CommandWord]) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let Some(word) = words.first() else { return Ok(Vec::new()) };
    let path = literal_text(name, word)?;
    if path == "-" || INPUTS.iter().any(|input| path.starts_with(input)) {
        return refuse_input_reader(name);
    }
    Ok(vec![RunTarget::Program(words.to_vec())])
}

/// Returns the targets of `su -c TEXT`, `script -c TEXT`, `runuser -u USER -- PROGRAM`. Options may occur
/// anywhere, and each other word may be a user, a file or an argument of the shell.
fn login_targets(name: &str, arguments: &[CommandWord]) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let mut targets = Vec::new();
    let mut rest = arguments.iter().enumerate();
    while let Some((index, word)) = rest.next() {
        let option = literal_text(name, word)?;
        let value = match option.split_once('=') {
            Some((option, value)) if is_long_command(option) => Some(value.to_owned()),
            Some(_) | None => None,
        };
        if let Some(value) = value {
            targets.push(RunTarget::Text(value));
        } else if option == "--" {
            targets.push(RunTarget::Program(arguments[index + 1..].to_vec()));
        } else if is_long_command(&option) {
            targets.extend(rest.next().map(|(_, word)| text_target(name, word)).transpose()?);
        } else if let Some((_, value)) = option.split_once('c').filter(|_| is_cluster_with(word, 'c')) {
            match value {
                "" => targets.extend(rest.next().map(|(_, word)| text_target(name, word)).transpose()?),
                value => targets.push(RunTarget::Text(value.to_owned())),
            }
        }
    }
    targets.retain(|target| !matches!(target, RunTarget::Program(words) if words.is_empty()));
    // Without a command, these programs start a shell that runs its input.
    if targets.is_empty() { refuse_input_reader(name) } else { Ok(targets) }
}

/// Returns whether an option is `--command`, `--session-command` or an abbreviation of one.
fn is_long_command(option: &str) -> bool {
    option.len() > 2 && ["--command", "--session-command"].iter().any(|long| long.starts_with(option))
}

/// Returns the targets of `sh -c TEXT` or `sh FILE`. A shell that reads its input is refused, because the
/// rules cannot see that text.
fn shell_targets(name: &str, arguments: &[CommandWord]) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let option = literal_text(name, word)?;
        match option.as_str() {
            "--" => break,
            "-o" | "+o" | "-O" | "+O" => drop(rest.next()),
            "--version" | "--help" => return Ok(Vec::new()),
            "--rcfile" | "--init-file" => drop(rest.next()),
            "-" => return refuse_input_reader(name),
            long if long.starts_with("--") => {}
            // Checked before `-c`, so that a cluster with both letters is refused.
            cluster if cluster.starts_with(['-', '+']) && cluster.contains('s') => {
                return refuse_input_reader(name);
            }
            cluster if cluster.starts_with('-') && cluster.contains('c') => {
                // More options may occur between `-c` and the text.
                let command =
                    rest.find(|word| !word.literal().is_some_and(|text| text.starts_with(['-', '+'])));
                return command.map_or(Ok(Vec::new()), |word| Ok(vec![text_target(name, word)?]));
            }
            // Options whose value is the next word, such as `-eo pipefail`.
            cluster if cluster.starts_with(['-', '+']) && cluster.ends_with(['o', 'O']) => drop(rest.next()),
            cluster if cluster.starts_with(['-', '+']) => {}
            // Step back by one word, because the iterator has already passed this word.
            _ => return file_targets(name, &arguments[arguments.len() - rest.len() - 1..]),
        }
    }
    if rest.len() == 0 { refuse_input_reader(name) } else { file_targets(name, rest.as_slice()) }
}

/// The options of `find` and `fd` that run a program.
const FIND_RUN_OPTIONS: &[&str] =
    &["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];

/// The source of the text that a program substitutes for a placeholder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceholderSource {
    /// The path of a file that the program found. Such a path never looks like an option.
    FoundPath,
    /// The program's input, which may be any text.
    AnyInput,
}

/// Returns a program's words, with an unknown text in place of the placeholder. A path in an argument is
/// harmless unless it is part of the program's name or the program runs its arguments.
pub(super) fn with_placeholders(
    words: &[CommandWord],
    placeholder: &str,
    source: PlaceholderSource,
) -> Vec<CommandWord> {
    let name = words.first().and_then(CommandWord::program);
    let harmless = source == PlaceholderSource::FoundPath
        && name.is_some_and(|name| !name.contains(placeholder) && !runs_its_arguments(name));
    if harmless || placeholder.is_empty() {
        words.to_vec()
    } else {
        words.iter().map(|word| word.with_unknown(placeholder)).collect()
    }
}

/// Returns whether a program runs its arguments.
pub(super) fn runs_its_arguments(name: &str) -> bool {
    [
        SHELLS,
        SHELL_STARTERS,
        INPUT_RUNNERS,
        &["eval", "trap", "alias", "find", "gfind", "fd", "fdfind", "source", "."],
    ]
    .iter()
    .any(|names| names.contains(&name))
        || WRAPPERS.iter().any(|wrapper| wrapper.names.contains(&name))
}

/// Returns the targets of `find … -exec PROGRAM … ;`.
fn find_targets(arguments: &[CommandWord]) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let mut targets = Vec::new();
    let mut rest = arguments;
    while let Some((word, remaining_words)) = rest.split_first() {
        rest = remaining_words;
        let Some(text) = word.literal() else {
            if word.may_be_several {
                return Err(UnreadableCommand::UnknownFindArguments);
            }
            continue;
        };
        if FIND_RUN_OPTIONS.contains(&text) {
            let end = rest.iter().position(|word| matches!(word.literal(), Some(";" | "+")));
            // `fd -x` needs no end mark: without one, all remaining words belong to the program that it runs.
            let (program, remaining_words) = rest.split_at(end.unwrap_or(rest.len()));
            targets.push(RunTarget::Program(with_placeholders(program, "{}", PlaceholderSource::FoundPath)));
            rest = remaining_words;
        }
    }
    targets.retain(|target| !matches!(target, RunTarget::Program(words) if words.is_empty()));
    Ok(targets)
}
