//! The same names on platforms without Landlock and seccomp: every layer is missing.
//!
//! A required layer fails, as it must. A worker without layers runs only where the operator waived both.

use std::path::Path;

use crate::{ConfineError, KernelSupport, Layer, LayerStatus, Posture, Requirement, ThreadConfinement};

/// A canary that proves nothing.
#[derive(Clone, Debug)]
pub struct Canary(());

impl Canary {
    /// Makes no file.
    ///
    /// # Errors
    /// Never.
    pub fn create(_state_dir: &Path) -> Result<Self, ConfineError> {
        Ok(Self(()))
    }
}

/// A thread on which every layer was waived.
#[derive(Debug)]
pub struct ProvenThread {
    posture: Posture,
    on_this_thread: std::marker::PhantomData<*const ()>,
}

impl ProvenThread {
    /// The posture, in which nothing is enforced.
    #[must_use]
    pub fn posture(&self) -> &Posture {
        &self.posture
    }

    /// Proves nothing, since every layer is waived.
    ///
    /// # Errors
    /// Never.
    pub fn reprove(&self) -> Result<(), ConfineError> {
        Ok(())
    }
}

/// The platform's layers: none.
#[must_use]
pub fn probe_kernel() -> KernelSupport {
    let reason = format!("{} has no such layer, only Linux does", std::env::consts::OS);
    KernelSupport {
        landlock_abi: None,
        seccomp: false,
        landlock_reason: Some(reason.clone()),
        seccomp_reason: Some(reason),
    }
}

/// Fails for every required layer.
///
/// # Errors
/// [`ConfineError::LayerMissing`].
pub fn confine_current_thread(rules: &ThreadConfinement) -> Result<ProvenThread, ConfineError> {
    let kernel = probe_kernel();
    for layer in Layer::THREAD {
        if let (Requirement::Required, Some(reason)) = (rules.requirement(layer), kernel.missing(layer)) {
            return Err(ConfineError::LayerMissing { layer, reason: reason.to_owned() });
        }
    }
    let posture = Posture::new(LayerStatus::Waived, None, LayerStatus::Waived, Vec::new());
    Ok(ProvenThread { posture, on_this_thread: std::marker::PhantomData })
}

/// Same as [`confine_current_thread`], which changes nothing here.
///
/// # Errors
/// [`ConfineError::LayerMissing`].
pub fn prove_on_scratch_thread(rules: &ThreadConfinement) -> Result<Posture, ConfineError> {
    confine_current_thread(rules).map(|proven| proven.posture().clone())
}

/// Interrupting a stuck thread: not available here; a stuck worker is written off.
pub mod interrupt {
    use crate::ConfineError;

    /// Does nothing.
    ///
    /// # Errors
    /// Never.
    pub fn install_handler() -> Result<(), ConfineError> {
        Ok(())
    }

    /// A thread that cannot be interrupted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ThreadTarget(());

    impl ThreadTarget {
        /// The calling thread.
        #[must_use]
        pub fn current() -> Self {
            Self(())
        }

        /// Does nothing.
        pub fn interrupt(&self) {}
    }
}
