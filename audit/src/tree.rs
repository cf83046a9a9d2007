//! The Merkle tree of the rows, as in Certificate Transparency (RFC 6962, section 2.1): SHA-256, with one
//! leaf per row, whose data is the 32 bytes of the row's hash.
//!
//! A writer needs only the tree's right edge, the [`Frontier`]: the roots of the largest complete subtrees,
//! one hash for each bit that is set in the number of rows.

use sha2::{Digest as _, Sha256};

/// A hash of the tree: 32 bytes.
pub type TreeHash = [u8; 32];

/// Returns the leaf hash of a row.
#[must_use]
pub fn leaf_hash(row_hash: &TreeHash) -> TreeHash {
    Sha256::new().chain_update([0]).chain_update(row_hash).finalize().into()
}

/// Returns the hash of the node above two subtrees.
fn node_hash(left: &TreeHash, right: &TreeHash) -> TreeHash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// The right edge of a tree, which suffices to add leaves and to compute the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// The roots of the largest complete subtrees, from left to right.
    roots: Vec<TreeHash>,
}

impl Frontier {
    /// Restores a stored frontier. `None` if the number of hashes does not match the size.
    #[must_use]
    pub fn from_parts(size: u64, roots: Vec<TreeHash>) -> Option<Self> {
        (roots.len() == size.count_ones() as usize).then_some(Self { size, roots })
    }

    /// The number of leaves.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the largest complete subtrees, from left to right.
    #[must_use]
    pub fn roots(&self) -> &[TreeHash] {
        &self.roots
    }

    /// Adds the leaf of a row.
    pub fn push(&mut self, row_hash: &TreeHash) {
        self.push_subtree(leaf_hash(row_hash), 0);
    }

    /// Adds a complete subtree with 2^`level` leaves. The size must be a multiple of that number.
    fn push_subtree(&mut self, mut hash: TreeHash, level: u32) {
        // Merge the new subtree with each complete subtree of the same height on its left.
        for _ in 0..(self.size >> level).trailing_ones() {
            let left = self.roots.pop().unwrap_or_default();
            hash = node_hash(&left, &hash);
        }
        self.roots.push(hash);
        self.size += 1 << level;
    }

    /// Returns the root. For an empty tree, this is the hash of the empty string.
    #[must_use]
    pub fn root(&self) -> TreeHash {
        let mut roots = self.roots.iter().rev();
        let Some(last) = roots.next() else { return Sha256::digest([]).into() };
        roots.fold(*last, |right, left| node_hash(left, &right))
    }
}

/// Computes the proof that a tree extends an earlier one (RFC 6962, section 2.1.2), from the earlier tree's
/// frontier and the hashes of the rows after it.
#[derive(Debug, Clone)]
pub struct ConsistencyProver {
    old_frontier: Frontier,
    leaves: Vec<TreeHash>,
}

impl ConsistencyProver {
    /// Starts with the earlier tree.
    #[must_use]
    pub fn new(old: Frontier) -> Self {
        Self { old_frontier: old, leaves: Vec::new() }
    }

    /// Adds the next row. Each row takes 32 bytes of memory.
    pub fn push(&mut self, row_hash: &TreeHash) {
        self.leaves.push(leaf_hash(row_hash));
    }

    /// Returns the proof. Empty if one of the trees is empty or both are equal.
    #[must_use]
    pub fn proof(&self) -> Vec<TreeHash> {
        let size = self.old_frontier.size + self.leaves.len() as u64;
        let mut proof = Vec::new();
        if self.old_frontier.size > 0 && self.old_frontier.size < size {
            self.subproof(0, size, true, &mut proof);
        }
        proof
    }

    /// SUBPROOF of the RFC for the leaves `start..end`, of which those before the old size are old.
    fn subproof(&self, start: u64, end: u64, is_old_root: bool, proof: &mut Vec<TreeHash>) {
        let old_size = self.old_frontier.size;
        if end == old_size {
            if !is_old_root {
                proof.push(self.subtree(start, end));
            }
            return;
        }
        let middle = start + split(end - start);
        if old_size <= middle {
            self.subproof(start, middle, is_old_root, proof);
            proof.push(self.subtree(middle, end));
        } else {
            self.subproof(middle, end, false, proof);
            proof.push(self.subtree(start, middle));
        }
    }

    /// Returns the root of the leaves `start..end`, which are all new, or old and end at a boundary
    /// of the old frontier.
    fn subtree(&self, start: u64, end: u64) -> TreeHash {
        let mut part = Frontier::default();
        // Add the old subtrees in this range.
        let mut at = 0;
        for (root, level) in self.old_frontier.roots.iter().zip(levels(self.old_frontier.size)) {
            if at >= start && at + (1 << level) <= end {
                part.push_subtree(*root, level);
            }
            at += 1 << level;
        }
        let new_start = start.max(self.old_frontier.size) - self.old_frontier.size;
        let new_end = end.max(self.old_frontier.size) - self.old_frontier.size;
        for leaf in &self.leaves[index(new_start)..index(new_end)] {
            part.push_subtree(*leaf, 0);
        }
        part.root()
    }
}

/// Whether a proof shows that the tree of `new_size` leaves extends the tree of `old_size` leaves (RFC
/// 9162, section 2.1.4.2).
#[must_use]
pub fn is_consistent(
    (old_size, old_root): (u64, &TreeHash),
    (new_size, new_root): (u64, &TreeHash),
    proof: &[TreeHash],
) -> bool {
    if old_size == new_size {
        return proof.is_empty() && old_root == new_root;
    }
    if old_size == 0 {
        return proof.is_empty();
    }
    if old_size > new_size {
        return false;
    }
    let mut rest = proof.iter();
    let first = if old_size.is_power_of_two() { Some(old_root) } else { rest.next() };
    let Some(first) = first else { return false };
    let (mut old_node, mut new_node) = (old_size - 1, new_size - 1);
    let ones = old_node.trailing_ones();
    (old_node, new_node) = (old_node >> ones, new_node >> ones);
    let (mut old_hash, mut new_hash) = (*first, *first);
    for hash in rest {
        if new_node == 0 {
            return false;
        }
        if old_node & 1 == 1 || old_node == new_node {
            old_hash = node_hash(hash, &old_hash);
            new_hash = node_hash(hash, &new_hash);
            while old_node & 1 == 0 && old_node != 0 {
                (old_node, new_node) = (old_node >> 1, new_node >> 1);
            }
        } else {
            new_hash = node_hash(&new_hash, hash);
        }
        (old_node, new_node) = (old_node >> 1, new_node >> 1);
    }
    new_node == 0 && old_hash == *old_root && new_hash == *new_root
}

/// Returns the largest power of two below a number above 1.
fn split(size: u64) -> u64 {
    1 << (63 - (size - 1).leading_zeros())
}

/// Returns the heights of a tree's complete subtrees, from left to right.
fn levels(size: u64) -> impl Iterator<Item = u32> {
    (0..u64::BITS).rev().filter(move |level| size >> level & 1 == 1)
}

fn index(position: u64) -> usize {
    // The position is an index of a list in memory, so it fits.
    usize::try_from(position).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
