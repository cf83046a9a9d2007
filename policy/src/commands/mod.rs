//! Rules about shell commands: which programs may run, and which operators may join them.
//!
//! The rules guide a model and are not a security boundary: the sandbox confines a program once it runs. A
//! command is parsed with the grammar of bash ([`read`](mod@read)), and every program found in it is judged:
//! behind pipes, in substitutions and functions (`walk`), and behind programs that run another (`env`,
//! `xargs`, `sh -c`, …; `runs` and `wrappers`). As soon as there is any rule, a command is refused if its
//! text does not tell what it runs: a program whose name is in a variable, or a text that bash runs later
//! (`builtins`). A command that would take the parser too long (`nesting`) is refused too.

mod builtins;
mod nesting;
mod operator;
mod pattern;
mod read;
mod rules;
mod runs;
mod text;
mod walk;
mod words;
mod wrappers;

#[cfg(test)]
mod tests;

pub use operator::Operator;
pub use rules::{CommandRefusal, CommandRules, InvalidCommandRule};

pub(crate) use pattern::CommandPattern;
