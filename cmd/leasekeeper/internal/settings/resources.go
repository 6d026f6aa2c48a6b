package settings

import (
	"bufio"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

const (
	// leastMemory is the least that --memory-limit takes, and defaultMemory its default where the system does not tell how
	// much memory there is.
	leastMemory   = 128 << 20
	defaultMemory = 1 << 30
	// memoryPart is the part of the memory that there is which a server uses unless told otherwise.
	memoryPart = 4

	// spareFiles is how many descriptors are left for the database's spares, other members, and what the runtime opens.
	spareFiles = 64
	// fewFiles is the least number of descriptors with which a server starts.
	fewFiles = 256
)

// memoryLimit reads --memory-limit: "auto" is a quarter of what there is, at least 1 GiB, but never more than three
// quarters of it.
func memoryLimit(text string, there int64) (int64, error) {
	if text == "auto" {
		if there <= 0 {
			return defaultMemory, nil
		}
		return max(min(max(there/memoryPart, defaultMemory), there/4*3), leastMemory), nil
	}
	n, err := parseBytes("memory-limit", text)
	if err != nil || n < leastMemory {
		return 0, command.WrongUsage("memory-limit is %q: write auto, or at least %s, such as 2GiB", text, writeBytes(leastMemory))
	}
	return int64(n), nil
}

// memoryThere returns how many bytes of memory this process can have, by the machine and by its control group; 0 if the
// system does not tell.
func memoryThere(files func(name string) ([]byte, error)) int64 {
	there := machineMemory(files)
	text, err := files("/proc/self/cgroup")
	if err != nil {
		return there
	}
	least := func(name string) {
		text, err := files(name)
		if err != nil {
			return
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
		if err == nil && n > 0 && (there == 0 || n < there) {
			there = n
		}
	}
	for line := range strings.Lines(string(text)) {
		// hierarchy:controllers:path, where version 2 has hierarchy 0 and no controllers.
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		root, file := "/sys/fs/cgroup", "memory.max"
		if fields[1] != "" {
			if !strings.Contains(","+fields[1]+",", ",memory,") {
				continue
			}
			root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// A group is bounded by those above it too. In a container the path may be of the machine, and not be there.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			least(path.Join(root, group, file))
			if group == "/" {
				break
			}
		}
	}
	return there
}

// machineMemory reads how much memory Linux has; 0 elsewhere.
func machineMemory(files func(name string) ([]byte, error)) int64 {
	text, err := files("/proc/meminfo")
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kB, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil && kB > 0 {
				return kB << 10
			}
		}
	}
	return 0
}

// share is how many descriptors each of its users gets.
type share struct {
	database, grpc, http int
}

// shareFiles divides the descriptors that this process may have: a quarter, or as many as are of use, is the database's,
// some are kept, and of the rest three quarters are for connections of gRPC. Without a limit nothing is bounded by it.
func shareFiles(limit uint64, ofUse int) (share, error) {
	if limit == 0 {
		return share{database: ofUse}, nil
	}
	if limit < fewFiles {
		return share{}, command.Failed("this process may open only %d file descriptors, and a server needs %d: raise the limit (ulimit -n, or LimitNOFILE= in a systemd unit)", limit, fewFiles)
	}
	files := int(min(limit, 1<<30))
	s := share{database: min(files/4, ofUse)}
	rest := files - s.database - spareFiles
	s.grpc = rest / 4 * 3
	s.http = rest - s.grpc
	return s, nil
}

// readFile is os.ReadFile, which tests replace.
func readFile(name string) ([]byte, error) { return os.ReadFile(name) }
