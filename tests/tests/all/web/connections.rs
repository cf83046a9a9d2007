//! Connections that `web_fetch` keeps: for the next request of one agent in one run, and for no other.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use portcullis_testing::{World, approving};
use portcullis_tools::{Caller, ToolRegistry, new_call};
use serde_json::json;

use super::server;

/// Serves a connection until the client closes it. Each answer has the numbers of connection and request, from 1.
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
        // The client may have gone.
        let _gone = connection.write_all(answer.as_bytes());
    }
}

/// A server that keeps its connections. Returns its port.
fn keeping() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let mut number = 0;
        for connection in listener.incoming().flatten() {
            // The attempt of a canary connects and goes.
            if connection.peek(&mut [0]).is_ok_and(|there| there > 0) {
                number += 1;
                thread::spawn(move || serve(connection, number));
            }
        }
    });
    port
}

fn caller(agent: &str, run: &str) -> Caller {
    let mut caller = approving();
    agent.clone_into(&mut caller.agent_id);
    run.clone_into(&mut caller.run_id);
    caller
}

/// Without `robots.txt`, whose request would take a connection first.
fn world(server: &server::Server) -> World {
    super::world(server).with_policy_edit("robots        = \"obey\"", "robots = \"ignore\"")
}

async fn fetch(registry: &ToolRegistry, port: u16, caller: &Caller) -> String {
    let call = new_call("web_fetch", json!({ "url": format!("http://127.0.0.1:{port}/") }).to_string());
    registry.execute_with_policy(call, caller).await.outcome.expect("fetched").joined_text()
}

#[tokio::test]
async fn a_connection_stays_with_its_agent_and_run() {
    let port = keeping();
    let world = world(&server::Server::named(port));
    let registry = world.registry().await;
    let one = caller("one", "first");
    assert_eq!(fetch(&registry, port, &one).await, "1.1");
    assert_eq!(fetch(&registry, port, &one).await, "1.2");
    assert_eq!(fetch(&registry, port, &caller("one", "second")).await, "2.1");
    assert_eq!(fetch(&registry, port, &caller("two", "first")).await, "3.1");
    assert_eq!(fetch(&registry, port, &one).await, "1.3");
}

/// Another policy is another registry in the same process: nothing of the first one's is used.
#[tokio::test]
async fn a_connection_does_not_outlive_its_policy() {
    let port = keeping();
    let server = server::Server::named(port);
    let fetched = async |world: World| {
        let registry = world.registry().await;
        fetch(&registry, port, &caller("one", "first")).await
    };
    assert_eq!(fetched(world(&server)).await, "1.1");
    let stricter = world(&server).with_policy_edit("\"10MiB\"", "\"1MiB\"");
    assert_eq!(fetched(stricter).await, "2.1");
}
