package etcdfile

import "io"

// Stage is a part of the work of Open and Import.
type Stage uint8

// The stages, in order.
const (
	Verifying Stage = iota // Open compares the bytes of the file with its checksum
	Reading                // Import reads the changes in the file
	Writing                // Import writes the newest values of the keys
)

// Progress receives how far a stage is: how many bytes, changes or keys of how many are done. Of is 0 if that number is
// unknown. Progress is called for every change and key, so it must be fast.
type Progress func(stage Stage, done, of int64)

// show calls the function, unless it is nil.
func (p Progress) show(stage Stage, done, of int64) {
	if p != nil {
		p(stage, done, of)
	}
}

// counted shows how many bytes of size were written to w.
type counted struct {
	w          io.Writer
	done, size int64
	progress   Progress
}

// Write implements [io.Writer].
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.done += int64(n)
	c.progress.show(Verifying, c.done, c.size)
	return n, err
}
