//! [`UnreadableCommand`]: the reason why the text of a command does not show what it would run.

use thiserror::Error;

use super::{nesting, read, walk};

/// The reason why the text of a command does not show what it would run. Its text is a clause about the
/// command, for the model that wrote the command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnreadableCommand {
    /// The command has too many bytes.
    #[error("the command has {bytes} bytes, and at most {} are judged; put it into a file", read::MAX_BYTES)]
    TooLong {
        /// The length of the command.
        bytes: usize,
    },
    /// The command has a NUL character.
    #[error("the command has a NUL character")]
    Nul,
    /// The system gave no thread for the parser, for this reason.
    #[error("no thread could be started to parse the command: {0}")]
    NoThread(String),
    /// The parser panicked.
    #[error("the parser does not understand the command's syntax")]
    ParserPanicked,
    /// The parser refused the command, with this message.
    #[error("the command's syntax is not understood: {0}")]
    Syntax(String),
    /// The parser refused a word of the command, with this message.
    #[error("{0}")]
    WordSyntax(String),
    /// The command has too many substitutions for the parser.
    #[error("the command has more than {} substitutions", nesting::MAX_SUBSTITUTIONS)]
    ManySubstitutions,
    /// A word of the command has too many `[` for the parser.
    #[error("the command has more than {} `[` in one word", nesting::MAX_INDEXES)]
    ManyIndexes,
    /// Brackets or `case` clauses are nested too deeply for the parser.
    #[error("the command nests brackets or `case` more than {} deep", nesting::MAX_DEPTH)]
    DeepBrackets,
    /// The index of a list is neither a name nor a number.
    #[error("an array index is an expression")]
    IndexExpression,
    /// Brackets within brackets are neither arithmetic nor subshells.
    #[error("the command has brackets within brackets")]
    NestedBrackets,
    /// Commands are nested too deeply, as in `sh -c "sh -c …"`.
    #[error("the command nests commands more than {} deep", walk::MAX_DEPTH)]
    DeepCommands,
    /// The command runs too many commands to judge them all.
    #[error("the command runs too many commands")]
    ManyCommands,
    /// Bash would run a command when it evaluates an arithmetic expression.
    #[error("an arithmetic expression contains a command")]
    CommandInArithmetic,
    /// Bash would run a command when it expands `${…}` or `$((…))`.
    #[error("the command has a command within `${{…}}` or `$((…))`; assign it to a variable first")]
    CommandInExpansion,
    /// This command of bash may run its arguments later.
    #[error("`{0}` may run its arguments")]
    MayRunArguments(String),
    /// This command of bash runs the argument of its option `-C`.
    #[error("`{0} -C` runs its argument")]
    RunsCallback(String),
    /// Bash itself reads or runs the value of this variable, which the command sets.
    #[error("bash runs the value of `{0}`")]
    VariableOfBash(String),
    /// This program runs its input.
    #[error("`{0}` runs its standard input, which is not part of the command's text")]
    RunsInput(String),
    /// This program runs a text that is known only when the command runs.
    #[error("`{0}` runs a text that is not in the command")]
    UnknownText(String),
    /// This program runs another one that is known only when the command runs.
    #[error("the program that `{0}` runs is not part of the text")]
    UnknownProgram(String),
    /// This program has too many options that may or may not have a value.
    #[error("`{0}` has too many unknown options")]
    ManyUnknownOptions(String),
    /// Arguments of `find` are known only when the command runs.
    #[error("the arguments of `find` are not part of the text")]
    UnknownFindArguments,
    /// The name of a program is known only when the command runs.
    #[error("the name of a program is not in the text")]
    UnknownName,
    /// The command changes the search path of programs, and only some names are allowed.
    #[error("the command changes `PATH`, so an allowed name may be any program")]
    ChangedPath,
}
