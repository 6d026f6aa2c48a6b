package steps

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
)

const operationsPage = "../../../docs/operations.md"

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// Keys move from etcd to a server of ours, which grows to three members, by the commands of docs/operations.md. Keys keep their
// values, versions and leases. Each member has them, and the first one is not needed any more.
func TestKeysMoveFromEtcdAsTheOperationsPageSays(t *testing.T) {
	etcd := cluster.Start(t, cluster.Etcd, 1)
	m := NewMove(t, operationsPage, etcd.Endpoints()[0], cluster.Address(t))
	m.Run("etcdctl put greeting hello; etcdctl put greeting again")
	lease := strings.Fields(m.Run("etcdctl lease grant 600"))[1]
	m.Run("etcdctl put leased 1 --lease=" + lease)
	before := m.Run("etcdctl get greeting -w fields")

	m.Save()
	etcd.End()
	m.Import()
	m.Serve()
	if after := m.Run("etcdctl get greeting -w fields"); keyFields(t, after) != keyFields(t, before) {
		t.Errorf("the key is\n%s, and was\n%s", after, before)
	}
	if out := m.Run("etcdctl lease timetolive --keys " + lease); !strings.Contains(out, "granted with TTL(600s)") || !strings.Contains(out, "[leased]") {
		t.Errorf("the lease is: %s", out)
	}
	m.Grow()
	for _, endpoint := range m.Endpoints() {
		if out := m.Run("ETCDCTL_ENDPOINTS=" + endpoint + " etcdctl get greeting --consistency s"); out != "greeting\nagain\n" {
			t.Errorf("the member at %s has %q", endpoint, out)
		}
	}
	if out := m.Run("leasekeeper member list --endpoint " + m.Endpoints()[0]); strings.Count(out, " voter ") != size {
		t.Errorf("the members are:\n%s", out)
	}
	m.KillFirst()
	rest := m.Endpoints()[1:]
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if out, err := m.command("ETCDCTL_ENDPOINTS=" + strings.Join(rest, ",") + " etcdctl put greeting finally").CombinedOutput(); err == nil {
			break
		} else if time.Since(began) > limit {
			t.Fatalf("without the first member no write succeeds: %s", out)
		}
	}
}

// keyFields returns what etcdctl prints of a key in fields, without the header.
func keyFields(t *testing.T, fields string) string {
	t.Helper()
	_, key, ok := strings.Cut(fields, `"Key"`)
	if !ok {
		t.Fatalf("etcdctl prints no key: %s", fields)
	}
	return key
}

// A section ends with the next one of its level, and comments in a block are no titles. A text that several commands have, or
// none, is found out.
func TestCommandsOfASectionAreFound(t *testing.T) {
	path := t.TempDir() + "/page.md"
	page := "# Page\n\nRun `a one`.\n\n## First\n\nRun `a two`, or `b`:\n\n    a three --flag\n\n```sh\n# on host1\na four \\\n  --more\n```\n\n" +
		"### Below\n\n```\n$ a five\nout\nput\n$ a six\n```\n\n## Second\n\n`a seven`\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Read(t, path, "First")
	for text, want := range map[string]string{"two": "a two", "--flag": "a three --flag", "b": "b"} {
		if got := s.Command(text); got != want {
			t.Errorf("the command with %q is %q, want %q", text, got, want)
		}
	}
	if got := s.Block("four"); got != "# on host1\na four \\\n  --more\n" {
		t.Errorf("the block is %q", got)
	}
	shown := Commands(s.Block("$ a five"))
	if len(shown) != 2 || shown[0] != (Shown{"a five", "out\nput\n"}) || shown[1] != (Shown{"a six", ""}) {
		t.Errorf("the transcript has %q", shown)
	}
	for _, text := range []string{"a ", "seven", "four", "none"} {
		if !fails(t, func(t testing.TB) { Section{t, "section", s.text}.Command(text) }) {
			t.Errorf("a command with %q was found", text)
		}
	}
	if !fails(t, func(t testing.TB) { Read(t, path, "Third") }) {
		t.Error("a section was found that the page does not have")
	}
}

// failing is a test that notes that it has failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

// fails reports whether a function fails its test.
func fails(t *testing.T, run func(t testing.TB)) bool {
	t.Helper()
	f := &failing{TB: t}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(f) {
				panic(r)
			}
		}()
		run(f)
	}()
	return f.failed
}
