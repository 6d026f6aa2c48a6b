package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// noise finds out how much of the machine others used meanwhile. It works on Linux only.
type noise struct {
	start   processors
	self    time.Duration
	servers atomic.Int64 // nanoseconds that servers used which have ended
}

// processors is what all cores together did since the machine started.
type processors struct{ busy, stolen, total time.Duration }

// clockTick is the unit of time in /proc on every architecture that Go runs on.
const clockTick = time.Second / 100

func (n *noise) begin() { n.start, n.self = readProcessors(), selfTime() }

// end tells which part of the cores' time went to other processes, and which the hypervisor gave to others.
// It is empty if that cannot be found out.
func (n *noise) end() string {
	now := readProcessors()
	total := now.total - n.start.total
	if now.total == 0 || total <= 0 {
		return ""
	}
	others := (now.busy - n.start.busy) - (selfTime() - n.self) - time.Duration(n.servers.Load())
	percent := func(d time.Duration) float64 { return max(0, float64(d)/float64(total)*100) }
	return fmt.Sprintf("Meanwhile other processes took %.0f %% of the cores' time, and the hypervisor %.0f %%.",
		percent(others), percent(now.stolen-n.start.stolen))
}

func readProcessors() processors { return parseProcessors(readLine("/proc/stat")) }

// parseProcessors reads the first line of /proc/stat.
func parseProcessors(line string) (p processors) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return processors{}
	}
	const idle, ioWait, steal = 4, 5, 8
	for i, field := range fields[1 : steal+1] { // what follows is counted in these already
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return processors{}
		}
		d := time.Duration(ticks) * clockTick
		p.total += d
		switch i + 1 {
		case idle, ioWait:
		case steal:
			p.stolen += d
		default:
			p.busy += d
		}
	}
	return p
}

// selfTime is how much time on a core this process has used.
func selfTime() time.Duration { return cpuTime("self") }

// cpuTime is how much time on a core a process has used, or zero if that cannot be found out.
func cpuTime(pid string) time.Duration {
	data, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	return parseCPUTime(string(data))
}

func parseCPUTime(stat string) time.Duration {
	// The name of the command, in parentheses, may hold anything. After it come the fields from the third on.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0
	}
	u, _ := strconv.ParseInt(fields[user], 10, 64)
	s, _ := strconv.ParseInt(fields[system], 10, 64)
	return time.Duration(u+s) * clockTick
}
