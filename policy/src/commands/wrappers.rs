//! Wrappers: programs that run another program behind options, such as `env`, `sudo`, `xargs` and `timeout`.

use std::collections::BTreeSet;

use super::{
    runs::{
        PlaceholderSource, RunTarget, joined, literal_text, refuse_input_reader, text, with_placeholders,
    },
    words::CommandWord,
};

/// The call syntax of a wrapper.
pub(super) struct Wrapper {
    pub(super) names: &'static [&'static str],
    /// Options whose value is the word after them.
    with_value: &'static [&'static str],
    /// Options whose value is the text of a command.
    with_command: &'static [&'static str],
    /// The number of words between the options and the other program.
    operands: usize,
    /// Whether `NAME=VALUE` may stand before the other program.
    assignments: bool,
}

const PLAIN: Wrapper =
    Wrapper { names: &[], with_value: &[], with_command: &[], operands: 0, assignments: false };

pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        names: &["env"],
        with_value: &["-u", "--unset", "-C", "--chdir"],
        with_command: &["-S", "--split-string"],
        assignments: true,
        ..PLAIN
    },
    Wrapper {
        names: &["sudo", "doas"],
        with_value: &[
            "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-r", "--role", "-t",
            "--type", "-T", "-U", "-D", "--chdir", "-R", "--chroot", "-a",
        ],
        assignments: true,
        ..PLAIN
    },
    Wrapper { names: &["nice"], with_value: &["-n", "--adjustment"], ..PLAIN },
    Wrapper { names: &["ionice"], with_value: &["-c", "--class", "-n", "--classdata"], ..PLAIN },
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
        ..PLAIN
    },
    Wrapper {
        names: &["gosu", "su-exec", "setuidgid", "chpst", "envdir", "setarch", "softlimit", "cgexec"],
        operands: 1,
        ..PLAIN
    },
    Wrapper { names: &["command"], ..PLAIN },
    Wrapper { names: &["exec"], with_value: &["-a"], ..PLAIN },
    Wrapper { names: &["time"], with_value: &["-f", "--format", "-o", "--output"], ..PLAIN },
    Wrapper {
        names: &["stdbuf"],
        with_value: &["-i", "--input", "-o", "--output", "-e", "--error"],
        ..PLAIN
    },
    Wrapper {
        names: &["timeout"],
        with_value: &["-k", "--kill-after", "-s", "--signal"],
        operands: 1,
        ..PLAIN
    },
    Wrapper { names: &["chroot"], operands: 1, ..PLAIN },
    Wrapper { names: &["taskset", "chrt"], operands: 1, ..PLAIN },
    Wrapper {
        names: &["flock"],
        with_value: &["-w", "--timeout", "-E", "--conflict-exit-code"],
        with_command: &["-c", "--command"],
        operands: 1,
        ..PLAIN
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
        ..PLAIN
    },
    Wrapper { names: &["watch"], with_value: &["-n", "--interval"], ..PLAIN },
    Wrapper { names: &["unshare", "setpriv", "strace", "ltrace", "nsenter", "prlimit"], ..PLAIN },
];

/// Programs that start a shell if no program is named; the shell runs its input.
const SHELL_BY_DEFAULT: &[&str] = &["unshare", "nsenter", "chroot", "fakeroot", "sudo", "doas", "setarch"];

/// The most programs that one call may be found to run, one for each reading of its options.
const MAX_READINGS: usize = 16;

/// The program behind a wrapper's options. An unknown option may take a value or not, so both readings are
/// followed.
pub(super) fn wrapped(
    name: &str,
    wrapper: &Wrapper,
    arguments: &[CommandWord],
) -> Result<Vec<RunTarget>, String> {
    let mut found = Vec::new();
    let mut starts = vec![0];
    let mut seen = BTreeSet::new();
    while let Some(start) = starts.pop() {
        let mut at = start;
        while let Some(word) = arguments.get(at)
            // Each place is read once: otherwise the readings would double at every unknown option.
            && seen.insert(at)
        {
            match option(name, wrapper, word)? {
                WordRole::Flag => at += 1,
                WordRole::Value => at += 2,
                WordRole::Command => {
                    if let Some(word) = arguments.get(at + 1) {
                        let rest = arguments.get(at + 2..).unwrap_or_default();
                        found.push(given(name, literal_text(name, word)?, rest));
                    }
                    at += 2;
                }
                WordRole::AttachedCommand(command) => {
                    found.push(given(name, command, &arguments[at + 1..]));
                    at += 1;
                }
                WordRole::Unknown => {
                    found.extend(clustered_command(name, wrapper, &arguments[at..])?);
                    // One reading with a value, one without.
                    starts.push(at + 2);
                    at += 1;
                }
                WordRole::Undetermined => {
                    // Read as no option here, and from there as an option without and with a value.
                    starts.extend([at + 2, at + 1]);
                    found.extend(program(name, wrapper, &arguments[at..])?);
                    ensure_bounded(name, &found)?;
                    break;
                }
                WordRole::None { ends } => {
                    // The `--` itself is no operand.
                    let operands = arguments.get(at + usize::from(ends)..).unwrap_or_default();
                    found.extend(program(name, wrapper, operands)?);
                    ensure_bounded(name, &found)?;
                    break;
                }
            }
        }
    }
    if found.is_empty() && SHELL_BY_DEFAULT.contains(&name) && !only_asks(name, arguments) {
        return refuse_input_reader(name);
    }
    if name == "xargs" || name == "gxargs" {
        return Ok(found.into_iter().map(|runs| filled_by_input(runs, arguments)).collect());
    }
    Ok(found)
}

fn ensure_bounded(name: &str, found: &[RunTarget]) -> Result<(), String> {
    if found.len() > MAX_READINGS {
        return Err(format!("too many options of `{name}` that are not known"));
    }
    Ok(())
}

/// Whether a call without a program runs none, such as `sudo -l`.
fn only_asks(name: &str, arguments: &[CommandWord]) -> bool {
    let asks: &[&str] = match name {
        "sudo" => &["-l", "-v", "-k", "-K", "-V", "--list", "--validate", "--version", "--help", "-h"],
        _ => &["--version", "--help", "-V", "-h"],
    };
    !arguments.is_empty()
        && arguments.iter().all(|word| word.literal().is_some_and(|text| asks.contains(&text)))
}

/// The command text of an option. With `env`, the words that follow are arguments of the text's last program;
/// with other wrappers they are not.
fn given(name: &str, command: String, rest: &[CommandWord]) -> RunTarget {
    if name != "env" {
        return RunTarget::Text(command);
    }
    let quoted = rest.iter().map(|word| match word.literal() {
        Some(text) => format!(" '{}'", text.replace('\'', "'\\''")),
        None => " \"$@\"".to_owned(),
    });
    RunTarget::Text(command + &quoted.collect::<String>())
}

/// The command text in a cluster of one-letter options, as in `env -iS 'COMMAND'`.
fn clustered_command(
    name: &str,
    wrapper: &Wrapper,
    words: &[CommandWord],
) -> Result<Option<RunTarget>, String> {
    let Some(cluster) = words.first().and_then(CommandWord::literal).filter(|text| !text.starts_with("--"))
    else {
        return Ok(None);
    };
    let letters = wrapper.with_command.iter().filter(|option| option.len() == 2).map(|option| &option[1..]);
    for letter in letters {
        match cluster.split_once(letter) {
            Some((_, "")) => {
                let Some(word) = words.get(1) else { return Ok(None) };
                return Ok(Some(given(name, literal_text(name, word)?, &words[2..])));
            }
            Some((_, command)) => return Ok(Some(given(name, command.to_owned(), &words[1..]))),
            None => {}
        }
    }
    Ok(None)
}

/// The call that `xargs` makes: its input stands at the end, or at the placeholder.
fn filled_by_input(runs: RunTarget, arguments: &[CommandWord]) -> RunTarget {
    let RunTarget::Program(mut words) = runs else { return runs };
    let mut placeholders = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        match word.literal() {
            Some("-I" | "--replace" | "-i") => {
                placeholders.extend(arguments.get(at + 1).and_then(CommandWord::literal).map(str::to_owned));
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
        words = with_placeholders(&words, placeholder, PlaceholderSource::ByInput);
    }
    words.push(CommandWord::unknown());
    RunTarget::Program(words)
}

/// The role of a word among a wrapper's options.
enum WordRole {
    /// It stands alone.
    Flag,
    /// The next word is its value.
    Value,
    /// The next word is a command's text.
    Command,
    /// A command's text stands in the same word.
    AttachedCommand(String),
    /// An unknown option.
    Unknown,
    /// The shell fills it in when the command runs: it may become an option or not.
    Undetermined,
    /// Not an option; `ends` marks the `--` that ends them.
    None { ends: bool },
}

fn option(name: &str, wrapper: &Wrapper, word: &CommandWord) -> Result<WordRole, String> {
    let Some(text) = word.literal() else {
        return match word.may_be_several {
            true => Err(format!("the program that `{name}` runs is not part of the text")),
            false if word.may_be_option() => Ok(WordRole::Undetermined),
            false => Ok(WordRole::None { ends: false }),
        };
    };
    let (option, value) = text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
    let is_option = text.starts_with('-') && text != "-";
    // The order matters: options with a command come before flags, so that the command in `--split-string=…` is
    // read.
    Ok(match value {
        _ if text == "--" => WordRole::None { ends: true },
        // `env -` is `env -i`.
        _ if text == "-" && name == "env" => WordRole::Flag,
        Some(_) if wrapper.assignments && !is_option => WordRole::Flag,
        Some(command) if begins_one_of(wrapper.with_command, option) => {
            WordRole::AttachedCommand(command.to_owned())
        }
        None if begins_one_of(wrapper.with_command, option) => WordRole::Command,
        None if wrapper.with_value.contains(&option) => WordRole::Value,
        _ if !is_option => WordRole::None { ends: false },
        // A long option with `=` has its value with it.
        Some(_) => WordRole::Flag,
        None if is_flag(name, text) || attached(wrapper.with_value, text).is_some() => WordRole::Flag,
        None => match attached(wrapper.with_command, text) {
            Some(command) => WordRole::AttachedCommand(command.to_owned()),
            None => WordRole::Unknown,
        },
    })
}

/// The program that a wrapper runs, after its options.
fn program(name: &str, wrapper: &Wrapper, operands: &[CommandWord]) -> Result<Vec<RunTarget>, String> {
    let Some(program) = operands.get(wrapper.operands..).filter(|words| !words.is_empty()) else {
        return Ok(Vec::new());
    };
    if matches!(name, "hyperfine" | "entr") {
        // These pass a text of several words to a shell.
        let texts: Option<Vec<_>> = program.iter().map(CommandWord::literal).collect();
        let text = texts.filter(|texts| texts.iter().any(|text| text.contains(char::is_whitespace)));
        let text = text.map(|texts| RunTarget::Text(texts.join(" ")));
        return Ok(text.into_iter().chain([RunTarget::Program(program.to_vec())]).collect());
    }
    // `flock FILE -c COMMAND`: the option may stand after the operand too.
    if program[0].literal().is_some_and(|word| wrapper.with_command.contains(&word)) {
        return program.get(1).map_or(Ok(Vec::new()), |word| Ok(vec![text(name, word)?]));
    }
    if name == "watch" {
        // `watch` passes its words to a shell as one text.
        return Ok(vec![joined(name, program)?]);
    }
    Ok(vec![RunTarget::Program(program.to_vec())])
}

/// Whether an option is one of these, or an abbreviation of a long one.
fn begins_one_of(options: &[&str], option: &str) -> bool {
    let is_beginning = |long: &&str| option.len() > 2 && option.starts_with("--") && long.starts_with(option);
    options.contains(&option) || options.iter().any(is_beginning)
}

/// The value attached to a one-letter option, as in `-n5`.
fn attached<'t>(options: &[&str], text: &'t str) -> Option<&'t str> {
    let short = options.iter().filter(|option| option.len() == 2);
    short.filter_map(|option| text.strip_prefix(*option)).find(|value| !value.is_empty())
}

/// Options without a value, of the most used programs.
fn is_flag(name: &str, option: &str) -> bool {
    let known: &[&str] = match name {
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
    known.contains(&option)
}
