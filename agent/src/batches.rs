//! Splits a turn's calls into batches.

use std::ops::Range;

use super::ExecutionStrategy;

/// Splits a turn's calls into batches. Batches run one after the other; the calls of a batch run concurrently.
/// `concurrent` says for each call, in order, whether it may run concurrently with others.
pub(super) fn batches(strategy: ExecutionStrategy, concurrent: &[bool]) -> Vec<Range<usize>> {
    let largest = match strategy {
        ExecutionStrategy::Sequential => 1,
        ExecutionStrategy::Parallel => usize::MAX,
        ExecutionStrategy::Batched { size } => size.get(),
    };
    let mut batches: Vec<Range<usize>> = Vec::new();
    for (index, &is_concurrent) in concurrent.iter().enumerate() {
        match batches.last_mut() {
            // All calls of a batch are of one kind, so the first call decides for the batch.
            Some(batch) if is_concurrent && concurrent[batch.start] && batch.len() < largest => {
                batch.end = index + 1;
            }
            _ => batches.push(index..index + 1),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    /// In the texts, `r` is a call that may run concurrently, `W` is a call that may not, and a bar separates
    /// batches.
    #[track_caller]
    fn check(strategy: ExecutionStrategy, calls: &str, expected: &str) {
        let concurrent: Vec<bool> = calls.chars().map(|c| c == 'r').collect();
        let batched_calls: Vec<&str> =
            batches(strategy, &concurrent).into_iter().map(|batch| &calls[batch]).collect();
        assert_eq!(batched_calls.join("|"), expected);
    }

    fn batched(size: usize) -> ExecutionStrategy {
        ExecutionStrategy::Batched { size: NonZeroUsize::new(size).expect("not 0") }
    }

    #[test]
    fn contiguous_concurrent_calls_batch_and_others_are_barriers() {
        let parallel = ExecutionStrategy::Parallel;
        check(parallel, "", "");
        check(parallel, "rrr", "rrr");
        check(parallel, "rrWrWWr", "rr|W|r|W|W|r");
        check(ExecutionStrategy::Sequential, "rrWr", "r|r|W|r");
    }

    #[test]
    fn batches_respect_their_size_and_the_barriers() {
        check(batched(2), "rrrrr", "rr|rr|r");
        check(batched(2), "rWrrrW", "r|W|rr|r|W");
        check(batched(1), "rrW", "r|r|W");
    }
}
