//! The module with the steps of `web_fetch` and `web_search` that read a body or `robots.txt`. A registry does not list
//! them: only the host calls them.

portcullis_sdk::export_tools![
    portcullis_guest_tools::web_fetch_read,
    portcullis_guest_tools::web_fetch_robots,
    portcullis_guest_tools::web_search_read
];
