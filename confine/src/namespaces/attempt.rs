//! What a process in namespaces of its own must not reach, made before, and the attempts to reach it.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    os::linux::net::SocketAddrExt as _,
    os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream},
    path::PathBuf,
};

use rustix::{
    fs::{Mode, OFlags},
    process::Pid,
};

use crate::{ConfineError, Evidence, Layer, Outcome, sys::SharedPage};

/// One thing to try, before and after.
pub(super) struct Attempt {
    /// Completes "to …".
    what: &'static str,
    /// What is to come of it, exactly: another error could come from somewhere else.
    refusal: Outcome,
    make: Box<dyn Fn() -> Outcome>,
}

impl Attempt {
    /// Those of a namespace that one enters oneself. The first must succeed before; the others show more where
    /// they do.
    pub(super) fn all(layer: Layer) -> io::Result<Vec<Self>> {
        match layer {
            Layer::IpcNamespace => {
                let page = SharedPage::create()?;
                let find = move || page.find();
                Ok(vec![Self::new("find shared memory by its number", libc::EINVAL, find)])
            }
            Layer::UtsNamespace => {
                let name = machine_name();
                let find = move || outcome(if machine_name() == name { Ok(()) } else { Err(libc::ENOENT) });
                Ok(vec![Self::new("learn the machine's name", libc::ENOENT, find)])
            }
            Layer::NetNamespace => {
                let (listener, address) = abstract_listener()?;
                let abstract_socket = move || {
                    let _heard_by = &listener;
                    of(UnixStream::connect_addr(&address).map(drop))
                };
                let mut attempts = vec![Self::new(
                    "connect to an abstract socket outside",
                    libc::ECONNREFUSED,
                    abstract_socket,
                )];
                // Not everybody may listen, and where there is no loopback nobody is heard.
                if let Ok(listener) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))) {
                    let address = listener.local_addr()?;
                    let connect = move || {
                        let _heard_by = &listener;
                        of(TcpStream::connect(address).map(drop))
                    };
                    attempts.push(Self::new("connect to a port of the machine", libc::ENETUNREACH, connect));
                }
                Ok(attempts)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn outer_process(outer: Pid) -> Self {
        Self::new("find the process outside by its number", libc::ESRCH, move || find(outer))
    }

    /// By what it is: who has no right to look at it sees that as well.
    pub(super) fn root_folder() -> io::Result<Self> {
        let identity = || rustix::fs::stat("/").map(|stat| (stat.st_dev, stat.st_ino));
        let machine = identity()?;
        Ok(Self::new("find the machine's root folder at /", libc::ENOENT, move || {
            outcome(if identity() == Ok(machine) { Ok(()) } else { Err(libc::ENOENT) })
        }))
    }

    pub(super) fn state_by_path(path: PathBuf) -> Self {
        Self::new("open a file of the state folder by its path", libc::ENOENT, move || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            outcome(
                rustix::fs::open(&path, flags, Mode::empty())
                    .map(drop)
                    .map_err(rustix::io::Errno::raw_os_error),
            )
        })
    }

    fn new(what: &'static str, errno: i32, make: impl Fn() -> Outcome + 'static) -> Self {
        Self { what, refusal: Outcome::Failed(errno), make: Box::new(make) }
    }

    pub(super) fn make(&self) -> Outcome {
        (self.make)()
    }

    /// Tries once more, under the layer.
    pub(super) fn proof(&self, layer: Layer, before: Outcome) -> Result<Evidence, ConfineError> {
        let after = self.make();
        if after == self.refusal {
            return Ok(Evidence { layer, canary: self.what.into(), before, after });
        }
        Err(ConfineError::NotRefused { layer, canary: self.what, expected: self.refusal, observed: after })
    }
}

/// Whether there is such a process, for whoever asks.
pub(super) fn find(process: Pid) -> Outcome {
    outcome(rustix::process::test_kill_process(process).map_err(rustix::io::Errno::raw_os_error))
}

/// Gives the machine another name in this namespace.
pub(super) fn rename_machine() -> io::Result<()> {
    let name: &[u8] = if machine_name() == NAME { b"session" } else { NAME };
    Ok(rustix::system::sethostname(name)?)
}

fn machine_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

fn abstract_listener() -> io::Result<(UnixListener, UnixAddr)> {
    // One that nobody else has: a process listens once.
    let name = format!("portcullis-canary-{}", rustix::process::getpid().as_raw_pid());
    for number in 0..16 {
        let address = UnixAddr::from_abstract_name(format!("{name}-{number}"))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok((listener, address)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn of(result: io::Result<()>) -> Outcome {
    outcome(result.map_err(|error| error.raw_os_error().unwrap_or_default()))
}

fn outcome(result: Result<(), i32>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Succeeded)
}

const NAME: &[u8] = b"portcullis";
