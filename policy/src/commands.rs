//! Rules about shell commands: which programs may run, and which operators may join them.
//!
//! The rules guide a model and are not a security boundary: the sandbox is what confines a running program.
//!
//! The grammar of bash parses a command ([`read`](mod@read)), and the rules judge every program in it: behind pipes, in
//! substitutions and functions (`walk`), and behind programs that run another (`env`, `xargs`, `sh -c`, …; `runs` and
//! `wrappers`).
//!
//! If the policy has rules, a command whose text does not show what it runs is refused: for example, a program named by
//! a variable, or a text that bash evaluates later (`builtins`). A command that would take the parser too long
//! (`nesting`) is refused too. `unreadable` has all these reasons.

mod builtins;
mod nesting;
mod operator;
mod pattern;
mod read;
mod rules;
mod run_targets;
mod text;
mod unreadable;
mod walk;
mod words;
mod wrappers;

#[cfg(test)]
mod tests;

pub use operator::Operator;
pub use rules::{CommandRefusal, CommandRules, InvalidCommandRule, UncoveredCommand};
pub use unreadable::UnreadableCommand;

pub(crate) use pattern::CommandPattern;
