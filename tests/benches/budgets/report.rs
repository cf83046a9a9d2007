//! The table of measurements.

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

/// What opening, reading and closing a file of 1 KiB takes on a machine of the usual speed, in microseconds:
/// a machine on which the design's budgets were seen to hold as they stand. Some processors leave the kernel
/// two or three times as slowly, for the mitigations that they need, and a call is mostly such ways.
const USUAL_NATIVE_READ_US: f64 = 2.2;

/// What `serde_json` takes on such a machine to read the list of `arguments.rs` into a value, in milliseconds.
const USUAL_PARSE_MS: f64 = 0.47;

/// How many times as long as on a machine of the usual speed something takes here, while this is measured; never
/// less than 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowness(f64);

impl Slowness {
    /// Of the kernel's ways, from the native reads that were timed between the very calls that are judged.
    pub(crate) fn of_kernel(native_read_us: f64) -> Self {
        Self((native_read_us / USUAL_NATIVE_READ_US).max(1.0))
    }

    /// Of reading JSON, from the same text that is judged.
    pub(crate) fn of_parsing(parse_ms: f64) -> Self {
        Self((parse_ms / USUAL_PARSE_MS).max(1.0))
    }
}

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

    /// A rate that must not be below its limit.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.add(what, measured, format!("≥ {}", show(limit, unit)), Some(measured >= limit), unit);
    }

    /// A time that must not be above its limit, which is the design's for a machine of the usual speed.
    pub(crate) fn at_most_here(&mut self, what: &str, measured: f64, limit: f64, unit: &str, here: Slowness) {
        let budget = format!("≤ {} ({limit} {unit} × {:.2})", show(limit * here.0, unit), here.0);
        self.add(what, measured, budget, Some(measured <= limit * here.0), unit);
    }

    /// A rate that must not be below its limit, which is the design's for a machine of the usual speed.
    pub(crate) fn at_least_here(
        &mut self,
        what: &str,
        measured: f64,
        limit: f64,
        unit: &str,
        here: Slowness,
    ) {
        let budget = format!("≥ {} ({limit} {unit} / {:.2})", show(limit / here.0, unit), here.0);
        self.add(what, measured, budget, Some(measured >= limit / here.0), unit);
    }

    /// A budget that cannot be measured here, which is no better than one that is missed.
    pub(crate) fn impossible(&mut self, what: &str, why: &str) {
        let [what, why] = [what, why].map(str::to_owned);
        self.rows.push(Row { what, measured: why, budget: String::new(), is_met: Some(false) });
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
