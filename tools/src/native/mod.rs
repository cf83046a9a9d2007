//! Tools of this process. They run outside the sandbox and are marked `native, unconfined` in every listing.
//! None of them touches the network, another process, or a file (except the output store).
//!
//! [`OutputRead`] reads the store of whole outputs through the store's directory handle.

mod arithmetic;
mod capability;
mod defaults;
mod echo;
mod failing;
mod input;
mod output_read;
mod time;

pub use arithmetic::Arithmetic;
pub(crate) use capability::CapabilityTools;
pub use capability::{Capability, CapabilityStatus};
pub use defaults::{default_tools, tools_for_models};
pub use echo::EchoTool;
pub use failing::FailingTool;
pub use output_read::{FollowOutput, OutputRead, StillGranted};
pub use time::GetCurrentTime;
