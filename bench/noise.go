package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// noise finds out how much of the machine other programs use. It works on Linux only.
type noise struct {
	start   processors
	self    time.Duration
	servers atomic.Int64 // nanoseconds on a core that servers used which have ended
}

// usage is how the cores' time was spent while something was measured.
type usage struct {
	// Total is the time of all cores; zero if it is not known.
	Total time.Duration `json:"total"`
	// Others is what other processes took of it, and Stolen what the hypervisor gave to other machines.
	Others time.Duration `json:"others"`
	Stolen time.Duration `json:"stolen"`
}

// processors holds the times of all cores together since the machine started.
type processors struct{ busy, stolen, total time.Duration }

// clockTick is the unit of time in /proc on every architecture that Go runs on.
const clockTick = time.Second / 100

func (n *noise) begin() {
	n.servers.Store(0)
	n.start, n.self = readProcessors(), selfTime()
}

// end returns how the cores' time was spent since begin.
func (n *noise) end() usage {
	now := readProcessors()
	if now.total <= n.start.total {
		return usage{}
	}
	return usage{
		Total:  now.total - n.start.total,
		Others: max(0, (now.busy-n.start.busy)-(selfTime()-n.self)-time.Duration(n.servers.Load())),
		Stolen: now.stolen - n.start.stolen,
	}
}

// plus is the usage of two spans of time.
func (u usage) plus(v usage) usage {
	return usage{Total: u.Total + v.Total, Others: u.Others + v.Others, Stolen: u.Stolen + v.Stolen}
}

// String is a sentence, or empty if the usage is not known.
func (u usage) String() string {
	if u.Total <= 0 {
		return ""
	}
	percent := func(d time.Duration) float64 { return float64(d) / float64(u.Total) * 100 }
	return fmt.Sprintf("Meanwhile other processes took %.0f %% of the cores' time, and the hypervisor %.0f %%.", percent(u.Others), percent(u.Stolen))
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
