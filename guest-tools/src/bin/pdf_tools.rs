//! The module with the step of `web_fetch` that reads PDF files. It is not in a registry: only the host can call it.

portcullis_sdk::export_tools![portcullis_guest_tools::web_fetch_read_pdf];
