//! A client that starts when it is first needed.

use std::{io, sync::Arc};

use tokio::sync::Mutex;

use crate::{Egress, EgressError};

/// An [`Egress`] that starts when it is first needed, so that a process which connects nowhere pays nothing.
#[derive(Debug, Default)]
pub struct LazyEgress(Mutex<Option<Arc<Egress>>>);

impl LazyEgress {
    /// The running client. Without one, or where its threads have ended, `start` makes it on a thread that may block;
    /// the new threads prove their confinement before they serve. A failed start is tried again by the next caller: a
    /// name server may be configured meanwhile.
    ///
    /// # Errors
    /// That of `start`; [`EgressError::Thread`] if it panics.
    pub async fn get<E>(
        &self,
        start: impl FnOnce() -> Result<Egress, E> + Send + 'static,
    ) -> Result<Arc<Egress>, E>
    where
        E: From<EgressError> + Send + 'static,
    {
        let mut started = self.0.lock().await;
        if let Some(running) = started.as_ref().filter(|running| running.is_serving()) {
            return Ok(Arc::clone(running));
        }
        let panicked = |_| EgressError::Thread { source: io::Error::other("it panicked") };
        let egress = tokio::task::spawn_blocking(start).await.map_err(panicked)??;
        Ok(Arc::clone(started.insert(Arc::new(egress))))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        num::NonZeroUsize,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use portcullis_confine::{Canary, Requirement};

    use super::*;
    use crate::{EgressSettings, NameSettings, TrustedRoots};

    #[tokio::test]
    async fn a_client_starts_once_and_again_after_a_failure_or_its_end() {
        let (folder, starts) = (Arc::new(tempfile::tempdir().unwrap()), Arc::new(AtomicUsize::new(0)));
        let start = || {
            let (folder, starts) = (Arc::clone(&folder), Arc::clone(&starts));
            move || {
                // The first start fails.
                if starts.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(EgressError::NoRoots);
                }
                Egress::start(EgressSettings {
                    canary: Canary::create(folder.path()).unwrap(),
                    landlock: Requirement::Waived,
                    seccomp: Requirement::Waived,
                    ports: BTreeSet::new(),
                    proxy: None,
                    names: NameSettings::of_servers(Vec::new()),
                    roots: TrustedRoots::none(),
                    threads: NonZeroUsize::MIN,
                })
            }
        };
        let lazy = LazyEgress::default();
        assert!(matches!(lazy.get(start()).await, Err(EgressError::NoRoots)));
        let first = lazy.get(start()).await.unwrap();
        assert!(Arc::ptr_eq(&first, &lazy.get(start()).await.unwrap()));
        drop(first);
        let running = lazy.0.lock().await.take().and_then(Arc::into_inner).unwrap();
        let ended = running.ended();
        assert!(!ended.is_serving());
        *lazy.0.lock().await = Some(Arc::new(ended));
        assert!(lazy.get(start()).await.unwrap().is_serving());
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        let panicked = lazy_that_panics().await;
        assert!(matches!(panicked, Err(EgressError::Thread { .. })));
    }

    async fn lazy_that_panics() -> Result<Arc<Egress>, EgressError> {
        LazyEgress::default().get(|| panic!("a defect")).await
    }
}
