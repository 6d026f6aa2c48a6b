package settings

import (
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// stateFile is the name of the local store in the state directory.
const stateFile = "leases.db"

// localStore returns the URL of the SQLite file in the user's state directory, and creates the directory. It protects both
// from other users, who could otherwise take leases away or replace the file.
func localStore(stderr io.Writer) (string, error) {
	dir, err := ownStateDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", command.WrongUsage("cannot create the state directory for leases: %v; create it, or write --store URL, or set %s, for example to %s", err, StoreVariable, ExampleStore)
	}
	file := filepath.Join(dir, stateFile)
	for _, path := range []string{dir, file} {
		if err := Protect(path, "another store with --store"); err != nil {
			console.Warn(stderr, "%v", err)
		}
	}
	return FileStore(file), nil
}

// DefaultStore returns the URL of the store that commands use by default, and whether its file exists. It creates nothing.
func DefaultStore() (store string, exists bool, err error) {
	dir, err := ownStateDir()
	if err != nil {
		return "", false, err
	}
	file := filepath.Join(dir, stateFile)
	_, err = os.Stat(file)
	return FileStore(file), err == nil, nil
}

// ownStateDir returns the state directory of this user.
func ownStateDir() (string, error) {
	dir, err := stateDir(runtime.GOOS, os.Geteuid() == 0, os.Getenv)
	if err != nil {
		return "", command.WrongUsage("no store is given, and there is no default: %v; write --store URL, or set %s, for example to %s", err, StoreVariable, ExampleStore)
	}
	return dir, nil
}

// stateDir returns the directory for persistent state of this program, by the conventions of the system.
func stateDir(system string, root bool, getenv func(string) string) (string, error) {
	const own = "leasekeeper"
	home := func(below ...string) (string, error) {
		if getenv("HOME") == "" {
			return "", errors.New("HOME is not set")
		}
		return filepath.Join(append([]string{getenv("HOME")}, append(below, own)...)...), nil
	}
	if state := getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, own), nil
	}
	switch {
	case system == "windows":
		if getenv("LOCALAPPDATA") == "" {
			return "", errors.New("LOCALAPPDATA is not set")
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

// FileStore returns the URL of the SQLite store in a file.
func FileStore(path string) string {
	path = filepath.ToSlash(path)
	if path != "" && path[0] != '/' { // C:/...
		path = "/" + path
	}
	u := url.URL{Scheme: "sqlite", OmitHost: true, Path: path}
	return u.String()
}
