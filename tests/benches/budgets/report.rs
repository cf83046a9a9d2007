//! The table of measurements.

use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};

/// The time of opening, reading and closing a file of 1 KiB on the reference machine, in microseconds. The
/// design's budgets apply unscaled to that machine. Mitigations make transitions between kernel and user mode
/// two or three times slower on some processors, and these transitions are most of a call's time.
const USUAL_NATIVE_READ_US: f64 = 2.2;

/// The time in which `serde_json` reads the list of `arguments.rs` into a value on the reference machine, in
/// milliseconds.
const USUAL_PARSE_MS: f64 = 0.47;

/// The time of one `fdatasync` of 4 KiB on the reference machine, in microseconds. Each write to a store waits for one.
const USUAL_SYNC_US: f64 = 126.0;

/// The factor by which this machine is slower than the reference machine during the measurement; at least 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slowness(f64);

impl Slowness {
    /// Slowness of kernel transitions, from native reads between the measured calls.
    pub(crate) fn from_native_read(native_read_us: f64) -> Self {
        Self((native_read_us / USUAL_NATIVE_READ_US).max(1.0))
    }

    /// Slowness of the disk, from syncs between the measured writes.
    pub(crate) fn from_sync_time(sync_us: f64) -> Self {
        Self((sync_us / USUAL_SYNC_US).max(1.0))
    }

    /// Slowness of parsing JSON, from the measured text.
    pub(crate) fn from_parse_time(parse_ms: f64) -> Self {
        Self((parse_ms / USUAL_PARSE_MS).max(1.0))
    }
}

/// Measurements, in order.
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
    /// Adds a value that must not be above its limit.
    pub(crate) fn check_at_most(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.add_row(
            what,
            measured,
            format!("≤ {}", format_value(limit, unit)),
            Some(measured <= limit),
            unit,
        );
    }

    /// Adds a rate that must not be below its limit.
    pub(crate) fn check_at_least(&mut self, what: &str, measured: f64, limit: f64, unit: &str) {
        self.add_row(
            what,
            measured,
            format!("≥ {}", format_value(limit, unit)),
            Some(measured >= limit),
            unit,
        );
    }

    /// Adds a time that must not be above the design's limit, scaled to this machine.
    pub(crate) fn check_at_most_scaled(
        &mut self,
        what: &str,
        measured: f64,
        limit: f64,
        unit: &str,
        slowness: Slowness,
    ) {
        let budget =
            format!("≤ {} ({limit} {unit} × {:.2})", format_value(limit * slowness.0, unit), slowness.0);
        self.add_row(what, measured, budget, Some(measured <= limit * slowness.0), unit);
    }

    /// Adds a rate that must not be below the design's limit, scaled to this machine.
    pub(crate) fn check_at_least_scaled(
        &mut self,
        what: &str,
        measured: f64,
        limit: f64,
        unit: &str,
        slowness: Slowness,
    ) {
        let budget =
            format!("≥ {} ({limit} {unit} / {:.2})", format_value(limit / slowness.0, unit), slowness.0);
        self.add_row(what, measured, budget, Some(measured >= limit / slowness.0), unit);
    }

    /// Adds a budget that cannot be measured here. It counts as missed.
    pub(crate) fn add_unmeasurable(&mut self, what: &str, reason: &str) {
        let [what, reason] = [what, reason].map(str::to_owned);
        self.rows.push(Row { what, measured: reason, budget: String::new(), is_met: Some(false) });
    }

    /// Adds a comparison that is left out, because the other program is missing. It does not count as missed.
    pub(crate) fn add_not_compared(&mut self, what: &str, reason: &str) {
        let what = what.to_owned();
        let measured = format!("left out: {reason}");
        self.rows.push(Row { what, measured, budget: String::new(), is_met: None });
    }

    /// Adds a value for comparison, without a budget.
    pub(crate) fn add_reference(&mut self, what: &str, measured: f64, unit: &str) {
        self.add_row(what, measured, String::new(), None, unit);
    }

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

    /// Returns whether every budget is met.
    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.is_met != Some(false))
    }

    #[expect(clippy::print_stderr, reason = "progress of a program that runs for a minute")]
    fn add_row(&mut self, what: &str, measured: f64, budget: String, is_met: Option<bool>, unit: &str) {
        eprintln!("{what}: {}", format_value(measured, unit));
        self.rows.push(Row { what: what.to_owned(), measured: format_value(measured, unit), budget, is_met });
    }
}

fn format_value(value: f64, unit: &str) -> String {
    if value >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.3} {unit}") }
}
