//! [`ChangeScope`]: how much of a mount a change affects.

/// The parts of a mount that a call is about to change. `M` is the name of a mount, and `P` a path below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeScope<M, P> {
    /// The path itself.
    Path,
    /// The path with everything below it.
    Tree,
    /// The destination of a move, with everything that the move replaces or adds.
    MovedHere {
        /// The mount of the moved path.
        mount: M,
        /// The moved path.
        from: P,
    },
}
