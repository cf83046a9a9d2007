//! [`Limiter`]: bounds the memories and tables that one call allocates.

use wasmtime::{ResourceLimiter, Result};

use super::engine::MAX_TABLE_ELEMENTS;

/// Counts the memory of a store, and refuses growth beyond the call's limit.
#[derive(Debug)]
pub(super) struct Limiter {
    limit_bytes: usize,
    memory_bytes: usize,
    table_elements: usize,
    refused: Option<LimitRefusal>,
}

/// The last refusal. A guest that fails after a refusal most likely failed because of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitRefusal {
    Memory,
    Table,
}

impl Limiter {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, memory_bytes: 0, table_elements: 0, refused: None }
    }

    /// Returns the size of all memories together, in bytes. Memories never shrink, so this is also the
    /// peak.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(super) fn refused(&self) -> Option<LimitRefusal> {
        self.refused
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let sum = self.memory_bytes.saturating_add(desired.saturating_sub(current));
        if sum > self.limit_bytes || maximum.is_some_and(|maximum| desired > maximum) {
            self.refused = Some(LimitRefusal::Memory);
            return Ok(false);
        }
        self.memory_bytes = sum;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.refused = Some(LimitRefusal::Memory);
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> Result<bool> {
        let sum = self.table_elements.saturating_add(desired.saturating_sub(current));
        if sum > MAX_TABLE_ELEMENTS || maximum.is_some_and(|maximum| desired > maximum) {
            self.refused = Some(LimitRefusal::Table);
            return Ok(false);
        }
        self.table_elements = sum;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.refused = Some(LimitRefusal::Table);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_add_up_to_one_limit() {
        let mut limiter = Limiter::new(100);
        assert!(limiter.memory_growing(0, 60, None).expect("answers"));
        assert!(!limiter.memory_growing(0, 41, None).expect("answers"));
        assert_eq!(limiter.refused(), Some(LimitRefusal::Memory));
        assert!(limiter.memory_growing(0, 40, None).expect("answers"));
        assert_eq!(limiter.memory_bytes(), 100);
    }

    #[test]
    fn tables_add_up_to_one_limit() {
        let mut limiter = Limiter::new(0);
        assert!(limiter.table_growing(0, MAX_TABLE_ELEMENTS, None).expect("answers"));
        assert!(!limiter.table_growing(0, 1, None).expect("answers"));
        assert_eq!(limiter.refused(), Some(LimitRefusal::Table));
    }
}
