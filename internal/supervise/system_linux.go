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

const ownPath = "/proc/self/exe" // also of a program that was replaced meanwhile

// callOneself changes the name by which tools such as killall know this process. Until then it is "exe", the last part of
// ownPath. A failure leaves that, which no pattern for the wrapper hits either.
func callOneself(name string) { os.WriteFile("/proc/self/comm", []byte(name), 0) }

// resume makes this process the parent of its descendants' orphans.
func resume() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// disown is the opposite.
func disown() { unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }

// tether has the kernel kill the process when the thread ends that started it.
func tether(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

func dup(from, to int) error { return unix.Dup3(from, to, 0) }

// allGone is asked when there are no children: then there are no descendants.
func allGone(int) bool { return true }

// isOurs says whether a group whose first process is gone has members among our descendants.
func isOurs(group int, descendants []int) bool {
	return slices.ContainsFunc(descendants, func(pid int) bool { return isIn(group, pid) })
}

// lookAgain is how long to wait for a signal that may not come. Here the end of each descendant sends one.
func lookAgain(bool) time.Duration { return forever }

// descendants returns those of a process, in no order, as far as /proc shows them. Dead ones that nobody has
// waited for are among them: the threads of such a process may live, and so may its children.
// Those named are left out, with their own.
func descendants(of int, without ...int) []int {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1)
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

// parentOf reads /proc/PID/stat: the number, the name in parentheses (which may contain anything), the
// state, the parent.
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

// bootAlarm rings by CLOCK_BOOTTIME, which counts the time in suspend, and by Go's timer before that: T4.
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
			a.ring()
		}
	}()
	return a, nil
}

func (a *bootAlarm) set(d time.Duration) {
	a.goAlarm.set(d)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))} // 0 would switch it off
	unix.TimerfdSettime(a.fd, 0, &spec, nil)                              // goAlarm rings in any case
}

func (a *bootAlarm) stop() {
	a.goAlarm.stop()
	a.file.Close()
}
