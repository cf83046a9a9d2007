//! Reads a command's text: all programs that it is seen to run, and all operators in it.

use std::{collections::BTreeSet, thread};

use brush_parser::{ParserOptions, parse_tokens, uncached_tokenize_str};

use super::{Operator, nesting, walk::Walker, words::Argument};

/// How long a command may be that rules judge, in bytes. Longer ones belong into a file.
const MAX_BYTES: usize = 16 << 10;

/// The stack for the parser, whose depth is that of the command's nesting: `MAX_BYTES` of opening brackets
/// take about half of it.
const STACK_BYTES: usize = 128 << 20;

/// What is in a command.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The words of each program's call, the ones that a program runs for another among them.
    pub(super) invocations: Vec<Vec<Argument>>,
    pub(super) operators: BTreeSet<Operator>,
    /// Whether it may change where programs are looked for.
    pub(super) sets_path: bool,
}

/// Reads a command.
///
/// # Errors
/// Why it cannot be told what it runs.
pub(super) fn read(command: &str) -> Result<Found, String> {
    if command.len() > MAX_BYTES {
        return Err(format!(
            "it has {} bytes, and at most {MAX_BYTES} are judged; put it into a file",
            command.len()
        ));
    }
    // A thread of its own for its stack: a nesting that is too deep for the caller's would end the process.
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || {
            let mut walker = Walker::default();
            parse(command, &mut walker)?;
            Ok(walker.found)
        });
        let reader = reader.map_err(|error| format!("no thread to read it: {error}"))?;
        reader.join().unwrap_or_else(|_panic| Err("its syntax".to_owned()))
    })
}

/// Reads one text into a walker.
pub(super) fn parse(command: &str, walker: &mut Walker) -> Result<(), String> {
    if command.contains('\0') {
        return Err("it has a NUL character".to_owned());
    }
    nesting::ensure_few_substitutions(command)?;
    let options = ParserOptions::default();
    let tokens = uncached_tokenize_str(command, &options.tokenizer_options())
        .map_err(|error| format!("its syntax: {error}"))?;
    nesting::ensure_shallow(&tokens)?;
    let program = parse_tokens(&tokens, &options).map_err(|error| format!("its syntax: {error}"))?;
    walker.program(&program, command)
}
