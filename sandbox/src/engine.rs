//! The one WebAssembly engine: its limits, and nothing of what runs in it.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use super::WasmError;

/// Linear memories that one module may have. Their sizes add up against the call's memory limit.
const MAX_MEMORIES_PER_MODULE: u32 = 4;

/// Tables that one module may have.
const MAX_TABLES_PER_MODULE: u32 = 4;

/// Elements that all tables of a call may have together. A growing table is host memory.
pub(super) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// The stack that guest code may use: 1 MiB, enough for a recursive JSON parser, far from the host's end.
const MAX_WASM_STACK_BYTES: usize = 1 << 20;

/// Memory of a slot that is zeroed in place and kept, instead of being given back after each call.
/// Where the kernel can say which pages were touched, only those are zeroed.
const KEEP_RESIDENT_BYTES: usize = 2 << 20;

/// What one memory may grow to as far as the engine is concerned: all that 32-bit WebAssembly can address.
/// Address space is reserved for that anyway; the limit of a call is the limiter's.
const MAX_MEMORY_BYTES: usize = 4 << 30;

/// Makes the engine for `slots` calls at a time.
pub(super) fn build(slots: u32) -> Result<Engine, WasmError> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(slots)
        // Every call may be of a module with as many as there may be, and must not take another's.
        .total_memories(slots.saturating_mul(MAX_MEMORIES_PER_MODULE))
        .total_tables(slots.saturating_mul(MAX_TABLES_PER_MODULE))
        .max_memories_per_module(MAX_MEMORIES_PER_MODULE)
        .max_tables_per_module(MAX_TABLES_PER_MODULE)
        .max_memory_size(MAX_MEMORY_BYTES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(1 << 16)
        .pagemap_scan(Enabled::Auto);
    let mut config = common();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| WasmError::Engine { source })
}

/// Makes an engine that only compiles, for the engine of [`build`]: on one thread, and without the
/// addresses that are reserved for instances.
pub(super) fn for_compiling() -> Result<Engine, WasmError> {
    let mut config = common();
    config.parallel_compilation(false);
    Engine::new(&config).map_err(|source| WasmError::Engine { source })
}

/// What decides on the code that is compiled. One that differs would be refused by the other engine.
fn common() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(MAX_WASM_STACK_BYTES)
        .wasm_backtrace_max_frames(None);
    config
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hash, Hasher};

    use super::*;

    #[test]
    fn what_one_engine_compiles_the_other_runs() {
        let tag = |engine: &Engine| {
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(tag(&for_compiling().expect("an engine")), tag(&build(1).expect("an engine")));
    }
}
