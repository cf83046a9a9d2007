//! The module with the core tools except `file_search`.

portcullis_sdk::export_tools![
    portcullis_guest_tools::file_delete,
    portcullis_guest_tools::file_edit,
    portcullis_guest_tools::file_list,
    portcullis_guest_tools::file_read,
    portcullis_guest_tools::file_write,
];
