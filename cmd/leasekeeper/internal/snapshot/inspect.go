package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

func newInspect() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "inspect SNAPSHOT",
		Short: "Verify a snapshot and show what it contains",
		Long: `Verify a snapshot and show what it contains. The command verifies the checksum, unpacks the snapshot into the
directory for temporary files (TMPDIR), and reads its records.`,
		Example: `  leasekeeper snapshot inspect leases.snapshot`,
		Args:    command.Exactly(1, "one snapshot file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			contents, err := inspect(cmd, args[0])
			if err != nil {
				return err
			}
			return printContents(cmd, output, contents)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", console.Table, "`table` or json")
	return cmd
}

func inspect(cmd *cobra.Command, path string) (c record.Contents, err error) {
	snapshot, err := openSnapshot(cmd, path)
	if err != nil {
		return c, err
	}
	defer snapshot.Close()
	dir, err := os.MkdirTemp("", "leasekeeper-inspect-")
	if err != nil {
		return c, command.Failed("cannot unpack the snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return node.InspectSnapshot(cmd.Context(), vfs.Default, snapshot, filepath.Join(dir, "data"))
}

// contentsInfo is what `snapshot inspect -o json` prints.
type contentsInfo struct {
	ClusterID  string  `json:"cluster_id"`
	MemberID   string  `json:"member_id"`
	Revision   int64   `json:"revision"`
	Leases     int     `json:"leases"`
	Names      int     `json:"held_names"`
	LongestTTL float64 `json:"longest_ttl_seconds"`
	Applied    uint64  `json:"applied_index"`
	Unapplied  int     `json:"unapplied_entries"`
}

func printContents(cmd *cobra.Command, output string, c record.Contents) error {
	if output == console.JSON {
		return console.PrintJSON(cmd.OutOrStdout(), contentsInfo{
			ClusterID: fmt.Sprintf("%016x", c.ClusterID), MemberID: fmt.Sprintf("%016x", c.MemberID), Revision: c.Revision,
			Leases: c.Leases, Names: c.Names, LongestTTL: c.LongestTTL.Seconds(), Applied: c.Applied, Unapplied: c.Unapplied,
		})
	}
	return console.PrintLines(cmd.OutOrStdout(), fmt.Sprintf("the checksum matches\ncluster %016x, member %016x\nrevision %d\n%s, the longest TTL is %v\n%s\nlog entry %d, and %s after it\n",
		c.ClusterID, c.MemberID, c.Revision, console.Plural(c.Leases, "lease", "leases"), c.LongestTTL,
		console.Plural(c.Names, "held name", "held names"), c.Applied, console.Plural(c.Unapplied, "entry", "entries")))
}
