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
    Ok(match kind(&input, false)? {
        Kind::Pipe(pipe) => Box::pin(pipe::Receiver::from_file(pipe)?),
        Kind::Socket => Box::pin(socket(input)?),
        Kind::Other => {
            let (ours, mut theirs) = StdUnixStream::pair()?;
            pump("portcullis-input", move || io::copy(&mut File::from(input), &mut theirs))?;
            Box::pin(socket(ours.into())?)
        }
    })
}

fn writer(output: OwnedFd) -> io::Result<(Output, Option<JoinHandle<()>>)> {
    Ok(match kind(&output, true)? {
        Kind::Pipe(pipe) => (Box::pin(pipe::Sender::from_file(pipe)?), None),
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
    /// A pipe, opened once more.
    Pipe(File),
    Socket,
    /// What cannot be waited for: a file, a terminal, or a pipe of another user's, which may not be opened again.
    Other,
}

fn kind(stream: &OwnedFd, writes: bool) -> io::Result<Kind> {
    let kind = File::from(stream.try_clone()?).metadata()?.file_type();
    Ok(if kind.is_fifo() {
        match reopened(stream, writes) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Kind::Other,
            reopened => Kind::Pipe(reopened?),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard streams that another user has made, as `sudo -u` hands them on.
    #[test]
    fn a_pipe_that_may_not_be_opened_again_is_read_as_a_file_is() {
        let (ours, _theirs) = rustix::pipe::pipe().expect("a pipe");
        assert!(matches!(kind(&ours, false), Ok(Kind::Pipe(_))));
        let as_another = std::thread::spawn(move || {
            let nobody = rustix::thread::Uid::from_raw(65534);
            // Only root becomes another, and only this thread does.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok().map(|()| kind(&ours, false))
        });
        if let Some(kind) = as_another.join().expect("no panic") {
            assert!(matches!(kind, Ok(Kind::Other)));
        }
    }
}
