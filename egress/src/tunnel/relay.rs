//! Carries the bytes of a tunnel in both directions.
//!
//! Each direction ends separately: a side that has sent everything may still receive. Each direction has one
//! buffer, so a side that does not read stalls the other (backpressure).

use std::{cell::Cell, io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::{Instant, sleep_until},
};

use super::{TunnelEnd, TunnelReport, TunnelWatch};

/// Carries bytes until both sides have finished, or neither has sent a byte for `idle`. `hello` is the
/// client's first TLS message, which is sent to the server first.
pub(super) async fn relay_both_ways(
    mut client_stream: TcpStream,
    mut server_stream: TcpStream,
    hello: Vec<u8>,
    idle: Duration,
    watch: &TunnelWatch,
) -> io::Result<TunnelEnd> {
    let (client_read, client_write) = client_stream.split();
    let (server_read, server_write) = server_stream.split();
    let last_activity = Cell::new(Instant::now());
    let note = |count: fn(&mut TunnelReport) -> &mut u64| {
        let last_activity = &last_activity;
        move |bytes: usize| {
            *count(&mut watch.lock()) += bytes as u64;
            last_activity.set(Instant::now());
        }
    };
    let to_server = relay_one_way(hello, client_read, server_write, note(|report| &mut report.sent));
    let to_client = relay_one_way(Vec::new(), server_read, client_write, note(|report| &mut report.received));
    tokio::select! {
        // `biased`: if the end and the idle timeout are ready together, the end wins.
        biased;
        ended = async { tokio::try_join!(to_server, to_client) } => ended.map(|_both| TunnelEnd::Closed),
        () = wait_until_idle(&last_activity, idle) => Ok(TunnelEnd::Idle),
    }
}

async fn relay_one_way(
    first_bytes: Vec<u8>,
    mut reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    note: impl Fn(usize),
) -> io::Result<()> {
    writer.write_all(&first_bytes).await?;
    note(first_bytes.len());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = reader.read(&mut buffer).await?;
        if length == 0 {
            return match writer.shutdown().await {
                // The other side has already closed the connection.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                ended => ended,
            };
        }
        writer.write_all(&buffer[..length]).await?;
        note(length);
    }
}

/// Waits until no byte has been carried for `idle`.
async fn wait_until_idle(last_activity: &Cell<Instant>, idle: Duration) {
    loop {
        // Activity during the sleep moves the end, so compute it again.
        let idle_end = last_activity.get() + idle;
        if Instant::now() >= idle_end {
            return;
        }
        sleep_until(idle_end).await;
    }
}

const BUFFER_BYTES: usize = 16 << 10;
