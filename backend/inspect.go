package backend

import (
	"context"
	"net/url"
	"time"
)

// Inspection is what is known of a database as a store, for an operator. It was found without opening the store for leases.
type Inspection struct {
	// Server names the program and its version, such as "PostgreSQL 17.2".
	Server string
	// RoundTrip is the time of the fastest of a few small reads.
	RoundTrip time.Duration
	// Clock is by how much the database's wall clock is ahead of this machine's, with an error of at most RoundTrip. It means
	// nothing without HasClock, and no lease depends on it.
	Clock    time.Duration
	HasClock bool
	// Schema is the version of the store's tables, and 0 if there are none. Newest is the version that this program creates. It is
	// 0 for a store without versions.
	Schema, Newest int
	// Settings are those on which it depends that acknowledged writes survive a crash.
	Settings []Setting
	// Cautions are those that [Cautious] would have.
	Cautions []string
}

// Setting is one setting of a database, or one fact about it.
type Setting struct {
	Name, Value string
	// Fix says what to do, if the value lets a crash undo acknowledged writes or prevents the store from working; empty if it is
	// good.
	Fix string
	// Accepted reports that the URL accepts this value.
	Accepted bool
}

// Inspector inspects the store of a URL with its scheme. It creates nothing and changes nothing. The URL is valid. An error
// says that the store cannot be reached or used.
type Inspector func(ctx context.Context, u *url.URL) (Inspection, error)

// RegisterInspector registers the inspector for the URLs of a scheme. A backend's package calls it when it is imported.
func RegisterInspector(scheme string, inspect Inspector) {
	registry.Lock()
	defer registry.Unlock()
	registry.inspectors[scheme] = inspect
}

// Inspect inspects the store of a URL, and changes nothing in it. It returns an [*UnsupportedError] for a scheme without an
// inspector. No error shows a secret of the URL.
func Inspect(ctx context.Context, rawURL string) (Inspection, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return Inspection{}, err
	}
	registry.Lock()
	inspect := registry.inspectors[u.Scheme]
	registry.Unlock()
	if inspect == nil {
		return Inspection{}, &UnsupportedError{Backend: u.Scheme, What: "an inspection", Instead: "only databases offer it"}
	}
	found, err := inspect(ctx, u)
	if err != nil {
		return Inspection{}, hideSecrets(err, u)
	}
	return found, nil
}
