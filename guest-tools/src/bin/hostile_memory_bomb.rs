//! Hostile guest: allocates memory until it gets no more, and touches all of it.

use portcullis_sdk::tool;

/// Takes all memory; then says how many MiB it got, or breaks off as a program does that gets none.
#[tool]
async fn memory_bomb(#[arg(default = "report", one_of("report", "abort"))] then: &str) -> String {
    // Room for as many pieces as 32 bits can address: growing the list later could fail itself.
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
    // Frees memory for the answer.
    drop(pieces);
    format!("{mib} MiB")
}

const MIB: usize = 1 << 20;

portcullis_sdk::export_tools![memory_bomb];
