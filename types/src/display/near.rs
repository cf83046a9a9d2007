//! "Did you mean": finds the known names that resemble a mistyped name.

/// Computes how similar two names are, from 0 (nothing in common) to 1 (equal except for case): the share of
/// the longer name's letters that no edit changes. An edit inserts, removes or replaces one letter, or swaps
/// two neighbours. A name of more than 64 bytes resembles nothing, because the cost of a comparison is the
/// product of both lengths, and the name may be untrusted.
///
/// ```
/// use portcullis_types::display::near::similarity;
///
/// assert_eq!(similarity("File_Read", "file_read"), 1.0);
/// assert_eq!(similarity("file_raed", "file_read"), 8.0 / 9.0);
/// ```
#[must_use]
pub fn similarity(name: &str, known: &str) -> f64 {
    if name.len() > MAX_COMPARED_BYTES {
        return 0.0;
    }
    strsim::normalized_damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase())
}

/// Returns the candidates that are similar enough to suggest, the most similar first; the sort is stable.
/// `similarity` returns 0 to 1, as [`similarity`] does.
pub fn near<T>(candidates: impl IntoIterator<Item = T>, similarity: impl Fn(&T) -> f64) -> Vec<T> {
    let mut near_ones: Vec<(f64, T)> = candidates
        .into_iter()
        .map(|candidate| (similarity(&candidate), candidate))
        .filter(|(similarity, _)| *similarity > MIN_SIMILARITY)
        .collect();
    near_ones.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    near_ones.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Returns the known name that most resembles an unknown one, if it is similar enough to suggest.
pub fn nearest_name<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    near(known, |known| similarity(name, known)).into_iter().next()
}

/// A name that differs in half of its letters is a different word, not a typo.
const MIN_SIMILARITY: f64 = 0.5;

/// The maximum length of a name to compare, in bytes. Tool names and policy keys are shorter.
const MAX_COMPARED_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_shares_more_than_half_of_its_letters() {
        #[track_caller]
        fn check(name: &str, expected: Option<&str>) {
            assert_eq!(nearest_name(name, ["name", "label", "timeout", "R"]), expected, "{name}");
        }
        check("timout", Some("timeout"));
        check("Name", Some("name"));
        check("r", Some("R"));
        check("anme", Some("name"));
        check("nabc", None);
        check("xyzzy", None);
        check("", None);
        check(&"name".repeat(17), None);
    }

    #[test]
    fn the_most_similar_name_comes_first_in_a_stable_order() {
        let known = ["file_write", "file_lead", "file_read", "file_bead", "shell_exec"];
        let near_names = near(known, |known| similarity("file_read", known));
        assert_eq!(near_names, ["file_read", "file_lead", "file_bead", "file_write"]);
    }
}
