//! Properties that must hold for any input. The fuzz targets, and the replay of their seeds, check them.

pub mod arguments;
pub mod frames;
