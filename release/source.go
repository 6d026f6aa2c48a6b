package main

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is what a release is made of.
type source struct {
	dir     string    // absolute path of the checkout
	version string    // with the letter v, as the tag has it
	commit  string    // hexadecimal, with "-dirty" if the checkout has other changes
	when    time.Time // UTC, of the commit; every file of the release has it
}

// number returns the version without the letter v, as packages and file names have it.
func (s source) number() string { return strings.TrimPrefix(s.version, "v") }

// versionForm is what a version must look like. The Go command accepts no other tags.
var versionForm = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// readSource reads a checkout. Without a version, it takes the tag of the commit, and then refuses a checkout with changes.
func readSource(dir, version string) (source, error) {
	s := source{dir: dir, version: version}
	changes, err := git(dir, "status", "--porcelain")
	if err != nil {
		return s, err
	}
	if s.commit, err = git(dir, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	seconds, err := git(dir, "log", "-1", "--format=%ct")
	if err != nil {
		return s, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("git gives the time of the commit as %q", seconds)
	}
	s.when = time.Unix(unix, 0).UTC()
	switch {
	case changes != "" && version == "":
		return s, errors.New("the checkout has changes that are not committed: commit them, or give --version for a build that is no release")
	case changes != "":
		s.commit += "-dirty"
	case version == "":
		if s.version, err = git(dir, "describe", "--tags", "--exact-match", "--match", "v*"); err != nil {
			return s, fmt.Errorf("the commit has no tag for a version; give --version for a build that is no release: %w", err)
		}
	}
	if !versionForm.MatchString(s.version) {
		return s, fmt.Errorf("%q is not a version: write it like v0.1.0 or v0.2.0-rc.1", s.version)
	}
	return s, nil
}

// git runs Git in a directory and returns its output without the line's end.
func git(dir string, args ...string) (string, error) {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
