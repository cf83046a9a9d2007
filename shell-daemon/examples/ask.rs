//! A client for a running sidecar: `ask SOCKET TOKEN_FILE [TIMEOUT_MS:]COMMAND…` prints a line of JSON with the
//! sidecar's health, then a line for each command. All commands run in one session. The program exits with 1 if a
//! call is refused.

use std::{collections::BTreeMap, env, error::Error, io, io::Write as _, process::ExitCode};

use hyper_util::rt::TokioIo;
use portcullis_shell_protocol::{
    CODE_KEY, CreateSessionRequest, ExecEvent, ExecRequest, Exited, HealthRequest, HealthResponse, Stream,
    VERSION, VERSION_KEY, exec_event::Event, exited::Ending, shell_client::ShellClient,
};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tonic::{Request, Status, Streaming, metadata::MetadataValue, transport::Endpoint};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(socket), Some(token_file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: ask SOCKET TOKEN_FILE [TIMEOUT_MS:]COMMAND…".into());
    };
    let token = std::fs::read_to_string(token_file)?;
    let authorization = MetadataValue::try_from(format!("Bearer {}", token.trim_end()))?;
    let mut stream = Some(UnixStream::connect(socket).await?);
    let connector = tower::service_fn(move |_uri| {
        let stream = stream.take();
        async move { stream.map(TokioIo::new).ok_or_else(|| io::Error::other("the connection is over")) }
    });
    let channel = Endpoint::from_static("http://shell").connect_with_connector(connector).await?;
    let mut shell = ShellClient::with_interceptor(channel, move |mut request: Request<()>| {
        request.metadata_mut().insert("authorization", authorization.clone());
        request.metadata_mut().insert(VERSION_KEY, MetadataValue::from_static(VERSION));
        Ok(request)
    });
    let result = async {
        print_line(&health(shell.health(HealthRequest::default()).await?.into_inner()))?;
        let everything = CreateSessionRequest { all_mounts: true, ..CreateSessionRequest::default() };
        let session_id = shell.create_session(everything).await?.into_inner().session_id;
        for argument in arguments {
            let (timeout_ms, command) = timed(&argument);
            let request = ExecRequest {
                session_id: session_id.clone(),
                command: command.to_owned(),
                timeout_ms,
                ..ExecRequest::default()
            };
            print_line(&finish(shell.exec(request).await?.into_inner()).await?)?;
        }
        Ok::<_, Status>(ExitCode::SUCCESS)
    };
    match result.await {
        Ok(code) => Ok(code),
        Err(status) => {
            let code = status.metadata().get(CODE_KEY).and_then(|code| code.to_str().ok());
            print_line(&json!({ "refused": code, "message": status.message() }))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Splits a command from its timeout. A timeout of 0 means the sidecar's default.
fn timed(argument: &str) -> (u64, &str) {
    let timed = argument.split_once(':').and_then(|(time, command)| Some((time.parse().ok()?, command)));
    timed.unwrap_or((0, argument))
}

fn health(health: HealthResponse) -> Value {
    let posture = health.posture.unwrap_or_default();
    let layers: BTreeMap<_, _> = posture
        .layers
        .into_iter()
        .map(|layer| {
            let evidence: Vec<_> = layer
                .evidence
                .into_iter()
                .map(|seen| format!("{}: {} -> {}", seen.attempt, seen.before, seen.after))
                .collect();
            (layer.name, json!({ "status": layer.status, "reason": layer.reason, "evidence": evidence }))
        })
        .collect();
    json!({
        "version": health.version,
        "posture": posture.posture,
        "summary": posture.summary,
        "uid": posture.uid,
        "layers": layers,
    })
}

/// Reads the events of a started command to its end, and returns the result.
async fn finish(mut stream: Streaming<ExecEvent>) -> Result<Value, Status> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(event) = stream.message().await? {
        match event.event {
            Some(Event::Output(output)) if output.stream() == Stream::Stderr => stderr.extend(output.bytes),
            Some(Event::Output(output)) => stdout.extend(output.bytes),
            Some(Event::Exited(exited)) => return Ok(ended(&exited, &stdout, &stderr)),
            Some(Event::Started(_)) | None => {}
        }
    }
    Err(Status::data_loss("the command has no end"))
}

fn ended(exited: &Exited, stdout: &[u8], stderr: &[u8]) -> Value {
    let (code, signal) = match exited.ending {
        Some(Ending::Code(code)) => (Some(code), None),
        Some(Ending::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    json!({
        "code": code,
        "signal": signal,
        "interruption": exited.interruption,
        "state": exited.state,
        "stdout": String::from_utf8_lossy(stdout),
        "stderr": String::from_utf8_lossy(stderr),
    })
}

fn print_line(line: &Value) -> Result<(), Status> {
    writeln!(io::stdout(), "{line}").map_err(|error| Status::internal(error.to_string()))
}
