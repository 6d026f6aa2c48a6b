package ferrettest

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// Start starts a FerretDB with an empty folder, and a proxy in front of it, both of which end with the test.
func Start(t testing.TB) *Proxy {
	t.Helper()
	server, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:   slog.New(slog.DiscardHandler),
		Handler:  "sqlite",
		// What it keeps ends with the test, so it need not wait for the disk.
		SQLiteURL: "file:" + filepath.ToSlash(t.TempDir()) + "/?_pragma=synchronous(off)",
	})
	if err != nil {
		t.Fatalf("FerretDB does not start: %v", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("FerretDB: %v", err)
		}
	})
	u, err := url.Parse(server.MongoDBURI())
	if err != nil {
		t.Fatal(err)
	}
	return startProxy(t, u.Host)
}
