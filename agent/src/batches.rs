//! Splits a turn's calls into batches.

use std::ops::Range;

use super::ExecutionStrategy;

/// Splits a turn's calls into batches: batches run one after the other, calls of a batch concurrently.
/// `beside_others` says for each call, in order, whether it may run concurrently with others.
pub(super) fn batches(strategy: ExecutionStrategy, beside_others: &[bool]) -> Vec<Range<usize>> {
    let largest = match strategy {
        ExecutionStrategy::Sequential => 1,
        ExecutionStrategy::Parallel => usize::MAX,
        ExecutionStrategy::Batched { size } => size.get(),
    };
    let mut batches: Vec<Range<usize>> = Vec::new();
    for (at, &beside) in beside_others.iter().enumerate() {
        match batches.last_mut() {
            Some(batch) if beside && beside_others[batch.start] && batch.len() < largest => {
                batch.end = at + 1;
            }
            _ => batches.push(at..at + 1),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    /// `r` is a call that may run concurrently, `W` one that may not; a bar separates batches.
    #[track_caller]
    fn check(strategy: ExecutionStrategy, calls: &str, expected: &str) {
        let beside: Vec<bool> = calls.chars().map(|c| c == 'r').collect();
        let found: Vec<&str> = batches(strategy, &beside).into_iter().map(|batch| &calls[batch]).collect();
        assert_eq!(found.join("|"), expected);
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
    fn batches_are_no_larger_than_said_and_keep_the_barriers() {
        check(batched(2), "rrrrr", "rr|rr|r");
        check(batched(2), "rWrrrW", "r|W|rr|r|W");
        check(batched(1), "rrW", "r|r|W");
    }
}
