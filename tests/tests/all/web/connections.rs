//! Connections that `web_fetch` keeps for the next request of the same agent in the same run.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{Caller, ToolRegistry, new_call};
use serde_json::json;

use super::server;

/// Serves a connection until the client closes it. Each answer is the number of the connection, and the number of the
/// request on it, from 1.
fn serve(mut connection: TcpStream, number: usize) {
    let mut lines = BufReader::new(connection.try_clone().expect("clones")).lines();
    for request in 1.. {
        let mut head = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
        if head.next().is_none() {
            return;
        }
        head.for_each(drop);
        let body = format!("{number}.{request}");
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // The client may have closed the connection.
        let _ignored = connection.write_all(answer.as_bytes());
    }
}

/// Starts a server that keeps its connections, and returns its port.
fn start_keeping_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let mut number = 0;
        for connection in listener.incoming().flatten() {
            // A canary's attempt connects and sends nothing, so it does not count.
            if connection.peek(&mut [0]).is_ok_and(|available| available > 0) {
                number += 1;
                thread::spawn(move || serve(connection, number));
            }
        }
    });
    port
}

fn caller(agent: &str, run: &str) -> Caller {
    let mut caller = approving_caller();
    agent.clone_into(&mut caller.agent_id);
    run.clone_into(&mut caller.run_id);
    caller
}

/// Creates a fixture that ignores `robots.txt`, because the request for that file would use a connection
/// first.
fn fixture(server: &server::Server) -> Fixture {
    super::fixture(server).with_policy_key("egress.robots", "\"ignore\"")
}

async fn fetch(registry: &ToolRegistry, port: u16, caller: &Caller) -> String {
    let call = new_call("web_fetch", json!({ "url": format!("http://127.0.0.1:{port}/") }).to_string());
    registry.execute_with_policy(call, caller).await.into_result().expect("fetched").joined_text()
}

#[tokio::test]
async fn a_connection_stays_with_its_agent_and_run() {
    let port = start_keeping_server();
    let fixture = fixture(&server::Server::for_port(port));
    let registry = fixture.registry().await;
    let first_caller = caller("one", "first");
    assert_eq!(fetch(&registry, port, &first_caller).await, "1.1");
    assert_eq!(fetch(&registry, port, &first_caller).await, "1.2");
    assert_eq!(fetch(&registry, port, &caller("one", "second")).await, "2.1");
    assert_eq!(fetch(&registry, port, &caller("two", "first")).await, "3.1");
    assert_eq!(fetch(&registry, port, &first_caller).await, "1.3");
}

/// A registry under another policy, in the same process, does not reuse a connection of the first registry.
#[tokio::test]
async fn a_connection_does_not_outlive_its_policy() {
    let port = start_keeping_server();
    let server = server::Server::for_port(port);
    let fetched = async |fixture: Fixture| {
        let registry = fixture.registry().await;
        fetch(&registry, port, &caller("one", "first")).await
    };
    assert_eq!(fetched(fixture(&server)).await, "1.1");
    let stricter = fixture(&server).with_policy_edit("\"10MiB\"", "\"1MiB\"");
    assert_eq!(fetched(stricter).await, "2.1");
}
