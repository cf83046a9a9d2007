//! A server of one's own: each connection gets one answer, and is closed.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A server on a free port of this machine, until the test program ends.
pub(crate) struct Server {
    port: u16,
    requests: Arc<AtomicUsize>,
    heads: Arc<Mutex<Vec<String>>>,
}

/// The bytes to send; none to keep the connection open without a word.
pub(crate) type Reply = Option<Vec<u8>>;

impl Server {
    /// Starts it. `reply` gets the path of a request.
    pub(crate) fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(TcpListener::bind("127.0.0.1:0").expect("a free port"), reply)
    }

    /// Starts it at another address of this machine.
    pub(crate) fn start_at(
        listener: TcpListener,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(AtomicUsize::new(0));
        let heads = Arc::default();
        let (counted, kept, reply) = (Arc::clone(&requests), Arc::clone(&heads), Arc::new(reply));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (counted, kept, reply) = (Arc::clone(&counted), Arc::clone(&kept), Arc::clone(&reply));
                thread::spawn(move || serve(connection, &counted, &kept, &*reply));
            }
        });
        Self { port, requests, heads }
    }

    /// The name of a server that a test runs itself.
    pub(crate) fn named(port: u16) -> Self {
        Self { port, requests: Arc::default(), heads: Arc::default() }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// The number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The headers of all requests since the last time, one text each.
    pub(crate) fn take_heads(&self) -> Vec<String> {
        std::mem::take(&mut *self.heads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(
    mut connection: TcpStream,
    counted: &AtomicUsize,
    heads: &Mutex<Vec<String>>,
    reply: &(dyn Fn(&str) -> Reply + Send + Sync),
) {
    let mut lines = BufReader::new(connection.try_clone().expect("clones")).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let mut head = String::new();
    while let Some(line) = lines.next().and_then(Result::ok).filter(|line| !line.is_empty()) {
        head += &line;
        head.push('\n');
    }
    heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
    counted.fetch_add(1, Ordering::SeqCst);
    let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
    match reply(&path) {
        // The client may have gone.
        Some(bytes) => drop(connection.write_all(&bytes)),
        None => drop(lines.next()),
    }
}

pub(crate) fn answer(media_type: &str, body: &[u8]) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    Some([head.as_bytes(), body].concat())
}

pub(crate) fn html(page: &str) -> Reply {
    answer("text/html; charset=utf-8", page.as_bytes())
}

pub(crate) fn encoded(coding: &str, body: Vec<u8>) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Some([head.into_bytes(), body].concat())
}

pub(crate) fn redirect(to: &str) -> Reply {
    Some(format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

pub(crate) fn status(line: &str) -> Reply {
    Some(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

pub(crate) fn silence() -> Reply {
    None
}

/// 64 MiB of zeros, as gzip.
pub(crate) fn gzip_bomb() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        encoder.write_all(&vec![0; 1 << 20]).expect("in memory");
    }
    encoder.finish().expect("in memory")
}
