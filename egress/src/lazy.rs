//! A client that starts on first use.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{Egress, EgressError};

/// An [`Egress`] that starts on first use, so that a process without connections pays nothing.
#[derive(Debug, Default)]
pub struct LazyEgress(Arc<Mutex<Option<Arc<Egress>>>>);

impl LazyEgress {
    /// Returns the running client. If there is none, or its threads have ended, runs `start` on a thread that
    /// may block. The new threads prove their confinement before they serve. After a failed start, the next
    /// caller tries again, because the cause may have gone away.
    ///
    /// # Cancellation
    /// If the future is dropped, a running start continues, and later callers wait for it. A file system that
    /// does not respond therefore blocks one thread instead of one for each call.
    ///
    /// # Errors
    /// The error of `start`, or [`EgressError::Thread`] if it panics.
    pub async fn get<E>(
        &self,
        start: impl FnOnce() -> Result<Egress, E> + Send + 'static,
    ) -> Result<Arc<Egress>, E>
    where
        E: From<EgressError> + Send + 'static,
    {
        let mut started = Arc::clone(&self.0).lock_owned().await;
        if let Some(client) = started.as_ref().filter(|client| client.is_serving()) {
            return Ok(Arc::clone(client));
        }
        let panicked = |_| EgressError::ThreadPanicked;
        // The closure holds the lock until the start ends, even if the caller gives up.
        let start_and_keep = move || Ok(Arc::clone(started.insert(Arc::new(start()?))));
        tokio::task::spawn_blocking(start_and_keep).await.map_err(panicked)?
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        num::NonZeroUsize,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use portcullis_confine::{CanaryFile, Requirement};

    use super::*;
    use crate::{DnsConfig, EgressConfig, TrustedRoots};

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
                Egress::start(EgressConfig {
                    canary: CanaryFile::create(folder.path()).unwrap(),
                    landlock: Requirement::Waived,
                    seccomp: Requirement::Waived,
                    ports: BTreeSet::new(),
                    proxy: None,
                    names: DnsConfig::with_servers(Vec::new()),
                    roots: TrustedRoots::empty(),
                    threads: NonZeroUsize::MIN,
                })
            }
        };
        let lazy = LazyEgress::default();
        assert!(matches!(lazy.get(start()).await, Err(EgressError::NoRoots)));
        let first = lazy.get(start()).await.unwrap();
        assert!(Arc::ptr_eq(&first, &lazy.get(start()).await.unwrap()));
        drop(first);
        let client = lazy.0.lock().await.take().and_then(Arc::into_inner).unwrap();
        let ended_client = client.ended();
        assert!(!ended_client.is_serving());
        *lazy.0.lock().await = Some(Arc::new(ended_client));
        assert!(lazy.get(start()).await.unwrap().is_serving());
        assert_eq!(starts.load(Ordering::SeqCst), 3);
        let panicked = lazy_that_panics().await;
        assert!(matches!(panicked, Err(EgressError::ThreadPanicked)));
    }

    #[tokio::test]
    async fn a_start_whose_caller_gave_up_is_waited_for_and_not_repeated() {
        let (lazy, starts) = (LazyEgress::default(), Arc::new(AtomicUsize::new(0)));
        let (proceed, proceed_signal) = std::sync::mpsc::channel::<()>();
        let proceed_signal = Arc::new(std::sync::Mutex::new(proceed_signal));
        let start = || {
            let (starts, proceed_signal) = (Arc::clone(&starts), Arc::clone(&proceed_signal));
            move || {
                starts.fetch_add(1, Ordering::SeqCst);
                proceed_signal.lock().unwrap().recv().unwrap();
                Err::<Egress, _>(EgressError::NoRoots)
            }
        };
        let mut first = Box::pin(lazy.get(start()));
        // The first start begins, and its caller gives up.
        while starts.load(Ordering::SeqCst) == 0 {
            assert!(futures_util::poll!(&mut first).is_pending());
            tokio::task::yield_now().await;
        }
        drop(first);
        let mut second = Box::pin(lazy.get(start()));
        for _ in 0..100 {
            assert!(futures_util::poll!(&mut second).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(starts.load(Ordering::SeqCst), 1);
        // The first start fails, and the second begins.
        proceed.send(()).unwrap();
        proceed.send(()).unwrap();
        assert!(second.await.is_err());
        assert_eq!(starts.load(Ordering::SeqCst), 2);
    }

    async fn lazy_that_panics() -> Result<Arc<Egress>, EgressError> {
        LazyEgress::default().get(|| panic!("a defect")).await
    }
}
