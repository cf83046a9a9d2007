//! The standard streams as the protocol's own: taken away from the rest of the process, and made async.

use std::{
    fs::{File, OpenOptions},
    io,
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

use rustix::{fs::OFlags, io::fcntl_dupfd_cloexec, stdio};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
};

/// What messages come by.
pub(super) type Input = Pin<Box<dyn AsyncRead + Send>>;
/// What answers go by.
pub(super) type Output = Pin<Box<dyn AsyncWrite + Send>>;

/// The streams of the protocol.
pub(super) struct Streams {
    pub(super) input: Input,
    pub(super) output: Output,
    /// Writes what goes out, where that is not async by itself; ends when all is written.
    pub(super) pump: Option<JoinHandle<()>>,
}

/// Takes standard input and output for the protocol. Afterwards the process's standard input is empty and its
/// standard output leads to standard error.
///
/// # Errors
/// What the system says.
pub(super) fn take() -> io::Result<Streams> {
    let input = fcntl_dupfd_cloexec(stdio::stdin(), 3)?;
    let output = fcntl_dupfd_cloexec(stdio::stdout(), 3)?;
    stdio::dup2_stdin(&OpenOptions::new().read(true).open("/dev/null")?)?;
    stdio::dup2_stdout(stdio::stderr())?;
    let input = reader(input)?;
    let (output, pump) = writer(output)?;
    Ok(Streams { input, output, pump })
}

fn reader(input: OwnedFd) -> io::Result<Input> {
    Ok(match kind(&input)? {
        Kind::Pipe => Box::pin(pipe::Receiver::from_file(reopened(&input, false)?)?),
        Kind::Socket => Box::pin(socket(input)?),
        Kind::Other => {
            let (ours, mut theirs) = StdUnixStream::pair()?;
            pump("portcullis-input", move || io::copy(&mut File::from(input), &mut theirs))?;
            Box::pin(socket(ours.into())?)
        }
    })
}

fn writer(output: OwnedFd) -> io::Result<(Output, Option<JoinHandle<()>>)> {
    Ok(match kind(&output)? {
        Kind::Pipe => (Box::pin(pipe::Sender::from_file(reopened(&output, true)?)?), None),
        Kind::Socket => (Box::pin(socket(output)?), None),
        Kind::Other => {
            let (ours, mut theirs) = StdUnixStream::pair()?;
            let pump = pump("portcullis-output", move || io::copy(&mut theirs, &mut File::from(output)))?;
            (Box::pin(socket(ours.into())?), Some(pump))
        }
    })
}

/// What a stream is.
enum Kind {
    Pipe,
    Socket,
    /// A file or a terminal, which cannot be waited for.
    Other,
}

fn kind(stream: &OwnedFd) -> io::Result<Kind> {
    let kind = File::from(stream.try_clone()?).metadata()?.file_type();
    Ok(if kind.is_fifo() {
        Kind::Pipe
    } else if kind.is_socket() {
        Kind::Socket
    } else {
        Kind::Other
    })
}

/// The same pipe under an open file description of its own, so that whoever else holds it is not made not to block.
fn reopened(stream: &impl AsFd, writes: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", stream.as_fd().as_raw_fd());
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    OpenOptions::new().read(!writes).write(writes).custom_flags(flags).open(path)
}

fn socket(stream: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(stream);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Copies on a thread of its own until there is nothing more.
fn pump(name: &str, copy: impl FnOnce() -> io::Result<u64> + Send + 'static) -> io::Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Its end is the end of the stream; a stream that breaks ends too.
    thread.spawn(move || drop(copy()))
}
