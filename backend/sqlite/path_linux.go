package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/backend"
)

// findMount are the methods to learn whether a file is mounted apart from its directory, best first. A method
// that this system lacks reports that it does not know. None opens the file for reading: closing it would
// release this process's SQLite locks.
var findMount = []func(path string) (mount, known bool){mountByStatx, mountByInfo, mountByOpen}

// apart returns an error if a file is mounted apart from its directory.
func apart(path string) error { return mountedAlone(path, findMount...) }

// mountedAlone returns an error if a file is mounted apart from its directory. It tries one method after
// another until one knows.
func mountedAlone(path string, ways ...func(path string) (mount, known bool)) error {
	for _, find := range ways {
		switch mount, known := find(path); {
		case known && mount:
			return fmt.Errorf("%w: %s is mounted without its directory: SQLite keeps its log next to it, where others do not see it, so two could hold one name: mount the directory (docker run -v FOLDER:%s)", backend.ErrInvalid, path, filepath.Dir(path))
		case known:
			return nil
		}
	}
	return fmt.Errorf("%w: it is unknown whether %s is mounted without its directory, in which case two could hold one name: mount /proc", backend.ErrInvalid, path)
}

// mountByStatx compares the mounts of the file and of its directory (Linux 5.8).
func mountByStatx(path string) (mount, known bool) {
	var of [2]unix.Statx_t
	for i, p := range []string{path, filepath.Dir(path)} {
		if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW*(1-i), unix.STATX_MNT_ID, &of[i]); err != nil || of[i].Mask&unix.STATX_MNT_ID == 0 {
			return false, false
		}
	}
	return of[0].Mnt_id != of[1].Mnt_id, true
}

// mountByInfo looks for the file among the mounts that the kernel lists.
func mountByInfo(path string) (mount, known bool) {
	all, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || len(all) == 0 {
		return false, false
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return false, false
	}
	path = filepath.Join(folder, filepath.Base(path))
	for line := range strings.Lines(string(all)) {
		const point = 4 // ID, parent, device, root, mount point
		if fields := strings.Fields(line); len(fields) > point && unescaped.Replace(fields[point]) == path {
			return true, true
		}
	}
	return false, true
}

// unescaped undoes the kernel's escapes of paths in lists.
var unescaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountByOpen goes from the directory to the file without leaving the directory's mount (Linux 5.6). It opens
// only the path, which holds no locks.
func mountByOpen(path string) (mount, known bool) {
	folder, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, false
	}
	defer unix.Close(folder)
	file, err := unix.Openat2(folder, filepath.Base(path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV})
	if err != nil {
		return true, errors.Is(err, unix.EXDEV)
	}
	_ = unix.Close(file)
	return false, true
}

// ownName returns an error if the path has another name than the one that the directory lists.
func ownName(path string) error {
	if !severalNames(filepath.Dir(path)) {
		return nil
	}
	return listed(path)
}

// severalNames reports whether a file system may find one file under several names: FAT and NTFS know short
// names for old programs, and ignore dots at the end. An unknown file system, or one that shows the files of
// another kernel, may do so too.
func severalNames(folder string) bool {
	var in unix.Statfs_t
	if err := unix.Statfs(folder, &in); err != nil {
		return true
	}
	switch kind := int64(uint32(in.Type)); kind {
	case unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, ntfs:
		return true
	case unix.OVERLAYFS_SUPER_MAGIC: // lies over plain ones
		return false
	default:
		return !plain[kind]
	}
}
