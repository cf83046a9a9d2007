//! "Did you mean": finds the nearest known word.

/// Returns the clause ``; did you mean `x`?``; empty if no known word is near.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    known
        .iter()
        .map(|candidate| (similarity(word, candidate), candidate))
        // A word that differs in half of its letters is another word, not a misspelling.
        .filter(|(similarity, _)| *similarity > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| format!("; did you mean `{candidate}`?"))
}

/// The same measure as in `portcullis_types::display::near`. A macro crate does not depend on that crate,
/// because a build of a guest would compile it a second time, for the host.
fn similarity(word: &str, known: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(&word.to_lowercase(), &known.to_lowercase())
}

/// Returns the known words as a list for people: `` `a`, `b` ``.
pub(crate) fn list(known: &[&str]) -> String {
    known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_word_is_suggested() {
        let known = ["name", "label", "timeout"];
        assert_eq!(did_you_mean("timout", &known), "; did you mean `timeout`?");
        assert_eq!(did_you_mean("Name", &known), "; did you mean `name`?");
        assert_eq!(did_you_mean("xyzzy", &known), "");
    }
}
