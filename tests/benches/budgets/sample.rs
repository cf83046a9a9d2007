//! Medians and quantiles of samples, because the machines are noisy.

use std::time::Duration;

/// Returns the median of some durations, in microseconds.
pub(crate) fn median_us(samples: &mut [Duration]) -> f64 {
    quantile_us(samples, 0.5)
}

/// Returns a quantile of some durations, in microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index into a few thousand samples"
)]
pub(crate) fn quantile_us(samples: &mut [Duration], quantile: f64) -> f64 {
    samples.sort_unstable();
    let index = ((samples.len() - 1) as f64 * quantile) as usize;
    samples[index].as_secs_f64() * 1e6
}

/// Returns the resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("readable");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("there");
    let kibibytes: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kibibytes * 1024
}
