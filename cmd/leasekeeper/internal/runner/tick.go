package runner

import (
	"strconv"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// tickOf reads the value of --once. The words stand for the beginning of the present minute, hour or day in UTC. A clock
// that is late makes no difference to them in a crontab: cron starts the command when that same clock shows the time.
func tickOf(text string, now time.Time) (leasekeeper.Tick, error) {
	now = now.UTC()
	switch text {
	case "minute":
		return leasekeeper.TickAt(now.Truncate(time.Minute)), nil
	case "hour":
		return leasekeeper.TickAt(now.Truncate(time.Hour)), nil
	case "day":
		return leasekeeper.TickAt(now.Truncate(24 * time.Hour)), nil
	}
	tick, err := leasekeeper.ParseTick(text)
	if err != nil {
		return tick, command.WrongUsage("--once %s: write a number, a time such as 2026-03-01T12:00:00Z, minute, hour or day", strconv.Quote(text))
	}
	return tick, nil
}
