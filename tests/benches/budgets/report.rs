//! The table of measurements.

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

/// Measurements in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    measured: String,
    budget: String,
    is_met: Option<bool>,
}

impl Report {
    /// A value that must not be above its limit.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.add(what, measured, format!("≤ {}", show(limit, unit)), Some(measured <= limit), unit);
    }

    /// A value that must not be below its limit.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.add(what, measured, format!("≥ {}", show(limit, unit)), Some(measured >= limit), unit);
    }

    /// A value that others are compared with.
    pub(crate) fn reference(&mut self, what: &str, measured: f64, unit: &str) {
        self.add(what, measured, String::new(), None, unit);
    }

    /// Prints the table.
    #[expect(clippy::print_stdout, reason = "the benchmark's answer")]
    pub(crate) fn print(&self) {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(["what", "measured", "budget", ""]);
        for row in &self.rows {
            let verdict = match row.is_met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            table.add_row([row.what.as_str(), row.measured.as_str(), row.budget.as_str(), verdict]);
        }
        println!("{table}");
    }

    /// Whether no budget is missed.
    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.is_met != Some(false))
    }

    #[expect(clippy::print_stderr, reason = "progress of a program that runs for a minute")]
    fn add(&mut self, what: &str, measured: f64, budget: String, is_met: Option<bool>, unit: &str) {
        eprintln!("{what}: {}", show(measured, unit));
        self.rows.push(Row { what: what.to_owned(), measured: show(measured, unit), budget, is_met });
    }
}

fn show(value: f64, unit: &str) -> String {
    if value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.3} {unit}") }
}
