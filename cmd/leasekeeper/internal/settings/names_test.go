package settings

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestServerUnderRunIgnoresTheNameOfTheLease(t *testing.T) {
	environ := []string{"LEASEKEEPER_NAME=jobs/nightly", "LEASEKEEPER_LISTEN=127.0.0.1:1"}
	underRun := append(environ, "LEASEKEEPER_TOKEN=7", "LEASEKEEPER_TTL_MS=15000", "LEASEKEEPER_HOLDER=me", "LEASEKEEPER_STORE=etcd://x/")
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	RegisterServer(flags)
	for want, environ := range map[string][]string{"jobs/nightly": environ, "default": underRun} {
		s, err := LoadServer(flags, environ)
		if err != nil || s.Name != want || s.Listen != "127.0.0.1:1" {
			t.Errorf("got %q, %v; want %q", s.Name, err, want)
		}
	}
}
