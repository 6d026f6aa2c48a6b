package main

import (
	"bytes"
	"testing"
)

// TestMessagesAreCountedAcrossPieces cuts two messages and an empty one at every two places.
func TestMessagesAreCountedAcrossPieces(t *testing.T) {
	stream := []byte{0, 0, 0, 0, 3, 'a', 'b', 'c', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'd'}
	for i := range len(stream) + 1 {
		for j := i; j <= len(stream); j++ {
			p, got := &part{}, int64(0)
			for _, piece := range [][]byte{stream[:i], stream[i:j], stream[j:]} {
				got += p.add(bytes.Clone(piece))
			}
			if got != 3 {
				t.Fatalf("cut at %d and %d, %d messages are counted, want 3", i, j, got)
			}
		}
	}
}
