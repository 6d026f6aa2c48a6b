package settings

import (
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// parseRetention parses --auto-compaction-retention.
func (s Server) parseRetention() (time.Duration, error) {
	d, err := time.ParseDuration(s.retention)
	if err != nil || d < 0 {
		return 0, command.WrongUsage("auto-compaction-retention is %q: write a duration, such as 1h or 90m, or 0 to keep all revisions until a client compacts them", s.retention)
	}
	return d, nil
}
