package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestServerIsDescribedByFlagVariableOrFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server, client := file("server", "store: sqlite:/x\nlisten: 127.0.0.1:1\n"), file("client", "store: sqlite:/x\nttl: 5s\n")
	for _, c := range []struct {
		args, environ string
		want          bool
	}{
		{"", "", false}, {"--data-dir x", "", true}, {"--config " + server, "", true}, {"--config " + client, "", false}, {"", "LEASEKEEPER_LISTEN=127.0.0.1:1", true},
		{"", "LEASEKEEPER_STORE=sqlite:/x", false}, {"", "LEASEKEEPER_CONFIG=" + server, true}, {"", "LEASEKEEPER_NAME=jobs LEASEKEEPER_TOKEN=7", false},
	} {
		flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
		RegisterNames(flags, "store")
		RegisterDataDir(flags)
		if err := flags.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if got, err := DescribesServer(flags, strings.Fields(c.environ)); err != nil || got != c.want {
			t.Errorf("%q with %q: %v, %v", c.args, c.environ, got, err)
		}
	}
}

func TestDefaultStoreIsNotCreated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	t.Setenv("XDG_STATE_HOME", dir)
	url, exists, err := DefaultStore()
	if err != nil || exists || !strings.HasSuffix(url, "/leasekeeper/leases.db") {
		t.Errorf("%s, %v, %v", url, exists, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("the directory was created")
	}
}
