package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/steps"
)

// The lines for etcdctl in docs/users-and-roles.md print what the page shows, and the commands of docs/how-to/patroni.md make a
// user that may write what the page says. cmd/leasekeeper runs the other commands of docs/users-and-roles.md.
func TestLinesForEtcdctlOfThePagesWork(t *testing.T) {
	t.Parallel()
	if len(chosen(leasekeeper)) == 0 {
		t.Skip("-target omits our server")
	}
	s := startTargetWith(t, leasekeeper, func(s *server) { s.flags = append(s.flags, "--bcrypt-cost", "4") })
	page, dir := steps.Read(t, "../docs/users-and-roles.md", "Enable access"), t.TempDir()
	for name, path := range map[string]string{"etcdctl": binaries.etcdctl, "leasekeeper": s.binary()} {
		wantOK(t, "a link", os.Symlink(path, filepath.Join(dir, name)))
	}
	shell := func(line string) string {
		cmd := exec.CommandContext(s.context(), "sh", "-eu", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(ctlEnvironment(), "PATH="+dir+":"+os.Getenv("PATH"), "ETCDCTL_ENDPOINTS="+s.grpcAddr, "LEASEKEEPER_ENDPOINT="+s.grpcAddr)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatalf("%s: %v", line, err)
		}
		return ctlErrors(string(out))
	}
	if out := shell(page.Block("leasekeeper access unowned\n")); !strings.Contains(out, "access is enabled") {
		t.Fatalf("access is not enabled:\n%s", out)
	}
	ran := 0
	for _, shown := range steps.Commands(page.Block("$ etcdctl ")) {
		if !strings.HasPrefix(shown.Line, "etcdctl ") {
			continue
		}
		wantEqual(t, shown.Line, shell(shown.Line), strings.TrimSuffix(shown.Output, "\n"))
		ran++
	}
	wantEqual(t, "lines for etcdctl", ran, 2)
	wantEqual(t, "the variables of etcdctl", shell("ETCDCTL_USER=alice ETCDCTL_PASSWORD=wonderland etcdctl get jobs/a"), "jobs/a\n1")

	wantOK(t, "a password", os.WriteFile(filepath.Join(dir, "patroni.password"), []byte("of-patroni\n"), 0o600))
	patroni := steps.Read(t, "../docs/how-to/patroni.md", "Patroni").Block("leasekeeper user add patroni ")
	t.Log(shell("export LEASEKEEPER_USER=root LEASEKEEPER_PASSWORD=secret\n" + patroni))
	wantEqual(t, "a key of Patroni", shell("etcdctl --user patroni:of-patroni put /service/demo/leader one"), "OK")
	wantEqual(t, "another key", shell("etcdctl --user patroni:of-patroni put jobs/a 2"), "Error: etcdserver: permission denied")
}
