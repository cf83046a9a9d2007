//! The methods that a request may have.

use serde::Serialize;

portcullis_types::word_enum! {
    /// An HTTP method (RFC 9110, section 9; `PATCH`: RFC 5789). `CONNECT` is missing because no rule could
    /// judge the traffic in its tunnel, and `TRACE` because it returns the request's headers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum HttpMethod as "method" {
        /// Reads.
        Get = "GET",
        /// Reads without the content.
        Head = "HEAD",
        /// Asks which methods the server allows.
        Options = "OPTIONS",
        /// Sends content to the server.
        Post = "POST",
        /// Replaces.
        Put = "PUT",
        /// Changes a part.
        Patch = "PATCH",
        /// Removes.
        Delete = "DELETE",
    }
}

impl HttpMethod {
    /// The methods of a profile that lists none: the methods that only read.
    pub const DEFAULT: [Self; 2] = [Self::Get, Self::Head];

    /// Returns whether the method is safe: it only reads, as far as a client can expect (RFC 9110, 9.2.1).
    #[must_use]
    pub const fn is_safe(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Options => true,
            Self::Post | Self::Put | Self::Patch | Self::Delete => false,
        }
    }
}
