package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// describe prints on what the table was measured: what cannot be found out is left out.
func describe(w io.Writer, dir string) error {
	fsync, err := measureFsync(dir)
	if err != nil {
		return err
	}
	line := func(name, value string) {
		if value != "" && err == nil {
			_, err = fmt.Fprintf(w, "%-12s %s\n", name, value)
		}
	}
	line("date", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	line("cores", fmt.Sprintf("%d %s", runtime.NumCPU(), cpuModel()))
	line("kernel", runtime.GOOS+" "+readLine("/proc/sys/kernel/osrelease"))
	line("load", readLine("/proc/loadavg"))
	line("file system", fileSystem(dir))
	line("fsync there", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", milliseconds(percentile(fsync, 50)), milliseconds(percentile(fsync, 99))))
	line("go", runtime.Version())
	line("leasekeeper", commit())
	line("etcd", moduleVersion("go.etcd.io/etcd/api/v3"))
	return err
}

// measureFsync appends a small record to a file and syncs it, again and again, as a log does.
func measureFsync(dir string) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	record := make([]byte, 4<<10)
	for range 200 {
		start := time.Now()
		if _, err := f.Write(record); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(data, []byte("\n"))
	return string(first)
}

func cpuModel() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return "x " + strings.TrimSpace(value)
		}
	}
	return ""
}

// fileSystem names the type and device of what a folder lies on, as the kernel lists them: the mount whose
// point is the longest that the folder is below, the last one of those.
func fileSystem(dir string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return ""
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return mountOf(string(data), dir)
}

func mountOf(mountinfo, dir string) string {
	best, found := -1, ""
	for line := range strings.Lines(mountinfo) {
		mount, rest, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(mount), strings.Fields(rest)
		if !ok || len(fields) < 5 || len(kind) < 2 {
			continue
		}
		point := strings.TrimSuffix(fields[4], "/") + "/"
		if strings.HasPrefix(dir+"/", point) && len(point) >= best {
			best, found = len(point), kind[0]+" on "+kind[1]
		}
	}
	return found
}

// commit says which state of the repository is measured.
func commit() string {
	out, err := exec.Command("git", "-C", "..", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// moduleVersion is that of a module which this program was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}
