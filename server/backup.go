package server

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper/server/internal/backup"
)

// Defaults of [Backup].
const (
	DefaultBackupEvery = time.Hour
	DefaultBackupKeep  = 24
)

// Backup says where a [Server] makes backups of its member, and when. Each member with a Backup makes its own. A backup is a
// snapshot in Leasekeeper's own format that was read back and verified, and has every change that was acknowledged before it
// began.
type Backup struct {
	// Dir is the directory of the backups. [New] makes it if it does not exist, and fails if it cannot be written to.
	Dir string
	// Every is the time from one backup to the next; 0 means [DefaultBackupEvery]. Each may be later by a sixteenth of it.
	Every time.Duration
	// Keep is how many backups of this member's data directory remain in Dir; 0 means [DefaultBackupKeep].
	Keep int
	// MinFree is how many bytes a backup leaves free on the file system of Dir. It should equal the reserve of the node.
	MinFree uint64
}

// validate returns what is wrong with a Backup that may be nil. Zero fields are right.
func (b *Backup) validate() error {
	switch {
	case b == nil:
		return nil
	case b.Dir == "":
		return fmt.Errorf("backups need a directory: name one with --backup-dir")
	case b.Every < 0 || b.Every > 0 && b.Every < backup.MinEvery:
		return fmt.Errorf("backups every %v are too many: make them every %v, or less often", b.Every, backup.MinEvery)
	case b.Keep < 0:
		return fmt.Errorf("%d backups cannot be kept: keep at least 1", b.Keep)
	}
	return nil
}

// newBackups returns the schedule of backups, or nil if none are made.
func newBackups(cfg Config, m member) (*backup.Schedule, error) {
	if cfg.Backup == nil {
		return nil, nil
	}
	b := *cfg.Backup
	setDefault(&b.Every, DefaultBackupEvery)
	setDefault(&b.Keep, DefaultBackupKeep)
	return backup.New(backup.Config{Member: m, Dir: b.Dir, Every: b.Every, Keep: b.Keep, MinFree: b.MinFree, Log: cfg.Logger})
}

var (
	descBackupVerified = desc("backup_last_verified_timestamp_seconds", "When the newest backup that was verified was begun, in seconds since 1970; 0 if there is none.")
	descBackupEvery    = desc("backup_interval_seconds", "The configured time from one backup to the next.")
	descBackupBytes    = desc("backup_last_bytes", "Size of the last backup since the process started.")
	descBackupTook     = desc("backup_last_duration_seconds", "Time that the last backup since the process started took, with its verification.")
	descBackupFailures = desc("backup_failures_total", "Backups that failed, and removals of old or unfinished ones that failed.")
)

// collectBackups collects the metrics of backups.
func collectBackups(out chan<- prometheus.Metric, st backup.Stats) {
	verified := 0.0
	if !st.LastVerified.IsZero() {
		verified = float64(st.LastVerified.UnixMilli()) / 1000
	}
	for _, m := range []struct {
		desc  *prometheus.Desc
		kind  prometheus.ValueType
		value float64
	}{
		{descBackupVerified, prometheus.GaugeValue, verified},
		{descBackupEvery, prometheus.GaugeValue, st.Every.Seconds()},
		{descBackupBytes, prometheus.GaugeValue, float64(st.Bytes)},
		{descBackupTook, prometheus.GaugeValue, st.Took.Seconds()},
		{descBackupFailures, prometheus.CounterValue, float64(st.Failures)},
	} {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value)
	}
}
