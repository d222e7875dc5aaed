//! The tree that an operation goes down and its answers come up. Everybody computes it for himself, from its root and the set.

use crate::set::{NodeId, Set};

/// A root, and the nodes of a set below it: each has at most so many children, as in a heap.
#[derive(Clone, Debug)]
pub struct Tree<'a> {
    root: NodeId,
    set: &'a Set,
    arity: usize,
}

impl<'a> Tree<'a> {
    /// The root need not be in the set.
    pub fn new(root: NodeId, set: &'a Set, arity: usize) -> Tree<'a> {
        Tree { root, set, arity: arity.max(1) }
    }

    /// 0 is the root.
    fn place(&self, node: NodeId) -> Option<usize> {
        if node == self.root {
            return Some(0);
        }
        let rank = self.set.rank(node)?;
        Some(match self.set.rank(self.root) {
            Some(root) if root < rank => rank,
            _ => rank + 1,
        })
    }

    fn node(&self, place: usize) -> Option<NodeId> {
        if place == 0 {
            return Some(self.root);
        }
        let rank = match self.set.rank(self.root) {
            Some(root) if place > root => place,
            _ => place - 1,
        };
        self.set.at(rank)
    }

    /// Who it hears from; none for the root and for those that are not in the tree.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        let place = self.place(node).filter(|place| *place > 0)?;
        self.node((place - 1) / self.arity)
    }

    /// Whom it tells.
    pub fn children(&self, node: NodeId) -> Vec<NodeId> {
        let Some(place) = self.place(node) else { return Vec::new() };
        let first = place * self.arity + 1;
        (first..first + self.arity).map_while(|place| self.node(place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;
    use std::collections::BTreeSet;

    #[test]
    fn everybody_is_in_it_once() {
        check!().with_type::<(Vec<u8>, u8, u8)>().for_each(|(nodes, root, arity)| {
            let set: Set = nodes.iter().map(|n| NodeId(u64::from(*n))).collect();
            let (root, arity) = (NodeId(u64::from(*root)), usize::from(*arity % 9));
            let tree = Tree::new(root, &set, arity);
            let (mut found, mut queue) = (BTreeSet::from([root]), vec![root]);
            while let Some(node) = queue.pop() {
                let children = tree.children(node);
                assert!(children.len() <= arity.max(1));
                for child in children {
                    assert_eq!(tree.parent(child), Some(node));
                    assert!(found.insert(child), "{child:?} twice");
                    queue.push(child);
                }
            }
            let all: BTreeSet<NodeId> = set.iter().chain([root]).collect();
            assert_eq!(found, all);
            assert_eq!(tree.parent(root), None);
        });
    }
}
