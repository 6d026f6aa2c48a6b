//go:build linux || darwin

package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The port for members accepts as many connections as its share of the file descriptors allows, see "Descriptors" in
// docs/operations.md. With 300 descriptors, the database gets a quarter, 75. 64 are kept in reserve. A quarter of the rest is
// 40.
func TestPortForMembersHasItsShareOfDescriptors(t *testing.T) {
	const descriptors, share = 300, "40"
	dir := t.TempDir()
	port := freeAddresses(t, 1)[0]
	r, err := launch(launchOptions{dir: dir, env: os.Environ(), files: descriptors, args: []string{
		"--data-dir", "data", "--peer-listen", port, "--peer-advertise", port,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.kill()
	for range 100 {
		conn, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for deadline := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		logs, err := os.ReadFile(filepath.Join(dir, "server.err"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(logs)) {
			if !strings.Contains(line, "connections to the port for members are closed") {
				continue
			}
			if !strings.Contains(line, " limit="+share+" ") {
				t.Errorf("with %d descriptors the limit is not %s: %s", descriptors, share, line)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("100 connections to the port for members do not exceed its limit of %s:\n%s", share, logs)
		}
	}
}
