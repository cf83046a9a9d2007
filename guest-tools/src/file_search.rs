//! `file_search`: ripgrep's search, with ripgrep's crates, in one thread.
//!
//! `grep-searcher` and `grep-regex` search, and `ignore` provides the rules of ignore files and globs. The walk over
//! directories is this crate's own (see [`walk`]).

use std::fs::File;

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, fs, serde_json::json, tool};

use self::{
    files::FileSearcher,
    report::{SearchReport, count_with_noun},
    walk::FileWalk,
};

mod any_case;
mod files;
mod ignored;
mod query;
mod report;
mod required;
mod walk;

/// Searches the lines of text files, below a directory or in one file, as ripgrep does.
/// Each matching line comes as `path:line:text`, lines of `context` as `path-line-text`, groups of lines are set apart by `--`.
/// Hidden files and directories, binary files, and what `.gitignore` and `.ignore` files exclude (Git repository or not) are skipped; `.git` always is. Symbolic links are not followed.
/// A `glob` chooses files whatever ignore files say; a file given as `path` is searched in any case.
#[tool(label = "Search files", tier = ReadOnly, timeout = "20s", profile = FileReadOnly, deny_unknown)]
#[expect(clippy::too_many_arguments, reason = "they are the tool's, by name")]
pub async fn file_search(
    ctx: &ToolContext,
    /// The text to find within one line, or a regular expression if `regex` is set.
    query: &str,
    /// The directory or file to search. Relative paths start at `/shared`.
    #[arg(path = "read", default = "/shared")]
    path: &str,
    /// Whether `query` is a regular expression, in the syntax of Rust's `regex` (no look-around, no back-references).
    #[arg(default = false)]
    regex: bool,
    /// A glob of the files to search, such as `*.rs`, `src/**/*.{ts,tsx}`, or `!*.lock` for all others.
    glob: Option<&str>,
    /// Whether upper and lower case differ.
    #[arg(default = true)]
    case_sensitive: bool,
    /// How many lines to show before and after each matching line.
    #[arg(default = 0, min = 0, max = 100)]
    context: u32,
    /// How many matching lines to show at most.
    #[arg(default = 200, min = 1, max = 10000)]
    max_results: u32,
) -> Result<ToolOutput, ToolError> {
    let path = fs::parse(path)?;
    if path.mount().is_none() {
        return Err(ToolError::invalid_arguments(
            "field 'path': `/` is not a mount; search `/shared` or another one",
        ));
    }
    let matcher = query::matcher(query, regex, case_sensitive)?;
    let root = fs::locate(&path)?;
    let metadata = std::fs::metadata(&root).map_err(|error| fs::tool_error(error, "search", &path))?;
    let mut files =
        FileSearcher::new(matcher, context as usize, SearchReport::new(max_results as usize, context > 0));
    if metadata.is_file() {
        files.search(File::open(&root), path.as_str(), SearchReason::ByName);
        return Ok(answer(&files.report, None));
    }
    if !metadata.is_dir() {
        return Err(ToolError::failed(format!("cannot search `{path}`: it is not a regular file")));
    }
    let mut walk = FileWalk::new(&root, &path, glob)?;
    while let Some(file) = walk.next_file() {
        files.search(file.open(), file.guest, SearchReason::ByWalk);
        if files.report.is_full() {
            break;
        }
        // The answer needs time too, so the search ends before the deadline.
        if ctx.remaining().is_some_and(|remaining| remaining < MARGIN) {
            files.report.out_of_time = true;
            break;
        }
    }
    Ok(answer(&files.report, Some(&walk)))
}

/// Why a file is searched.
#[derive(Clone, Copy, PartialEq)]
enum SearchReason {
    /// The call names it.
    ByName,
    ByWalk,
}

/// The time before the deadline at which a search stops, so that its results are not lost.
const MARGIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The found lines, followed by notes about what they leave out.
fn answer(report: &SearchReport, walk: Option<&FileWalk>) -> ToolOutput {
    let mut text = report.lines();
    if report.matching_lines == 0 {
        text.push_str(&nothing_found(report, walk));
    }
    let mut notes = report.notes();
    notes.extend(walk.map(FileWalk::notes).unwrap_or_default());
    let complete = notes.is_empty();
    for note in notes {
        text.push_str(&format!("[{note}]\n"));
    }
    text.pop();
    ToolOutput::text(text).with_details(json!({
        "matching_lines": report.matching_lines,
        "files_searched": report.searched,
        "complete": complete,
    }))
}

/// Returns the answer if nothing matches: what was searched, and what was skipped.
fn nothing_found(report: &SearchReport, walk: Option<&FileWalk>) -> String {
    let mut skipped = Vec::new();
    if report.binary > 0 {
        skipped.push(format!("{} binary", report.binary));
    }
    skipped.extend(walk.map(FileWalk::skipped).unwrap_or_default());
    let searched = count_with_noun(report.searched, "file", "files");
    if skipped.is_empty() {
        return format!("no matches in {searched}\n");
    }
    format!("no matches in {searched} (skipped: {})\n", skipped.join(", "))
}

#[cfg(test)]
mod tests;
