package sqlite

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// inMounts is set for a test that runs in mounts of its own.
const inMounts = "LEASEKEEPER_TEST_IN_MOUNTS"

// withMounts runs the test again in a process with mounts of its own, and returns false in this one.
func withMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inMounts) != "" {
		return true
	}
	again := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", "5m")
	again.Env = append(os.Environ(), inMounts+"=1")
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		again.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		again.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		again.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := again.CombinedOutput()
	t.Logf("in mounts of its own:\n%s", out)
	if err != nil && len(out) == 0 { // it did not begin
		if required.Is("namespaces") {
			t.Fatal(err)
		}
		t.Skipf("this system allows no mounts here: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
	return false
}

// bind mounts a file or a directory at a second path.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount %s at %s: %v", from, to, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

func emptyFile(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A container that mounts the file alone has the file, and a log of its own.
func TestFileThatIsMountedAloneIsRefused(t *testing.T) {
	if !withMounts(t) {
		return
	}
	path := heldAndClosed(t)
	dir := t.TempDir()
	alone := emptyFile(t, filepath.Join(dir, "leases.db"))
	bind(t, path, alone)
	refused(t, alone, alone, "mount the directory")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(alone, link); err != nil {
		t.Fatal(err)
	}
	refused(t, link, alone, "mount the directory")

	folder := t.TempDir()
	bind(t, filepath.Dir(path), folder)
	accepted(t, filepath.Join(folder, "leases.db"))
	short := filepath.Join(t.TempDir(), "short") // a link that leads from one mount into another
	if err := os.Symlink(folder, short); err != nil {
		t.Fatal(err)
	}
	accepted(t, filepath.Join(short, "leases.db"))
	if _, err := tryClaim(t, kernel(t, filepath.Join(folder, "leases.db"), hostBoot, onOwnDisk), "x"); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("a name that is held, through a directory that is mounted: %v", err)
	}
	accepted(t, path)
}

// A log that is mounted over another is not the log to which others write through the same directory.
func TestLogThatIsMountedAloneIsRefused(t *testing.T) {
	if !withMounts(t) {
		return
	}
	path := newPath(t)
	kernel(t, path, hostBoot, onOwnDisk)
	for _, suffix := range []string{"-wal", "-shm"} {
		other := emptyFile(t, filepath.Join(t.TempDir(), "log"))
		bind(t, other, path+suffix)
		_, err := Open(t.Context(), path, Config{})
		says(t, err, backend.ErrInvalid, path+suffix, "mount the directory")
		if err := unix.Unmount(path+suffix, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
}

// Each method finds a mount by itself, for systems that lack the others.
func TestEachMethodFindsAMount(t *testing.T) {
	if !withMounts(t) {
		return
	}
	dir := t.TempDir()
	path, odd := emptyFile(t, filepath.Join(dir, "a")), emptyFile(t, filepath.Join(dir, "b \\c\n\td"))
	alone, root := emptyFile(t, filepath.Join(dir, "alone")), filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	bind(t, path, alone)
	bind(t, path, odd)
	bind(t, t.TempDir(), root)
	inside := emptyFile(t, filepath.Join(root, "inside"))
	for name, find := range map[string]func(string) (bool, bool){"statx": mountByStatx, "mountinfo": mountByInfo, "openat2": mountByOpen} {
		for p, want := range map[string]bool{path: false, inside: false, alone: true, odd: true} {
			if mount, known := find(p); !known || mount != want {
				t.Errorf("%s of %q: %v, known: %v", name, p, mount, known)
			}
		}
		if _, known := find(filepath.Join(dir, "none")); known && name != "mountinfo" {
			t.Errorf("%s knows a file that is not there", name)
		}
	}
}

// The first method that knows decides. If none does, the file is refused.
func TestFileWithUnknownMountIsRefused(t *testing.T) {
	silent := func(string) (bool, bool) { return false, false }
	no, yes := func(string) (bool, bool) { return false, true }, func(string) (bool, bool) { return true, true }
	path := emptyFile(t, newPath(t))
	for _, c := range []struct {
		ways  []func(string) (bool, bool)
		fails bool
	}{
		{nil, true}, {list(silent, silent), true}, {list(silent, no), false}, {list(silent, yes), true}, {list(no, yes), false}, {list(yes, no), true},
	} {
		if err := mountedAlone(path, c.ways...); (err != nil) != c.fails {
			t.Errorf("%d ways: %v", len(c.ways), err)
		}
	}
}

func list(finders ...func(string) (bool, bool)) []func(string) (bool, bool) { return finders }

// A file system that finds a file under several names lists one of them.
func TestNameThatTheDirectoryDoesNotListIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := emptyFile(t, filepath.Join(dir, "Leases-of-all.db"))
	for range 2000 {
		emptyFile(t, filepath.Join(dir, rand.Text()))
	}
	for _, name := range []string{"Leases-of-all.db", "LEASES-of-all.DB"} {
		if err := listed(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"LEASES~1.DB", "Leases-of-all.db."} {
		if err := listed(filepath.Join(dir, name)); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !severalNames("/proc") || ownName("/proc/version") != nil || !errors.Is(ownName("/proc/version."), backend.ErrInvalid) {
		t.Error("a file system that is not known is not looked at")
	}
	if err := ownName(path); err != nil {
		t.Error(err)
	}
}
