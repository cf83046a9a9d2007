//! A fake model server: it answers each request with the next of its bodies.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// The server. It runs until the test process ends.
pub(crate) struct Model {
    address: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Model {
    /// Starts a server that answers with these bodies, each with its status.
    pub(crate) fn answering(answers: Vec<(u16, String)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}/v1", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&requests);
        thread::spawn(move || {
            for (status, body) in answers {
                let (stream, _) = listener.accept().expect("a connection");
                let mut reader = BufReader::new(stream);
                let request = request(&mut reader);
                // Record the request before the answer, because a test may read the requests as soon as it
                // has the answer.
                sink.lock().expect("not poisoned").push(request);
                answer(reader.into_inner(), status, &body);
            }
        });
        Self { address, requests }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().expect("not poisoned").clone()
    }
}

/// Reads a request, and returns its body.
fn request(reader: &mut BufReader<TcpStream>) -> Value {
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a head");
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut request = vec![0; length];
    reader.read_exact(&mut request).expect("a body");
    serde_json::from_slice(&request).expect("JSON")
}

fn answer(mut stream: TcpStream, status: u16, body: &str) {
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // The client may have disconnected.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

/// Creates a text answer, as OpenAI streams it.
pub(crate) fn text(words: &str) -> (u16, String) {
    (200, chunks(&[json!({"content": words})], "stop"))
}

/// Creates an answer with tool calls. The arguments of each call come in two pieces.
pub(crate) fn calls(calls: &[(&str, &str)]) -> (u16, String) {
    let pieces = calls.iter().enumerate().flat_map(|(index, (tool, arguments))| {
        let half = arguments.len() / 2;
        let first = json!({"index": index, "id": format!("call-{index}"), "type": "function",
            "function": {"name": tool, "arguments": &arguments[..half]}});
        let second = json!({"index": index, "function": {"arguments": &arguments[half..]}});
        [first, second].map(|call| json!({"tool_calls": [call]}))
    });
    (200, chunks(&pieces.collect::<Vec<_>>(), "tool_calls"))
}

fn chunks(deltas: &[Value], reason: &str) -> String {
    let mut body = String::new();
    let last_delta = [(json!({}), json!(reason))];
    for (delta, reason) in deltas.iter().map(|delta| (delta.clone(), Value::Null)).chain(last_delta) {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "choices": [choice]});
        body.push_str(&format!("data: {chunk}\n\n"));
    }
    body.push_str("data: [DONE]\n\n");
    body
}
