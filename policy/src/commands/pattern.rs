//! A rule about commands: the name of a program and the words that follow it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use portcullis_types::is_deceptive;

use super::{InvalidCommandRule, words::CommandWord};

/// A program's name and the words that follow it. In each word `*` matches any text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CommandPattern {
    /// The words. Never empty: the first word is the program's name.
    words: Vec<String>,
}

impl CommandPattern {
    /// Returns whether a call certainly matches: its first words match these words, and the program is the
    /// system's. For `allow`.
    pub(super) fn covers(&self, words: &[CommandWord]) -> bool {
        let (name, rest) = (&self.words[0], &self.words[1..]);
        let Some((program_word, arguments)) = words.split_first() else { return false };
        program_word.is_in_system_folder()
            && program_word.program().is_some_and(|program| glob(name, program))
            && rest.len() <= arguments.len()
            && rest.iter().zip(arguments).all(|(word, argument)| match argument.literal() {
                Some(text) => glob(word, text),
                // An unknown word matches only `*`. A word that may expand to several words, or to none,
                // could shift the words after it.
                None => word == "*" && !argument.may_be_several,
            })
    }

    /// Returns whether a call has exactly these words. A last word `*` matches any further words, or none.
    /// Every word of the call must be in the text, because a variable can hold anything. For `unasked`.
    pub(super) fn covers_whole(&self, words: &[CommandWord]) -> bool {
        let Some((first, arguments)) = words.split_first() else { return false };
        let (expected, may_have_more) = match self.words[1..].split_last() {
            Some((last, before)) if last == "*" => (before, true),
            _ => (&self.words[1..], false),
        };
        first.is_in_system_folder()
            && first.program().is_some_and(|program| glob(&self.words[0], program))
            && arguments.len() >= expected.len()
            && (may_have_more || arguments.len() == expected.len())
            && expected
                .iter()
                .zip(arguments)
                .all(|(word, argument)| argument.literal().is_some_and(|text| glob(word, text)))
            // The last `*` matches any text, but not a variable, because the variable's value is unknown.
            && arguments[expected.len()..].iter().all(CommandWord::is_known)
    }

    /// Returns whether this rule covers every call that the other rule covers: the other rule starts with
    /// this rule's words.
    pub(crate) fn covers_rule(&self, other: &Self) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).all(|(word, other_word)| {
                // Two words that both contain `*` count only if they are equal, unless this one is `*` itself. The
                // result serves a warning, which may be missing but must not be wrong.
                word == "*" || word == other_word || (!other_word.contains('*') && glob(word, other_word))
            })
    }

    /// For `deny` rules: returns whether a call may match. It then has these words in this order, possibly with others
    /// between them. An argument whose value is not in the text may be any word.
    pub(super) fn may_cover(&self, program: &str, arguments: &[CommandWord]) -> bool {
        let (name, mut rest) = (&self.words[0], &self.words[1..]);
        if !glob(name, program) {
            return false;
        }
        for argument in arguments {
            let Some((word, later_words)) = rest.split_first() else { return true };
            match argument.literal() {
                Some(text) if glob(word, text) => rest = later_words,
                // Other words may precede the expected one, so keep looking for it.
                Some(_) => {}
                // The argument may expand to all words that are still missing.
                None if argument.may_be_several => return true,
                None => rest = later_words,
            }
        }
        rest.is_empty()
    }
}

impl FromStr for CommandPattern {
    type Err = InvalidCommandRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(InvalidCommandRule::TooLong);
        }
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Some(program) = words.first() else { return Err(InvalidCommandRule::Empty) };
        if program.contains('/') {
            return Err(InvalidCommandRule::Path(program.clone()));
        }
        if let Some(sign) = text.chars().find(|sign| "\\'\"`$|&;<>(){}?[]".contains(*sign)) {
            return Err(InvalidCommandRule::Syntax(sign));
        }
        if let Some(hidden) = text.chars().find(|sign| is_deceptive(*sign) && !sign.is_whitespace()) {
            return Err(InvalidCommandRule::Invisible(hidden));
        }
        Ok(Self { words })
    }
}

impl fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.words.join(" "))
    }
}

impl Serialize for CommandPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CommandPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Returns whether a word matches a pattern in which `*` matches any text.
fn glob(pattern: &str, word: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else { return pattern == word };
    let Some(mut remaining) = word.strip_prefix(prefix) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // `split` yields at least one part, so the default is never used.
    let suffix = parts.pop().unwrap_or_default();
    for middle in parts {
        // The first match leaves the most text for the later parts, so other matches need not be tried.
        match remaining.find(middle) {
            Some(offset) => remaining = &remaining[offset + middle.len()..],
            None => return false,
        }
    }
    remaining.ends_with(suffix)
}

/// The maximum length of a rule, in bytes. Every program of every command is compared with every rule.
const MAX_PATTERN_BYTES: usize = 1024;
