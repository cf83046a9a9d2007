//! The types of specification 002: tools, events, strategies.

use std::num::NonZeroUsize;

use portcullis_agent::ExecutionStrategy;

pub use super::tool::{
    AgentTool, CancellationToken, Content, ProgressFn, ToolContext, ToolError, ToolResult, ToolResultMessage,
    ToolUpdateFn, async_trait,
};
pub use crate::event_formats::yoagent::{
    AgentEvent, Block, CallBlock, Message, SessionStats, StopReason, StreamDelta, Usage,
};

/// How the calls of one answer run (specification 002, "Execution Strategies").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolExecutionStrategy {
    /// One at a time.
    Sequential,
    /// All calls that may, at once.
    #[default]
    Parallel,
    /// In batches.
    Batched {
        /// Maximum number of calls in a batch; 0 counts as 1.
        size: usize,
    },
}

impl From<ToolExecutionStrategy> for ExecutionStrategy {
    fn from(strategy: ToolExecutionStrategy) -> Self {
        match strategy {
            ToolExecutionStrategy::Sequential => Self::Sequential,
            ToolExecutionStrategy::Parallel => Self::Parallel,
            ToolExecutionStrategy::Batched { size } => {
                Self::Batched { size: NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN) }
            }
        }
    }
}
