package integration

import (
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/testutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// ThroughProxy says that clients reach the servers through etcd's own proxy.
const ThroughProxy = false

// TestOption changes what BeforeTest does.
type TestOption func(t testutil.TB)

// WithFailpoint skips a test that needs a fail point in the server.
func WithFailpoint(name, _ string) TestOption {
	return func(t testutil.TB) { t.Skip("the server is a process without the fail point " + name) }
}

// SkipIfNoGoFail skips a test that needs fail points in the server.
func SkipIfNoGoFail(t testutil.TB) { t.Skip("the server is a process without fail points") }

// BeforeTest fails the test if it leaves goroutines behind.
func BeforeTest(t testutil.TB, options ...TestOption) {
	t.Helper()
	for _, option := range options {
		option(t)
	}
	testutil.RegisterLeakDetection(t)
}

// NewClient returns a client.
func NewClient(_ testing.TB, cfg clientv3.Config) (*clientv3.Client, error) {
	cfg.Logger = zap.NewNop()
	if faultsFile() != "" {
		cfg.DialOptions = append(cfg.DialOptions, repeating())
	}
	return clientv3.New(cfg)
}

// plainTB is what clusters need of a test, for a TB that is none of package testing.
type plainTB struct {
	testing.TB // nil: the methods below are all that is called
	tb         testutil.TB
}

func (p plainTB) Cleanup(f func())               { p.tb.Cleanup(f) }
func (p plainTB) Errorf(format string, a ...any) { p.tb.Errorf(format, a...) }
func (p plainTB) Failed() bool                   { return p.tb.Failed() }
func (p plainTB) Fatal(a ...any)                 { p.tb.Fatal(a...) }
func (p plainTB) Fatalf(format string, a ...any) { p.tb.Fatalf(format, a...) }
func (p plainTB) Helper()                        { p.tb.Helper() }
func (p plainTB) Logf(format string, a ...any)   { p.tb.Logf(format, a...) }
func (p plainTB) TempDir() string                { return p.tb.TempDir() }

func full(t testutil.TB) testing.TB {
	if t, ok := t.(testing.TB); ok {
		return t
	}
	return plainTB{tb: t}
}
