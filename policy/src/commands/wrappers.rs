//! Wrappers: programs that run another program behind options, such as `env`, `sudo`, `xargs` and `timeout`.

use std::collections::BTreeSet;

use super::{
    UnreadableCommand,
    run_targets::{
        PlaceholderSource, RunTarget, join_words, literal_text, refuse_input_reader, text_target,
        with_placeholders,
    },
    words::CommandWord,
};

/// The call syntax of a wrapper.
pub(super) struct Wrapper {
    pub(super) names: &'static [&'static str],
    /// Options whose value is the next word.
    with_value: &'static [&'static str],
    /// Options whose value is the text of a command, in the next word or attached to the option.
    with_command: &'static [&'static str],
    /// The number of words between the options and the other program.
    operands: usize,
    /// Whether `NAME=VALUE` may precede the other program.
    takes_assignments: bool,
}

const NO_OPTIONS: Wrapper =
    Wrapper { names: &[], with_value: &[], with_command: &[], operands: 0, takes_assignments: false };

pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        names: &["env"],
        with_value: &["-u", "--unset", "-C", "--chdir"],
        with_command: &["-S", "--split-string"],
        takes_assignments: true,
        ..NO_OPTIONS
    },
    Wrapper {
        names: &["sudo", "doas"],
        with_value: &[
            "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-r", "--role", "-t",
            "--type", "-T", "-U", "-D", "--chdir", "-R", "--chroot", "-a",
        ],
        takes_assignments: true,
        ..NO_OPTIONS
    },
    Wrapper { names: &["nice"], with_value: &["-n", "--adjustment"], ..NO_OPTIONS },
    Wrapper { names: &["ionice"], with_value: &["-c", "--class", "-n", "--classdata"], ..NO_OPTIONS },
    Wrapper {
        names: &[
            "nohup",
            "setsid",
            "builtin",
            "busybox",
            "toybox",
            "unbuffer",
            "fakeroot",
            "pkexec",
            "systemd-run",
            "dbus-run-session",
            "valgrind",
            "xvfb-run",
            "tini",
            "dumb-init",
            "catchsegv",
            "eatmydata",
            "proxychains",
            "proxychains4",
            "torsocks",
            "tsocks",
            "rlwrap",
            "caffeinate",
            "numactl",
            "choom",
            "firejail",
            "bwrap",
            "proot",
            "perf",
            "gdb",
            "linux32",
            "linux64",
            "hyperfine",
            "entr",
            "ld.so",
        ],
        ..NO_OPTIONS
    },
    Wrapper {
        names: &["gosu", "su-exec", "setuidgid", "chpst", "envdir", "setarch", "softlimit", "cgexec"],
        operands: 1,
        ..NO_OPTIONS
    },
    Wrapper { names: &["command"], ..NO_OPTIONS },
    Wrapper { names: &["exec"], with_value: &["-a"], ..NO_OPTIONS },
    Wrapper { names: &["time"], with_value: &["-f", "--format", "-o", "--output"], ..NO_OPTIONS },
    Wrapper {
        names: &["stdbuf"],
        with_value: &["-i", "--input", "-o", "--output", "-e", "--error"],
        ..NO_OPTIONS
    },
    Wrapper {
        names: &["timeout"],
        with_value: &["-k", "--kill-after", "-s", "--signal"],
        operands: 1,
        ..NO_OPTIONS
    },
    Wrapper { names: &["chroot"], operands: 1, ..NO_OPTIONS },
    Wrapper { names: &["taskset", "chrt"], operands: 1, ..NO_OPTIONS },
    Wrapper {
        names: &["flock"],
        with_value: &["-w", "--timeout", "-E", "--conflict-exit-code"],
        with_command: &["-c", "--command"],
        operands: 1,
        ..NO_OPTIONS
    },
    Wrapper {
        names: &["xargs", "gxargs"],
        with_value: &[
            "-I",
            "-n",
            "--max-args",
            "-P",
            "--max-procs",
            "-L",
            "--max-lines",
            "-d",
            "--delimiter",
            "-a",
            "--arg-file",
            "-E",
            "-s",
            "--max-chars",
        ],
        ..NO_OPTIONS
    },
    Wrapper { names: &["watch"], with_value: &["-n", "--interval"], ..NO_OPTIONS },
    Wrapper { names: &["unshare", "setpriv", "strace", "ltrace", "nsenter", "prlimit"], ..NO_OPTIONS },
];

/// Programs that start a shell if the call names no program. That shell runs its input.
const SHELL_BY_DEFAULT: &[&str] = &["unshare", "nsenter", "chroot", "fakeroot", "sudo", "doas", "setarch"];

/// The maximum number of readings of one call that are followed. Each reading of the call's options may find
/// a program or a text.
const MAX_READINGS: usize = 16;

/// Returns the programs and texts behind a wrapper's options. An unknown option may or may not have a value,
/// so both readings are followed.
pub(super) fn wrapped_targets(
    name: &str,
    wrapper: &Wrapper,
    arguments: &[CommandWord],
) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let mut targets = Vec::new();
    let mut pending_starts = vec![0];
    let mut visited = BTreeSet::new();
    while let Some(start) = pending_starts.pop() {
        let mut index = start;
        while let Some(word) = arguments.get(index)
            // Read each position once: otherwise the readings would double at every unknown option.
            && visited.insert(index)
        {
            match word_role(name, wrapper, word)? {
                WordRole::Flag => index += 1,
                WordRole::Value => index += 2,
                WordRole::Command => {
                    if let Some(word) = arguments.get(index + 1) {
                        let rest = arguments.get(index + 2..).unwrap_or_default();
                        targets.push(command_of_option(name, literal_text(name, word)?, rest));
                    }
                    index += 2;
                }
                WordRole::AttachedCommand(command) => {
                    targets.push(command_of_option(name, command, &arguments[index + 1..]));
                    index += 1;
                }
                WordRole::Unknown => {
                    targets.extend(clustered_command(name, wrapper, &arguments[index..])?);
                    // Follow one reading with a value and one without.
                    pending_starts.push(index + 2);
                    index += 1;
                }
                WordRole::Undetermined => {
                    // The word may be the program, an option without a value, or an option with a value.
                    // Follow all three readings.
                    pending_starts.extend([index + 2, index + 1]);
                    targets.extend(program_targets(name, wrapper, &arguments[index..])?);
                    ensure_bounded(name, &targets)?;
                    break;
                }
                WordRole::Operand { ends_options } => {
                    // The `--` itself is not an operand.
                    let operands = arguments.get(index + usize::from(ends_options)..).unwrap_or_default();
                    targets.extend(program_targets(name, wrapper, operands)?);
                    ensure_bounded(name, &targets)?;
                    break;
                }
            }
        }
    }
    // Without a program these wrappers start a shell, and the rules cannot see the text that it reads.
    if targets.is_empty() && SHELL_BY_DEFAULT.contains(&name) && !only_queries(name, arguments) {
        return refuse_input_reader(name);
    }
    if name == "xargs" || name == "gxargs" {
        return Ok(targets.into_iter().map(|target| mark_words_from_input(target, arguments)).collect());
    }
    Ok(targets)
}

fn ensure_bounded(name: &str, targets: &[RunTarget]) -> Result<(), UnreadableCommand> {
    if targets.len() > MAX_READINGS {
        return Err(UnreadableCommand::ManyUnknownOptions(name.to_owned()));
    }
    Ok(())
}

/// Returns whether a call runs no program because it only asks for information, as `sudo -l` does.
fn only_queries(name: &str, arguments: &[CommandWord]) -> bool {
    let asks: &[&str] = match name {
        "sudo" => &["-l", "-v", "-k", "-K", "-V", "--list", "--validate", "--version", "--help", "-h"],
        _ => &["--version", "--help", "-V", "-h"],
    };
    !arguments.is_empty()
        && arguments.iter().all(|word| word.literal().is_some_and(|text| asks.contains(&text)))
}

/// Returns the command text of an option. With `env`, the words after the option are arguments of the last
/// program in the text. With other wrappers they are not.
fn command_of_option(name: &str, command: String, rest: &[CommandWord]) -> RunTarget {
    if name != "env" {
        return RunTarget::Text(command);
    }
    let quoted = rest.iter().map(|word| match word.literal() {
        Some(text) => format!(" '{}'", text.replace('\'', "'\\''")),
        None => " \"$@\"".to_owned(),
    });
    RunTarget::Text(command + &quoted.collect::<String>())
}

/// Returns the command text in a cluster of one-letter options, as in `env -iS 'COMMAND'`.
fn clustered_command(
    name: &str,
    wrapper: &Wrapper,
    words: &[CommandWord],
) -> Result<Option<RunTarget>, UnreadableCommand> {
    let Some(cluster) = words.first().and_then(CommandWord::literal).filter(|text| !text.starts_with("--"))
    else {
        return Ok(None);
    };
    let letters = wrapper.with_command.iter().filter(|option| option.len() == 2).map(|option| &option[1..]);
    for letter in letters {
        match cluster.split_once(letter) {
            Some((_, "")) => {
                let Some(word) = words.get(1) else { return Ok(None) };
                return Ok(Some(command_of_option(name, literal_text(name, word)?, &words[2..])));
            }
            Some((_, command)) => return Ok(Some(command_of_option(name, command.to_owned(), &words[1..]))),
            None => {}
        }
    }
    Ok(None)
}

/// Returns the call that `xargs` makes: its input replaces each placeholder, and is also appended.
fn mark_words_from_input(target: RunTarget, arguments: &[CommandWord]) -> RunTarget {
    let RunTarget::Program(mut words) = target else { return target };
    let mut placeholders = Vec::new();
    for (index, word) in arguments.iter().enumerate() {
        match word.literal() {
            Some("-I" | "--replace" | "-i") => {
                placeholders
                    .extend(arguments.get(index + 1).and_then(CommandWord::literal).map(str::to_owned));
                placeholders.push("{}".to_owned());
            }
            Some(text) => {
                let attached = ["--replace=", "-I", "-i"].iter().find_map(|option| text.strip_prefix(option));
                placeholders.extend(attached.map(str::to_owned));
            }
            None => {}
        }
    }
    for placeholder in &placeholders {
        words = with_placeholders(&words, placeholder, PlaceholderSource::AnyInput);
    }
    // Without a placeholder `xargs` appends its input. Always appending it errs on the safe side.
    words.push(CommandWord::unknown());
    RunTarget::Program(words)
}

/// The role of a word among a wrapper's options.
enum WordRole {
    /// The word is an option without a value.
    Flag,
    /// The word is an option, and the next word is its value.
    Value,
    /// The word is an option, and the next word is the text of a command.
    Command,
    /// The word is an option that contains the text of a command.
    AttachedCommand(String),
    /// The word is an unknown option.
    Unknown,
    /// The word's value is known only when the command runs. It may become an option.
    Undetermined,
    /// The word is not an option. `ends_options` marks the `--` that ends the options.
    Operand { ends_options: bool },
}

fn word_role(name: &str, wrapper: &Wrapper, word: &CommandWord) -> Result<WordRole, UnreadableCommand> {
    let Some(text) = word.literal() else {
        return match word.may_be_several {
            true => Err(UnreadableCommand::UnknownProgram(name.to_owned())),
            false if word.may_be_option() => Ok(WordRole::Undetermined),
            false => Ok(WordRole::Operand { ends_options: false }),
        };
    };
    let (option, value) = text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
    let is_option = text.starts_with('-') && text != "-";
    // Options with a command before flags: otherwise the command in `--split-string=…` would be skipped as a
    // flag.
    Ok(match value {
        _ if text == "--" => WordRole::Operand { ends_options: true },
        // `env -` means `env -i`.
        _ if text == "-" && name == "env" => WordRole::Flag,
        Some(_) if wrapper.takes_assignments && !is_option => WordRole::Flag,
        Some(command) if begins_one_of(wrapper.with_command, option) => {
            WordRole::AttachedCommand(command.to_owned())
        }
        None if begins_one_of(wrapper.with_command, option) => WordRole::Command,
        None if wrapper.with_value.contains(&option) => WordRole::Value,
        _ if !is_option => WordRole::Operand { ends_options: false },
        // A long option with `=` contains its own value.
        Some(_) => WordRole::Flag,
        None if is_flag(name, text) || attached_value(wrapper.with_value, text).is_some() => WordRole::Flag,
        None => match attached_value(wrapper.with_command, text) {
            Some(command) => WordRole::AttachedCommand(command.to_owned()),
            None => WordRole::Unknown,
        },
    })
}

/// Returns the program that a wrapper runs, after its options.
fn program_targets(
    name: &str,
    wrapper: &Wrapper,
    operands: &[CommandWord],
) -> Result<Vec<RunTarget>, UnreadableCommand> {
    let Some(program) = operands.get(wrapper.operands..).filter(|words| !words.is_empty()) else {
        return Ok(Vec::new());
    };
    if matches!(name, "hyperfine" | "entr") {
        // These programs pass a text of several words to a shell.
        let texts: Option<Vec<_>> = program.iter().map(CommandWord::literal).collect();
        let text = texts.filter(|texts| texts.iter().any(|text| text.contains(char::is_whitespace)));
        let text = text.map(|texts| RunTarget::Text(texts.join(" ")));
        return Ok(text.into_iter().chain([RunTarget::Program(program.to_vec())]).collect());
    }
    // In `flock FILE -c COMMAND`, the option follows the operand.
    if program[0].literal().is_some_and(|word| wrapper.with_command.contains(&word)) {
        return program.get(1).map_or(Ok(Vec::new()), |word| Ok(vec![text_target(name, word)?]));
    }
    if name == "watch" {
        // `watch` passes its words to a shell as one text.
        return Ok(vec![join_words(name, program)?]);
    }
    Ok(vec![RunTarget::Program(program.to_vec())])
}

/// Returns whether an option is one of these, or an abbreviation of a long one.
fn begins_one_of(options: &[&str], option: &str) -> bool {
    let is_beginning = |long: &&str| option.len() > 2 && option.starts_with("--") && long.starts_with(option);
    options.contains(&option) || options.iter().any(is_beginning)
}

/// Returns the value attached to a one-letter option, as in `-n5`.
fn attached_value<'t>(options: &[&str], text: &'t str) -> Option<&'t str> {
    let short_options = options.iter().filter(|option| option.len() == 2);
    short_options.filter_map(|option| text.strip_prefix(*option)).find(|value| !value.is_empty())
}

/// Returns whether an option is known to have no value. Lists only the most used programs.
fn is_flag(name: &str, option: &str) -> bool {
    let flags: &[&str] = match name {
        "env" => &["-i", "--ignore-environment", "-0", "--null", "-v", "--debug"],
        "sudo" => &["-n", "-E", "-H", "-S", "-k", "-K", "-b", "-i", "-s", "-A", "-P", "-l"],
        "xargs" => &["-0", "--null", "-r", "--no-run-if-empty", "-t", "--verbose", "-p", "-x", "-o"],
        "setsid" => &["-c", "--ctty", "-f", "--fork", "-w", "--wait"],
        "timeout" => &["--foreground", "--preserve-status", "-v", "--verbose"],
        "command" => &["-p"],
        "exec" => &["-c", "-l", "-cl"],
        "time" => &["-p", "-v", "--verbose", "-a"],
        "flock" => &["-s", "--shared", "-x", "-e", "--exclusive", "-n", "--nonblock", "-u", "-o", "-F"],
        "watch" => &["-d", "-t", "-b", "-e", "-g", "-c", "-x"],
        _ => &[],
    };
    flags.contains(&option)
}
