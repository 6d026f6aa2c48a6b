package ferrettest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// Start starts a FerretDB with an empty directory, and a proxy in front of it. Both end with the test.
func Start(t testing.TB) *Proxy {
	t.Helper()
	// The data is removed with the test, so writes need not wait for the disk.
	p, stop, err := startServer(t.TempDir(), "?_pragma=synchronous(off)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Serve starts a FerretDB that stores its data in a directory, with its default durability, and a proxy in
// front of it. stop ends both.
func Serve(folder string) (p *Proxy, stop func() error, err error) { return startServer(folder, "") }

// startServer starts them with settings of SQLite.
func startServer(folder, settings string) (p *Proxy, stop func() error, err error) {
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Logger:    slog.New(slog.DiscardHandler),
		Handler:   "sqlite",
		SQLiteURL: "file:" + filepath.ToSlash(folder) + "/" + settings,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("FerretDB does not start: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	end := func() error {
		cancel()
		if err := <-done; err != nil {
			return fmt.Errorf("FerretDB: %w", err)
		}
		return nil
	}
	u, err := url.Parse(server.MongoDBURI())
	if err == nil {
		p, err = newProxy(u.Host)
	}
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	return p, func() error { p.close(); return end() }, nil
}
