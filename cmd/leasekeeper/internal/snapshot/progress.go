package snapshot

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/etcdfile"
)

// shownFile is a snapshot that shows on a terminal how much of it was read. Its reader closes it.
type shownFile struct {
	file *os.File
	size int64
	at   int64 // where the next read begins
	line *console.Progress
}

// openSnapshot opens the snapshot of a command for reading.
func openSnapshot(cmd *cobra.Command, path string) (*shownFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, command.Failed("cannot read the snapshot: %w", err)
	}
	f := &shownFile{file: file, line: console.NewProgress(cmd.ErrOrStderr())}
	if info, err := file.Stat(); err == nil {
		f.size = info.Size()
	}
	return f, nil
}

// Read implements [io.Reader].
func (f *shownFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	f.at += int64(n)
	f.line.Show("%s of %s read", console.BytesInWords(f.at), console.BytesInWords(f.size))
	return n, err
}

// Seek implements [io.Seeker].
func (f *shownFile) Seek(offset int64, whence int) (int64, error) {
	at, err := f.file.Seek(offset, whence)
	if err == nil {
		f.at = at
	}
	return at, err
}

// Close closes the file, and removes the line.
func (f *shownFile) Close() error {
	f.line.Clear()
	return f.file.Close()
}

// importProgress shows on the line how far the import of a file of etcd is.
func importProgress(line *console.Progress) etcdfile.Progress {
	return func(stage etcdfile.Stage, done, of int64) {
		switch stage {
		case etcdfile.Verifying:
			line.Show("%s of %s verified", console.BytesInWords(done), console.BytesInWords(of))
		case etcdfile.Reading:
			line.Show("%d changes read", done)
		case etcdfile.Writing:
			line.Show("%d keys imported", done)
		}
	}
}

// copyProgress shows on the line how much of a data directory was copied.
func copyProgress(line *console.Progress) func(copied, size int64) {
	return func(copied, size int64) {
		line.Show("%s of %s copied", console.BytesInWords(copied), console.BytesInWords(size))
	}
}
