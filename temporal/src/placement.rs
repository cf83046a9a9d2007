//! [`Placement`]: which task queue runs a tool.

use std::{collections::BTreeMap, str::FromStr};

use thiserror::Error;

/// The maximum length of the name of a tool or a task queue, in bytes. Temporal accepts names of up to 1,000
/// bytes.
const MAX_NAME_BYTES: usize = 256;

/// A tool, and the task queue of the workers that run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The name of the tool.
    pub tool: String,
    /// The task queue.
    pub queue: String,
}

/// The error of a text that is not a placement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a placement: TOOL=QUEUE, each a name of at most {MAX_NAME_BYTES} bytes", .text.escape_debug())]
pub struct InvalidPlacement {
    /// The text, as it was given.
    pub text: String,
}

impl FromStr for Placement {
    type Err = InvalidPlacement;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |name: &str| {
            (1..=MAX_NAME_BYTES).contains(&name.len())
                && !name.chars().any(|c| c.is_control() || c.is_whitespace() || c == '=')
        };
        match text.split_once('=') {
            Some((tool, queue)) if is_name(tool) && is_name(queue) => {
                Ok(Self { tool: tool.to_owned(), queue: queue.to_owned() })
            }
            _ => Err(InvalidPlacement { text: text.to_owned() }),
        }
    }
}

/// Returns the task queues by tool.
pub(crate) fn by_tool(placements: Vec<Placement>) -> BTreeMap<String, String> {
    placements.into_iter().map(|placement| (placement.tool, placement.queue)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_names_a_tool_and_a_queue() {
        let placement: Placement = "shell=machines-with-gpu".parse().expect("a placement");
        assert_eq!((&*placement.tool, &*placement.queue), ("shell", "machines-with-gpu"));
        for text in ["", "shell", "=q", "shell=", "a=b=c", "a b=c", "a=b\n"] {
            assert!(text.parse::<Placement>().is_err(), "{text:?}");
        }
        assert!(format!("a={}", "x".repeat(257)).parse::<Placement>().is_err());
    }
}
