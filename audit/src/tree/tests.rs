//! Compares the frontier and its proofs with the recursive definitions of the RFC.

use proptest::prelude::*;

use super::*;

fn rows(count: u64) -> Vec<TreeHash> {
    (0..count).map(|number| Sha256::digest(number.to_be_bytes()).into()).collect()
}

/// MTH of RFC 6962.
fn tree_root(rows: &[TreeHash]) -> TreeHash {
    match rows {
        [] => Sha256::digest([]).into(),
        [row] => leaf_hash(row),
        rows => {
            let (left, right) = rows.split_at(index(split(rows.len() as u64)));
            node_hash(&tree_root(left), &tree_root(right))
        }
    }
}

/// SUBPROOF of RFC 6962.
fn subproof(old_size: usize, rows: &[TreeHash], is_old_root: bool) -> Vec<TreeHash> {
    if old_size == rows.len() {
        return if is_old_root { Vec::new() } else { vec![tree_root(rows)] };
    }
    let middle = index(split(rows.len() as u64));
    let (left, right) = rows.split_at(middle);
    if old_size <= middle {
        let mut proof = subproof(old_size, left, is_old_root);
        proof.push(tree_root(right));
        proof
    } else {
        let mut proof = subproof(old_size - middle, right, false);
        proof.push(tree_root(left));
        proof
    }
}

fn frontier_of(rows: &[TreeHash]) -> Frontier {
    let mut frontier = Frontier::default();
    rows.iter().for_each(|row| frontier.push(row));
    frontier
}

#[test]
fn small_trees_have_the_roots_and_proofs_of_the_rfc() {
    let rows = rows(70);
    for size in 0..=rows.len() {
        let frontier = frontier_of(&rows[..size]);
        assert_eq!(frontier.root(), tree_root(&rows[..size]), "{size}");
        assert_eq!(frontier.size(), size as u64);
        let stored = Frontier::from_parts(frontier.size(), frontier.roots().to_vec());
        assert_eq!(stored, Some(frontier.clone()));
        for old_size in 1..=size {
            let mut prover = ConsistencyProver::new(frontier_of(&rows[..old_size]));
            rows[old_size..size].iter().for_each(|row| prover.push(row));
            let expected =
                if old_size == size { Vec::new() } else { subproof(old_size, &rows[..size], true) };
            assert_eq!(prover.proof(), expected, "{old_size} to {size}");
            let (old_root, new_root) = (tree_root(&rows[..old_size]), frontier.root());
            let (old, new) = ((old_size as u64, &old_root), (size as u64, &new_root));
            assert!(is_consistent(old, new, &expected), "{old_size} to {size}");
        }
    }
}

#[test]
fn the_empty_tree_and_one_leaf_have_known_roots() {
    // The first test vectors of RFC 6962 implementations: the empty tree, and a leaf without data.
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(hex::encode(Frontier::default().root()), empty);
    let leaf = hex::encode(Sha256::digest([0]));
    assert_eq!(leaf, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
}

#[test]
fn frontier_with_a_wrong_number_of_hashes_is_refused() {
    assert_eq!(Frontier::from_parts(3, vec![[0; 32]]), None);
    assert_eq!(Frontier::from_parts(0, vec![[0; 32]]), None);
    assert!(Frontier::from_parts(4, vec![[0; 32]]).is_some());
}

proptest! {
    #[test]
    fn changed_proofs_and_roots_are_refused(
        old_size in 1_u64..60,
        growth in 1_u64..60,
        changed in any::<prop::sample::Index>(),
        bit in 0_usize..256,
    ) {
        let rows = rows(old_size + growth);
        let (old_rows, new_rows) = rows.split_at(index(old_size));
        let mut prover = ConsistencyProver::new(frontier_of(old_rows));
        new_rows.iter().for_each(|row| prover.push(row));
        let mut hashes = vec![tree_root(old_rows), tree_root(&rows)];
        hashes.extend(prover.proof());
        let holds = |hashes: &[TreeHash]| {
            is_consistent((old_size, &hashes[0]), (old_size + growth, &hashes[1]), &hashes[2..])
        };
        prop_assert!(holds(&hashes));
        prop_assert!(!holds(&hashes[..hashes.len() - 1]));
        let changed = changed.index(hashes.len());
        hashes[changed][bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!holds(&hashes));
    }
}
