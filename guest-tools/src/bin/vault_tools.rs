//! The module with the two steps of `vault_copyto`. A registry does not list them: only the host calls them,
//! concurrently.

portcullis_sdk::export_tools![
    portcullis_guest_tools::vault_copyto_read,
    portcullis_guest_tools::vault_copyto_write,
];
