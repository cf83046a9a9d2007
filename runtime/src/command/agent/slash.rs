//! The commands of a conversation, such as `/help`. [`COMMANDS`] is the single source of truth.

use std::fmt::Write as _;

/// A command that a person types in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlashCommand {
    Help,
    Tools,
    Policy,
    Log,
    Changes,
    Undo,
    Image,
}

/// All commands: the name, the form of the argument, and the effect.
const COMMANDS: &[(SlashCommand, &str, &str, &str)] = &[
    (SlashCommand::Help, "help", "", "list these commands"),
    (SlashCommand::Tools, "tools", "", "list the tools, with the policy's grant to each"),
    (SlashCommand::Policy, "policy", "", "show the policy in force"),
    (SlashCommand::Log, "log", "", "show the audit rows of this conversation"),
    (SlashCommand::Changes, "changes", "", "show what this conversation has changed in mounts with undo"),
    (SlashCommand::Undo, "undo", "", "undo the newest of these changes"),
    (SlashCommand::Image, "image", "PATH", "add an image to the next prompt, as `@PATH` does within one"),
];

/// A typed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed<'a> {
    /// A command with its argument, which may be empty.
    Command(SlashCommand, &'a str),
    /// A word that looks like a command but is not one.
    Unknown(&'a str),
    /// A text for the model.
    Prompt(&'a str),
}

/// Parses a line. A command is `/` and letters at the beginning of the line, so a line that begins with a
/// path or a blank is a prompt.
pub(super) fn parse(line: &str) -> Typed<'_> {
    let word = line.split_whitespace().next().unwrap_or_default();
    let name = line.strip_prefix('/').and_then(|_| word.strip_prefix('/'));
    let Some(name) =
        name.filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase()))
    else {
        return Typed::Prompt(line.trim());
    };
    let argument = line[word.len()..].trim();
    match COMMANDS.iter().find(|(_, known, ..)| *known == name) {
        Some((command, ..)) => Typed::Command(*command, argument),
        None => Typed::Unknown(word),
    }
}

/// Returns the list of commands, for people.
pub(super) fn help() -> String {
    let mut help = String::new();
    for (_, name, argument, description) in COMMANDS {
        // Writing to a string cannot fail.
        let _ = writeln!(help, "  {:<13} {description}", format!("/{name} {argument}"));
    }
    help.push_str(
        "A line that begins with a blank is a prompt, and is not kept in the history. Ctrl-D ends.\n",
    );
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_of_letters_at_the_beginning() {
        for (line, expected) in [
            ("/help", Typed::Command(SlashCommand::Help, "")),
            ("/image  a b.png ", Typed::Command(SlashCommand::Image, "a b.png")),
            ("/helpme now", Typed::Unknown("/helpme")),
            ("/shared/a.txt is wrong", Typed::Prompt("/shared/a.txt is wrong")),
            (" /help", Typed::Prompt("/help")),
            ("/", Typed::Prompt("/")),
            ("what is /tools?", Typed::Prompt("what is /tools?")),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn help_and_manual_list_each_command() {
        let manual = include_str!("../../../../docs/agent.md");
        for (command, name, argument, _) in COMMANDS {
            assert_eq!(parse(&format!("/{name}")), Typed::Command(*command, ""));
            assert!(help().contains(&format!("  /{name}")));
            let shown_line = format!("/{name} {argument}");
            assert!(manual.contains(&format!("`{}`", shown_line.trim_end())), "{name}");
        }
    }
}
