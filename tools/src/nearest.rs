//! "Did you mean": the known name that most resembles an unknown one.

/// The candidate with the highest closeness, if it is near enough to suggest. `closeness` is from 0 to 1.
pub(crate) fn nearest<T>(
    candidates: impl IntoIterator<Item = T>,
    closeness: impl Fn(&T) -> f64,
) -> Option<T> {
    candidates
        .into_iter()
        .map(|candidate| (closeness(&candidate), candidate))
        // A name that differs in more than half is another word, not a typing mistake.
        .filter(|(close, _)| *close >= 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}
