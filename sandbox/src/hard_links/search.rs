//! Schedules the search for exposed private files, and selects the result that a call uses.
//!
//! The folders can lie on a file system that does not respond. The search therefore runs on a separate thread, one
//! search at a time, and a call awaits it for a bounded time without blocking its own thread.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::{ExposedFiles, FIRST_SEARCH_TIMEOUT, HardLinkSearchFault, PrivatePaths, SEARCH_TIMEOUT, walk};

/// The minimum time for which a result counts as fresh.
const MIN_FRESHNESS: Duration = Duration::from_secs(1);

/// A result stays fresh for 50 times the duration of its search, within the limits above and below.
/// Searches that take at most 0.6 s therefore use at most about 1/50 of the time.
const MIN_IDLE_RATIO: u32 = 50;

/// The maximum time for which a result counts as fresh, even after a long search.
const MAX_FRESHNESS: Duration = Duration::from_secs(30);

/// How long the last result is used while a search is overdue. Later, any file with several names counts as
/// possibly private, and no command runs.
const STALE_RESULT_TTL: Duration = Duration::from_secs(30);

/// The repeated search for private files that have names elsewhere.
#[derive(Debug, Clone, Default)]
pub struct PrivateHardLinks {
    /// `None` if there are no private places.
    searcher: Option<Arc<HardLinkSearcher>>,
}

struct HardLinkSearcher {
    search: Box<dyn Fn() -> ExposedFiles + Send + Sync>,
    state: Mutex<SearchState>,
    search_ended: Notify,
}

#[derive(Debug, Default)]
struct SearchState {
    last_search: Option<LastSearch>,
    /// The start of the running search. `None` if no search runs.
    started_at: Option<Instant>,
}

/// The last completed search.
#[derive(Debug)]
struct LastSearch {
    /// The result is fresh until this time.
    fresh_until: Instant,
    exposed_files: Arc<ExposedFiles>,
}

impl PrivateHardLinks {
    /// Prepares the search of the vault and these paths, without starting it.
    #[must_use]
    pub fn new(vault: Option<Arc<OwnedFd>>, private: &PrivatePaths) -> Self {
        let opened_paths = private.open(vault);
        if opened_paths.is_empty() {
            return Self::default();
        }
        Self::searching_with(move || walk::search_private(&opened_paths))
    }

    fn searching_with(search: impl Fn() -> ExposedFiles + Send + Sync + 'static) -> Self {
        let searcher = HardLinkSearcher {
            search: Box::new(search),
            state: Mutex::default(),
            search_ended: Notify::new(),
        };
        Self { searcher: Some(Arc::new(searcher)) }
    }

    /// Returns a fresh result, the result of a new search, or the last result if the search is overdue.
    ///
    /// # Cancellation
    /// If the future is dropped, a running search continues on its thread, and the next call finds its result.
    pub async fn exposed(&self) -> Arc<ExposedFiles> {
        let Some(searcher) = &self.searcher else { return Arc::default() };
        if let Some(exposed) = searcher.current_result() {
            return exposed;
        }
        let time_limit = searcher.state().time_limit();
        // A timeout is not an error: the fallback below is used.
        let _in_time = tokio::time::timeout(time_limit, searcher.wait_until_idle()).await;
        let state = searcher.state();
        state.fresh_result().unwrap_or_else(|| state.fallback_result())
    }

    /// Searches immediately on this thread. For use outside of calls.
    pub(super) fn search_now(&self) -> ExposedFiles {
        self.searcher.as_ref().map(|searcher| (searcher.search)()).unwrap_or_default()
    }
}

impl HardLinkSearcher {
    /// Returns a result that is usable without waiting, if there is one. Starts a search if none is
    /// running.
    fn current_result(self: &Arc<Self>) -> Option<Arc<ExposedFiles>> {
        let mut state = self.state();
        if let Some(exposed) = state.fresh_result() {
            return Some(exposed);
        }
        match state.started_at {
            // A call has already waited this long, so later calls do not wait again.
            Some(started_at) if started_at.elapsed() >= state.time_limit() => Some(state.fallback_result()),
            Some(_) => None,
            None => {
                let searcher = Arc::clone(self);
                let thread = std::thread::Builder::new().name("private-links".to_owned());
                match thread.spawn(move || searcher.run()) {
                    // `run` resets this under the lock that is held here, so even an instant search ends
                    // after this line.
                    Ok(_detached) => state.started_at = Some(Instant::now()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot start the thread that searches private files");
                        return Some(state.fallback_result());
                    }
                }
                None
            }
        }
    }

    /// Waits until no search is running.
    async fn wait_until_idle(&self) {
        let done = self.search_ended.notified();
        tokio::pin!(done);
        // Register before the check, so that the wake-up of a search that ends in between is not lost.
        done.as_mut().enable();
        if self.state().started_at.is_some() {
            done.await;
        }
    }

    fn run(&self) {
        let started_at = Instant::now();
        let exposed = Arc::new((self.search)());
        let mut state = self.state();
        let lifetime =
            started_at.elapsed().saturating_mul(MIN_IDLE_RATIO).clamp(MIN_FRESHNESS, MAX_FRESHNESS);
        let fresh_until = Instant::now() + lifetime;
        *state = SearchState {
            last_search: Some(LastSearch { fresh_until, exposed_files: exposed }),
            started_at: None,
        };
        // Release the lock before the waiters wake, because each of them takes it.
        drop(state);
        self.search_ended.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, SearchState> {
        self.state.lock()
    }
}

impl SearchState {
    fn fresh_result(&self) -> Option<Arc<ExposedFiles>> {
        self.last_search
            .as_ref()
            .filter(|last| Instant::now() < last.fresh_until)
            .map(|last| Arc::clone(&last.exposed_files))
    }

    fn stale_result(&self) -> Option<&LastSearch> {
        self.last_search.as_ref().filter(|last| Instant::now() < last.fresh_until + STALE_RESULT_TTL)
    }

    /// Returns how long a search may take before it is overdue.
    fn time_limit(&self) -> Duration {
        if self.stale_result().is_some() { SEARCH_TIMEOUT } else { FIRST_SEARCH_TIMEOUT }
    }

    /// Returns the result that is used while a search is overdue.
    fn fallback_result(&self) -> Arc<ExposedFiles> {
        self.stale_result().map_or_else(
            || Arc::new(ExposedFiles::unknown(HardLinkSearchFault::Overdue)),
            |last| Arc::clone(&last.exposed_files),
        )
    }
}

impl fmt::Debug for HardLinkSearcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSearcher").field("seen", &self.state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::hard_links::HardLinkSuspicion;

    /// Returns a search that ends on command.
    fn held_links() -> (PrivateHardLinks, mpsc::Sender<ExposedFiles>, mpsc::Receiver<()>) {
        let (answer, answers) = mpsc::channel();
        let (start_sender, starts) = mpsc::channel();
        let answers = Mutex::new(answers);
        let links = PrivateHardLinks::searching_with(move || {
            start_sender.send(()).expect("heard");
            answers.lock().recv().unwrap_or_default()
        });
        (links, answer, starts)
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_that_hangs_blocks_no_call_and_counts_as_suspicion() {
        let (links, answer, starts) = held_links();
        let overdue = Some(HardLinkSuspicion::Unknown(HardLinkSearchFault::Overdue));
        // Both calls run on this thread, so a search that blocked it would let neither end.
        let (first, second) = tokio::join!(links.exposed(), links.exposed());
        assert_eq!((first.suspects_any(), second.suspects_any()), (overdue, overdue));
        starts.recv().expect("begun");
        assert!(starts.try_recv().is_err(), "one search at a time");
        answer.send(ExposedFiles::default()).expect("heard");
        while links.exposed().await.suspects_any().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(starts.try_recv().is_err(), "the search that had begun is the answer");
    }

    #[test]
    fn the_last_result_stands_in_for_a_bounded_time() {
        let ended = |ago: Duration| {
            let fresh_until = Instant::now().checked_sub(ago).expect("the machine runs for longer");
            SearchState {
                last_search: Some(LastSearch { fresh_until, exposed_files: Arc::default() }),
                started_at: None,
            }
        };
        assert!(ended(Duration::ZERO).fresh_result().is_none());
        assert_eq!(ended(Duration::from_secs(1)).fallback_result().suspects_any(), None);
        let overdue = Some(HardLinkSuspicion::Unknown(HardLinkSearchFault::Overdue));
        assert_eq!(ended(STALE_RESULT_TTL).fallback_result().suspects_any(), overdue);
        assert_eq!(SearchState::default().fallback_result().suspects_any(), overdue);
    }

    #[tokio::test]
    async fn empty_private_set_suspects_no_link() {
        assert_eq!(PrivateHardLinks::default().exposed().await.suspects_any(), None);
    }
}
