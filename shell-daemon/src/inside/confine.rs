//! How a session's first process confines itself, and its report.

use std::{error::Error, fs::File, io::Read as _, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use portcullis_confine::{
    Bind, Canary, ConfineError, FileTree, Layer, LayerReport, LayerStatus, NamespacedProcess, Namespaces,
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
    wire::{FromSession, LayerPlan, SessionReady, SessionSetup},
};

/// The reason why a session has no network.
pub(crate) const NOT_STRONG: &str = "only sessions of the posture `strong` have a network";

/// Confines the calling process as its setup says, and returns the answer, with the listener of a session that has a
/// network. After a refusal the process must end.
pub(super) fn confine(
    setup: &SessionSetup,
    handles: Vec<OwnedFd>,
    namespaces: Namespaces,
    group: LayerReport,
    one_thread: &SingleThreaded,
) -> (FromSession, Option<OwnedFd>) {
    let LayerPlan::Layers { waived, .. } = &setup.plan else {
        let posture = ProcessPosture::new(Vec::new());
        let network = setup.network.then(|| Err(NOT_STRONG.to_owned()));
        let ready = SessionReady { posture, has_tree: false, protected: 0, user: None, network };
        return (FromSession::Ready(ready), None);
    };
    // The handles are closed at the end of this function: no command inherits one.
    let (canary, binds, files) = match parts(setup, handles) {
        Ok(parts) => parts,
        Err(error) => return (refused(&*error, false), None),
    };
    let tree = FileTree {
        mounts: binds[..setup.mounts.len()].to_vec(),
        system: binds[setup.mounts.len()..].to_vec(),
        read_only: setup.protected.clone(),
        fixed: setup.fixed.clone(),
        files,
        home: binds.get(setup.home).map_or_else(|| "/".into(), |bind| bind.place.clone()),
        user: setup.user,
    };
    let listen = setup.network.then_some(PORT);
    let mut inside = match namespaces.enter(one_thread, &canary, &tree, listen) {
        Ok(inside) => inside,
        Err(error) => return (refused(&error, true), None),
    };
    inside.reports.push(group);
    match apply(setup, waived, canary, binds, inside, one_thread) {
        Ok((ready, listener)) => (FromSession::Ready(ready), listener),
        Err(error) => (refused(&*error, false), None),
    }
}

/// A refusal with all causes.
pub(super) fn refused(error: &dyn Error, by_namespaces: bool) -> FromSession {
    FromSession::Refused { reason: portcullis_types::chain(error), by_namespaces }
}

/// The canary, the binds, and the files that a session's tree has besides.
type ConfinementParts = (Canary, Vec<Bind>, Vec<(PathBuf, String)>);

fn parts(setup: &SessionSetup, mut handles: Vec<OwnedFd>) -> Result<ConfinementParts, Box<dyn Error>> {
    let mut files = Vec::new();
    if setup.network {
        let certificates = handles.pop().ok_or("the certificates are missing")?;
        let mut text = String::new();
        File::from(certificates).read_to_string(&mut text)?;
        files.push((CERTIFICATES.into(), text));
    }
    let mut handles = handles.into_iter().map(Arc::new);
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let canary =
        Canary::from_state_dir(handles.next().ok_or("the canary is missing")?).with_root(root.into());
    let binds: Vec<Bind> = handles
        .zip(&setup.paths)
        .map(|(handle, path)| Bind { handle, place: path.place.clone(), access: path.access })
        .collect();
    if binds.len() != setup.paths.len() || setup.mounts.len() > binds.len() {
        return Err("a path is missing".into());
    }
    Ok((canary, binds, files))
}

/// Applies the layers other than namespaces, and returns the whole posture, with the listener of a network that may be
/// used.
fn apply(
    setup: &SessionSetup,
    waived: &[Layer],
    canary: Canary,
    binds: Vec<Bind>,
    inside: NamespacedProcess,
    one_thread: &SingleThreaded,
) -> Result<(SessionReady, Option<OwnedFd>), Box<dyn Error>> {
    let NamespacedProcess { reports: before, tree, has_own_users, listener } = inside;
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
        // The kernel would also count processes that the user has elsewhere. The watch has to suffice.
        limits.processes = None;
    }
    // A Landlock rule belongs to the file, not to its path: it holds wherever the file is bound.
    let mut paths: Vec<PathRule> =
        binds.into_iter().map(|bind| PathRule { handle: bind.handle, access: bind.access }).collect();
    paths.extend(tree.into_iter().flat_map(|tree| tree.paths));
    // Before the layers that are still to come: a socket is made or connected only behind all namespaces.
    let has_all = |status: &LayerReport| status.status == LayerStatus::Enforced;
    let is_apart = Layer::NAMESPACES
        .iter()
        .all(|layer| before.iter().any(|report| report.layer == *layer && has_all(report)));
    let has_listener = is_apart && missing.is_empty() && matches!(listener, Some(Ok(_)));
    let rules = ProcessConfinement {
        network: has_listener.then(|| NetworkRules { ports: [PORT].into() }),
        landlock: requirement(Layer::Landlock),
        seccomp: requirement(Layer::Seccomp),
        user,
        paths,
        limits,
        canary,
    };
    let posture = confine_current_process(one_thread, &rules)?;
    hide_memory()
        .map_err(|source| ConfineError::NamespaceBroken { step: "hide this process's memory", source })?;
    let mut layers = Vec::new();
    for report in posture.layers() {
        if report.layer == Layer::Landlock {
            layers.extend(before.iter().cloned());
        }
        let missing = missing.iter().find(|missing| missing.layer == report.layer);
        layers.push(missing.unwrap_or(report).clone());
    }
    let posture = ProcessPosture::new(layers);
    let level = SessionPosture::new(posture.clone(), PostureChoice::AtLeast(ShellPosture::Minimal)).level();
    let (network, listener) = match listener {
        Some(Ok(listener)) if has_listener && level == ShellPosture::Strong => (Some(Ok(())), Some(listener)),
        Some(Err(reason)) if level == ShellPosture::Strong => (Some(Err(reason)), None),
        Some(_) => (Some(Err(NOT_STRONG.to_owned())), None),
        None => (None, None),
    };
    Ok((SessionReady { posture, has_tree, protected, user, network }, listener))
}

/// Hides this process and its forks from commands, which have the same user and the same Landlock domain:
/// they cannot use `/proc/PID/{mem,fd,environ}`. Bash is another program, so it is not hidden.
fn hide_memory() -> std::io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
