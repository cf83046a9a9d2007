//! Builds the WebAssembly engine with its limits.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

use super::WasmError;

/// The maximum number of a module's linear memories. Their sizes together count against the call's memory limit.
const MAX_MEMORIES_PER_MODULE: u32 = 4;

/// The maximum number of a module's tables.
const MAX_TABLES_PER_MODULE: u32 = 4;

/// The maximum number of elements in all tables of a call together. A table that grows takes host memory.
pub(super) const MAX_TABLE_ELEMENTS: usize = 100_000;

/// The maximum size of the stack for guest code: 1 MiB. This is enough for a recursive JSON parser, and far from the
/// end of the host's stack.
const MAX_WASM_STACK_BYTES: usize = 1 << 20;

/// The number of bytes of a slot's memory that stay resident after a call. They are zeroed in place instead
/// of being returned to the system. If the kernel can report which pages were touched, only those pages are
/// zeroed.
const KEEP_RESIDENT_BYTES: usize = 2 << 20;

/// The maximum size of one memory in the engine: all that 32-bit WebAssembly can address. The engine reserves this much
/// address space in any case. The limiter enforces the smaller limit of a call.
const MAX_MEMORY_BYTES: usize = 4 << 30;

/// Builds the engine for `slots` concurrent calls.
pub(super) fn build(slots: u32) -> Result<Engine, WasmError> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(slots)
        // Each call can use the maximum per module without taking the share of another call.
        .total_memories(slots.saturating_mul(MAX_MEMORIES_PER_MODULE))
        .total_tables(slots.saturating_mul(MAX_TABLES_PER_MODULE))
        // Guests run on the stacks of their workers. By default the pool would set up 1,000 stacks for fibers, with one
        // system call for each, which takes milliseconds of every start.
        .total_stacks(0)
        .max_memories_per_module(MAX_MEMORIES_PER_MODULE)
        .max_tables_per_module(MAX_TABLES_PER_MODULE)
        .max_memory_size(MAX_MEMORY_BYTES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(1 << 16)
        .pagemap_scan(Enabled::Auto);
    let mut config = common_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config).map_err(|source| WasmError::Engine { source })
}

/// Builds an engine that only compiles code for the engine of [`build`]. It uses one thread, and reserves
/// no address space for instances.
pub(super) fn build_for_compiling() -> Result<Engine, WasmError> {
    let mut config = common_config();
    config.parallel_compilation(false);
    Engine::new(&config).map_err(|source| WasmError::Engine { source })
}

/// Returns the settings that affect compiled code. Both engines must share them, because an engine refuses
/// code that was compiled with other settings.
fn common_config() -> Config {
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
        assert_eq!(tag(&build_for_compiling().expect("an engine")), tag(&build(1).expect("an engine")));
    }
}
