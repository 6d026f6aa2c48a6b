package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A fact is a property of the machine or of a measured program.
type fact struct{ name, value string }

// describe returns the facts about the machine. It omits those that it cannot find out.
func describe(dir, version string) ([]fact, error) {
	fsync, err := measureFsync(dir)
	if err != nil {
		return nil, err
	}
	all := []fact{
		{"date", time.Now().UTC().Format(minuteFormat)},
		{"cores", cores()},
		{"kernel", kernel()},
		{"load", readLine("/proc/loadavg")},
		{"file system", fileSystem(dir)},
		{"fsync there", fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", milliseconds(percentile(fsync, 50)), milliseconds(percentile(fsync, 99)))},
		{"go", runtime.Version()},
		{"leasekeeper", version},
		{"etcd", moduleVersion("go.etcd.io/etcd/api/v3")},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.value == "" }), nil
}

// minuteFormat shows a time in UTC.
const minuteFormat = "2006-01-02 15:04 UTC"

func cores() string  { return strings.TrimSpace(fmt.Sprintf("%d %s", runtime.NumCPU(), cpuModel())) }
func kernel() string { return runtime.GOOS + " " + readLine("/proc/sys/kernel/osrelease") }

// machineOf identifies the machine, the file system of a directory, and the compiler.
func machineOf(dir string) string {
	return strings.Join([]string{cores(), kernel(), fileSystem(dir), runtime.Version()}, "; ")
}

func writeFacts(w io.Writer, facts []fact) error {
	for _, f := range facts {
		if _, err := fmt.Fprintf(w, "%-12s %s\n", f.name, f.value); err != nil {
			return err
		}
	}
	return nil
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

// fileSystem names the type and the device of a directory's file system, as the kernel lists them: those of the mount with
// the longest path above the directory, and the last of those.
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

// dirtySuffix ends the version of a tree that differs from its commit.
const dirtySuffix = "-dirty"

// commit names the state of the repository that is measured. Pages of Markdown do not count.
func commit() string {
	out, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return ""
	}
	changed, err := git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude,glob)**/*.md")
	if err != nil || changed != "" {
		return out + dirtySuffix
	}
	return out
}

// git runs git in the repository.
func git(args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", ".."}, args...)...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(exit.Stderr))
		}
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
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
