//! The types of Yoagent: tools, events, strategies.

use std::num::NonZeroUsize;

use portcullis_agent::ExecutionStrategy;

pub use super::tool::{
    AgentTool, CancellationToken, Content, ProgressFn, ToolContext, ToolError, ToolResult, ToolResultMessage,
    ToolUpdateFn, async_trait,
};
pub use crate::event_formats::yoagent::{
    AgentEvent, Block, CallBlock, Message, SessionStats, StopReason, StreamDelta, Usage,
};

/// How the calls of one answer are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolExecutionStrategy {
    /// The calls run one at a time.
    Sequential,
    /// All calls that may run concurrently do.
    #[default]
    Parallel,
    /// The calls run in batches.
    Batched {
        /// The maximum number of calls of a batch; 0 counts as 1.
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
