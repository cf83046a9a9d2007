//! Hostile guest: takes the lock of a path, and ends in any way without releasing it.

use std::{mem::ManuallyDrop, time::Duration};

use portcullis_sdk::{ToolContext, ToolError, fs, tool};

/// Takes a lock, reports it, and goes on.
#[tool(tier = SideEffecting)]
async fn lock_path(
    ctx: &ToolContext,
    path: &str,
    /// The use of the lock: `count` up in the file, `forget`, `panic`, `loop`, take it `again`, or take `many`.
    #[arg(default = "count")]
    then: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    let lock = ManuallyDrop::new(fs::lock(&path)?);
    ctx.progress("locked");
    match then {
        "count" => {
            let text = std::fs::read_to_string(fs::locate(&path)?).unwrap_or_default();
            // The wait is long enough for a concurrent call to read the same number.
            std::thread::sleep(Duration::from_millis(5));
            let number = text.parse::<u32>().unwrap_or_default() + 1;
            fs::write_atomic(&path, number.to_string())?;
            drop(ManuallyDrop::into_inner(lock));
            Ok(number.to_string())
        }
        "panic" => panic!("with the lock"),
        "loop" => loop {
            std::hint::spin_loop();
        },
        "again" => fs::lock(&path).map(|_lock| "again".to_owned()),
        "many" => {
            for number in 0_u32.. {
                let _lock = ManuallyDrop::new(fs::lock(&fs::parse(&format!("many/{number}"))?)?);
            }
            Ok("many".to_owned())
        }
        _ => Ok("forgotten".to_owned()),
    }
}

portcullis_sdk::export_tools![lock_path];
