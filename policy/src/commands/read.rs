//! Reads a command's text: all programs that it runs, and all operators in it.

use std::{collections::BTreeSet, thread};

use brush_parser::{ParserOptions, parse_tokens, uncached_tokenize_str};

use super::{Operator, UnreadableCommand, nesting, walk::Walker, words::CommandWord};

/// The maximum length of a command that is judged, in bytes. Longer commands belong in a file.
pub(super) const MAX_BYTES: usize = 16 << 10;

/// The size of the parser's stack. The parser recurses once for each level of nesting. A command of
/// `MAX_BYTES` opening brackets uses about half of this stack.
const STACK_BYTES: usize = 128 << 20;

/// The programs and operators of a command.
#[derive(Debug, Default)]
pub(super) struct FoundPrograms {
    /// The words of each program's call, including calls that one program makes of another.
    pub(super) invocations: Vec<Vec<CommandWord>>,
    pub(super) operators: BTreeSet<Operator>,
    /// Whether the command may change the search path of programs.
    pub(super) sets_path: bool,
    /// The first part of the command other than calls joined by `&&`, `||`, `;`, `|` or the end of a line.
    pub(super) beyond_calls: Option<&'static str>,
}

/// Reads a command.
///
/// # Errors
/// The reason why the programs of the command cannot be determined.
pub(super) fn read(command: &str) -> Result<FoundPrograms, UnreadableCommand> {
    if command.len() > MAX_BYTES {
        return Err(UnreadableCommand::TooLong { bytes: command.len() });
    }
    // Deep nesting would overflow the caller's stack and abort the process, so the parser runs on a thread
    // with a larger stack.
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            let mut walker = Walker::default();
            parse(command, &mut walker)?;
            Ok(walker.programs)
        });
        let reader = reader.map_err(|error| UnreadableCommand::NoThread(error.to_string()))?;
        // Fail closed: if the parser panics, refuse the command.
        reader.join().unwrap_or(Err(UnreadableCommand::ParserPanicked))
    })
}

/// Reads one text and adds its programs and operators to the walker.
pub(super) fn parse(command: &str, walker: &mut Walker) -> Result<(), UnreadableCommand> {
    if command.contains('\0') {
        return Err(UnreadableCommand::Nul);
    }
    // Must run before the tokenizer, which recurses at each substitution.
    nesting::ensure_few_substitutions(command)?;
    let options = ParserOptions::default();
    let tokens = uncached_tokenize_str(command, &options.tokenizer_options())
        .map_err(|error| UnreadableCommand::Syntax(error.to_string()))?;
    // Must run before the parser, which backtracks at each level.
    nesting::ensure_shallow(&tokens)?;
    let program =
        parse_tokens(&tokens, &options).map_err(|error| UnreadableCommand::Syntax(error.to_string()))?;
    walker.walk_program(&program, command)
}
