//! No tools to export.

portcullis_sdk::export_tools![];
