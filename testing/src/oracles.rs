//! Properties that must hold for any input. The fuzz targets check them, and so does the
//! replay of their seeds.

pub mod arguments;
pub mod frames;
