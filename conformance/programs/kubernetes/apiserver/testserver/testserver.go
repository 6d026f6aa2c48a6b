package testserver

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
)

// startLimit bounds the time from the start of the program to its first answer.
const startLimit = time.Minute

// NewTestConfig returns etcd's default configuration, with free ports and a data directory that ends with the test.
func NewTestConfig(t testing.TB) *embed.Config {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "data")
	client, peer := address(t), address(t)
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	return cfg
}

// address returns the URL of a loopback address where nothing listens.
func address(t testing.TB) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// RunEtcd starts the program with those settings of cfg that the suite changes, and returns a client of all its members.
// Without cfg it takes that of NewTestConfig. The program and the client end with the test.
func RunEtcd(t testing.TB, cfg *embed.Config) *kubernetes.Client {
	t.Helper()
	if cfg == nil {
		cfg = NewTestConfig(t)
	}
	start(t, cfg)
	tls, err := cfg.ClientTLSInfo.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.New(clientv3.Config{
		TLS:         tls,
		Endpoints:   []string{cfg.AdvertiseClientUrls[0].String()},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, client.Client)
	recorder := storagetesting.NewKubernetesRecorder(client.Kubernetes)
	client.KV = storagetesting.NewKVRecorder(client.KV, recorder)
	client.Kubernetes = recorder
	return client
}

// start runs the program until the end of the test.
func start(t testing.TB, cfg *embed.Config) {
	t.Helper()
	program := os.Getenv("SUITE_ETCD")
	if program == "" {
		t.Fatal("SUITE_ETCD does not name a program")
	}
	cmd := exec.Command(program, arguments(cfg)...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			said := output.String()
			t.Logf("the end of what %s said:\n%s", program, said[max(0, len(said)-8<<10):])
		}
	})
}

// arguments returns the flags for a configuration.
func arguments(cfg *embed.Config) []string {
	args := []string{
		"--name", cfg.Name, "--data-dir", cfg.Dir, "--log-level", "warn",
		"--listen-client-urls", cfg.ListenClientUrls[0].String(),
		"--advertise-client-urls", cfg.AdvertiseClientUrls[0].String(),
		"--listen-peer-urls", cfg.ListenPeerUrls[0].String(),
		"--initial-advertise-peer-urls", cfg.AdvertisePeerUrls[0].String(),
		"--initial-cluster", cfg.Name + "=" + cfg.AdvertisePeerUrls[0].String(),
		"--max-txn-ops", strconv.FormatUint(uint64(cfg.MaxTxnOps), 10),
		"--max-request-bytes", strconv.FormatUint(uint64(cfg.MaxRequestBytes), 10),
	}
	if cfg.WatchProgressNotifyInterval > 0 {
		args = append(args, "--watch-progress-notify-interval", cfg.WatchProgressNotifyInterval.String())
	}
	if tls := cfg.ClientTLSInfo; tls.CertFile != "" {
		args = append(args, "--cert-file", tls.CertFile, "--key-file", tls.KeyFile, "--trusted-ca-file", tls.TrustedCAFile)
	}
	return args
}

// awaitReady returns when the server answers, and gives the client the endpoints of all members.
func awaitReady(t testing.TB, client *clientv3.Client) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if _, err = client.Get(ctx, "ready"); err == nil {
			err = client.Sync(ctx)
		}
		cancel()
		if err == nil {
			return
		}
	}
	t.Fatalf("the server does not answer within %v: %v", startLimit, err)
}
