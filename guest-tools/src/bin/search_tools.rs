//! The module with `file_search`. Its engine is many times as large as all other core tools together, so only
//! searches load it.

portcullis_sdk::export_tools![portcullis_guest_tools::file_search];
