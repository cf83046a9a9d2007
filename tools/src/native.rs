//! Native tools. They run in this process, outside the sandbox, and every listing marks them
//! `native, unconfined`. They access neither the network, nor other processes, nor files.
//!
//! The exception is [`OutputRead`], which reads the store of complete outputs through the store's descriptor.

mod arithmetic;
mod capability;
mod defaults;
mod echo;
mod failing;
mod input;
mod output_read;
mod states;
mod time;

pub use arithmetic::Arithmetic;
pub use capability::{Capability, CapabilityStatus, UnusableCapability};
pub use defaults::{EXAMPLES, default_tools, tools_for_models};
pub use echo::EchoTool;
pub use failing::FailingTool;
pub use output_read::{AddOutputLabelsFn, IsStillGrantedFn, OutputRead};
pub(crate) use states::{NativeStates, ensure_states_added};
pub use time::GetCurrentTime;
