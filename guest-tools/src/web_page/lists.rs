//! The open lists, and the markers of their items.

use super::tree::NodeId;

/// The maximum number that an item can have. A number with more digits is not a marker (CommonMark, section 5.2).
const MAX_NUMBER: u64 = 999_999_999;

/// An open list.
#[derive(Debug)]
pub(super) struct List {
    pub(super) id: NodeId,
    /// The next number. `None` for bullets.
    next_number: Option<u64>,
}

impl List {
    /// A list of bullets, or of numbers that start at the attribute `start`.
    pub(super) fn new(id: NodeId, is_numbered: bool, start: Option<&str>) -> Self {
        let start = start.and_then(|start| start.trim().parse().ok()).unwrap_or(1);
        Self { id, next_number: is_numbered.then_some(start).filter(|next| *next <= MAX_NUMBER) }
    }

    /// The number of the next item. `None` for a bullet.
    pub(super) fn number(&mut self) -> Option<u64> {
        let number = self.next_number?;
        self.next_number = Some(number + 1).filter(|next| *next <= MAX_NUMBER);
        Some(number)
    }
}
