package clock

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// printsDomain is an environment variable that makes the test binary print its domain and exit.
const printsDomain = "LEASEKEEPER_TEST_PRINTS_DOMAIN"

func TestMain(m *testing.M) {
	if os.Getenv(printsDomain) != "" {
		fmt.Print(SystemDomain())
		return
	}
	os.Exit(m.Run())
}

// inNamespace returns the domain of a process in a new time namespace, whose clocks are ahead by the given
// seconds.
func inNamespace(t *testing.T, monotonic, boottime int) Domain {
	t.Helper()
	args := []string{"-T", "--fork", "--monotonic", fmt.Sprint(monotonic), "--boottime", fmt.Sprint(boottime)}
	if os.Getuid() != 0 {
		args = append(args, "-U", "-r")
	}
	child := exec.Command("unshare", append(args, os.Args[0])...)
	child.Env = append(os.Environ(), printsDomain+"=1")
	out, err := child.CombinedOutput()
	if err != nil {
		if required.Is("namespaces") {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skipf("this system allows no time namespaces here: %v: %s", err, out)
	}
	return Domain(out)
}

// The kernel gives the same number to two namespaces, one after the other. They are one domain only if they
// shift the clocks by the same.
func TestTimeNamespaceIsKnownByItsShifts(t *testing.T) {
	early, late := inNamespace(t, 0, 0), inNamespace(t, 0, 500_000)
	if early == UnknownDomain || late == UnknownDomain || early.Same(late) {
		t.Errorf("domain without a shift: %q; shifted by 500000 s: %q", early, late)
	}
	if again := inNamespace(t, 0, 500_000); !again.Same(late) {
		t.Errorf("the domain of another namespace with the same shifts is %q, want %q", again, late)
	}
	if raw := inNamespace(t, 500_000, 0); raw.Same(early) || raw.Same(late) {
		t.Errorf("domain shifted on the other clock: %q", raw)
	}
	if own := SystemDomain(); strings.HasSuffix(string(own), "monotonic:0:0,boottime:0:0") && !own.Same(early) {
		t.Errorf("the domain of a namespace without shifts is %q, that of its parent %q", early, own)
	}
}

// If the shifts are not certain, the domain is unknown, so its instants are never compared.
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
		"one namespace":                     {"time:[1]", "time:[1]", "mnt:[9]", shifts, "container/1-2-3/monotonic:0:0,boottime:-7:12000000"},
		"its number changes nothing":        {"time:[2]", "time:[2]", "mnt:[9]", shifts, "container/1-2-3/monotonic:0:0,boottime:-7:12000000"},
		"children live in another one":      {"time:[1]", "time:[2]", "mnt:[9]", shifts, UnknownDomain},
		"the own one is hidden":             {"", "time:[1]", "mnt:[9]", shifts, UnknownDomain},
		"that of the children is hidden":    {"time:[1]", "", "mnt:[9]", shifts, UnknownDomain},
		"the shifts are hidden":             {"time:[1]", "time:[1]", "mnt:[9]", "", UnknownDomain},
		"the shifts have an unknown format": {"time:[1]", "time:[1]", "mnt:[9]", "monotonic\n", UnknownDomain},
		"a kernel without time namespaces":  {"", "", "mnt:[9]", "", "container/1-2-3/"},
		"all namespaces are hidden":         {"", "", "", "", UnknownDomain},
		"only the shifts are readable":      {"", "", "mnt:[9]", shifts, UnknownDomain},
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

// A container of LXC or systemd-nspawn has an id of its own in the place of the kernel's boot id. The id ends
// with the container, while others on the same machine continue. So its domain must not look like that of a
// boot.
func TestContainerBootIDIsNotTheKernels(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	path := filepath.Join(t.TempDir(), "boot_id")
	if err := os.WriteFile(path, []byte(id+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mounted := domainOf(path, "/proc/self")
	if mounted == UnknownDomain || !strings.Contains(string(mounted), id) || strings.HasPrefix(string(mounted), "linux/") {
		t.Errorf("domain of a container: %q", mounted)
	}
	if again := domainOf(path, "/proc/self"); !mounted.Same(again) {
		t.Errorf("domains of two processes of a container: %q and %q", mounted, again)
	}
	if d := domainOf(path+"x", "/proc/self"); d != UnknownDomain {
		t.Errorf("domain without a boot id: %q", d)
	}
}

// The domain of a process contains the boot id of the kernel.
func TestSystemDomainNamesTheBoot(t *testing.T) {
	id, err := os.ReadFile(bootID)
	if err != nil {
		t.Fatal(err)
	}
	if d := SystemDomain(); !strings.Contains(string(d), strings.TrimSpace(string(id))) {
		t.Errorf("domain %q does not contain boot id %s", d, id)
	}
}
