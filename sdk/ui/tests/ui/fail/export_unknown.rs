//! A function that is no tool.

async fn plain() {}

portcullis_sdk::export_tools![plain];
