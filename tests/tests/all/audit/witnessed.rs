//! Checkpoints that a witness signs, through the program and a server on this machine.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signer as _, SigningKey};
use portcullis_testing::{Fixture, binary};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const NAME: &str = "witness.example/w1";

/// How the server answers.
#[derive(Clone, Copy)]
enum Mood {
    Signs,
    /// With a signature of another key.
    Lies,
    /// Never.
    Hangs,
}

struct Witness {
    signing: SigningKey,
    mood: Mutex<Mood>,
    /// The number of rows of the last signed checkpoint.
    seen: Mutex<u64>,
    bodies: Mutex<Vec<String>>,
    port: u16,
}

impl Witness {
    fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let witness = Arc::new(Self {
            signing: SigningKey::from_bytes(&[3; 32]),
            mood: Mutex::new(Mood::Signs),
            seen: Mutex::default(),
            bodies: Mutex::default(),
            port: listener.local_addr().expect("an address").port(),
        });
        let serving = Arc::clone(&witness);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(connection));
            }
        });
        witness
    }

    fn key(&self) -> String {
        let encoded = [&[4][..], self.signing.verifying_key().as_bytes()].concat();
        format!("{NAME}+{}+{}", hex::encode(self.id()), BASE64.encode(encoded))
    }

    fn id(&self) -> [u8; 4] {
        let encoded = [format!("{NAME}\n\u{4}").as_bytes(), self.signing.verifying_key().as_bytes()].concat();
        Sha256::digest(encoded)[..4].try_into().expect("four bytes")
    }

    fn serve(&self, connection: TcpStream) {
        let mut reader = BufReader::new(connection);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_err() || line.trim().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a number");
            }
            head += &line;
        }
        assert!(head.starts_with("POST /w/add-checkpoint HTTP/1.1"), "{head}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body");
        let body = String::from_utf8(body).expect("the output is UTF-8");
        let answer = self.answer(&body);
        self.bodies.lock().expect("not poisoned").push(body);
        let Some((status, body)) = answer else {
            thread::park();
            return;
        };
        let head =
            format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = reader.get_mut().write_all((head + &body).as_bytes());
    }

    fn answer(&self, body: &str) -> Option<(u16, String)> {
        let (head, note) = body.split_once("\n\n").expect("an empty line");
        let old: u64 =
            head.lines().next().and_then(|line| line.strip_prefix("old ")?.parse().ok()).expect("old");
        let mut seen = self.seen.lock().expect("not poisoned");
        if old != *seen {
            return Some((409, format!("{seen}\n")));
        }
        let signing = match *self.mood.lock().expect("not poisoned") {
            Mood::Signs => self.signing.clone(),
            Mood::Lies => SigningKey::from_bytes(&[4; 32]),
            Mood::Hangs => return None,
        };
        let text = note.split_once("\n\n").expect("a note").0.to_owned() + "\n";
        *seen = text.lines().nth(1).expect("a size").parse().expect("a size");
        let time = 1_800_000_000_u64;
        let signature = signing.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
        let bytes = [&self.id()[..], &time.to_be_bytes(), &signature.to_bytes()].concat();
        Some((200, format!("— {NAME} {}\n", BASE64.encode(bytes))))
    }

    fn fixture(&self) -> Fixture {
        let keys = format!("[audit]\ncheckpoints = [\"http://127.0.0.1:{}/w/ {}\"]\n", self.port, self.key());
        let fixture = Fixture::new().with_policy_edit("[audit]\n", &keys);
        fixture.put("a.txt", "a\n");
        fixture
    }

    fn requests(&self) -> usize {
        self.bodies.lock().expect("not poisoned").len()
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().expect("not poisoned") = mood;
    }
}

#[expect(clippy::disallowed_methods, reason = "the program under test")]
fn run(fixture: &Fixture, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).args(fixture.options()).stdin(Stdio::null()).output().expect("runs")
}

fn call(fixture: &Fixture) -> String {
    let output = run(fixture, &["call", "file_read", r#"{"path": "a.txt"}"#]);
    assert_eq!(output.stdout, b"a\n", "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn verify(fixture: &Fixture, witness: &Witness) -> (Option<i32>, String) {
    let output = run(fixture, &["audit", "verify", "--witness", &witness.key()]);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn verify_requires_the_signature_of_a_witness() {
    let witness = Witness::start();
    let fixture = witness.fixture();
    call(&fixture);
    call(&fixture);
    assert_eq!(witness.requests(), 2);
    let bodies = witness.bodies.lock().expect("not poisoned").clone();
    assert!(bodies[0].starts_with("old 0\n\nportcullis/"), "{}", bodies[0]);
    // The second request has a consistency proof between the sizes.
    assert!(bodies[1].starts_with("old 3\n") && !bodies[1].starts_with("old 3\n\n"), "{}", bodies[1]);
    let (code, shown) = verify(&fixture, &witness);
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown
            .contains("witness witness.example/w1: has signed the rows up to row 7, at 2027-01-15T08:00:00Z"),
        "{shown}"
    );
    let output = run(&fixture, &["audit", "verify", "--json", "--witness", &witness.key()]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["witnesses"][0]["rows"], 7);
    // The other witness has signed nothing.
    let other = witness.key().replace("w1+", "w2+");
    let output = run(&fixture, &["audit", "verify", "--witness", &other]);
    assert_eq!(output.status.code(), Some(2), "the identifier is not that of the name: {output:?}");
}

#[test]
fn a_log_rewritten_with_its_own_key_is_noticed_by_the_witness() {
    let witness = Witness::start();
    let fixture = witness.fixture();
    call(&fixture);
    call(&fixture);
    for name in ["audit.jsonl", "audit.checkpoint", "audit.witnesses"] {
        let path = fixture.state().join(name);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).expect("removed");
    }
    let shown = call(&fixture);
    assert!(
        shown.contains("a checkpoint of the audit log is not witnessed")
            && shown
                .contains("the witness has seen 7 rows of this log, which has 4: rows were cut off its end"),
        "{shown}"
    );
    assert_eq!(verify(&fixture, &witness).0, Some(1));
}

#[test]
fn a_witness_that_lies_or_hangs_or_is_gone_stops_no_call() {
    let witness = Witness::start();
    let fixture = witness.fixture();
    witness.set(Mood::Lies);
    let shown = call(&fixture);
    assert!(shown.contains("the answer of the witness has no valid signature of its key"), "{shown}");
    assert!(!fixture.state().join("audit.witnesses").exists());
    let (code, shown) = verify(&fixture, &witness);
    assert!(code == Some(1) && shown.contains("has signed no checkpoint that holds"), "{shown}");

    witness.set(Mood::Hangs);
    let shown = call(&fixture);
    assert!(shown.contains("a witness has not answered yet"), "{shown}");
    assert_eq!(run(&fixture, &["audit", "verify"]).status.code(), Some(0));

    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let gone = format!("[audit]\ncheckpoints = [\"http://127.0.0.1:{port} {}\"]\n", witness.key());
    let fixture = Fixture::new().with_policy_edit("[audit]\n", &gone);
    fixture.put("a.txt", "a\n");
    let shown = call(&fixture);
    assert!(shown.contains("a checkpoint of the audit log is not witnessed"), "{shown}");
}

#[test]
fn a_witness_with_a_wrong_address_or_key_stops_the_start() {
    for (place, expected) in [
        (
            "https://w.example",
            "audit.checkpoints[0]: write the key of the witness behind its URL and a space",
        ),
        (
            "https://w.example w",
            "audit.checkpoints[0]: write the key of the witness behind its URL and a space",
        ),
        (
            "https://w.example?a w+00112233+BAAA",
            "audit.checkpoints[0]: the witness's URL has a query (`?`) or a fragment (`#`)",
        ),
        ("https://u:p@w.example w+00112233+BAAA", "audit.checkpoints[0]: "),
        ("https://w.example w+00112233+BAAA", "`w+00112233+BAAA` is not the key of a witness"),
    ] {
        let keys = format!("[audit]\ncheckpoints = [\"{place}\"]\n");
        let fixture = Fixture::new().with_policy_edit("[audit]\n", &keys);
        let output = run(&fixture, &["call", "file_read", r#"{"path": "a.txt"}"#]);
        let shown = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && shown.contains(expected), "{place}: {shown}");
        assert!(!fixture.state().join("audit.jsonl").exists(), "{place}");
    }
}
