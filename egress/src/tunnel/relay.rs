//! Carries the bytes of a tunnel both ways.
//!
//! Each direction ends separately: a side that has sent everything may still receive. Each direction has one
//! buffer, so a side that does not read stops the other (backpressure).

use std::{cell::Cell, io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    time::{Instant, sleep_until},
};

use super::{TunnelEnd, TunnelFacts, TunnelWatch};

/// Carries bytes until both sides have finished, or neither has sent any for `idle`. `hello` is the inner
/// side's first message.
pub(super) async fn both_ways(
    mut inner: TcpStream,
    mut outer: TcpStream,
    hello: Vec<u8>,
    idle: Duration,
    watch: &TunnelWatch,
) -> io::Result<TunnelEnd> {
    let (inner_read, inner_write) = inner.split();
    let (outer_read, outer_write) = outer.split();
    let last = Cell::new(Instant::now());
    let note = |count: fn(&mut TunnelFacts) -> &mut u64| {
        let last = &last;
        move |bytes: usize| {
            *count(&mut watch.lock()) += bytes as u64;
            last.set(Instant::now());
        }
    };
    let up = one_way(hello, inner_read, outer_write, note(|facts| &mut facts.sent));
    let down = one_way(Vec::new(), outer_read, inner_write, note(|facts| &mut facts.received));
    tokio::select! {
        // An end that coincides with the time limit counts as an end.
        biased;
        ended = async { tokio::try_join!(up, down) } => ended.map(|_both| TunnelEnd::Closed),
        () = silence(&last, idle) => Ok(TunnelEnd::Idle),
    }
}

async fn one_way(
    first: Vec<u8>,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    note: impl Fn(usize),
) -> io::Result<()> {
    to.write_all(&first).await?;
    note(first.len());
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return match to.shutdown().await {
                // The other side has closed before.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                ended => ended,
            };
        }
        to.write_all(&buffer[..read]).await?;
        note(read);
    }
}

/// Waits until the last byte is this old.
async fn silence(last: &Cell<Instant>, idle: Duration) {
    loop {
        let end = last.get() + idle;
        if Instant::now() >= end {
            return;
        }
        sleep_until(end).await;
    }
}

const BUFFER_BYTES: usize = 16 << 10;
