//! An exported function that is not a tool.

async fn plain() {}

portcullis_sdk::export_tools![plain];
