package settings

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/server"
)

// backup are the settings of backups, as the user wrote them.
type backup struct{ dir, every, keep string }

var backupSettings = []setting{
	{"backup-dir", "", "the `directory` for backups of this member, not in the data directory; created if it does not exist (default: no backups)", func(s *Server) *string { return &s.backup.dir }},
	{"backup-every", "1h", "the `duration` from one backup to the next", func(s *Server) *string { return &s.backup.every }},
	{"backup-keep", strconv.Itoa(server.DefaultBackupKeep), "the `number` of backups of this member to keep", func(s *Server) *string { return &s.backup.keep }},
}

// Backup returns the configuration of backups, or nil if there are none. minFree is the reserve of disk space.
func (s Server) Backup(minFree uint64) (*server.Backup, error) {
	every, err := time.ParseDuration(s.backup.every)
	if err != nil || every < time.Second {
		return nil, command.WrongUsage("backup-every is %q: write a duration of a second or more, such as 1h or 30m", s.backup.every)
	}
	keep, err := strconv.Atoi(s.backup.keep)
	if err != nil || keep < 1 {
		return nil, command.WrongUsage("backup-keep is %q: write a whole number of at least 1", s.backup.keep)
	}
	if s.backup.dir == "" {
		return nil, nil
	}
	if within(s.backup.dir, s.DataDir) {
		return nil, command.WrongUsage("backup-dir is %s, in the data directory %s: name a directory outside, on another disk if possible", s.backup.dir, s.DataDir)
	}
	return &server.Backup{Dir: s.backup.dir, Every: every, Keep: keep, MinFree: minFree}, nil
}

// within reports whether a path is that of a directory, or of something in it.
func within(path, dir string) bool {
	path, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return false
	}
	between, err := filepath.Rel(dir, path)
	return err == nil && between != ".." && !strings.HasPrefix(between, ".."+string(filepath.Separator))
}
