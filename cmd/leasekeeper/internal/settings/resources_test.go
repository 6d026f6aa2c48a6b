package settings

import (
	"io/fs"
	"testing"
)

func TestAvailableMemoryIsTheLeastOfMachineAndControlGroups(t *testing.T) {
	const machine = "MemTotal:       16777216 kB\nMemFree: 1 kB\n" // 16 GiB
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"a machine without groups":  {map[string]string{"/proc/meminfo": machine}, 16 << 30},
		"no files":                  {nil, 0},
		"version 2, no limit":       {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}, 16 << 30},
		"version 2, of a group":     {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "1073741824\n"}, 1 << 30},
		"version 2, of one above":   {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/memory.max": "536870912\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}, 512 << 20},
		"version 2, in a container": {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "0::/../elsewhere\n", "/sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		"version 1":                 {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "5:cpu:/x\n4:hugetlb,memory:/a\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2147483648\n"}, 2 << 30},
		"version 1, no limit":       {map[string]string{"/proc/meminfo": machine, "/proc/self/cgroup": "4:memory:/\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 16 << 30},
	} {
		got := availableMemory(func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		})
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMemoryLimitIsParsed(t *testing.T) {
	for _, c := range []struct {
		text            string
		available, want int64
	}{
		{"auto", 16 << 30, 4 << 30}, {"auto", 2 << 30, 1 << 30}, {"auto", 1 << 30, 768 << 20}, {"auto", 0, 1 << 30},
		{"2GiB", 1 << 30, 2 << 30}, {"134217728", 0, 128 << 20},
	} {
		if got, err := memoryLimit(c.text, c.available); err != nil || got != c.want {
			t.Errorf("%s of %d: %d, %v, want %d", c.text, c.available, got, err, c.want)
		}
	}
	for _, text := range []string{"", "0", "much", "127MiB", "-1"} {
		if got, err := memoryLimit(text, 1<<30); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

// Each use gets enough file descriptors at any limit, and together they do not exceed it.
func TestFileDescriptorsAreSharedWithinTheLimit(t *testing.T) {
	for _, limit := range []uint64{fewFiles, 300, 512, 1024, 4096, 20000, 1 << 20, 1 << 62} {
		for _, clustered := range []bool{false, true} {
			s, err := shareFiles(limit, 1000, clustered)
			if err != nil {
				t.Errorf("%d: %v", limit, err)
				continue
			}
			if s.database < 64 || s.grpc < 64 || s.http < 16 || uint64(s.database+s.grpc+s.http+s.peers+spareFiles) > limit {
				t.Errorf("%d are shared as %+v", limit, s)
			}
			// Each of the other members has two connections, and two more that have not ended yet while it restarts.
			if clustered != (s.peers > 0) || clustered && (s.peers < 4*(maxMembers-1) || s.peers > usefulPeers) {
				t.Errorf("%d are shared as %+v, in a cluster: %v", limit, s, clustered)
			}
		}
	}
	if _, err := shareFiles(fewFiles-1, 1000, true); err == nil {
		t.Error("a server starts with too few file descriptors")
	}
	if s, err := shareFiles(0, 1000, true); err != nil || s.database != 1000 || s.peers != usefulPeers {
		t.Errorf("without a limit: %+v, %v", s, err)
	}
}
