//! Rules about shell commands: which programs a command may run, and what may join them.
//!
//! They guide a model and are no boundary: what a program does once it runs is for the sandbox. A command is
//! read with the grammar of bash ([`read`](mod@read)), and every program that it is seen to run is judged:
//! behind pipes, in substitutions, in functions (`walk`), and behind programs that run another (`env`, `xargs`,
//! `sh -c`, …; `runs` and `wrappers`). What cannot be told from the text, such as a program whose name is in a
//! variable, or a text that bash runs later (`builtins`), is refused as soon as there is any rule; so is what
//! would take the parser too long (`nesting`).

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
