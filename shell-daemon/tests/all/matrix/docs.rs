//! Compares the table in `docs/shell.md` with the cases that the tests try.

use super::case::{Case, Fate, POSTURES, all};

#[test]
fn the_documentation_says_what_the_table_says() {
    let documentation = include_str!("../../../../docs/shell.md");
    let table = table();
    assert!(
        documentation.contains(&table),
        "docs/shell.md does not have the table of the cases; this is it:\n\n{table}"
    );
}

fn table() -> String {
    let postures: Vec<String> = POSTURES.iter().map(|posture| format!("`{posture}`")).collect();
    let head = format!("| a command that … | {} |\n|---|---|---|---|---|\n", postures.join(" | "));
    all().iter().fold(head, |table, case| table + &row(case))
}

fn row(case: &Case) -> String {
    let fates: Vec<&str> = case.fates.iter().map(|fate| word(*fate)).collect();
    format!("| {} | {} |\n", case.about, fates.join(" | "))
}

fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Refused => "refused",
        Fate::Open => "**open**",
        Fate::Told => "done, and reported",
        Fate::Killed | Fate::Late => "killed",
        Fate::OpenToRoot => "**open** to root",
        Fate::OpenToOthers => "**open**, but not to root",
    }
}
