//go:build linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// The server notifies systemd when it is ready and when it stops.
func TestSystemdIsNotifiedOfStartAndStop(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	socketConn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socketConn.Close()
	r, err := launch(launchOptions{dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + socket}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kill()
	next := func() string {
		t.Helper()
		socketConn.SetReadDeadline(time.Now().Add(startLimit))
		buffer := make([]byte, 100)
		n, err := socketConn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	if got := next(); got != "READY=1" {
		t.Errorf("the server sent %q when it was ready", got)
	}
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("the server sent %q at SIGTERM", got)
	}
	if code := r.wait(); code != command.ExitDone {
		t.Errorf("ended with code %d", code)
	}
}
