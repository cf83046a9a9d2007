//! The rules, and the judgement.

use std::{collections::BTreeSet, str::FromStr};

use thiserror::Error;

use super::{
    read::{self, Found},
    words::Argument,
};

/// What a policy says of shell commands. Without any rule everything is allowed, and nothing is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRules {
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
    operators: Option<BTreeSet<Operator>>,
}

/// A rule's text as it was written, and its words: a program's name, and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    text: String,
    words: Vec<String>,
}

/// A text that is no rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCommandRule {
    /// It has no words.
    #[error("a rule names a program: write `git`, or `git push` for some of its calls")]
    Empty,
    /// The program is named by a path.
    #[error("`{0}` is a path: a rule names a program, wherever it lies; write its name alone")]
    Path(String),
    /// It has what only a shell understands.
    #[error("`{0}` is shell syntax: a rule is a list of plain words, in which `*` stands for anything")]
    Syntax(char),
    /// It is no operator.
    #[error("`{0}` is no operator: write one of {OPERATORS}")]
    Operator(String),
}

/// What joins or redirects commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// `&&`
    And,
    /// `||`
    Or,
    /// `;`, or the end of a line between commands.
    Sequence,
    /// `&` after a command, and `coproc`.
    Background,
    /// `|`
    Pipe,
    /// `<`, `<<`, `<<<`: what a program reads.
    Input,
    /// `>`, `>>`, `>|`, `&>`, `<>`: a file that is written. `2>&1` is none.
    Output,
    /// `$(…)`, or the same in backquotes.
    Substitution,
    /// `<(…)` and `>(…)`.
    Process,
    /// `(…)`
    Subshell,
}

/// All operators, as a policy writes them.
const OPERATORS: &str = "`&&`, `||`, `;`, `&`, `|`, `<`, `>`, `$()`, `<()`, `()`";

impl Operator {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::And,
        Self::Or,
        Self::Sequence,
        Self::Background,
        Self::Pipe,
        Self::Input,
        Self::Output,
        Self::Substitution,
        Self::Process,
        Self::Subshell,
    ];

    /// As a policy writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::And => "&&",
            Self::Or => "||",
            Self::Sequence => ";",
            Self::Background => "&",
            Self::Pipe => "|",
            Self::Input => "<",
            Self::Output => ">",
            Self::Substitution => "$()",
            Self::Process => "<()",
            Self::Subshell => "()",
        }
    }
}

impl FromStr for Operator {
    type Err = InvalidCommandRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|operator| operator.as_str() == text);
        found.ok_or_else(|| InvalidCommandRule::Operator(text.to_owned()))
    }
}

impl FromStr for Pattern {
    type Err = InvalidCommandRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Some(program) = words.first() else { return Err(InvalidCommandRule::Empty) };
        if program.contains('/') {
            return Err(InvalidCommandRule::Path(program.clone()));
        }
        if let Some(sign) = text.chars().find(|sign| "\\'\"`$|&;<>(){}?[]".contains(*sign)) {
            return Err(InvalidCommandRule::Syntax(sign));
        }
        Ok(Self { text: words.join(" "), words })
    }
}

/// Why a command may not run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandRefusal {
    /// A rule of `deny` covers a program that it runs.
    #[error("`{program}` is denied by the rule `{rule}`")]
    Denied {
        /// The program.
        program: String,
        /// The rule.
        rule: String,
    },
    /// No rule of `allow` covers a program that it runs.
    #[error("`{program}` is not among the commands that are allowed")]
    NotAllowed {
        /// The program with its first arguments.
        program: String,
    },
    /// It has an operator that is not listed.
    #[error("the operator `{0}` is not allowed")]
    Operator(&'static str),
    /// What it would run cannot be told from its text.
    #[error("what this would run cannot be told: {0}")]
    Unreadable(String),
}

impl CommandRules {
    /// Reads rules. `operators` names those that are allowed; none means all.
    ///
    /// # Errors
    /// [`InvalidCommandRule`] for the first text that is none.
    pub fn parse<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        deny: impl IntoIterator<Item = &'a str>,
        operators: Option<&[&str]>,
    ) -> Result<Self, InvalidCommandRule> {
        Ok(Self {
            allow: allow.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            deny: deny.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            operators: operators
                .map(|listed| listed.iter().map(|text| text.parse()).collect::<Result<_, _>>())
                .transpose()?,
        })
    }

    /// Whether nothing is ruled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty() && self.operators.is_none()
    }

    /// Judges a command. What is denied stays so whatever is allowed.
    ///
    /// # Errors
    /// [`CommandRefusal`]: the first thing in it that may not be.
    pub fn judge(&self, command: &str) -> Result<(), CommandRefusal> {
        if self.is_empty() {
            return Ok(());
        }
        let Found { invocations, operators } = read::read(command).map_err(CommandRefusal::Unreadable)?;
        if let Some(listed) = &self.operators
            && let Some(operator) = operators.iter().find(|operator| !listed.contains(operator))
        {
            return Err(CommandRefusal::Operator(operator.as_str()));
        }
        invocations.iter().try_for_each(|words| self.judge_one(words))
    }

    fn judge_one(&self, words: &[Argument]) -> Result<(), CommandRefusal> {
        let Some(program) = words.first().and_then(Argument::program) else {
            return Err(CommandRefusal::Unreadable("the name of a program is not in the text".to_owned()));
        };
        let arguments = &words[1..];
        if let Some(rule) = self.deny.iter().find(|rule| rule.may_cover(program, arguments)) {
            return Err(CommandRefusal::Denied { program: program.to_owned(), rule: rule.text.clone() });
        }
        if self.allow.is_empty() || self.allow.iter().any(|rule| rule.covers(program, arguments)) {
            return Ok(());
        }
        let first = arguments.iter().take(2).filter_map(Argument::literal);
        let program = std::iter::once(program).chain(first).collect::<Vec<_>>().join(" ");
        Err(CommandRefusal::NotAllowed { program })
    }
}

impl Pattern {
    /// Whether a call certainly is one of those: it begins with these words.
    fn covers(&self, program: &str, arguments: &[Argument]) -> bool {
        let (name, rest) = (&self.words[0], &self.words[1..]);
        glob(name, program)
            && rest.len() <= arguments.len()
            && rest.iter().zip(arguments).all(|(word, argument)| match argument.literal() {
                Some(text) => glob(word, text),
                None => word == "*" && !argument.may_be_several,
            })
    }

    /// Whether a call may be one of those: it has these words in this order, whatever stands between. An
    /// argument that is not in the text may be any.
    fn may_cover(&self, program: &str, arguments: &[Argument]) -> bool {
        let (name, mut rest) = (&self.words[0], &self.words[1..]);
        if !glob(name, program) {
            return false;
        }
        for argument in arguments {
            let Some((word, left)) = rest.split_first() else { return true };
            match argument.literal() {
                Some(text) if glob(word, text) => rest = left,
                Some(_) => {}
                None if argument.may_be_several => return true,
                None => rest = left,
            }
        }
        rest.is_empty()
    }
}

/// Whether a word is like a pattern in which `*` stands for any text.
fn glob(pattern: &str, word: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == word };
    let Some(mut left) = word.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}
