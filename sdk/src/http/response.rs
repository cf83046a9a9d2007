//! A response, whose body can be read as it arrives.

use std::io::{self, Read};

use portcullis_types::{HttpResponseHead, HttpResult, ToolErrorCode};
use serde::de::DeserializeOwned;

use super::{HttpError, import};

/// A response. Its body is read as the server sends it, by [`Read`] or as a whole. Dropping it discards the
/// unread rest, and closes the connection if there is one.
#[derive(Debug)]
pub struct Response {
    head: HttpResponseHead,
    /// The reason why the body has broken off. The host has then closed the response, and a further read would look
    /// like its end.
    failure: Option<HttpError>,
}

impl Response {
    pub(super) fn new(head: HttpResponseHead) -> Self {
        Self { head, failure: None }
    }

    /// Returns the status, such as 200.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the address that answered, after all redirects.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.head.url
    }

    /// Returns the first value of a header. The name may have any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.head.headers.iter().find(|(header_name, _)| header_name.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }

    /// Returns all headers whose values are text, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.head.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The response, if its status is below 400.
    ///
    /// # Errors
    /// `http_status` with the status.
    pub fn error_for_status(self) -> Result<Self, HttpError> {
        match self.status() {
            status @ 400.. => {
                Err(HttpError::new(ToolErrorCode::HttpStatus, &format!("the server answered {status}")))
            }
            _ => Ok(self),
        }
    }

    /// Reads the rest of the body to its end.
    ///
    /// # Errors
    /// The reason, if the body breaks off.
    pub fn bytes(mut self) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the rest of the body as text.
    ///
    /// # Errors
    /// If the body breaks off or is not UTF-8.
    pub fn text(self) -> Result<String, HttpError> {
        String::from_utf8(self.bytes()?)
            .map_err(|_invalid| HttpError::new(ToolErrorCode::ResponseInvalid, "the response is not UTF-8"))
    }

    /// Returns the rest of the body as JSON.
    ///
    /// # Errors
    /// If the body breaks off or is not JSON of this type.
    pub fn json<T: DeserializeOwned>(self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.bytes()?).map_err(|error| {
            HttpError::new(
                ToolErrorCode::ResponseInvalid,
                &format!("the response is not the expected JSON: {error}"),
            )
        })
    }
}

/// Reads the body as it arrives. A read waits for at least one byte, and returns the bytes that are there, at most 64
/// KiB. 0 means the end.
///
/// # Errors
/// If the body breaks off: by a limit, the call's time, or the server. [`HttpError`] has a `From` for the error, with
/// the host's code. Later reads fail too.
impl Read for Response {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(error) = &self.failure {
            return Err(io::Error::other(error.clone()));
        }
        import::read(self.head.body, buffer).map_err(|answer| {
            let error = match answer {
                HttpResult::Error(fault) => HttpError(fault),
                HttpResult::Ok(_) => {
                    HttpError::new(ToolErrorCode::AnswerInvalid, "the host gave another answer")
                }
            };
            io::Error::other(self.failure.insert(error).clone())
        })
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        import::close(self.head.body);
    }
}
