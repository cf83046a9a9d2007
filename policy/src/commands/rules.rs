//! The rules about commands, and the judgement of a command.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Operator,
    operator::OPERATORS,
    pattern::CommandPattern,
    read::{self, FoundPrograms},
    words::CommandWord,
};

/// A policy's rules about shell commands. Without any rule everything is allowed, and no command is parsed.
///
/// Equal rules are equal values, in whatever order they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRules {
    /// Lists of allowed commands, the operator's and those of reductions: every list must cover a command.
    allow: BTreeSet<BTreeSet<CommandPattern>>,
    deny: BTreeSet<CommandPattern>,
    /// The allowed operators; none means all.
    operators: Option<BTreeSet<Operator>>,
}

/// A text that is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCommandRule {
    /// It has no words.
    #[error("a rule names a program: write `git`, or `git push` for some of its calls")]
    Empty,
    /// It is too long.
    #[error("a rule has at most 1024 bytes")]
    TooLong,
    /// The program is named by a path.
    #[error("`{0}` is a path: a rule names a program, wherever it lies; write its name alone")]
    Path(String),
    /// It contains shell syntax.
    #[error("`{0}` is shell syntax: a rule is a list of plain words, in which `*` stands for anything")]
    Syntax(char),
    /// It contains an invisible character.
    #[error("`{}` is not seen: a rule is a list of plain words", .0.escape_unicode())]
    Invisible(char),
    /// It is no operator.
    #[error("`{}` is not an operator: write one of {OPERATORS}", .0.escape_default())]
    Operator(String),
}

/// The reason why a command may not run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandRefusal {
    /// A rule of `deny` covers a program that it runs.
    #[error("`{program}` is denied by the rule `{rule}`")]
    Denied {
        /// The denied program's name.
        program: String,
        /// The entry of `deny` that covers it.
        rule: String,
    },
    /// No rule of `allow` covers a program that it runs.
    #[error("`{program}` is not among the commands that are allowed")]
    NotAllowed {
        /// The program with its first arguments.
        program: String,
    },
    /// It has an operator that is not allowed.
    #[error("the operator `{0}` is not allowed")]
    Operator(&'static str),
    /// Its text does not tell what it would run.
    #[error("the programs that this command runs are unknown: {0}")]
    Unreadable(String),
}

impl CommandRules {
    /// Reads rules. `allow` lists the allowed commands; an empty list means all. `operators` lists the
    /// allowed operators; `None` means all.
    ///
    /// # Errors
    /// [`InvalidCommandRule`] for the first invalid text.
    pub fn parse<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        deny: impl IntoIterator<Item = &'a str>,
        operators: Option<&[&str]>,
    ) -> Result<Self, InvalidCommandRule> {
        let mut rules = Self {
            deny: deny.into_iter().map(str::parse).collect::<Result<_, _>>()?,
            operators: operators
                .map(|listed| listed.iter().map(|text| text.parse()).collect::<Result<_, _>>())
                .transpose()?,
            ..Self::default()
        };
        let allow: BTreeSet<_> = allow.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        if !allow.is_empty() {
            rules.allow_only(allow);
        }
        Ok(rules)
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty() && self.operators.is_none()
    }

    /// The lists of allowed commands, each sorted; every list must cover a command. No list means that
    /// everything is allowed.
    pub fn allowed(&self) -> impl Iterator<Item = Vec<String>> {
        self.allow.iter().map(|list| list.iter().map(ToString::to_string).collect())
    }

    /// The denied commands, sorted.
    pub fn denied(&self) -> impl Iterator<Item = String> {
        self.deny.iter().map(ToString::to_string)
    }

    /// The allowed operators; `None` means all.
    #[must_use]
    pub fn operators(&self) -> Option<&BTreeSet<Operator>> {
        self.operators.as_ref()
    }

    /// Judges a command. `deny` beats `allow`.
    ///
    /// # Errors
    /// [`CommandRefusal`] for the first program or operator that is refused.
    pub fn judge(&self, command: &str) -> Result<(), CommandRefusal> {
        if self.is_empty() {
            return Ok(());
        }
        let FoundPrograms { invocations, operators, sets_path } =
            read::read(command).map_err(CommandRefusal::Unreadable)?;
        if sets_path && !self.allow.is_empty() {
            let reason = "with another `PATH` an allowed name may be any program";
            return Err(CommandRefusal::Unreadable(reason.to_owned()));
        }
        if let Some(listed) = &self.operators
            && let Some(operator) = operators.iter().find(|operator| !listed.contains(operator))
        {
            return Err(CommandRefusal::Operator(operator.as_str()));
        }
        invocations.iter().try_for_each(|words| self.judge_one(words))
    }

    /// Adds a list of allowed commands, which must cover a command in addition to the others.
    pub(crate) fn allow_only(&mut self, patterns: BTreeSet<CommandPattern>) {
        self.allow.insert(patterns);
    }

    /// Adds denied commands.
    pub(crate) fn deny_also(&mut self, patterns: impl IntoIterator<Item = CommandPattern>) {
        self.deny.extend(patterns);
    }

    /// Replaces the allowed operators.
    pub(crate) fn set_operators(&mut self, operators: BTreeSet<Operator>) {
        self.operators = Some(operators);
    }

    fn judge_one(&self, words: &[CommandWord]) -> Result<(), CommandRefusal> {
        let Some(program) = words.first().and_then(CommandWord::program) else {
            return Err(CommandRefusal::Unreadable("the name of a program is not in the text".to_owned()));
        };
        let arguments = &words[1..];
        if let Some(rule) = self.deny.iter().find(|rule| rule.may_cover(program, arguments)) {
            return Err(CommandRefusal::Denied { program: program.to_owned(), rule: rule.to_string() });
        }
        // Without any list `all` is true: everything is allowed.
        if self.allow.iter().all(|list| list.iter().any(|rule| rule.covers(words))) {
            return Ok(());
        }
        let first = words[0].literal().unwrap_or(program);
        let arguments = arguments.iter().take(2).filter_map(CommandWord::literal);
        let program = std::iter::once(first).chain(arguments).collect::<Vec<_>>().join(" ");
        Err(CommandRefusal::NotAllowed { program })
    }
}
