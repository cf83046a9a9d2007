//! Schedules the search for exposed private files, and selects the result that a call uses.
//!
//! The folders may lie on a file system that does not respond. So a search runs on a separate thread, one at
//! a time, and a call awaits it for a bounded time without blocking its own thread.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{ExposedFiles, FIRST_SEARCH_WAIT, PrivatePaths, SEARCH_WAIT, UnknownReason, walk};

/// How long a result counts as fresh if searching is fast.
const MIN_FRESHNESS: Duration = Duration::from_secs(1);

/// Searches use at most one part in this many of the time.
const MIN_IDLE_RATIO: u32 = 50;

/// Limit of a result's freshness, however long the search took.
const MAX_FRESHNESS: Duration = Duration::from_secs(30);

/// How long the last result stands in for an overdue search. After that any file with several names counts as
/// possibly private, and no command runs.
const STALE_RESULT_TIME: Duration = Duration::from_secs(30);

/// Repeated search for private files that have names elsewhere.
#[derive(Debug, Clone, Default)]
pub struct PrivateLinks {
    /// None if there are no private places.
    searcher: Option<Arc<LinkSearcher>>,
}

struct LinkSearcher {
    search: Box<dyn Fn() -> ExposedFiles + Send + Sync>,
    seen: Mutex<SearchState>,
    done: Notify,
}

#[derive(Debug, Default)]
struct SearchState {
    last: Option<LastSearch>,
    /// When the running search began; none if no search runs.
    begun: Option<Instant>,
}

/// The last completed search.
#[derive(Debug)]
struct LastSearch {
    /// Until when its result is fresh.
    until: Instant,
    found: Arc<ExposedFiles>,
}

impl PrivateLinks {
    /// Prepares the search of these places, without starting it.
    #[must_use]
    pub fn new(vault: Option<Arc<OwnedFd>>, private: &PrivatePaths) -> Self {
        let places = private.open(vault);
        if places.is_empty() {
            return Self::default();
        }
        Self::searching_with(move || walk::private(&places))
    }

    fn searching_with(search: impl Fn() -> ExposedFiles + Send + Sync + 'static) -> Self {
        let searcher = LinkSearcher { search: Box::new(search), seen: Mutex::default(), done: Notify::new() };
        Self { searcher: Some(Arc::new(searcher)) }
    }

    /// The current result: fresh, or of a new search, or the one that stands in.
    ///
    /// # Cancellation
    /// Dropping the future leaves a running search to its thread; the next call finds its result.
    pub async fn exposed(&self) -> Arc<ExposedFiles> {
        let Some(searcher) = &self.searcher else { return Arc::default() };
        if let Some(found) = searcher.without_waiting() {
            return found;
        }
        let time_limit = searcher.seen().time_limit();
        let _in_time = tokio::time::timeout(time_limit, searcher.search_ended()).await;
        let seen = searcher.seen();
        seen.fresh().unwrap_or_else(|| seen.stand_in())
    }

    /// Searches now, on this thread; for callers other than calls.
    pub(super) fn search_now(&self) -> ExposedFiles {
        self.searcher.as_ref().map(|searcher| (searcher.search)()).unwrap_or_default()
    }
}

impl LinkSearcher {
    /// Returns a result that needs no waiting. Starts a search if none runs.
    fn without_waiting(self: &Arc<Self>) -> Option<Arc<ExposedFiles>> {
        let mut seen = self.seen();
        if let Some(found) = seen.fresh() {
            return Some(found);
        }
        match seen.begun {
            // One call has already waited that long; later ones do not wait again.
            Some(begun) if begun.elapsed() >= seen.time_limit() => Some(seen.stand_in()),
            Some(_) => None,
            None => {
                let searcher = Arc::clone(self);
                let thread = std::thread::Builder::new().name("private-links".to_owned());
                match thread.spawn(move || searcher.run()) {
                    Ok(_detached) => seen.begun = Some(Instant::now()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot start the thread that searches private files");
                        return Some(seen.stand_in());
                    }
                }
                None
            }
        }
    }

    /// Waits until no search runs.
    async fn search_ended(&self) {
        let done = self.done.notified();
        tokio::pin!(done);
        // Register before the check, so that an end in between is not missed.
        done.as_mut().enable();
        if self.seen().begun.is_some() {
            done.await;
        }
    }

    fn run(&self) {
        let before = Instant::now();
        let found = Arc::new((self.search)());
        let mut seen = self.seen();
        let fresh = before.elapsed().saturating_mul(MIN_IDLE_RATIO).clamp(MIN_FRESHNESS, MAX_FRESHNESS);
        let until = Instant::now() + fresh;
        *seen = SearchState { last: Some(LastSearch { until, found }), begun: None };
        drop(seen);
        self.done.notify_waiters();
    }

    fn seen(&self) -> MutexGuard<'_, SearchState> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SearchState {
    fn fresh(&self) -> Option<Arc<ExposedFiles>> {
        self.last.as_ref().filter(|last| Instant::now() < last.until).map(|last| Arc::clone(&last.found))
    }

    fn standing_in(&self) -> Option<&LastSearch> {
        self.last.as_ref().filter(|last| Instant::now() < last.until + STALE_RESULT_TIME)
    }

    /// How long a search may take before it is overdue.
    fn time_limit(&self) -> Duration {
        if self.standing_in().is_some() { SEARCH_WAIT } else { FIRST_SEARCH_WAIT }
    }

    /// The result that counts while a search is overdue.
    fn stand_in(&self) -> Arc<ExposedFiles> {
        self.standing_in().map_or_else(
            || Arc::new(ExposedFiles::unknown(UnknownReason::Overdue)),
            |last| Arc::clone(&last.found),
        )
    }
}

impl fmt::Debug for LinkSearcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSearcher").field("seen", &self.seen).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::links::LinkSuspicion;

    /// A search that ends on command.
    fn held_links() -> (PrivateLinks, mpsc::Sender<ExposedFiles>, mpsc::Receiver<()>) {
        let (answer, answers) = mpsc::channel();
        let (begin, begun) = mpsc::channel();
        let answers = Mutex::new(answers);
        let links = PrivateLinks::searching_with(move || {
            begin.send(()).expect("heard");
            answers.lock().expect("one search at a time").recv().unwrap_or_default()
        });
        (links, answer, begun)
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_that_hangs_blocks_no_call_and_counts_as_suspicion() {
        let (links, answer, begun) = held_links();
        let overdue = Some(LinkSuspicion::Unknown(UnknownReason::Overdue));
        // Both run on this thread: a search on it would let neither end.
        let (one, other) = tokio::join!(links.exposed(), links.exposed());
        assert_eq!((one.suspects_any(), other.suspects_any()), (overdue, overdue));
        begun.recv().expect("begun");
        assert!(begun.try_recv().is_err(), "one search at a time");
        answer.send(ExposedFiles::default()).expect("heard");
        while links.exposed().await.suspects_any().is_some() {
            tokio::task::yield_now().await;
        }
        assert!(begun.try_recv().is_err(), "the search that had begun is the answer");
    }

    #[test]
    fn the_last_result_stands_in_for_a_bounded_time() {
        let ended = |ago: Duration| {
            let until = Instant::now().checked_sub(ago).expect("the machine runs for longer");
            SearchState { last: Some(LastSearch { until, found: Arc::default() }), begun: None }
        };
        assert!(ended(Duration::ZERO).fresh().is_none());
        assert_eq!(ended(Duration::from_secs(1)).stand_in().suspects_any(), None);
        let overdue = Some(LinkSuspicion::Unknown(UnknownReason::Overdue));
        assert_eq!(ended(STALE_RESULT_TIME).stand_in().suspects_any(), overdue);
        assert_eq!(SearchState::default().stand_in().suspects_any(), overdue);
    }

    #[tokio::test]
    async fn empty_private_set_suspects_no_link() {
        assert_eq!(PrivateLinks::default().exposed().await.suspects_any(), None);
    }
}
