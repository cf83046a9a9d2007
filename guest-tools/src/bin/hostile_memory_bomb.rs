//! Hostile guest: allocates memory until it is refused, and touches all of it.

use portcullis_sdk::tool;

/// Takes all memory; then says how many MiB it got, or breaks off as a program does that gets none.
#[tool]
async fn memory_bomb(#[arg(default = "report", one_of("report", "abort"))] then: &str) -> String {
    // Reserve room for as many pieces as 32 bits can address: growing the list could fail when the memory is full.
    let mut pieces: Vec<Vec<u8>> = Vec::with_capacity(4096);
    loop {
        let mut piece = Vec::new();
        match piece.try_reserve_exact(MIB) {
            Ok(()) => piece.resize(MIB, 0xA5),
            Err(_) if then == "abort" => piece = vec![0xA5; MIB],
            Err(_) => break,
        }
        pieces.push(std::hint::black_box(piece));
    }
    let mib = pieces.len();
    // Free the memory, so that there is some for the answer.
    drop(pieces);
    format!("{mib} MiB")
}

const MIB: usize = 1 << 20;

portcullis_sdk::export_tools![memory_bomb];
