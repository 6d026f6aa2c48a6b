package store

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

const (
	// completionLimit bounds the request of a completion, which a person waits for.
	completionLimit = time.Second
	// maxCompleted is the largest number of names that a completion offers.
	maxCompleted = 200
)

// CompleteNames offers the names in the store of cmd that begin with a prefix, at most maxCompleted, from one request. It
// offers none if the store does not answer within completionLimit. It creates nothing: a store without tables has no names.
func CompleteNames(cmd *cobra.Command, prefix string) []string {
	s, err := settings.LoadNames(cmd.Flags(), os.Environ())
	if err != nil || !chooseStore(&s) {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	if !hasTables(ctx, s.Store) {
		return nil
	}
	b, err := backend.Open(ctx, s.Store)
	if err != nil {
		return nil
	}
	defer b.Close(ctx) // its error does not matter: no change is pending
	found, err := b.List(ctx, prefix, "", maxCompleted)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(found))
	for _, i := range found {
		if backend.Printable(i.Name) == i.Name { // a shell would print another name as it is
			names = append(names, i.Name)
		}
	}
	return names
}

// chooseStore completes the store of a completion, and reports whether it may exist. It creates nothing: it does not choose
// the local store of this user before its file exists.
func chooseStore(s *settings.Names) bool {
	if s.Store == "" {
		if _, exists, err := settings.DefaultStore(); err != nil || !exists {
			return false
		}
	}
	if s.ChooseStore(io.Discard) != nil {
		return false
	}
	_, missing := MissingFile(s.Store)
	return !missing
}

// MissingFile returns the path in the URL of a SQLite store, and whether no file is there. Both are zero for other stores.
func MissingFile(rawURL string) (path string, missing bool) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "sqlite" {
		return "", false
	}
	path = u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return "", false // opening the store reports it
		}
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' { // /C:/...
		path = path[1:]
	}
	_, err = os.Stat(path)
	return path, errors.Is(err, fs.ErrNotExist)
}

// hasTables reports whether a store has its tables, so that opening it creates nothing. A store that needs none has them.
func hasTables(ctx context.Context, rawURL string) bool {
	found, err := backend.Inspect(ctx, rawURL)
	return errors.Is(err, backend.ErrUnsupported) || err == nil && (found.Schema > 0 || found.Newest == 0)
}
