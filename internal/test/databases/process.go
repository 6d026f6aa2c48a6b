//go:build unix

package databases

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// The name of MariaDB in LEASEKEEPER_TEST_REQUIRE.
const requireMariaDB = "mariadb"

// startLimit bounds how long a server may take until it answers.
const startLimit = time.Minute

// nobody is the user id of servers if the test runs as root.
const nobody = 65534

// newDirectory creates a directory that no other user can read. Its path is short, since sockets are in it.
func newDirectory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "leasekeeper-")
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// asNobody makes a program run in the directory, and not as root.
func asNobody(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	dieWithParent(cmd.SysProcAttr)
}

// startServer starts a server, which is killed when the test ends. Its output is shown if the test fails.
func startServer(t testing.TB, dir string, cmd *exec.Cmd) {
	t.Helper()
	asNobody(cmd, dir)
	said := filepath.Join(dir, filepath.Base(cmd.Path)+".log")
	log, err := os.Create(said)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		defer log.Close()
		runtime.LockOSThread() // the thread must not end before the server: the kernel takes that for the parent's death
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was killed
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("%s cannot be started: %v", cmd.Path, err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
		<-ended
		if t.Failed() {
			text, _ := os.ReadFile(said)
			t.Logf("%s wrote:\n%s", cmd.Path, text)
		}
	})
}
