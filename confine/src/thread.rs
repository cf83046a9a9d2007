//! Confines a thread in four steps: control, apply, prove, and prove again before every call.
//!
//! This module knows the order of the steps and the meaning of outcomes. The module of each layer knows how
//! to apply it.

use std::{marker::PhantomData, thread};

use crate::{
    CanaryFile, ConfineError, Evidence, KernelSupport, Layer, LayerStatus, Posture, Requirement,
    SyscallOutcome, ThreadConfinement,
    canary::{OtherPort, Probe},
    landlock, probe_kernel, seccomp,
};

/// Proof that the calling thread is confined. The proof belongs to the thread on which it was made, and
/// cannot leave that thread:
///
/// ```compile_fail
/// fn elsewhere(proven: portcullis_confine::ProvenThread) {
///     std::thread::spawn(move || proven.reprove());
/// }
/// ```
#[derive(Debug)]
pub struct ProvenThread {
    posture: Posture,
    canary: CanaryFile,
    /// The attempts that are made before each call.
    per_call_probes: Vec<Probe>,
    /// Makes the type neither `Send` nor `Sync`: on another thread, it would vouch for the wrong thread.
    not_send: PhantomData<*const ()>,
}

impl ProvenThread {
    /// Returns the proven posture.
    #[must_use]
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// Proves the layers again, Landlock with a refused `open` and seccomp with a refused `socket`. A proof takes about
    /// a microsecond, which is cheap enough before each call. Waived layers are skipped.
    ///
    /// The filter of a thread with a network refuses the `open` before Landlock sees it. For such a thread, a refused
    /// port proves Landlock, and two refused `socket`s prove seccomp. Below Landlock ABI 4, which has no rules for
    /// ports, only seccomp is proved again.
    ///
    /// # Errors
    /// [`ConfineError::NotRefused`]. The thread must then run no other job.
    pub fn reprove(&self) -> Result<(), ConfineError> {
        for &probe in &self.per_call_probes {
            if *self.posture.layer(probe.layer()) != LayerStatus::Waived {
                require_refused(probe, self.canary.attempt(probe))?;
            }
        }
        Ok(())
    }
}

/// Confines the calling thread for the rest of its life, and proves each required layer on it.
///
/// Call it on a fresh thread that you own, after everything that the thread needs exists (engine, runtime,
/// handles). Never call it on an executor's thread, or on a thread that starts other threads later, which
/// would inherit the confinement. A waived layer is skipped. `no_new_privs` is set in any case.
///
/// # Errors
/// If a required layer is missing, cannot be applied, or does not refuse its attempts. The thread may then be
/// half confined: end it.
pub fn confine_current_thread(rules: &ThreadConfinement) -> Result<ProvenThread, ConfineError> {
    confine_with(&probe_kernel(), rules)
}

/// Confines a new thread, which then ends. `doctor` and the load of a policy use this to learn which layers
/// can be enforced here, without sacrificing a thread.
///
/// # Errors
/// The errors of [`confine_current_thread`], and [`ConfineError::ScratchThread`] and
/// [`ConfineError::ScratchThreadPanicked`].
pub fn prove_on_scratch_thread(rules: &ThreadConfinement) -> Result<Posture, ConfineError> {
    let rules = rules.clone();
    thread::Builder::new()
        .name("confine-scratch".to_owned())
        .spawn(move || confine_current_thread(&rules).map(|proven| proven.posture().clone()))
        .map_err(|source| ConfineError::ScratchThread { source })?
        .join()
        .map_err(|_payload| ConfineError::ScratchThreadPanicked)?
}

/// Confines the calling thread. `kernel` is an argument, so that a test can take a layer away. A layer that
/// is claimed but absent fails when it is applied or proved.
fn confine_with(kernel: &KernelSupport, rules: &ThreadConfinement) -> Result<ProvenThread, ConfineError> {
    for layer in Layer::THREAD {
        if rules.requirement(layer) == Requirement::Required {
            require_supported(kernel, layer)?;
        }
    }
    if rules.network.is_some() && !rules.mounts.is_empty() {
        return Err(ConfineError::MountsWithNetwork { mounts: rules.mounts.len() });
    }
    let abi = kernel.landlock_abi.unwrap_or_default();
    // Keep the port open until the last attempt.
    let other_port = rules.network.as_ref().map(|network| OtherPort::open(&network.ports)).transpose()?;
    let (probes, per_call_probes) = match &other_port {
        Some(other_port) => (
            Probe::network_probes(other_port.port, abi),
            Probe::network_probes_per_call(other_port.port, abi),
        ),
        None => (Probe::ALL.to_vec(), Probe::PER_CALL.to_vec()),
    };
    let controls = negative_control(rules, &probes)?;
    let prove = |layer| prove(rules, controls.iter().filter(move |(probe, _)| probe.layer() == layer));

    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| ConfineError::NoNewPrivs { source: errno.into() })?;
    let landlock = match (rules.landlock, &rules.network) {
        (Requirement::Required, None) => landlock::restrict(&rules.mounts, abi)?,
        (Requirement::Required, Some(network)) => landlock::restrict_to_network(network, abi)?,
        (Requirement::Waived, _) => LayerStatus::Waived,
    };
    // Prove Landlock before applying the filter: with a network, the filter's refusal would mask Landlock's.
    let mut evidence = prove(Layer::Landlock)?;
    let seccomp = match (rules.seccomp, &rules.network) {
        (Requirement::Required, None) => seccomp::restrict()?,
        (Requirement::Required, Some(_)) => seccomp::restrict_to_network()?,
        (Requirement::Waived, _) => LayerStatus::Waived,
    };
    evidence.extend(prove(Layer::Seccomp)?);

    let ports = rules.network.as_ref().map(|network| network.ports.clone());
    Ok(ProvenThread {
        posture: Posture::new(landlock, kernel.landlock_abi, seccomp, ports, evidence),
        canary: rules.canary.clone(),
        per_call_probes,
        not_send: PhantomData,
    })
}

fn require_supported(kernel: &KernelSupport, layer: Layer) -> Result<(), ConfineError> {
    match kernel.missing(layer) {
        None => Ok(()),
        Some(reason) => Err(ConfineError::LayerMissing { layer, reason: reason.to_owned() }),
    }
}

/// Runs the negative control: every attempt that a layer must refuse has to work before the layer is applied.
fn negative_control(
    rules: &ThreadConfinement,
    probes: &[Probe],
) -> Result<Vec<(Probe, SyscallOutcome)>, ConfineError> {
    let mut controls = Vec::new();
    for &probe in probes {
        if rules.requirement(probe.layer()) == Requirement::Waived {
            continue;
        }
        let observed = rules.canary.attempt(probe);
        if !probe.is_valid_control(observed) {
            return Err(ConfineError::NegativeControl {
                layer: probe.layer(),
                probe: probe.describe(),
                observed,
            });
        }
        controls.push((probe, observed));
    }
    Ok(controls)
}

/// Repeats the attempts, each of which must be refused in the expected way.
fn prove<'a>(
    rules: &ThreadConfinement,
    controls: impl Iterator<Item = &'a (Probe, SyscallOutcome)>,
) -> Result<Vec<Evidence>, ConfineError> {
    let mut evidence = Vec::new();
    for &(probe, before) in controls {
        let after = rules.canary.attempt(probe);
        require_refused(probe, after)?;
        evidence.push(Evidence { layer: probe.layer(), probe: probe.describe().into(), before, after });
    }
    Ok(evidence)
}

fn require_refused(probe: Probe, observed: SyscallOutcome) -> Result<(), ConfineError> {
    if observed == probe.refusal() {
        return Ok(());
    }
    Err(ConfineError::NotRefused {
        layer: probe.layer(),
        probe: probe.describe(),
        expected: probe.refusal(),
        observed,
    })
}

#[cfg(test)]
mod tests;
