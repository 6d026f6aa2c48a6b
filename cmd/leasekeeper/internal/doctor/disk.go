package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

const (
	// probeSyncs is the number of syncs that are measured, of probeBytes each.
	probeSyncs, probeBytes = 50, 4096
	// fewSyncs is the least number of syncs that say something.
	fewSyncs = 5
	// probeLimit bounds how long they take together.
	probeLimit = 10 * time.Second
	// slowMedian and slowTail are the sync latencies, in the middle and at worst, from which a server is slow.
	slowMedian, slowTail = 10 * time.Millisecond, 100 * time.Millisecond
)

// checkDisk checks the data directory and the disk below it.
func checkDisk(ctx context.Context, dir string, limits replica.SpaceLimits, election time.Duration) []Check {
	directory, place := checkDirectory(dir)
	checks := []Check{directory}
	if place == "" {
		return checks
	}
	if place == dir {
		checks = append(checks, checkFormat(dir))
	}
	checks = append(checks, checkFileSystem(place))
	if usage, err := vfs.Default.GetDiskUsage(place); err != nil {
		checks = append(checks, skipped("free space", "the system does not report it: %v", err))
	} else {
		checks = append(checks, judgeSpace(usage.AvailBytes, usage.TotalBytes, limits))
	}
	return append(checks, checkSync(ctx, place, election))
}

// checkDirectory checks the data directory itself. place is an existing directory on the same disk: dir, or the parent in which
// it will be created; "" if there is none.
func checkDirectory(dir string) (_ Check, place string) {
	const name = "data directory"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for place = filepath.Dir(filepath.Clean(dir)); ; place = filepath.Dir(place) {
			if info, err := os.Stat(place); err == nil && info.IsDir() {
				return good(name, "%s does not exist yet: `leasekeeper serve` creates it", dir), place
			}
			if place == filepath.Dir(place) {
				return bad(Fail, name, "no directory above "+dir+" exists", "choose another directory with --data-dir"), ""
			}
		}
	case err != nil:
		return bad(Fail, name, err.Error(), "let this user read it, or run this as the user that runs the server"), ""
	case !info.IsDir():
		return bad(Fail, name, dir+" is not a directory", "choose another one with --data-dir"), ""
	}
	return judgeMode(dir, info.Mode()), dir
}

// judgeMode judges the permissions of a data directory.
func judgeMode(dir string, mode fs.FileMode) Check {
	const name, write, others = "data directory", 0o022, 0o077
	found := fmt.Sprintf("%s, mode %#o", dir, mode.Perm())
	switch {
	case !hasModes:
		return good(name, "%s", dir)
	case mode.Perm()&write != 0:
		return bad(Fail, name, found+": other users may write to it", "chmod 0700 %s", dir)
	case mode.Perm()&others != 0:
		return bad(Warn, name, found+": other users may read it", "chmod 0700 %s: the data contains hashes of passwords", dir)
	}
	return good(name, "%s", found)
}

// checkFormat checks whether this program can open the data in a directory.
func checkFormat(dir string) Check {
	const name = "data format"
	inUse, err := datadir.VersionInUse(vfs.Default, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skipped(name, "the directory has no data yet; this program writes log version %d", gate.Newest)
	case err != nil:
		return bad(Fail, name, "this program cannot open the data", "%v", err)
	case inUse == 0:
		return good(name, "of the first log versions; this program understands versions up to %d", gate.Newest)
	}
	return good(name, "log version %d is in use; this program understands versions up to %d", inUse, gate.Newest)
}

// Kinds of file systems, as Linux names them.
var (
	diskSystems    = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2", "reiserfs", "apfs", "hfs"}
	memorySystems  = []string{"tmpfs", "ramfs", "devtmpfs", "rootfs"}
	networkSystems = []string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "afs", "virtiofs", "vboxsf"}
)

// judgeFileSystem judges the kind of a file system that holds a data directory.
func judgeFileSystem(kind, mount string) Check {
	const name = "file system"
	found := kind + ", mounted at " + mount
	switch {
	case slices.Contains(diskSystems, kind):
		return good(name, "%s", found)
	case slices.Contains(memorySystems, kind):
		return bad(Warn, name, found+": it is in memory", "put the data directory on a disk: a reboot loses all data in memory, and a member without its data must be replaced")
	case slices.Contains(networkSystems, kind) || strings.HasPrefix(kind, "fuse"):
		return bad(Warn, name, found+": it is not a local disk", "put the data directory on a disk of this machine: a sync over a network is slow, and a failure of the network stops the server")
	case kind == "overlay" || kind == "aufs":
		return bad(Warn, name, found+": it is the layer of a container", "mount a volume for the data directory: the layer is deleted with the container")
	}
	return skipped(name, "%s: whether its syncs reach a disk is not known to this program", found)
}

// judgeSpace judges free space, in bytes.
func judgeSpace(free, total uint64, limits replica.SpaceLimits) Check {
	const name, part = "free space", 20 // a twentieth of the disk is little
	found := fmt.Sprintf("%s of %s (the server needs %s)", console.BytesInWords(int64(free)), console.BytesInWords(int64(total)), console.BytesInWords(int64(limits.MinFree)))
	switch {
	case free < limits.MinFree:
		return bad(Fail, name, found, "make space on the disk, or lower --min-free-bytes: below it the server refuses puts and grants")
	case free < 2*limits.MinFree || free < total/part:
		return bad(Warn, name, found, "make space on the disk soon: below --min-free-bytes the server refuses puts and grants")
	case limits.Quota == 0 || limits.Quota > free+limits.MinFree:
		return good(name, "%s; the disk fills before the data reaches --quota-bytes", found)
	}
	return good(name, "%s", found)
}

// checkSync measures how long syncs take in a directory.
func checkSync(ctx context.Context, dir string, election time.Duration) Check {
	const name = "sync latency"
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	took, err := probeSync(ctx, dir)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return bad(Fail, name, "this user cannot write to "+dir, "run this as the user that runs the server, or give that user the directory")
	case err != nil:
		return bad(Fail, name, "the disk cannot be written to: "+err.Error(), "check the disk and the kernel's log")
	case len(took) < fewSyncs:
		return bad(Fail, name, fmt.Sprintf("%s in %s", console.Plural(len(took), "sync", "syncs"), probeLimit), "use a faster disk, or find out what else writes to this one")
	}
	return judgeSync(took, election)
}

// probeSync appends blocks to a temporary file in dir and syncs each. It returns how long each sync took. It removes the file:
// where the system allows that, before it writes.
func probeSync(ctx context.Context, dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".leasekeeper-doctor-")
	if err != nil {
		return nil, err
	}
	early := os.Remove(f.Name())
	defer func() {
		err = errors.Join(err, f.Close())
		if early != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	block := make([]byte, probeBytes)
	for i := range block {
		block[i] = byte(i*31 + 7) // not zeros, which some file systems do not store
	}
	for range probeSyncs {
		if ctx.Err() != nil {
			return took, nil
		}
		if _, err := f.Write(block); err != nil {
			return took, err
		}
		began := time.Now()
		if err := syncData(f); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// judgeSync judges the latencies of syncs, at least one. election is the election timeout.
func judgeSync(took []time.Duration, election time.Duration) Check {
	const name, percent = "sync latency", 99
	sorted := slices.Sorted(slices.Values(took))
	median, tail := sorted[(len(sorted)-1)/2], sorted[(len(sorted)*percent-1)/100]
	found := fmt.Sprintf("median %s, p99 %s (%d appends of %d bytes)", brief(median), brief(tail), len(took), probeBytes)
	switch {
	case tail > election/2:
		return bad(Fail, name, found, "use a local SSD that nothing else writes to: a sync takes more than half of the election timeout (%s), so a leader will lose its leadership", election)
	case median > slowMedian || tail > slowTail:
		return bad(Warn, name, found, "use a local SSD, best with power-loss protection, that nothing else writes to: each change waits for one sync on a majority of the members")
	}
	return good(name, "%s", found)
}
