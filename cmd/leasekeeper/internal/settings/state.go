package settings

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// stateFile is where leases are if no store was named.
const stateFile = "leases.db"

// localStore returns the URL of the SQLite file in the user's state folder, which it makes. What other users may write
// to there is not left so: they could take leases away, or put a file of their own in the place of this one.
func localStore(stderr io.Writer) (string, error) {
	folder, err := stateFolder(runtime.GOOS, os.Geteuid() == 0, os.Getenv)
	if err != nil {
		return "", command.WrongUsage("no store is given, and there is no default: %v; write --store URL, or set %s, for example to %s", err, StoreVariable, ExampleStore)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", command.WrongUsage("cannot create the state directory for leases: %v; create it, or write --store URL, or set %s, for example to %s", err, StoreVariable, ExampleStore)
	}
	file := filepath.Join(folder, stateFile)
	for _, path := range []string{folder, file} {
		if err := Protect(path, "another store with --store"); err != nil {
			console.Warn(stderr, "%v", err)
		}
	}
	return FileStore(file), nil
}

// stateFolder is where programs of this user keep what is to stay.
func stateFolder(system string, root bool, getenv func(string) string) (string, error) {
	const own = "leasekeeper"
	home := func(below ...string) (string, error) {
		if getenv("HOME") == "" {
			return "", fmt.Errorf("HOME is not set")
		}
		return filepath.Join(append([]string{getenv("HOME")}, append(below, own)...)...), nil
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, own), nil
	}
	switch {
	case system == "windows":
		if getenv("LOCALAPPDATA") == "" {
			return "", fmt.Errorf("LOCALAPPDATA is not set")
		}
		return filepath.Join(getenv("LOCALAPPDATA"), own), nil
	case system == "darwin" && root:
		return filepath.Join("/Library", "Application Support", own), nil
	case system == "darwin":
		return home("Library", "Application Support")
	case root:
		return filepath.Join("/var/lib", own), nil
	}
	return home(".local", "state")
}

// FileStore is the URL of a file.
func FileStore(path string) string {
	path = filepath.ToSlash(path)
	if path != "" && path[0] != '/' { // C:/...
		path = "/" + path
	}
	u := url.URL{Scheme: "sqlite", OmitHost: true, Path: path}
	return u.String()
}
