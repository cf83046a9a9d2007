//! Takes over the standard streams for the protocol, and makes them async.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{
            fs::{FileTypeExt as _, OpenOptionsExt as _},
            net::UnixStream as StdUnixStream,
        },
    },
    pin::Pin,
    thread::JoinHandle,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::OFlags,
    io::fcntl_dupfd_cloexec,
    stdio,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
};

/// The size of a pump's buffer, in bytes.
const PUMP_BYTES: usize = 64 << 10;

/// The stream of incoming messages.
pub(super) type MessageInput = Pin<Box<dyn AsyncRead + Send>>;
/// The stream of outgoing messages.
pub(super) type MessageOutput = Pin<Box<dyn AsyncWrite + Send>>;

/// Both streams of the protocol.
pub(super) struct McpStreams {
    pub(super) input: MessageInput,
    pub(super) output: MessageOutput,
    /// The thread that writes the output if the stream itself cannot be async. It ends when everything is
    /// written.
    pub(super) pump: Option<JoinHandle<()>>,
}

/// Takes over standard input and output for the protocol. Afterwards, the process's standard input is empty,
/// and its standard output is redirected to standard error.
///
/// # Errors
/// Errors of the system calls.
pub(super) fn take_stdio() -> io::Result<McpStreams> {
    // Duplicate before replacing the originals. Number the copies from 3 on, so that none replaces a standard
    // stream that was closed.
    let input = fcntl_dupfd_cloexec(stdio::stdin(), 3)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), 3)?;
    stdio::dup2_stdin(&OpenOptions::new().read(true).open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    let input = reader(input)?;
    let (output, pump) = writer(output)?;
    Ok(McpStreams { input, output, pump })
}

fn reader(input: OwnedFd) -> io::Result<MessageInput> {
    Ok(match stream_kind(&input, false)? {
        StreamKind::Pipe(pipe) => Box::pin(pipe::Receiver::from_file(pipe)?),
        StreamKind::Socket => Box::pin(socket(input)?),
        StreamKind::Other => {
            let (server_end, mut pump_end) = StdUnixStream::pair()?;
            pump("portcullis-input", move || copy(File::from(input), &mut pump_end))?;
            Box::pin(socket(server_end.into())?)
        }
    })
}

fn writer(output: OwnedFd) -> io::Result<(MessageOutput, Option<JoinHandle<()>>)> {
    Ok(match stream_kind(&output, true)? {
        StreamKind::Pipe(pipe) => (Box::pin(pipe::Sender::from_file(pipe)?), None),
        StreamKind::Socket => (Box::pin(socket(output)?), None),
        StreamKind::Other => {
            let (server_end, pump_end) = StdUnixStream::pair()?;
            let pump = pump("portcullis-output", move || copy(pump_end, &mut File::from(output)))?;
            (Box::pin(socket(server_end.into())?), Some(pump))
        }
    })
}

/// The kind of a stream.
enum StreamKind {
    /// A pipe, opened again by this process.
    Pipe(File),
    Socket,
    /// Any other stream, which a thread copies: a file, a terminal, or another user's pipe, which this
    /// process may not reopen.
    Other,
}

fn stream_kind(stream: &OwnedFd, writes: bool) -> io::Result<StreamKind> {
    let kind = File::from(stream.try_clone()?).metadata()?.file_type();
    Ok(if kind.is_fifo() {
        match reopen(stream, writes) {
            // The pipe belongs to another user, as under `sudo -u`.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => StreamKind::Other,
            reopened => StreamKind::Pipe(reopened?),
        }
    } else if kind.is_socket() {
        StreamKind::Socket
    } else {
        StreamKind::Other
    })
}

/// Reopens a pipe. The new open file description is separate, so `O_NONBLOCK` does not affect other holders
/// of the pipe.
fn reopen(stream: &impl AsFd, writes: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", stream.as_fd().as_raw_fd());
    // Cannot fail: the flag is a low bit.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().read(!writes).write(writes).custom_flags(flags).open(path)
}

fn socket(stream: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(stream);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Copies on a separate thread, until the end of the input.
fn pump(name: &str, copy: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Ignore the result: the end of the thread closes the stream in either case.
    thread.spawn(move || drop(copy()))
}

/// Copies each piece as soon as it can be read.
///
/// `std::io::copy` cannot be used: between a socket and a pipe it calls `splice`, which holds the pipe's lock
/// while it waits for the socket. In that time, data already in the pipe cannot be read.
fn copy(mut source: impl Read + AsFd, sink: &mut (impl Write + AsFd)) -> io::Result<()> {
    let mut buffer = vec![0; PUMP_BYTES];
    loop {
        let mut piece = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => &buffer[..count],
            Err(error) => {
                recover(error, &source, PollFlags::IN)?;
                continue;
            }
        };
        while !piece.is_empty() {
            match sink.write(piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => piece = &piece[count..],
                Err(error) => recover(error, sink, PollFlags::OUT)?,
            }
        }
    }
}

/// Handles an error of a read or write. If another holder has made the stream non-blocking, waits until it is
/// ready.
///
/// # Errors
/// Any other error, unchanged.
fn recover(error: io::Error, stream: &impl AsFd, ready: PollFlags) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => match poll(&mut [PollFd::new(stream, ready)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        },
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pump_hands_on_each_piece_before_the_next_one_comes() {
        let (server_end, pump_end) = StdUnixStream::pair().expect("a pair");
        let (read, write) = io::pipe().expect("a pipe");
        let pumping = std::thread::spawn(move || copy(pump_end, &mut File::from(OwnedFd::from(write))));
        let mut read = File::from(OwnedFd::from(read));
        let mut server_end = server_end;
        for piece in [&b"one"[..], b"two", b"three"] {
            server_end.write_all(piece).expect("written");
            let mut received = vec![0; piece.len()];
            // Send the next piece only after this one has arrived.
            read.read_exact(&mut received).expect("handed on");
            assert_eq!(received, piece);
        }
        drop(server_end);
        pumping.join().expect("no panic").expect("ends with its input");
        assert_eq!(read.read(&mut [0; 1]).expect("the end"), 0);
    }

    #[test]
    fn a_pump_waits_for_streams_that_do_not_block() {
        let (source_end, mut feed) = io::pipe().expect("a pipe");
        let (mut sink, sink_end) = io::pipe().expect("a pipe");
        for end in [source_end.as_fd(), sink_end.as_fd()] {
            rustix::fs::fcntl_setfl(end, OFlags::NONBLOCK).expect("set");
        }
        let sent = vec![7_u8; 4 * PUMP_BYTES];
        let expected = sent.clone();
        let feeding = std::thread::spawn(move || feed.write_all(&sent));
        let pumping = std::thread::spawn(move || {
            let mut sink_end = sink_end;
            copy(source_end, &mut sink_end)
        });
        let mut received = Vec::new();
        sink.read_to_end(&mut received).expect("read");
        assert_eq!(received, expected);
        feeding.join().expect("no panic").expect("written");
        pumping.join().expect("no panic").expect("ends");
    }

    /// Standard streams that another user created, such as those that `sudo -u` passes on.
    #[test]
    fn a_pipe_that_may_not_be_opened_again_is_read_as_a_file_is() {
        let (server_end, _pump_end) = rustix::pipe::pipe().expect("a pipe");
        assert!(matches!(stream_kind(&server_end, false), Ok(StreamKind::Pipe(_))));
        let unprivileged = std::thread::spawn(move || {
            let nobody = rustix::thread::Uid::from_raw(65534);
            // Only root can change the user; this affects only this thread.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody)
                .ok()
                .map(|()| stream_kind(&server_end, false))
        });
        if let Some(kind) = unprivileged.join().expect("no panic") {
            assert!(matches!(kind, Ok(StreamKind::Other)));
        }
    }
}
