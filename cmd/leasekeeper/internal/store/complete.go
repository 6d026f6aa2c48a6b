package store

import (
	"context"
	"io"
	"net/url"
	"os"
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
// offers none if the store does not answer within completionLimit. It creates no SQLite file.
func CompleteNames(cmd *cobra.Command, prefix string) []string {
	s, err := settings.LoadNames(cmd.Flags(), os.Environ())
	if err != nil || s.ChooseStore(io.Discard) != nil || isMissingFile(s.Store) {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
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

// isMissingFile reports whether a URL names a SQLite file that does not exist.
func isMissingFile(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "sqlite" {
		return false
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return true
		}
	}
	_, err = os.Stat(path)
	return err != nil
}
