//! The module with `file_search`: its engine is many times as large as all other core tools together, and
//! whoever does not search need not load it.

portcullis_sdk::export_tools![portcullis_guest_tools::file_search];
