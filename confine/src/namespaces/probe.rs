//! Creates the targets that a process in namespaces must not reach, and makes the attempts to reach them.

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

use crate::{ConfineError, Evidence, Layer, SyscallOutcome, sys::SharedPage};

/// An attempt that is made before and after its namespace is entered.
pub(super) struct NamespaceProbe {
    /// The attempt in words, to follow "to".
    description: &'static str,
    /// The exact refusal. Any other error could have another cause.
    refusal: SyscallOutcome,
    attempt: Box<dyn Fn() -> SyscallOutcome>,
}

impl NamespaceProbe {
    /// Returns the attempts for a namespace that a process enters by itself. The first attempt must succeed
    /// before the namespace is entered. Each further attempt that succeeds gives more evidence.
    pub(super) fn for_layer(layer: Layer) -> io::Result<Vec<Self>> {
        match layer {
            Layer::IpcNamespace => {
                let page = SharedPage::create()?;
                let find = move || page.find();
                Ok(vec![Self::new("find shared memory by its number", libc::EINVAL, find)])
            }
            Layer::UtsNamespace => {
                let name = machine_name();
                let find = move || {
                    outcome_from_errno(if machine_name() == name { Ok(()) } else { Err(libc::ENOENT) })
                };
                Ok(vec![Self::new("learn the machine's name", libc::ENOENT, find)])
            }
            Layer::NetNamespace => {
                let (listener, address) = abstract_listener()?;
                let abstract_socket = move || {
                    // Moving the listener into the closure keeps it open.
                    let _kept_listener = &listener;
                    outcome_from_io(UnixStream::connect_addr(&address).map(drop))
                };
                let mut attempts = vec![Self::new(
                    "connect to an abstract socket outside",
                    libc::ECONNREFUSED,
                    abstract_socket,
                )];
                // Skipped if the process may not listen. Without a loopback device the attempt already fails
                // before the namespace is entered, and proves nothing.
                if let Ok(listener) = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))) {
                    let address = listener.local_addr()?;
                    let connect = move || {
                        let _kept_listener = &listener;
                        outcome_from_io(TcpStream::connect(address).map(drop))
                    };
                    attempts.push(Self::new("connect to a port of the machine", libc::ENETUNREACH, connect));
                }
                Ok(attempts)
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn outer_process(outer: Pid) -> Self {
        Self::new("find the process outside by its number", libc::ESRCH, move || try_find_process(outer))
    }

    /// Compares the folder's identity, which needs no permission to read the folder.
    pub(super) fn root_folder() -> io::Result<Self> {
        let identity = || rustix::fs::stat("/").map(|stat| (stat.st_dev, stat.st_ino));
        let machine_root = identity()?;
        Ok(Self::new("find the machine's root folder at /", libc::ENOENT, move || {
            outcome_from_errno(if identity() == Ok(machine_root) { Ok(()) } else { Err(libc::ENOENT) })
        }))
    }

    pub(super) fn state_by_path(path: PathBuf) -> Self {
        Self::new("open a file of the state folder by its path", libc::ENOENT, move || {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            outcome_from_errno(
                rustix::fs::open(&path, flags, Mode::empty())
                    .map(drop)
                    .map_err(rustix::io::Errno::raw_os_error),
            )
        })
    }

    fn new(description: &'static str, errno: i32, make: impl Fn() -> SyscallOutcome + 'static) -> Self {
        Self { description, refusal: SyscallOutcome::Failed(errno), attempt: Box::new(make) }
    }

    pub(super) fn run(&self) -> SyscallOutcome {
        (self.attempt)()
    }

    /// Repeats the attempt under the layer.
    pub(super) fn proof(&self, layer: Layer, before: SyscallOutcome) -> Result<Evidence, ConfineError> {
        let after = self.run();
        if after == self.refusal {
            return Ok(Evidence { layer, probe: self.description.into(), before, after });
        }
        Err(ConfineError::NotRefused {
            layer,
            probe: self.description,
            expected: self.refusal,
            observed: after,
        })
    }

    /// Repeats an attempt on the network in a namespace that has a loopback device. In this namespace
    /// 127.0.0.1 has a route, but nothing listens on the attempt's port.
    pub(super) fn proof_with_loopback(&self, before: SyscallOutcome) -> Result<Evidence, ConfineError> {
        let (layer, expected) = (Layer::NetNamespace, SyscallOutcome::Failed(libc::ECONNREFUSED));
        let after = self.run();
        if after != expected {
            return Err(ConfineError::NotRefused {
                layer,
                probe: self.description,
                expected,
                observed: after,
            });
        }
        let probe = format!("{}, beside a loopback device", self.description).into();
        Ok(Evidence { layer, probe, before, after })
    }
}

/// Tests whether the calling process can find this process.
pub(super) fn try_find_process(process: Pid) -> SyscallOutcome {
    outcome_from_errno(rustix::process::test_kill_process(process).map_err(rustix::io::Errno::raw_os_error))
}

/// Changes the host name in this namespace.
pub(super) fn rename_machine() -> io::Result<()> {
    let name: &[u8] = if machine_name() == MACHINE_NAME { b"session" } else { MACHINE_NAME };
    Ok(rustix::system::sethostname(name)?)
}

fn machine_name() -> Vec<u8> {
    rustix::system::uname().nodename().to_bytes().to_vec()
}

fn abstract_listener() -> io::Result<(UnixListener, UnixAddr)> {
    // Numbered, because another thread or process may already listen on the first names.
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

fn outcome_from_io(result: io::Result<()>) -> SyscallOutcome {
    outcome_from_errno(result.map_err(|error| error.raw_os_error().unwrap_or_default()))
}

fn outcome_from_errno(result: Result<(), i32>) -> SyscallOutcome {
    result.map_or_else(SyscallOutcome::Failed, |()| SyscallOutcome::Succeeded)
}

const MACHINE_NAME: &[u8] = b"portcullis";
