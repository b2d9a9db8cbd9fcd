package checkpoint

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// Leaf of the tree for a row, by the row's hash in hex. The tree is over the hashes, so that it can be made without the rows.
func Leaf(rowHash string) (tlog.Hash, error) {
	b, err := hex.DecodeString(rowHash)
	if err != nil || len(b) != tlog.HashSize {
		return tlog.Hash{}, fmt.Errorf("%q is not the hash of a row", rowHash)
	}
	return tlog.RecordHash(b), nil
}

// Tree grows by a leaf at a time and knows its root. It keeps one hash for each bit that is set in its size, and so costs nothing to carry along
// while rows are read.
type Tree struct {
	rows  int64
	peaks []tlog.Hash // of complete subtrees, the largest first
}

// Add a leaf.
func (t *Tree) Add(leaf tlog.Hash) {
	h := leaf
	for range bits.TrailingZeros64(^uint64(t.rows)) { // each completes a subtree with the one before it
		last := len(t.peaks) - 1
		h, t.peaks = tlog.NodeHash(t.peaks[last], h), t.peaks[:last]
	}
	t.peaks = append(t.peaks, h)
	t.rows++
}

// Clone of the tree, which grows by itself.
func (t *Tree) Clone() Tree { return Tree{rows: t.rows, peaks: slices.Clone(t.peaks)} }

// Now is the checkpoint of what was added; the zero one when nothing was.
func (t *Tree) Now() Checkpoint {
	if t.rows == 0 {
		return Checkpoint{}
	}
	last := len(t.peaks) - 1
	root := t.peaks[last]
	for i := last - 1; i >= 0; i-- {
		root = tlog.NodeHash(t.peaks[i], root)
	}
	return Checkpoint{Rows: t.rows, Root: root}
}
