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

// The server notifies systemd when it is ready and when it stops, and of its life in between.
func TestSystemdIsNotifiedOfStartLifeAndStop(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	socketConn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socketConn.Close()
	r, err := launch(launchOptions{dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=100000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kill()
	receive := func() string {
		t.Helper()
		socketConn.SetReadDeadline(time.Now().Add(startLimit))
		buffer := make([]byte, 100)
		n, err := socketConn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return string(buffer[:n])
	}
	next := func() string {
		t.Helper()
		state := receive()
		for state == "WATCHDOG=1" {
			state = receive()
		}
		return state
	}
	if got := next(); got != "READY=1" {
		t.Errorf("the server sent %q when it was ready", got)
	}
	if got := receive(); got != "WATCHDOG=1" {
		t.Errorf("the server sent %q for the watchdog", got)
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
