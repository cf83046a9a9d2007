//! A local HTTP server for tests. Each connection gets one answer, and is then closed.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A server on a free port of this machine. It runs until the test program ends.
pub(crate) struct Server {
    port: u16,
    requests_seen: Arc<Mutex<Vec<String>>>,
    /// The number of requests whose heads [`Server::take_heads`] has returned.
    returned_heads: AtomicUsize,
}

/// Says whether a server has a `robots.txt`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RobotsFile {
    Absent,
    Served,
}

/// The bytes to send. `None` keeps the connection open without an answer.
pub(crate) type Reply = Option<Vec<u8>>;

impl Server {
    /// Starts a server. `reply` gets the path of each request. There is no `robots.txt`, and requests for it do not
    /// count.
    pub(crate) fn start(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(TcpListener::bind("127.0.0.1:0").expect("a free port"), reply)
    }

    /// Starts a server whose `reply` gets the path and the body of each request.
    pub(crate) fn start_with_bodies(reply: impl Fn(&str, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve_at(TcpListener::bind("127.0.0.1:0").expect("a free port"), RobotsFile::Absent, reply)
    }

    /// Starts a server at another address of this machine.
    pub(crate) fn start_at(
        listener: TcpListener,
        reply: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve_at(listener, RobotsFile::Absent, move |path, _body| reply(path))
    }

    /// Starts a server whose `reply` also answers for `robots.txt`. Requests for that file count.
    pub(crate) fn with_robots(reply: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve_at(
            TcpListener::bind("127.0.0.1:0").expect("a free port"),
            RobotsFile::Served,
            move |path, _body| reply(path),
        )
    }

    fn serve_at(
        listener: TcpListener,
        robots: RobotsFile,
        reply: impl Fn(&str, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let port = listener.local_addr().expect("an address").port();
        let requests_seen = Arc::new(Mutex::new(Vec::new()));
        let (requests_sink, reply) = (Arc::clone(&requests_seen), Arc::new(reply));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (requests_sink, reply) = (Arc::clone(&requests_sink), Arc::clone(&reply));
                thread::spawn(move || serve(connection, &requests_sink, robots, &*reply));
            }
        });
        Self { port, requests_seen, returned_heads: AtomicUsize::new(0) }
    }

    /// Returns the handle of a server that the test itself runs on this port.
    pub(crate) fn for_port(port: u16) -> Self {
        Self { port, requests_seen: Arc::default(), returned_heads: AtomicUsize::new(0) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.requests_seen().len()
    }

    /// Returns the requests so far: head, an empty line, body.
    pub(crate) fn requests_seen(&self) -> Vec<String> {
        self.requests_seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the heads of all requests since the last call of this function.
    pub(crate) fn take_heads(&self) -> Vec<String> {
        let requests_seen = self.requests_seen();
        let earlier_count = self.returned_heads.swap(requests_seen.len(), Ordering::SeqCst);
        let headers = |request: &String| {
            let head = request.split("\r\n\r\n").next().unwrap_or_default();
            let lines: Vec<&str> = head.lines().skip(1).collect();
            lines.join("\n") + "\n"
        };
        requests_seen[earlier_count..].iter().map(headers).collect()
    }
}

fn serve(
    mut connection: TcpStream,
    requests_sink: &Mutex<Vec<String>>,
    robots: RobotsFile,
    reply: &(dyn Fn(&str, &str) -> Reply + Send + Sync),
) {
    let mut reader = BufReader::new(connection.try_clone().expect("clones"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if !reader.read_line(&mut head).is_ok_and(|length| length > 0) {
            return;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = Vec::new();
    if reader.by_ref().take(length.unwrap_or(0)).read_to_end(&mut body).is_err() {
        return;
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    let request = head + &body;
    let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
    if path == "/robots.txt" && robots == RobotsFile::Absent {
        drop(connection.write_all(&status("404 Not Found").unwrap_or_default()));
        return;
    }
    requests_sink.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    match reply(&path, &body) {
        // The client may have closed the connection.
        Some(bytes) => drop(connection.write_all(&bytes)),
        None => drop(reader.read(&mut [0])),
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

pub(crate) fn json(body: &str) -> Reply {
    answer("application/json", body.as_bytes())
}

pub(crate) fn failure(line: &str, media_type: &str, body: &str) -> Reply {
    let length = body.len();
    Some(
        format!("HTTP/1.1 {line}\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n{body}")
            .into_bytes(),
    )
}

pub(crate) fn no_reply() -> Reply {
    None
}

/// Returns 64 MiB of zeros, compressed with gzip.
pub(crate) fn gzip_bomb() -> Vec<u8> {
    gzip(&vec![0; 64 << 20])
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}
