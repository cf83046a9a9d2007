//! What must hold whatever a stranger writes: the fuzz targets and the replay of their seeds use it.

pub mod arguments;
pub mod frames;
