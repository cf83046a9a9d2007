//! The two steps of `vault_copyto`. One step reads in the vault and sends, and the other step receives and writes
//! outside the vault.
//!
//! Each step is a separate call with its own grant, so neither step has the access of the other. The host passes the
//! bytes from one step to the other.

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
