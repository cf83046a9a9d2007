//! The module with the step of `web_fetch` that reads PDF files. A registry does not list it: only the host calls the
//! step.

portcullis_sdk::export_tools![portcullis_guest_tools::web_fetch_read_pdf];
