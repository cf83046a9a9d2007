//! `cargo xtask readability`: measures how much of each page of the corpus `web_fetch` keeps, and how much
//! noise it adds.
//!
//! The score counts words. Recall is the share of the expected words that is shown. Noise is the share of the
//! shown words that is not expected.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use portcullis_guest_tools::{PageContent, PageEffort, PageFormat, PageSource, read_page};

struct CorpusPage {
    name: String,
    html: Vec<u8>,
    expected: String,
}

/// How well a text matches the expected text. Both numbers are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Score {
    recall: f64,
    noise: f64,
}

/// Returns the table of all pages, with their means. If `peer` is a folder whose `node_modules` has Mozilla's
/// Readability, the table also has its scores.
pub(crate) fn table(root: &Path, peer: Option<&Path>) -> anyhow::Result<String> {
    let mut pages = corpus(root)?;
    let peer = peer.map(|modules| peer_texts(root, modules)).transpose()?;
    pages.push(large_page()?);
    let mut table = format!("{:24} {:>7} {:>7} {:>9} {:>9}\n", "page", "recall", "noise", "peer", "noise");
    let (mut our_scores, mut peer_scores) = (Vec::new(), Vec::new());
    for page in &pages {
        let score = score(&page.expected, &visible_text(page));
        our_scores.push(score);
        write!(table, "{:24} {:7.3} {:7.3}", page.name, score.recall, score.noise)?;
        // The peer's means omit pages that the peer did not process.
        if let Some(text) = peer.as_ref().and_then(|texts| texts.get(&page.name)) {
            let score = self::score(&page.expected, text);
            peer_scores.push(score);
            write!(table, " {:9.3} {:9.3}", score.recall, score.noise)?;
        }
        table.push('\n');
    }
    let our_mean = mean(&our_scores);
    write!(table, "{:24} {:7.3} {:7.3}", "mean", our_mean.recall, our_mean.noise)?;
    if !peer_scores.is_empty() {
        let mean = mean(&peer_scores);
        write!(table, " {:9.3} {:9.3}", mean.recall, mean.noise)?;
    }
    table.push('\n');
    Ok(table)
}

/// Returns the pages of the corpus, by name.
fn corpus(root: &Path) -> anyhow::Result<Vec<CorpusPage>> {
    let folder = corpus_folder(root);
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list `{}`", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "html") {
            continue;
        }
        let name = path.file_stem().context("a page has a name")?.to_string_lossy().into_owned();
        let expected = path.with_extension("expected.txt");
        let expected = fs::read_to_string(&expected).with_context(|| format!("`{}`", expected.display()))?;
        pages.push(CorpusPage { name, html: fs::read(&path)?, expected });
    }
    pages.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(pages)
}

/// Returns an article of 5 MB. It is generated, because it is too large for a repository. The peer does not
/// process it.
fn large_page() -> anyhow::Result<CorpusPage> {
    const BYTES: usize = 5 << 20;
    let (mut html, mut expected) =
        ("<title>Log of the tides</title><article>".to_owned(), "Log of the tides".to_owned());
    for day in 0.. {
        if html.len() >= BYTES {
            break;
        }
        let text = format!(
            "On day {day} the water rose to {} centimetres, and fell again by the evening.",
            day % 411
        );
        write!(html, "<p>{text}</p>")?;
        write!(expected, "\n{text}")?;
    }
    Ok(CorpusPage { name: "large".to_owned(), html: html.into_bytes(), expected })
}

fn corpus_folder(root: &Path) -> PathBuf {
    root.join("guest-tools/corpus")
}

/// Returns the text that a reader of the page gets: title and content.
fn visible_text(page: &CorpusPage) -> String {
    let source =
        PageSource { bytes: &page.html, content_type: Some("text/html"), url: "https://harbor.example/page" };
    match read_page(source, PageFormat::Text, PageEffort::Extract).content {
        PageContent::Text(text) => text,
        PageContent::Image | PageContent::NotShown => String::new(),
    }
}

fn score(expected: &str, actual: &str) -> Score {
    let (expected, actual) = (count_words(expected), count_words(actual));
    let common: usize =
        expected.iter().map(|(word, count)| actual.get(word).copied().unwrap_or(0).min(*count)).sum();
    let share = |counts: &HashMap<String, usize>| {
        let total: usize = counts.values().sum();
        if total == 0 { 0.0 } else { ratio(common, total) }
    };
    Score { recall: share(&expected), noise: if actual.is_empty() { 0.0 } else { 1.0 - share(&actual) } }
}

fn ratio(part: usize, total: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(part) / number(total)
}

/// Counts the occurrences of each word, in lower case.
fn count_words(text: &str) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *words.entry(word.to_lowercase()).or_default() += 1;
    }
    words
}

fn mean(scores: &[Score]) -> Score {
    let mean_of =
        |part: fn(&Score) -> f64| scores.iter().map(part).sum::<f64>() / ratio(scores.len().max(1), 1);
    Score { recall: mean_of(|score| score.recall), noise: mean_of(|score| score.noise) }
}

/// Returns the text that Mozilla's Readability keeps of each page, by the page's name.
fn peer_texts(root: &Path, modules: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut node = super::command(root, "node", &["xtask/readability/peer.mjs"]);
    let output = node.arg(corpus_folder(root)).arg(modules).output().context("cannot start `node`")?;
    if !output.status.success() {
        bail!("node failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raise these numbers when the reader gets better.
    const MIN_MEAN_RECALL: f64 = 0.98;
    const MAX_MEAN_NOISE: f64 = 0.06;
    const MIN_RECALL: f64 = 0.85;

    #[test]
    fn the_corpus_is_read_with_little_loss_and_noise() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
        let pages = corpus(root).expect("a corpus");
        assert!(pages.len() >= 60);
        let scores: Vec<Score> =
            pages.iter().map(|page| score(&page.expected, &visible_text(page))).collect();
        let mean = mean(&scores);
        assert!(mean.recall >= MIN_MEAN_RECALL && mean.noise <= MAX_MEAN_NOISE, "{mean:?}");
        for (page, score) in pages.iter().zip(&scores) {
            assert!(score.recall >= MIN_RECALL, "{}: {score:?}", page.name);
        }
    }

    #[test]
    fn words_are_counted_as_often_as_they_occur() {
        let score = score("one two two", "Two, one; three four");
        assert!((score.recall - 2.0 / 3.0).abs() < 1e-9 && (score.noise - 0.5).abs() < 1e-9, "{score:?}");
    }
}
