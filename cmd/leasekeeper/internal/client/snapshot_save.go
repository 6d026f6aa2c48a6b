package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// NewSnapshotSave returns the command `snapshot save`.
func NewSnapshotSave() *cobra.Command {
	var flags clientFlags
	cmd := &cobra.Command{
		Use:   "save [FILE | -]",
		Short: "Save a snapshot of a running server",
		Long: `Save a snapshot of a running server: all its data at one moment, with a checksum that the command verifies.
No client waits for it. - writes the snapshot to standard output. Without an argument the name of the file is the
time of day. The command never replaces a file, and leaves none behind if it fails.

--timeout limits the time in which nothing arrives, not the whole time. The file contains every key and value: keep it
secret.`,
		Example: `  leasekeeper snapshot save leases.snapshot
  leasekeeper snapshot save - | age -r age1... > leases.snapshot.age`,
		Args: command.Between(0, 1, "one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := time.Now().UTC().Format("leasekeeper-20060102T150405Z.snapshot")
			if len(args) == 1 {
				path = args[0]
			}
			return withConnection(cmd, &flags, func(ctx context.Context, c *client) error {
				if path == "-" {
					_, err := c.receiveSnapshot(ctx, cmd, cmd.OutOrStdout())
					return err
				}
				return c.saveSnapshot(ctx, cmd, path)
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// savedInfo is what `snapshot save -o json` prints.
type savedInfo struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// saveSnapshot writes the snapshot into a new file. The file gets its name when it is complete and on the disk.
func (c *client) saveSnapshot(ctx context.Context, cmd *cobra.Command, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return command.Failed("there is a file %s already, and it stays: name another", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".partial-*") // readable by its owner only
	if err != nil {
		return command.Failed("could not save the snapshot: %w", err)
	}
	size, err := c.receiveSnapshot(ctx, cmd, file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = rename(file.Name(), path)
	}
	if known := (*command.Error)(nil); err != nil {
		err = errors.Join(err, os.Remove(file.Name()))
		if errors.As(err, &known) {
			return err
		}
		return command.Failed("could not save the snapshot: %w", err)
	}
	if c.flags.output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), savedInfo{File: path, Bytes: size})
	}
	return console.PrintLine(cmd.OutOrStdout(), "saved %s (%s)", path, console.BytesInWords(size))
}

// rename gives a file its name and makes that durable.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := vfs.Default.OpenDir(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// receiveSnapshot writes the snapshot to w, verifies its checksum, and returns its size.
func (c *client) receiveSnapshot(ctx context.Context, cmd *cobra.Command, w io.Writer) (int64, error) {
	const doing = "save the snapshot"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(c.flags.timeout, cancel)
	defer silence.Stop()
	stream, err := leasekeeperv1.NewMembersClient(c.conn).Snapshot(ctx, &leasekeeperv1.SnapshotRequest{})
	if err != nil {
		return 0, c.explain(doing, err)
	}
	sum, shown := newTailSum(), console.NewProgress(cmd.ErrOrStderr())
	defer shown.Clear()
	var size, received int64
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil && !silence.Stop() && ctx.Err() != nil {
			return 0, c.unreachable("could not %s: the server at %s has sent nothing for %v; try again, or wait longer with --timeout", doing, c.flags.timeout)
		}
		if err != nil {
			return 0, c.explain(doing, err)
		}
		silence.Reset(c.flags.timeout)
		size, received = m.Size, received+int64(len(m.Data))
		sum.write(m.Data)
		if _, err := w.Write(m.Data); err != nil {
			return 0, command.Failed("could not save the snapshot: %w", err)
		}
		shown.Show("%s of %s", console.BytesInWords(received), console.BytesInWords(size))
	}
	if received != size || !sum.holds() {
		return 0, command.Failed("could not save the snapshot: what arrived is damaged or not complete (%d of %d bytes); try again", received, size)
	}
	return size, nil
}

// tailSum verifies that the last bytes of a stream are the SHA-256 of those before.
type tailSum struct {
	sum  hash.Hash
	tail []byte // the last bytes, up to the length of a checksum
}

func newTailSum() *tailSum { return &tailSum{sum: sha256.New()} }

func (s *tailSum) write(p []byte) {
	s.tail = append(s.tail, p...)
	if n := len(s.tail) - sha256.Size; n > 0 {
		s.sum.Write(s.tail[:n])
		s.tail = append(s.tail[:0], s.tail[n:]...)
	}
}

func (s *tailSum) holds() bool { return bytes.Equal(s.sum.Sum(nil), s.tail) }
