//! Programs that run another: `env`, `sudo`, `xargs`, `sh -c`, `find -exec` and their like.

use std::collections::BTreeSet;

use super::words::Argument;

/// What a program runs in turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Runs {
    /// A text that is read as a command.
    Text(String),
    /// A program with its arguments.
    Program(Vec<Argument>),
}

/// How a program that runs another is called.
struct Wrapper {
    names: &'static [&'static str],
    /// Options whose value is the word after them.
    with_value: &'static [&'static str],
    /// Options whose value is the text of a command.
    with_command: &'static [&'static str],
    /// How many words stand between the options and the other program.
    operands: usize,
    /// Whether `NAME=VALUE` may stand before the other program.
    assignments: bool,
}

const PLAIN: Wrapper =
    Wrapper { names: &[], with_value: &[], with_command: &[], operands: 0, assignments: false };

const WRAPPERS: &[Wrapper] = &[
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
    Wrapper {
        names: &["su", "runuser", "script"],
        with_value: &["-s", "--shell", "-g", "--group", "-G", "-u", "--user", "-w"],
        with_command: &["-c", "--command", "--session-command"],
        // A user's name, or a file's: what follows is for the shell.
        operands: usize::MAX,
        ..PLAIN
    },
    Wrapper { names: &["nice"], with_value: &["-n", "--adjustment"], ..PLAIN },
    Wrapper { names: &["ionice"], with_value: &["-c", "--class", "-n", "--classdata"], ..PLAIN },
    Wrapper { names: &["nohup", "setsid", "builtin", "busybox", "toybox", "unbuffer", "fakeroot"], ..PLAIN },
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

/// Shells, which read a text as a command.
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"];

/// What a program's call runs in turn, as far as its words tell.
///
/// # Errors
/// Why that cannot be told.
pub(super) fn runs(words: &[Argument]) -> Result<Vec<Runs>, String> {
    let Some((program, arguments)) = words.split_first() else { return Ok(Vec::new()) };
    let Some(name) = program.program() else { return Ok(Vec::new()) };
    if SHELLS.contains(&name) {
        return shell(name, arguments);
    }
    match name {
        "eval" => Ok(vec![joined(name, arguments)?]),
        "trap" => arguments.first().map_or(Ok(Vec::new()), |word| Ok(vec![text(name, word)?])),
        "alias" => arguments.iter().map(|word| known(name, word)).map(|text| Ok(aliased(&text?))).collect(),
        "find" | "gfind" => find(arguments),
        // To ask where a program is does not run it.
        "command" if arguments.first().is_some_and(|word| matches!(word.literal(), Some("-v" | "-V"))) => {
            Ok(Vec::new())
        }
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.names.contains(&name)) {
            Some(wrapper) => wrapped(name, wrapper, arguments),
            None => Ok(Vec::new()),
        },
    }
}

fn known(program: &str, word: &Argument) -> Result<String, String> {
    word.literal()
        .map(str::to_owned)
        .ok_or_else(|| format!("what `{program}` is given to run is not in the text"))
}

/// A word that is read as a command.
fn text(program: &str, word: &Argument) -> Result<Runs, String> {
    known(program, word).map(Runs::Text)
}

/// Words that together are read as a command.
fn joined(program: &str, words: &[Argument]) -> Result<Runs, String> {
    let texts = words.iter().map(|word| known(program, word)).collect::<Result<Vec<_>, _>>()?;
    Ok(Runs::Text(texts.join(" ")))
}

/// `alias NAME=VALUE`: what the name will run.
fn aliased(text: &str) -> Runs {
    Runs::Text(text.split_once('=').map_or(":", |(_, value)| value).to_owned())
}

/// `sh -c TEXT`, or `sh FILE`. A shell that reads its input runs what no rule has seen.
fn shell(name: &str, arguments: &[Argument]) -> Result<Vec<Runs>, String> {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let option = known(name, word)?;
        match option.as_str() {
            "--" => break,
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => drop(rest.next()),
            long if long.starts_with("--") => {}
            "-" => return Err(format!("`{name}` runs what it reads")),
            cluster if cluster.starts_with(['-', '+']) && cluster.contains('s') => {
                return Err(format!("`{name}` runs what it reads"));
            }
            cluster if cluster.starts_with('-') && cluster.contains('c') => {
                // More options may stand before the text.
                let command =
                    rest.find(|word| !word.literal().is_some_and(|text| text.starts_with(['-', '+'])));
                return command.map_or(Ok(Vec::new()), |word| Ok(vec![text(name, word)?]));
            }
            cluster if cluster.starts_with(['-', '+']) => {}
            // A file, which is a program like any other.
            _ => return Ok(Vec::new()),
        }
    }
    match rest.next() {
        Some(_file) => Ok(Vec::new()),
        None => Err(format!("`{name}` runs what it reads")),
    }
}

/// `find … -exec PROGRAM … ;`
fn find(arguments: &[Argument]) -> Result<Vec<Runs>, String> {
    let mut found = Vec::new();
    let mut rest = arguments;
    while let Some((word, after)) = rest.split_first() {
        rest = after;
        let Some(text) = word.literal() else {
            if word.may_be_several {
                return Err("what `find` is given is not in the text".to_owned());
            }
            continue;
        };
        if ["-exec", "-execdir", "-ok", "-okdir"].contains(&text) {
            let end = rest.iter().position(|word| matches!(word.literal(), Some(";" | "+")));
            let (program, after) = rest.split_at(end.unwrap_or(rest.len()));
            found.push(Runs::Program(program.to_vec()));
            rest = after;
        }
    }
    found.retain(|runs| !matches!(runs, Runs::Program(words) if words.is_empty()));
    Ok(found)
}

/// The program behind a wrapper's options. An option that is not known may take a value or not, so both ways
/// to read on are followed.
fn wrapped(name: &str, wrapper: &Wrapper, arguments: &[Argument]) -> Result<Vec<Runs>, String> {
    let mut found = Vec::new();
    let mut starts = vec![0];
    let mut seen = BTreeSet::new();
    while let Some(start) = starts.pop() {
        let mut at = start;
        while let Some(word) = arguments.get(at)
            && seen.insert(at)
        {
            match option(name, wrapper, word)? {
                Place::Flag => at += 1,
                Place::Value => at += 2,
                Place::Command => {
                    found.extend(arguments.get(at + 1).map(|word| text(name, word)).transpose()?);
                    at += 2;
                }
                Place::AttachedCommand(command) => {
                    found.push(Runs::Text(command));
                    at += 1;
                }
                Place::Unknown => {
                    starts.push(at + 2);
                    at += 1;
                }
                Place::None { ends } => {
                    let operands = arguments.get(at + usize::from(ends)..).unwrap_or_default();
                    found.extend(program(name, wrapper, operands)?);
                    break;
                }
            }
        }
    }
    Ok(found)
}

/// What a word among a wrapper's options is.
enum Place {
    /// It stands alone.
    Flag,
    /// The next word is its value.
    Value,
    /// The next word is a command's text.
    Command,
    /// A command's text stands in the same word.
    AttachedCommand(String),
    /// One that we do not know.
    Unknown,
    /// It is no option; `ends` is for the `--` that ends them.
    None { ends: bool },
}

fn option(name: &str, wrapper: &Wrapper, word: &Argument) -> Result<Place, String> {
    let Some(text) = word.literal() else {
        return match word.may_be_several {
            true => Err(format!("what `{name}` runs is not in the text")),
            false => Ok(Place::None { ends: false }),
        };
    };
    let (option, value) = text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
    let is_option = text.starts_with('-') && text != "-";
    Ok(match value {
        _ if text == "--" => Place::None { ends: true },
        Some(_) if wrapper.assignments && !is_option => Place::Flag,
        Some(command) if wrapper.with_command.contains(&option) => Place::AttachedCommand(command.to_owned()),
        None if wrapper.with_command.contains(&option) => Place::Command,
        None if wrapper.with_value.contains(&option) => Place::Value,
        _ if !is_option => Place::None { ends: false },
        // A long option has its value with it, or none.
        Some(_) => Place::Flag,
        None if is_flag(name, text) || attached(wrapper.with_value, text).is_some() => Place::Flag,
        None => match attached(wrapper.with_command, text) {
            Some(command) => Place::AttachedCommand(command.to_owned()),
            None => Place::Unknown,
        },
    })
}

/// What is run by a wrapper whose options are over.
fn program(name: &str, wrapper: &Wrapper, operands: &[Argument]) -> Result<Vec<Runs>, String> {
    let Some(program) = operands.get(wrapper.operands..).filter(|words| !words.is_empty()) else {
        return Ok(Vec::new());
    };
    // `flock FILE -c COMMAND`: after the operand as well.
    if program[0].literal().is_some_and(|word| wrapper.with_command.contains(&word)) {
        return program.get(1).map_or(Ok(Vec::new()), |word| Ok(vec![text(name, word)?]));
    }
    if name == "watch" {
        // It hands its words to a shell, as one text.
        return Ok(vec![joined(name, program)?]);
    }
    Ok(vec![Runs::Program(program.to_vec())])
}

/// The value that is written together with an option of one letter, as in `-n5`.
fn attached<'t>(options: &[&str], text: &'t str) -> Option<&'t str> {
    let short = options.iter().filter(|option| option.len() == 2);
    short.filter_map(|option| text.strip_prefix(*option)).find(|value| !value.is_empty())
}

/// Options that take no value, of the programs that are used most.
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
