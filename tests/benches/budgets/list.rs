//! `file_list` of 20,000 entries, compared with a native listing.

use std::time::Instant;

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use serde_json::json;

use crate::{report::Report, sample::median_us};

const ENTRIES: usize = 20_000;
const ROUNDS: usize = 21;

pub(crate) async fn listing(registry: &ToolRegistry, fixture: &Fixture, report: &mut Report) {
    for number in 0..ENTRIES {
        fixture.put(&format!("many/entry-{number:05}.txt"), "");
    }
    let folder = fixture.shared("many");
    let (mut guest, mut native) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let answer = CallOutcome::run(registry, "file_list", json!({"path": "/shared/many"})).await;
        guest.push(start.elapsed());
        assert!(answer.0.original_bytes >= 15 * ENTRIES as u64, "every entry is listed");
        let start = Instant::now();
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .expect("readable")
            .map(|entry| {
                let entry = entry.expect("readable");
                (entry.file_name(), entry.file_type().expect("known").is_dir())
            })
            .collect();
        names.sort();
        native.push(start.elapsed());
        assert_eq!(names.len(), ENTRIES);
    }
    let (guest, native) = (median_us(&mut guest), median_us(&mut native));
    report.add_reference("native listing of 20 000 entries, p50", native, "µs");
    report.add_reference("file_list of 20 000 entries, p50", guest, "µs");
    report.check_at_most("… as a multiple of the native listing", guest / native, 10.0, "×");
}
