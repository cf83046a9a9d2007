//! The module with the two steps of `vault_copyto`. They are not in a registry: only the host can call them,
//! both at once.

portcullis_sdk::export_tools![
    portcullis_guest_tools::vault_copyto_read,
    portcullis_guest_tools::vault_copyto_write,
];
