//! A fake of the host for native programs. There is no network, unless a test provides the responses.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{Cursor, Read as _},
    rc::Rc,
};

use portcullis_types::{GuestErrorKind, HttpFailure, HttpRequestHead, HttpResponseHead, HttpResult};

/// A response that a test provides.
#[derive(Debug, Clone)]
pub struct FakeResponse {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl FakeResponse {
    /// A response without headers.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Responses = Rc<dyn Fn(&HttpRequestHead, &[u8]) -> FakeResponse>;

thread_local! {
    static RESPONSES: RefCell<Option<Responses>> = const { RefCell::new(None) };
    static BODIES: RefCell<HashMap<u32, Cursor<Vec<u8>>>> = RefCell::default();
}

/// Runs a function on this thread. `responses` gets each request of the function with its body, and returns the
/// response.
pub fn with_http<T>(
    responses: impl Fn(&HttpRequestHead, &[u8]) -> FakeResponse + 'static,
    run: impl FnOnce() -> T,
) -> T {
    /// Restores the earlier responses, even if the function panics.
    struct Restore(Option<Responses>);

    impl Drop for Restore {
        fn drop(&mut self) {
            RESPONSES.set(self.0.take());
        }
    }

    let _restore = Restore(RESPONSES.replace(Some(Rc::new(responses))));
    run()
}

pub(super) fn send(head: &[u8], body: &[u8]) -> HttpResult {
    let responses = RESPONSES.with_borrow(Clone::clone);
    let (Some(responses), Ok(request)) = (responses, serde_json::from_slice::<HttpRequestHead>(head)) else {
        return HttpResult::Error(HttpFailure {
            kind: GuestErrorKind::Unavailable,
            code: "unavailable".to_owned(),
            message:
                "there is no network outside of a sandbox; a test gives responses by `testing::with_http`"
                    .to_owned(),
        });
    };
    let FakeResponse { status, headers, body } = responses(&request, body);
    let number = BODIES.with_borrow_mut(|bodies| {
        // The lowest free number: a test may hold several bodies.
        let number = (0..=u32::MAX).find(|number| !bodies.contains_key(number)).unwrap_or_default();
        bodies.insert(number, Cursor::new(body));
        number
    });
    HttpResult::Ok(HttpResponseHead { body: number, status, url: request.url, headers })
}

pub(super) fn read(body: u32, out: &mut [u8]) -> Result<usize, HttpResult> {
    let read = |bodies: &mut HashMap<u32, Cursor<Vec<u8>>>| bodies.get_mut(&body).map(|body| body.read(out));
    // Reading from memory cannot fail, so the defaults only stand for an unknown body.
    Ok(BODIES.with_borrow_mut(read).transpose().unwrap_or_default().unwrap_or_default())
}

pub(super) fn close(body: u32) {
    BODIES.with_borrow_mut(|bodies| bodies.remove(&body));
}
