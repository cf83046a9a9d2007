//! The start of a process with many foreign modules whose compiled code is cached.

use std::{fs, time::Instant};

use portcullis_testing::Fixture;

use crate::{process, report::Report, sample::median_us};

const MODULES: usize = 200;
const STARTS: usize = 20;

pub(crate) fn starting(report: &mut Report) {
    let fixture = Fixture::new().with_policy("[modules]\ndir = \"modules\"\n");
    let folder = fixture.root().join("modules");
    fs::create_dir(&folder).expect("a folder");
    for number in 0..MODULES {
        fs::write(folder.join(format!("m{number:03}.wasm")), module(number)).expect("written");
    }
    let mut samples = Vec::with_capacity(STARTS);
    for round in 0..=STARTS {
        let start = Instant::now();
        let output = process::command(&fixture, &fixture.state())
            .args(["call", "echo", r#"{"message":"m"}"#])
            .output()
            .expect("starts");
        let elapsed = start.elapsed();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The first start compiles the modules.
        if round > 0 {
            samples.push(elapsed);
        }
    }
    let listing =
        process::command(&fixture, &fixture.state()).args(["tools", "--json"]).output().expect("starts");
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    assert!((0..MODULES).all(|number| listing.contains(&format!("\"tool_{number}\""))), "all are there");
    let p50 = median_us(&mut samples) / 1000.0;
    report.check_at_most("start with 200 cached modules, p50", p50, 150.0, "ms");
}

/// Creates a module with one tool. Each module differs from all others.
fn module(number: usize) -> Vec<u8> {
    let describe = format!(
        "{{\"v\":1,\"tools\":[{{\"name\":\"tool_{number}\",\"parameters\":{{\"type\":\"object\"}}}}]}}"
    );
    let text: String = describe.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let module = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "fd_write"
                (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 16) "{text}")
            (func (export "_start")
                (i32.store (i32.const 0) (i32.const 16))
                (i32.store (i32.const 4) (i32.const {length}))
                (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#,
        length = describe.len(),
    );
    wat::parse_str(&module).expect("a module")
}
