//go:build linux

package doctor

import (
	"testing"
	"time"
)

func TestMountOfAPathIsTheInnermostAndLatest(t *testing.T) {
	const mounts = `21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /var/lib rw - xfs /dev/sdb rw
23 21 0:6 / /var/library rw - nfs4 server:/x rw
24 21 0:7 / /a\040b rw shared:9 master:2 - tmpfs tmpfs rw
25 22 0:8 / /var/lib rw - btrfs /dev/sdc rw
26 21 broken
`
	for path, want := range map[string]string{
		"/": "ext4 /", "/home/x": "ext4 /", "/var/lib": "btrfs /var/lib", "/var/lib/leasekeeper": "btrfs /var/lib", "/var/library/x": "nfs4 /var/library",
		"/var/libx": "ext4 /", "/a b/c": "tmpfs /a b",
	} {
		if kind, mount := mountOf(mounts, path); kind+" "+mount != want {
			t.Errorf("%s: %s at %s, want %s", path, kind, mount, want)
		}
	}
	if kind, _ := mountOf("", "/x"); kind != "" {
		t.Errorf("no mounts: %s", kind)
	}
}

func TestShiftsOfATimeNamespaceAreRead(t *testing.T) {
	if got := shiftsIn("monotonic           0         0\nboottime            0         0\n"); len(got) != 0 {
		t.Errorf("no shifts: %v", got)
	}
	got := shiftsIn("monotonic 5 7\nboottime -3 0\nbroken\n")
	if len(got) != 2 || got["monotonic"] != 5*time.Second+7 || got["boottime"] != -3*time.Second {
		t.Errorf("%v", got)
	}
}
