//! The rules about commands, and the decision about a command.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{NoTrace, TraceSink, TracedRule};

use super::{
    Operator, UnreadableCommand,
    operator::OPERATORS,
    pattern::CommandPattern,
    read::{self, FoundPrograms},
    words::CommandWord,
};

/// A policy's rules about shell commands. Without rules, every command may run and none is parsed.
///
/// The order in which rules were written does not matter: equal sets of rules are equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandRules {
    /// The lists of allowed commands: the operator's list and those of reductions. A command needs a covering
    /// rule in every list.
    allow: BTreeSet<BTreeSet<CommandPattern>>,
    deny: BTreeSet<CommandPattern>,
    /// The allowed operators. `None` means all.
    operators: Option<BTreeSet<Operator>>,
    /// The commands that need no approval.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unasked: BTreeSet<CommandPattern>,
}

/// The reason why a text is not a valid rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCommandRule {
    /// The text has no words.
    #[error("a rule names a program: write `git`, or `git push` for some of its calls")]
    Empty,
    /// The text is too long.
    #[error("the rule is longer than 1024 bytes")]
    TooLong,
    /// The rule names a program by a path.
    #[error("`{0}` is a path: a rule names a program, in any folder; write only its name")]
    Path(String),
    /// The rule contains shell syntax.
    #[error("`{0}` is shell syntax: a rule is a list of plain words, in which `*` matches anything")]
    Syntax(char),
    /// The rule contains an invisible character.
    #[error("`{}` is an invisible character: a rule is a list of plain words", .0.escape_unicode())]
    Invisible(char),
    /// The text is not an operator.
    #[error("`{}` is not an operator: write one of {OPERATORS}", .0.escape_default())]
    Operator(String),
}

/// The reason why a command must not run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandRefusal {
    /// A rule of `deny` covers a program that the command runs.
    #[error("`{program}` is denied by the rule `{rule}`")]
    Denied {
        /// The denied program's name.
        program: String,
        /// The entry of `deny` that covers the program.
        rule: String,
    },
    /// No rule of `allow` covers a program that the command runs.
    #[error("`{program}` is not among the commands that are allowed")]
    NotAllowed {
        /// The program with its first arguments.
        program: String,
    },
    /// The command has an operator that is not allowed.
    #[error("the operator `{0}` is not allowed")]
    Operator(&'static str),
    /// The command's text does not show what it would run.
    #[error("the programs that this command runs are unknown: {0}")]
    Unreadable(UnreadableCommand),
}

/// The reason why no rules cover a command. Its text is a clause about the command, for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UncoveredCommand {
    /// There are no rules.
    #[error("there are no rules")]
    NoRules,
    /// No rule covers a call of this program.
    #[error("no rule covers this call of `{0}`")]
    Call(String),
    /// The command has this part, which is more than a call.
    #[error("the command has {0}")]
    BeyondCalls(&'static str),
    /// The command calls no program.
    #[error("the command runs no program")]
    NoCall,
    /// The command's text does not show what it would run.
    #[error(transparent)]
    Unreadable(#[from] UnreadableCommand),
}

impl CommandRules {
    /// Parses rules. `allow` lists the allowed commands, and an empty list means all. `operators` lists the
    /// allowed operators, and `None` means all.
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
                .map(|texts| texts.iter().map(|text| text.parse()).collect::<Result<_, _>>())
                .transpose()?,
            ..Self::default()
        };
        let allow: BTreeSet<_> = allow.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        if !allow.is_empty() {
            rules.allow_only(allow);
        }
        Ok(rules)
    }

    /// Returns whether every command may run. [`Self::unasked_rules`] only governs approvals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty() && self.operators.is_none()
    }

    /// Returns the lists of allowed commands, each sorted. A command needs a covering rule in every list.
    /// Without lists, everything is allowed.
    pub fn allowed(&self) -> impl Iterator<Item = Vec<String>> {
        self.allow.iter().map(|list| list.iter().map(ToString::to_string).collect())
    }

    /// Returns the denied commands, sorted.
    pub fn denied(&self) -> impl Iterator<Item = String> {
        self.deny.iter().map(ToString::to_string)
    }

    /// Returns the allowed operators. `None` means all.
    #[must_use]
    pub fn operators(&self) -> Option<&BTreeSet<Operator>> {
        self.operators.as_ref()
    }

    /// Returns the commands that need no approval, sorted.
    pub fn allowed_commands(&self) -> impl Iterator<Item = String> {
        self.unasked.iter().map(ToString::to_string)
    }

    /// Returns the rules of `unasked` that cover a command: one for each of its calls, without duplicates. A
    /// rule must cover every program of the command, even a program that another program runs. Calls joined
    /// by `&&`, `||`, `;`, `|` or line ends are covered one by one. The command may contain nothing else,
    /// except redirections to `/dev/null` or another stream: no substitution, variable, assignment, function,
    /// subshell or background job.
    ///
    /// # Errors
    /// [`UncoveredCommand`] for the first part of the command that no rule covers.
    pub fn unasked_rules(&self, command: &str) -> Result<Vec<String>, UncoveredCommand> {
        if self.unasked.is_empty() {
            return Err(UncoveredCommand::NoRules);
        }
        let mut rules = Vec::new();
        for words in &plain_calls(command)? {
            let Some(rule) = self.unasked.iter().find(|rule| rule.covers_whole(words)) else {
                let name = words.first().and_then(CommandWord::program).unwrap_or("a program");
                return Err(UncoveredCommand::Call(name.to_owned()));
            };
            let rule = rule.to_string();
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        Ok(rules)
    }

    /// Returns the rules for `unasked` that cover exactly this command: one for each of its calls, with the
    /// call's words. `None` if rules cannot express the command, for example because it has a variable, a
    /// pattern, or a word with spaces.
    #[must_use]
    pub fn exact_rules(command: &str) -> Option<Vec<String>> {
        let mut rules = Vec::new();
        for words in &plain_calls(command).ok()? {
            let name = words.first()?.program()?;
            let arguments = words[1..].iter().map(CommandWord::literal);
            let texts: Vec<&str> = [Some(name)].into_iter().chain(arguments).collect::<Option<_>>()?;
            if texts.iter().any(|text| text.is_empty() || text.contains(['*', ' ', '\t', '\n'])) {
                return None;
            }
            let rule = texts.join(" ");
            if !rule.parse::<CommandPattern>().ok()?.covers_whole(words) {
                return None;
            }
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        Some(rules)
    }

    /// Judges a command. `deny` takes precedence over `allow`.
    ///
    /// # Errors
    /// [`CommandRefusal`] for the first program or operator that is refused.
    pub fn judge(&self, command: &str) -> Result<(), CommandRefusal> {
        self.judge_traced(command, &mut NoTrace)
    }

    /// Like [`Self::judge`], but records a trace.
    pub(crate) fn judge_traced<T: TraceSink>(
        &self,
        command: &str,
        trace: &mut T,
    ) -> Result<(), CommandRefusal> {
        if self.is_empty() {
            return Ok(());
        }
        let FoundPrograms { invocations, operators, sets_path, beyond_calls: _ } =
            read::read(command).map_err(CommandRefusal::Unreadable)?;
        if sets_path && !self.allow.is_empty() {
            return Err(CommandRefusal::Unreadable(UnreadableCommand::ChangedPath));
        }
        if let Some(allowed_operators) = &self.operators
            && let Some(operator) = operators.iter().find(|operator| !allowed_operators.contains(operator))
        {
            return Err(CommandRefusal::Operator(operator.as_str()));
        }
        if self.operators.is_some() {
            trace.record(|| TracedRule::new("shell.operators", "has all operators of the command"));
        }
        invocations.iter().try_for_each(|words| self.judge_one(words, trace))
    }

    /// Adds a list of allowed commands. It must cover a command in addition to the other lists.
    pub(crate) fn allow_only(&mut self, patterns: BTreeSet<CommandPattern>) {
        self.allow.insert(patterns);
    }

    /// Adds denied commands.
    pub(crate) fn deny_also(&mut self, patterns: impl IntoIterator<Item = CommandPattern>) {
        self.deny.extend(patterns);
    }

    /// Replaces the commands that need no approval.
    pub(crate) fn set_unasked(&mut self, patterns: BTreeSet<CommandPattern>) {
        self.unasked = patterns;
    }

    /// Returns the commands that need no approval.
    pub(crate) fn unasked_patterns(&self) -> &BTreeSet<CommandPattern> {
        &self.unasked
    }

    /// Replaces the allowed operators.
    pub(crate) fn set_operators(&mut self, operators: BTreeSet<Operator>) {
        self.operators = Some(operators);
    }

    fn judge_one<T: TraceSink>(&self, words: &[CommandWord], trace: &mut T) -> Result<(), CommandRefusal> {
        // Without a name, no rule of `deny` could refuse the program.
        let Some(program) = words.first().and_then(CommandWord::program) else {
            return Err(CommandRefusal::Unreadable(UnreadableCommand::UnknownName));
        };
        let arguments = &words[1..];
        if let Some(rule) = self.deny.iter().find(|rule| rule.may_cover(program, arguments)) {
            return Err(CommandRefusal::Denied { program: program.to_owned(), rule: rule.to_string() });
        }
        if !self.deny.is_empty() {
            trace.record(|| TracedRule::new("shell.deny", format!("has no rule for `{program}`")));
        }
        // Without lists, `all` returns true: everything is allowed.
        let is_allowed = self.allow.iter().all(|list| {
            let covering = list.iter().find(|rule| rule.covers(words));
            if let Some(rule) = covering {
                trace.record(|| {
                    TracedRule::new(format!("shell.allow[\"{rule}\"]"), format!("covers `{program}`"))
                });
            }
            covering.is_some()
        });
        if is_allowed {
            return Ok(());
        }
        let program_text = words[0].literal().unwrap_or(program);
        let arguments = arguments.iter().take(2).filter_map(CommandWord::literal);
        let program = std::iter::once(program_text).chain(arguments).collect::<Vec<_>>().join(" ");
        Err(CommandRefusal::NotAllowed { program })
    }
}

/// Returns the calls of a command that consists only of calls, at least one.
///
/// # Errors
/// [`UncoveredCommand::BeyondCalls`], [`UncoveredCommand::NoCall`], [`UncoveredCommand::Unreadable`].
fn plain_calls(command: &str) -> Result<Vec<Vec<CommandWord>>, UncoveredCommand> {
    let programs = read::read(command)?;
    if let Some(part) = programs.beyond_calls {
        return Err(UncoveredCommand::BeyondCalls(part));
    }
    if programs.invocations.is_empty() {
        return Err(UncoveredCommand::NoCall);
    }
    Ok(programs.invocations)
}
