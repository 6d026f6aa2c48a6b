package doctor

import (
	"fmt"
	"runtime"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// usefulFiles is the limit on file descriptors below which connections or the database's tables are scarce.
const usefulFiles = 4096

// checkProgram says which program this is.
func checkProgram(version string) Check {
	return good("program", "leasekeeper %s, %s/%s; understands log versions up to %d", version, runtime.GOOS, runtime.GOARCH, gate.Newest)
}

// judgeFiles judges the number of file descriptors that a server may open; 0 means that the system reports none.
func judgeFiles(limit uint64, forDatabase, forConnections int) Check {
	const name = "open files"
	found := fmt.Sprintf("limit %d: %d for the database, %d connections", limit, forDatabase, forConnections)
	switch {
	case limit == 0:
		return skipped(name, "the system reports no limit")
	case limit < usefulFiles:
		return bad(Warn, name, found, "raise the limit for the server: ulimit -n %d, or LimitNOFILE= in its systemd unit; this is the limit of the present shell", 16*usefulFiles)
	}
	return good(name, "%s", found)
}

// judgeMemory judges the memory limit of a server, in bytes. available is the memory that the process can have; 0 for unknown.
func judgeMemory(limit, available int64) Check {
	const name = "memory limit"
	if available <= 0 {
		return good(name, "%s; the system does not report its memory", console.BytesInWords(limit))
	}
	found := fmt.Sprintf("%s of %s", console.BytesInWords(limit), console.BytesInWords(available))
	if limit > available/4*3 {
		return bad(Warn, name, found, "lower --memory-limit to at most three quarters of the memory, or give the machine or the container more")
	}
	return good(name, "%s", found)
}
