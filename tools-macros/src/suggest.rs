//! "Did you mean": finds the nearest known word.

/// The clause ``; did you mean `x`?``; empty if no known word is near.
pub(crate) fn did_you_mean(word: &str, known: &[&str]) -> String {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        // Below this similarity, the word is probably not a misspelling of the known one.
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, candidate)| format!("; did you mean `{candidate}`?"))
}

/// The known words as a list for people: `` `a`, `b` ``.
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
