//! The module with the two steps of `vault_copyto`. They are no tools of a registry: the host calls them
//! together, and nobody else can.

portcullis_sdk::export_tools![
    portcullis_guest_tools::vault_copyto_read,
    portcullis_guest_tools::vault_copyto_write,
];
