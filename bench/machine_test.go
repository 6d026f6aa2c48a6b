package main

import (
	"testing"
	"time"
)

func TestMountOfADirectory(t *testing.T) {
	const mounts = `22 1 253:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /work/ram rw shared:5 - tmpfs tmpfs rw
31 22 8:1 / /work rw - xfs /dev/sda1 rw
32 22 8:2 / /workshop rw - btrfs /dev/sdb rw
not a mount
`
	for dir, want := range map[string]string{
		"/": "ext4 on /dev/vda", "/home/x": "ext4 on /dev/vda", "/work": "xfs on /dev/sda1",
		"/work/ram/x": "tmpfs on tmpfs", "/work/rambler": "xfs on /dev/sda1", "/workshop": "btrfs on /dev/sdb",
	} {
		if got := mountOf(mounts, dir); got != want {
			t.Errorf("%s lies on %q, want %q", dir, got, want)
		}
	}
}

func TestBytesFromProcessStatus(t *testing.T) {
	const status = "Name:\tetcd\nVmRSS:\t   12345 kB\nRssAnon:\t       7 kB\n"
	if n, err := statusBytes(status, "VmRSS"); n != 12345<<10 || err != nil {
		t.Errorf("VmRSS is %d, %v", n, err)
	}
	if n, err := statusBytes(status, "RssAnon"); n != 7<<10 || err != nil {
		t.Errorf("RssAnon is %d, %v", n, err)
	}
	if _, err := statusBytes(status, "RssFile"); err == nil {
		t.Error("a field that is missing is found")
	}
}

func TestProcessorTimesAreParsed(t *testing.T) {
	got := parseProcessors("cpu  100 1 10 5000 300 2 3 40 50 60")
	want := processors{busy: 116 * 10 * time.Millisecond, stolen: 400 * time.Millisecond, total: 5456 * 10 * time.Millisecond}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, line := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if got := parseProcessors(line); got != (processors{}) {
			t.Errorf("%q is read as %v", line, got)
		}
	}
}

func TestCPUTimeOfAProcessIsParsed(t *testing.T) {
	const stat = "4242 (a )name( ) S 1 2 3 0 -1 4194304 9 9 9 9 150 25 7 7 20 0 8 0 100"
	if got := parseCPUTime(stat); got != 1750*time.Millisecond {
		t.Errorf("got %v", got)
	}
	for _, text := range []string{"", "1 (x) S 1 2"} {
		if got := parseCPUTime(text); got != 0 {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
