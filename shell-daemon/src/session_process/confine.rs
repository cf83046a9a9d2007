//! Confines a session's first process, and makes its report.

use std::{
    error::Error,
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
};

use portcullis_confine::{
    Bind, CanaryFile, ConfineError, FileTree, Layer, LayerReport, LayerStatus, NamespacedProcess, Namespaces,
    NetworkRules, PathRule, ProcessConfinement, ProcessPosture, Requirement, SingleThreaded,
    confine_current_process, probe_kernel,
};
use rustix::{
    fs::{Mode, OFlags},
    process::DumpableBehavior,
};

use portcullis_types::ShellPosture;

use crate::{
    PostureChoice, SessionPosture,
    network::{CERTIFICATES, PORT},
    wire::{FromSession, LayerPlan, NetworkAbsence, SessionReady, SessionSetup},
};

/// The reason why a session has no network.
pub(crate) const NOT_STRONG: &str = "only sessions of the posture `strong` have a network";

/// Confines the calling process according to its setup. Returns the answer, and the listeners that go to the
/// sidecar with it: one for the network, if the session has a network, and one for changes. After a refusal
/// the process must end.
pub(super) fn confine(
    setup: &SessionSetup,
    handles: Vec<OwnedFd>,
    namespaces: Namespaces,
    group: LayerReport,
    one_thread: &SingleThreaded,
) -> (FromSession, Vec<OwnedFd>) {
    let LayerPlan::Layers { waived, .. } = &setup.plan else {
        let posture = ProcessPosture::new(Vec::new());
        let network = setup.network.then(|| Err(NetworkAbsence::new(&NOT_STRONG)));
        let ready = SessionReady {
            posture,
            has_tree: false,
            protected: 0,
            user: None,
            network,
            watches_changes: false,
        };
        return (FromSession::Ready(ready), Vec::new());
    };
    // The handles are closed at the end of this function: no command inherits one.
    let (canary, binds, files) = match take_parts(setup, handles) {
        Ok(parts) => parts,
        Err(error) => return (refusal_message(&error, false), Vec::new()),
    };
    let (mut binds, caches) = split_caches(binds, setup.caches);
    let copies = caches.iter().map(|cache| &cache.copy);
    let (mounts, system) = binds.split_at(setup.mounts.len());
    let (system, toolchain) = system.split_at(system.len() - setup.toolchain);
    let tree = FileTree {
        mounts: mounts.iter().chain(copies).cloned().collect(),
        system: system.to_vec(),
        toolchain: toolchain.to_vec(),
        read_only: setup.protected.clone(),
        pinned: setup.fixed.clone(),
        covered: setup.hidden.clone(),
        files,
        // Files of a project may name the project by its path on the machine, such as the scripts of Python's virtual
        // environments.
        symlinks: setup
            .paths
            .get(setup.home)
            .map(|home| (home.path.clone(), home.target.clone()))
            .into_iter()
            .collect(),
        home: binds.get(setup.home).map_or_else(|| "/".into(), |bind| bind.target.clone()),
        user: setup.user,
    };
    let listen = setup.network.then_some(PORT);
    let mut namespaced = match namespaces.enter(one_thread, &canary, &tree, listen) {
        Ok(namespaced) => namespaced,
        Err(error) => return (refusal_message(&error, true), Vec::new()),
    };
    namespaced.reports.push(group);
    let has_tree = namespaced.tree.is_some();
    binds.extend(caches.into_iter().map(|cache| if has_tree { cache.copy } else { cache.original }));
    match apply(setup, waived, canary, binds, namespaced, one_thread) {
        Ok((ready, listeners)) => (FromSession::Ready(ready), listeners),
        Err(error) => (refusal_message(&error, false), Vec::new()),
    }
}

/// One cache. A session with its own file tree gets the copy, and any other session gets the cache itself.
struct CacheBinds {
    copy: Bind,
    original: Bind,
}

/// Splits the caches off the end of the binds.
fn split_caches(mut binds: Vec<Bind>, count: usize) -> (Vec<Bind>, Vec<CacheBinds>) {
    // Each cache has two binds: its copy, then the cache itself.
    let mut rest = binds.split_off(binds.len().saturating_sub(2 * count)).into_iter();
    let caches = std::iter::from_fn(|| Some(CacheBinds { copy: rest.next()?, original: rest.next()? }));
    let caches = caches.collect();
    (binds, caches)
}

/// A refusal with all causes.
pub(super) fn refusal_message(error: &dyn Error, by_namespaces: bool) -> FromSession {
    FromSession::Refused { reason: portcullis_types::error_chain(error), by_namespaces }
}

/// Why a session's process could not be confined.
#[derive(Debug, thiserror::Error)]
enum SessionConfineError {
    /// The setup came without the handle of the certificates.
    #[error("the certificates are missing")]
    NoCertificates,
    /// The setup came without the handle of the canary's folder.
    #[error("the canary is missing")]
    NoCanary,
    /// The setup came with fewer handles than paths.
    #[error("a path is missing")]
    NoPath,
    /// The certificates, or the root folder, cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A layer does not hold.
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

/// The canary, the binds, and the additional files of a session's tree.
type ConfinementParts = (CanaryFile, Vec<Bind>, Vec<(PathBuf, String)>);

fn take_parts(
    setup: &SessionSetup,
    mut handles: Vec<OwnedFd>,
) -> Result<ConfinementParts, SessionConfineError> {
    let mut files = Vec::new();
    if setup.network {
        let certificates = handles.pop().ok_or(SessionConfineError::NoCertificates)?;
        let mut text = String::new();
        File::from(certificates).read_to_string(&mut text)?;
        files.push((CERTIFICATES.into(), text));
    }
    let mut handles = handles.into_iter().map(Arc::new);
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(io::Error::from)?;
    let state_folder = handles.next().ok_or(SessionConfineError::NoCanary)?;
    let canary = CanaryFile::from_state_folder(state_folder).with_root(root.into());
    let binds: Vec<Bind> = handles
        .zip(&setup.paths)
        .map(|(handle, path)| Bind { handle, target: path.target.clone(), access: path.access })
        .collect();
    let counted = setup.mounts.len() + setup.toolchain + 2 * setup.caches;
    if binds.len() != setup.paths.len() || counted > binds.len() {
        return Err(SessionConfineError::NoPath);
    }
    Ok((canary, binds, files))
}

/// Applies the layers other than namespaces. Returns the whole posture, and the listeners.
fn apply(
    setup: &SessionSetup,
    waived: &[Layer],
    canary: CanaryFile,
    binds: Vec<Bind>,
    namespaced: NamespacedProcess,
    one_thread: &SingleThreaded,
) -> Result<(SessionReady, Vec<OwnedFd>), SessionConfineError> {
    let NamespacedProcess { reports: namespace_reports, tree, has_own_users, listener } = namespaced;
    let kernel = probe_kernel();
    let missing: Vec<LayerReport> = [Layer::Landlock, Layer::Seccomp]
        .into_iter()
        .filter(|layer| !waived.contains(layer))
        .filter_map(|layer| {
            let status = LayerStatus::Missing { reason: kernel.missing(layer)?.to_owned() };
            Some(LayerReport { layer, status, evidence: Vec::new() })
        })
        .collect();
    let requirement = |layer| {
        let is_missing = missing.iter().any(|report| report.layer == layer);
        if is_missing || waived.contains(&layer) { Requirement::Waived } else { Requirement::Required }
    };
    let (has_tree, protected) = (tree.is_some(), tree.as_ref().map_or(0, |tree| tree.read_only));
    let own_user = tree.as_ref().and_then(|tree| tree.user);
    let user = own_user.or(setup.user);
    let mut limits = setup.limits;
    if own_user.is_none() && !has_own_users {
        // `RLIMIT_NPROC` also counts the user's processes outside the session, so here only the watch limits their
        // number.
        limits.processes = None;
    }
    // A Landlock rule belongs to the file, not to its path, so it is valid wherever the file is bound.
    let mut paths: Vec<PathRule> =
        binds.into_iter().map(|bind| PathRule { handle: bind.handle, access: bind.access }).collect();
    paths.extend(tree.into_iter().flat_map(|tree| tree.paths));
    // Decide this before the remaining layers: the filter allows sockets only in a session with all namespaces.
    let is_enforced = |status: &LayerReport| status.status == LayerStatus::Enforced;
    let has_all_namespaces = Layer::NAMESPACES
        .iter()
        .all(|layer| namespace_reports.iter().any(|report| report.layer == *layer && is_enforced(report)));
    let has_listener = has_all_namespaces && missing.is_empty() && matches!(listener, Some(Ok(_)));
    let rules = ProcessConfinement {
        network: has_listener.then(|| NetworkRules { ports: [PORT].into() }),
        landlock: requirement(Layer::Landlock),
        seccomp: requirement(Layer::Seccomp),
        user,
        paths,
        limits,
        canary,
        watch_changes: setup.watch_changes,
    };
    let (posture, changes) = confine_current_process(one_thread, &rules)?;
    hide_memory().map_err(|source| ConfineError::NamespaceBroken { step: "hide its memory", source })?;
    let mut layers = Vec::new();
    for report in posture.layers() {
        if report.layer == Layer::Landlock {
            layers.extend(namespace_reports.iter().cloned());
        }
        let missing = missing.iter().find(|missing| missing.layer == report.layer);
        layers.push(missing.unwrap_or(report).clone());
    }
    let posture = ProcessPosture::new(layers);
    let level = SessionPosture::new(posture.clone(), PostureChoice::AtLeast(ShellPosture::Minimal)).level();
    let (network, listener) = match listener {
        Some(Ok(listener)) if has_listener && level == ShellPosture::Strong => (Some(Ok(())), Some(listener)),
        Some(Err(error)) if level == ShellPosture::Strong => (Some(Err(NetworkAbsence::new(&error))), None),
        Some(_) => (Some(Err(NetworkAbsence::new(&NOT_STRONG))), None),
        None => (None, None),
    };
    let watches_changes = changes.is_some();
    let ready = SessionReady { posture, has_tree, protected, user, network, watches_changes };
    Ok((ready, listener.into_iter().chain(changes.map(OwnedFd::from)).collect()))
}

/// Hides this process and its forks from commands: they cannot use `/proc/PID/{mem,fd,environ}`. Without this they
/// could, because they have the same user and the same Landlock domain. Bash is another program, so it is not hidden.
fn hide_memory() -> std::io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
