package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
)

// The version file has one line: the data format and, once the log has used something of a later version than
// [gate.Marks], that version. Programs that know none of these refuse a text that they do not know.
const (
	formatText  = "leasekeeper data format 2"
	inUseFormat = formatText + ", version %d in use\n"
	maxVersion  = 1024 // bytes of the file that are read
)

// versionText returns the text of a version file.
func versionText(inUse gate.Version) string {
	if inUse <= gate.Marks {
		return formatText + "\n"
	}
	return fmt.Sprintf(inUseFormat, inUse)
}

// parseVersion returns the version in use that a version file names. known is false for a text of another data format.
func parseVersion(text string) (inUse gate.Version, known bool) {
	if n, err := fmt.Sscanf(text, inUseFormat, &inUse); n != 1 || err != nil {
		inUse = 0
	}
	return inUse, text == versionText(inUse)
}

// checkText returns the version in use that the text of a version file names. Its error says what is of that version, and
// what to do.
func checkText(what, text string) (gate.Version, error) {
	inUse, known := parseVersion(text)
	if !known {
		return 0, fmt.Errorf("%s is of another version: its %s file marked %q and this program knows %q; "+
			"use the version of leasekeeper that wrote it", what, VersionFile, strings.TrimSpace(text), formatText)
	}
	if err := gate.Check(inUse); err != nil {
		return 0, fmt.Errorf("%s is of a newer version: %w", what, err)
	}
	return inUse, nil
}

// checkVersion checks the version file, and returns the version in use. It writes a version file into a new directory
// before anything else is there.
func checkVersion(files vfs.FS, dir string) (gate.Version, error) {
	text, err := readVersion(files, dir)
	if err == nil {
		return checkText("data directory "+dir, text)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	names, err := files.List(dir)
	if err != nil {
		return 0, fmt.Errorf("data directory %s cannot be read: %w", dir, err)
	}
	for _, name := range names {
		if name != "LOCK" && name != VersionFile+".new" {
			return 0, fmt.Errorf("%s holds %q but no %s file, so it is not a data directory of leasekeeper: "+
				"choose an empty directory or a new one", dir, name, VersionFile)
		}
	}
	return 0, writeVersion(files, dir, 0)
}

// VersionInUse returns the version in use that the version file of a data directory names. It changes nothing, and needs no
// lock. [fs.ErrNotExist] says that the directory has no version file. Other errors say what to do.
func VersionInUse(files vfs.FS, dir string) (gate.Version, error) {
	text, err := readVersion(files, dir)
	if err != nil {
		return 0, err
	}
	return checkText("data directory "+dir, text)
}

func readVersion(files vfs.FS, dir string) (string, error) {
	path := files.PathJoin(dir, VersionFile)
	f, err := files.Open(path)
	if err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxVersion))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("%s cannot be read: %w", path, err)
	}
	return string(text), nil
}

// MarkInUse makes the version file name a version in use, so that older programs refuse the directory. It never lowers
// what the file names. The caller holds the directory's lock.
func MarkInUse(files vfs.FS, dir string, inUse gate.Version) error {
	marked, err := checkVersion(files, dir)
	if err != nil || versionText(max(marked, inUse)) == versionText(marked) {
		return err
	}
	return writeVersion(files, dir, inUse)
}

// writeVersion writes the version file atomically and syncs it.
func writeVersion(files vfs.FS, dir string, inUse gate.Version) error {
	fresh := files.PathJoin(dir, VersionFile+".new")
	f, err := files.Create(fresh, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("the data directory cannot be written to: %w", err)
	}
	_, err = io.WriteString(f, versionText(inUse))
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = files.Rename(fresh, files.PathJoin(dir, VersionFile))
	}
	if err != nil {
		return fmt.Errorf("the data directory cannot be written to: %w", err)
	}
	return syncDirs(files, dir)
}
