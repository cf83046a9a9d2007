//! The two steps of `vault_copyto`: one reads in the vault and sends, the other receives and writes
//! elsewhere.
//!
//! Each step runs in a separate call with a separate grant, and neither grant includes the access of the
//! other. The bytes pass from one to the other through the host.

mod read_step;
#[cfg(test)]
mod tests;
mod write_step;

pub use read_step::{VaultCopytoRead, vault_copyto_read, vault_copyto_read_tool};
pub use write_step::{VaultCopytoWrite, vault_copyto_write, vault_copyto_write_tool};

#[doc(hidden)]
pub use self::{
    read_step::{__tool_declaration_vault_copyto_read, __tool_function_decl_vault_copyto_read},
    write_step::{__tool_declaration_vault_copyto_write, __tool_function_decl_vault_copyto_write},
};
