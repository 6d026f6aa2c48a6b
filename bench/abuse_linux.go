package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// useOneCore holds every thread of this process to one of the cores that it may use.
func useOneCore() error {
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("asking for the cores: %w", err)
	}
	for core := range len(may) * 64 {
		if may.IsSet(core) {
			one.Set(core)
			break
		}
	}
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	var failed error
	for _, path := range threads {
		id, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &one); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = errors.Join(failed, os.NewSyscallError("sched_setaffinity", err))
		}
	}
	return failed
}
