package clock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tellsDomain has a child of the test print its domain.
const tellsDomain = "LEASEKEEPER_TEST_TELLS_DOMAIN"

func TestMain(m *testing.M) {
	if os.Getenv(tellsDomain) != "" {
		fmt.Print(SystemDomain())
		return
	}
	os.Exit(m.Run())
}

// inNamespace returns the domain of a process in a new time namespace. Its clocks are ahead by some seconds.
func inNamespace(t *testing.T, monotonic, boottime int) Domain {
	t.Helper()
	args := []string{"-T", "--fork", "--monotonic", fmt.Sprint(monotonic), "--boottime", fmt.Sprint(boottime)}
	if os.Getuid() != 0 {
		args = append(args, "-U", "-r")
	}
	child := exec.Command("unshare", append(args, os.Args[0])...)
	child.Env = append(os.Environ(), tellsDomain+"=1")
	out, err := child.CombinedOutput()
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("LEASEKEEPER_TEST_REQUIRE"), ","), "namespaces") {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("this system allows no time namespaces here: %v: %s", err, out)
	}
	return Domain(out)
}

// Two namespaces, one after the other, get one number from the kernel. They are one domain only if they shift the clocks
// by the same.
func TestTimeNamespaceIsKnownByItsShifts(t *testing.T) {
	early, late := inNamespace(t, 0, 0), inNamespace(t, 0, 500_000)
	if early == UnknownDomain || late == UnknownDomain || early.Same(late) {
		t.Errorf("shifted by nothing %q, by 500000 s %q", early, late)
	}
	if again := inNamespace(t, 0, 500_000); !again.Same(late) {
		t.Errorf("another namespace with the same shifts is %q, and not %q", again, late)
	}
	if raw := inNamespace(t, 500_000, 0); raw.Same(early) || raw.Same(late) {
		t.Errorf("shifted on the other clock: %q", raw)
	}
	if own := SystemDomain(); strings.HasSuffix(string(own), "monotonic:0:0,boottime:0:0") && !own.Same(early) {
		t.Errorf("a namespace that shifts nothing is %q, and its parent %q", early, own)
	}
}

// Where the shifts are not certain nothing is compared.
func TestDomainIsUnknownIfItsShiftsAreUnknown(t *testing.T) {
	const shifts = "monotonic           0         0\nboottime           -7  12000000\n"
	id := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(id, []byte("1-2-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		own, children, mounts, shifts string
		want                          Domain
	}{
		"one namespace":                      {"time:[1]", "time:[1]", "mnt:[9]", shifts, "container/1-2-3/monotonic:0:0,boottime:-7:12000000"},
		"its number changes nothing":         {"time:[2]", "time:[2]", "mnt:[9]", shifts, "container/1-2-3/monotonic:0:0,boottime:-7:12000000"},
		"children live in another one":       {"time:[1]", "time:[2]", "mnt:[9]", shifts, UnknownDomain},
		"the own one is hidden":              {"", "time:[1]", "mnt:[9]", shifts, UnknownDomain},
		"that of the children is hidden":     {"time:[1]", "", "mnt:[9]", shifts, UnknownDomain},
		"the shifts are hidden":              {"time:[1]", "time:[1]", "mnt:[9]", "", UnknownDomain},
		"the shifts are in no form known":    {"time:[1]", "time:[1]", "mnt:[9]", "monotonic\n", UnknownDomain},
		"a kernel without time namespaces":   {"", "", "mnt:[9]", "", "container/1-2-3/"},
		"all namespaces of it are hidden":    {"", "", "", "", UnknownDomain},
		"only the shifts tell that it knows": {"", "", "mnt:[9]", shifts, UnknownDomain},
	} {
		process := t.TempDir()
		if err := os.Mkdir(filepath.Join(process, "ns"), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, to := range map[string]string{"time": c.own, "time_for_children": c.children, "mnt": c.mounts} {
			if to == "" {
				continue
			}
			if err := os.Symlink(to, filepath.Join(process, "ns", name)); err != nil {
				t.Fatal(err)
			}
		}
		if c.shifts != "" {
			if err := os.WriteFile(filepath.Join(process, "timens_offsets"), []byte(c.shifts), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := domainOf(id, process); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Containers of LXC, and of systemd-nspawn, have a file with an id of their own mounted over that of the kernel.
// It ends with the container while others of the same machine go on, so nobody must take it for a boot.
func TestContainerBootIDIsNotTheKernels(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	path := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := domainOf(path, "/proc/self")
	if mounted == UnknownDomain || !strings.Contains(string(mounted), id) || strings.HasPrefix(string(mounted), "linux/") {
		t.Errorf("of a container: %q", mounted)
	}
	if again := domainOf(path, "/proc/self"); !mounted.Same(again) {
		t.Errorf("two processes of a container: %q and %q", mounted, again)
	}
	if d := domainOf(path+"x", "/proc/self"); d != UnknownDomain {
		t.Errorf("without any: %q", d)
	}
}

func TestSystemDomainNamesTheBoot(t *testing.T) {
	id, err := os.ReadFile(bootID)
	if err != nil {
		t.Fatal(err)
	}
	if d := SystemDomain(); !strings.Contains(string(d), strings.TrimSpace(string(id))) {
		t.Errorf("%q of boot %s", d, id)
	}
}
