package settings

import (
	"bufio"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/peer"
)

const (
	// leastMemory is the least value of --memory-limit in bytes. defaultMemory is its default if the system does not
	// report its memory.
	leastMemory   = 128 << 20
	defaultMemory = 1 << 30
	// memoryPart is the divisor of the available memory for the default of --memory-limit.
	memoryPart = 4

	// spareFiles is the number of file descriptors for other uses: temporary files of the database, connections that this
	// member opens to other members, and the runtime.
	spareFiles = 64
	// usefulPeers is the largest number of connections that other members may open to this one.
	usefulPeers = peer.DefaultMaxConnections
	// fewFiles is the least number of file descriptors with which a server starts.
	fewFiles = 256
)

// memoryLimit parses --memory-limit. available is the memory in bytes; 0 if it is not known. "auto" is a quarter of it,
// at least 1 GiB, but at most three quarters of it.
func memoryLimit(text string, available int64) (int64, error) {
	if text == "auto" {
		if available <= 0 {
			return defaultMemory, nil
		}
		return max(min(max(available/memoryPart, defaultMemory), available/4*3), leastMemory), nil
	}
	n, err := parseBytes("memory-limit", text)
	if err != nil || n < leastMemory {
		return 0, command.WrongUsage("memory-limit is %q: write auto, or at least %s, such as 2GiB", text, writeBytes(leastMemory))
	}
	return int64(n), nil
}

// availableMemory returns the bytes of memory that this process can have: the least of the machine's memory and the
// limits of its control groups. It returns 0 if the system reports none. files reads a file.
func availableMemory(files func(name string) ([]byte, error)) int64 {
	available := machineMemory(files)
	text, err := files("/proc/self/cgroup")
	if err != nil {
		return available
	}
	least := func(name string) {
		text, err := files(name)
		if err != nil {
			return
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is not a number: no limit
		if err == nil && n > 0 && (available == 0 || n < available) {
			available = n
		}
	}
	for line := range strings.Lines(string(text)) {
		// A line is hierarchy:controllers:path. Version 2 has hierarchy 0 and no controllers.
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
		// The limits of the parent groups apply too. In a container the path may be one of the host, which does not exist
		// here.
		for group := path.Clean("/" + fields[2]); ; group = path.Dir(group) {
			least(path.Join(root, group, file))
			if group == "/" {
				break
			}
		}
	}
	return available
}

// machineMemory returns the bytes of memory of a Linux machine; 0 on other systems.
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

// ReadFileLimit returns the number of file descriptors that this process may open; 0 if the system reports no limit.
func ReadFileLimit() uint64 {
	limit, err := fileLimit()
	if err != nil {
		return 0
	}
	return limit
}

// ReadAvailableMemory returns the bytes of memory that this process can have; 0 if the system does not report them.
func ReadAvailableMemory() int64 { return availableMemory(readFile) }

// share is the number of file descriptors for each use.
type share struct {
	database, peers, grpc, http int
}

// shareFiles divides the file descriptors of this process. The database gets a quarter, but at most useful. spareFiles
// are kept. In a cluster, connections of other members get a quarter of the rest, but at most usefulPeers. Of what remains,
// clients' gRPC connections get three quarters and their HTTP connections one. A limit of 0 means no limit: then clients'
// connections are not bounded.
func shareFiles(limit uint64, useful int, clustered bool) (share, error) {
	s := share{database: useful}
	if clustered {
		s.peers = usefulPeers
	}
	if limit == 0 {
		return s, nil
	}
	if limit < fewFiles {
		return share{}, command.Failed("this process may open only %d file descriptors, and a server needs %d: raise the limit (ulimit -n, or LimitNOFILE= in a systemd unit)", limit, fewFiles)
	}
	files := int(min(limit, 1<<30))
	s.database = min(files/4, useful)
	rest := files - s.database - spareFiles
	s.peers = min(rest/4, s.peers)
	rest -= s.peers
	s.grpc = rest / 4 * 3
	s.http = rest - s.grpc
	return s, nil
}

// readFile is the function that tests of availableMemory replace.
func readFile(name string) ([]byte, error) { return os.ReadFile(name) }
