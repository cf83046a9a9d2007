//! Builds the WebAssembly engine with its limits.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use super::WasmError;

/// Limit of a module's linear memories. Their sizes add up against the call's memory limit.
const MAX_MEMORIES_PER_MODULE: u32 = 4;

/// Limit of a module's tables.
const MAX_TABLES_PER_MODULE: u32 = 4;

/// Limit of the elements of all tables of a call together. A growing table takes host memory.
pub(super) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// Limit of the stack for guest code: 1 MiB, enough for a recursive JSON parser, far from the end of the
/// host's stack.
const MAX_WASM_STACK_BYTES: usize = 1 << 20;

/// Memory of a slot that is zeroed in place and kept, rather than returned after each call. If the kernel can
/// report which pages were touched, only those are zeroed.
const KEEP_RESIDENT_BYTES: usize = 2 << 20;

/// Limit of one memory in the engine: all that 32-bit WebAssembly can address. That much address space is
/// reserved anyway; the limiter enforces the limit of a call.
const MAX_MEMORY_BYTES: usize = 4 << 30;

/// Builds the engine for `slots` concurrent calls.
pub(super) fn build(slots: u32) -> Result<Engine, WasmError> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(slots)
        // Each concurrent call may use the maximum per module without taking another call's share.
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

/// Builds an engine that only compiles, for the engine of [`build`]: on one thread, and without the address
/// space that is reserved for instances.
pub(super) fn for_compiling() -> Result<Engine, WasmError> {
    let mut config = common();
    config.parallel_compilation(false);
    Engine::new(&config).map_err(|source| WasmError::Engine { source })
}

/// The settings that affect compiled code. The other engine would refuse code compiled with different ones.
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
    fn compiling_and_running_engine_are_compatible() {
        let tag = |engine: &Engine| {
            let mut hasher = DefaultHasher::new();
            engine.precompile_compatibility_hash().hash(&mut hasher);
            hasher.finish()
        };
        assert_eq!(tag(&for_compiling().expect("an engine")), tag(&build(1).expect("an engine")));
    }
}
