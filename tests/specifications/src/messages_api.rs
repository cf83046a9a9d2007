//! A local server that speaks Anthropic's Messages API: it streams the given answers, one for each request,
//! and keeps the requests.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use serde_json::{json, Value};

/// A received request.
#[derive(Debug)]
pub(crate) struct Request {
    /// Its first line.
    pub(crate) line: String,
    /// Its headers, in lower case, as lines.
    pub(crate) headers: Vec<String>,
    /// Its body.
    pub(crate) body: Value,
}

/// A server that answers as many requests as it has answers.
pub(crate) struct Server {
    /// The server's URL.
    pub(crate) url: String,
    serving: thread::JoinHandle<Vec<Request>>,
}

impl Server {
    /// Starts the server. Each answer is the blocks of one message.
    pub(crate) fn start(answers: Vec<Vec<Block>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let serve = move || answers.iter().map(|answer| serve_one(&listener, answer)).collect();
        Self { url, serving: thread::spawn(serve) }
    }

    /// Returns the requests, after all of them are answered.
    pub(crate) fn requests(self) -> Vec<Request> {
        self.serving.join().expect("no panic")
    }
}

/// A block of a message, in the pieces that are streamed.
pub(crate) enum Block {
    /// Text.
    Text(&'static [&'static str]),
    /// A call: its id, the tool, and the text of its arguments.
    Call(&'static str, &'static str, &'static [&'static str]),
}

fn serve_one(listener: &TcpListener, answer: &[Block]) -> Request {
    let (mut stream, _) = listener.accept().expect("somebody asks");
    let request = read(&stream);
    let body: String = events(answer)
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a type")))
        .collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).expect("taken");
    request
}

fn read(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let line = lines.remove(0);
    let headers: Vec<String> = lines.iter().map(|line| line.to_ascii_lowercase()).collect();
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a length").parse().expect("a number");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    Request { line, headers, body: serde_json::from_slice(&body).expect("JSON") }
}

/// Returns the events of a message ("Streaming messages" of the Messages API).
fn events(answer: &[Block]) -> Vec<Value> {
    let mut events = vec![json!({"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-20250514",
        "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 25, "output_tokens": 1},
    }})];
    let mut stop = "end_turn";
    for (index, block) in answer.iter().enumerate() {
        let (start, deltas): (Value, Vec<Value>) = match block {
            Block::Text(pieces) => {
                let delta = |text: &&str| json!({"type": "text_delta", "text": text});
                (json!({"type": "text", "text": ""}), pieces.iter().map(delta).collect())
            }
            Block::Call(id, name, pieces) => {
                stop = "tool_use";
                let delta = |text: &&str| json!({"type": "input_json_delta", "partial_json": text});
                let start = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                (start, pieces.iter().map(delta).collect())
            }
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop, "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}}));
    events.push(json!({"type": "message_stop"}));
    events
}
