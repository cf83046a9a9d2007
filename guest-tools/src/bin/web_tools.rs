//! The module with the steps of `web_fetch` and `web_search` that read a body or `robots.txt`. It is not in a registry: only the host
//! can call them.

portcullis_sdk::export_tools![
    portcullis_guest_tools::web_fetch_read,
    portcullis_guest_tools::web_fetch_robots,
    portcullis_guest_tools::web_search_read
];
