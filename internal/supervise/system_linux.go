package supervise

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const ownPath = "/proc/self/exe" // the running program, even if its file was replaced meanwhile

// setProcessName changes the name by which tools such as killall know this process. Before, the name is "exe", the last
// part of ownPath. If it fails, the name stays "exe", which no pattern for the wrapper hits either.
func setProcessName(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// becomeSubreaper makes this process the parent of orphaned descendants.
func becomeSubreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// stopSubreaping undoes becomeSubreaper.
func stopSubreaping() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// killWithParent makes the kernel kill the process when the thread that started it ends.
func killWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// dup makes to a copy of from.
func dup(from, to int) error { return unix.Dup3(from, to, 0) }

// allGone returns true: it is called when this process has no children, and then it has no descendants.
func allGone(int) bool { return true }

// ownsGroup reports whether a group whose first process has ended has members among the descendants.
func ownsGroup(group int, descendants []int) bool {
	return slices.ContainsFunc(descendants, func(pid int) bool { return inGroup(group, pid) })
}

// pollInterval returns forever: on Linux the end of each descendant sends SIGCHLD, so polling is unnecessary.
func pollInterval(bool) time.Duration { return forever }

// descendants returns the descendants of a process that /proc shows, in no order. They include processes that have ended
// and were not reaped: their threads and children may still run. The processes in without are left out, with their
// descendants.
func descendants(of int, without ...int) []int {
	if of == os.Getpid() && childless() {
		return nil // without a look at each process of the machine
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	children := make(map[int][]int)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var found []int
	for next := children[of]; len(next) > 0; next = next[1:] {
		if !slices.Contains(without, next[0]) {
			found = append(found, next[0])
			next = append(next, children[next[0]]...)
		}
	}
	return found
}

// childless reports whether this process has no children, not even some that have ended and were not reaped.
func childless() bool {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil) == unix.ECHILD
}

// otherDescendants returns the descendants of this process except a child and the descendants of that child.
func otherDescendants(child int) []int {
	if isOnlyChild("/proc/self/task", child) {
		return nil // without a look at each process of the machine
	}
	return descendants(os.Getpid(), child)
}

// isOnlyChild reports whether the child is the only child of the process whose threads the directory lists. It returns
// false if the kernel does not list children (CONFIG_PROC_CHILDREN).
func isOnlyChild(threads string, child int) bool {
	entries, err := os.ReadDir(threads)
	if err != nil {
		return false
	}
	found := false
	for _, e := range entries {
		text, err := os.ReadFile(threads + "/" + e.Name() + "/children")
		if err != nil {
			return false // also if the thread has ended, because its children now belong to another thread
		}
		for _, pid := range bytes.Fields(text) {
			if string(pid) != strconv.Itoa(child) {
				return false
			}
			found = true
		}
	}
	return found
}

// parentOf returns the parent of a process from /proc/PID/stat. The fields of that file are the ID, the name in
// parentheses, which may contain any character, the state, and the parent.
func parentOf(pid int) (parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

const (
	readModes  = unix.TCGETS
	writeModes = unix.TCSETS
)

// bootAlarm wakes by a timer on CLOCK_BOOTTIME, which advances during suspend, and earlier by Go's timer (rule T4).
type bootAlarm struct {
	*goAlarm
	fd   int
	file *os.File
}

func newAlarm() (alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	a := &bootAlarm{goAlarm: newGoAlarm(), fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
	go func() {
		for count := make([]byte, 8); ; {
			if _, err := a.file.Read(count); err != nil {
				return
			}
			a.wake()
		}
	}()
	return a, nil
}

func (a *bootAlarm) set(d time.Duration) {
	a.goAlarm.set(d)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would disarm the timer
	unix.TimerfdSettime(a.fd, 0, &spec, nil)                              // if it fails, goAlarm still wakes
}

func (a *bootAlarm) stop() {
	a.goAlarm.stop()
	a.file.Close()
}
