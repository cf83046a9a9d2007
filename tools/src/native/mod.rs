//! Tools of this process. They are outside the sandbox, marked `native, unconfined` wherever tools are
//! listed, and none of them touches a file, the network or another process.
//!
//! [`OutputRead`] reads the store of whole outputs, through the directory handle that the store holds.

mod arithmetic;
mod capability;
mod defaults;
mod echo;
mod failing;
mod input;
mod output_read;
mod time;

pub use arithmetic::Arithmetic;
pub use capability::Capability;
pub use defaults::{default_tools, useful_tools};
pub use echo::EchoTool;
pub use failing::FailingTool;
pub use output_read::{OutputRead, StillGranted};
pub use time::GetCurrentTime;
