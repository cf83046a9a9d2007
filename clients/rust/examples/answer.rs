//! Answers the calls of an agent until Ctrl-C. It reads the token from the environment:
//! `PORTCULLIS_TOKEN=pct_… cargo run --package portcullis-client --example answer -- http://127.0.0.1:8810 agt_…`

use std::{env, error::Error, io};

use portcullis_client::{ClientError, Gateway, Worker};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Query {
    query: String,
}

#[derive(Serialize)]
struct Found {
    results: Vec<String>,
}

async fn fetch(args: Query) -> io::Result<Found> {
    Ok(Found { results: find(&args.query)? })
}

async fn answer(url: &str, token: &str, agent: &str) -> Result<(), ClientError> {
    let gateway = Gateway::new(url, token)?;
    let worker = Worker::new(gateway).tool("fetchExternalData", fetch);
    let interrupted = async { _ = tokio::signal::ctrl_c().await };
    worker.run(agent, interrupted).await
}

/// A stand-in for the other system.
fn find(query: &str) -> io::Result<Vec<String>> {
    if query.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty query finds nothing"));
    }
    Ok(vec![query.to_uppercase()])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [url, agent] = <[String; 2]>::try_from(env::args().skip(1).collect::<Vec<_>>())
        .map_err(|given| format!("two arguments are needed, URL and AGENT, not {}", given.len()))?;
    Ok(answer(&url, &env::var("PORTCULLIS_TOKEN")?, &agent).await?)
}
