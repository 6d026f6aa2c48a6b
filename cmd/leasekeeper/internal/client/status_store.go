package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

const (
	maxCounted  = 10_000 // names that `status` counts in a database
	countedPage = 500    // in one request
)

// storeStatus is the output of `status` about a database.
type storeStatus struct {
	Store        string   `json:"store"`            // the URL without user, password and parameters
	Kind         string   `json:"kind"`             // the kind of backend, such as "sqlite"
	Server       string   `json:"server,omitempty"` // the program and its version, if the store can say them
	Health       string   `json:"health"`
	Troubles     []string `json:"troubles"`
	Cautions     []string `json:"cautions"` // how the store may break its promises
	RoundTripUs  int64    `json:"round_trip_us"`
	Names        int      `json:"names"`
	Held         int      `json:"held"`
	Waiting      int      `json:"waiting"` // claims that wait, as far as the store knows them
	More         bool     `json:"more"`    // there are more names than were counted
	HighestToken uint64   `json:"highest_token"`
	NoTables     bool     `json:"no_tables,omitempty"` // the first claim of a name will create them
}

// printStoreStatus shows the status of a database.
func (f *clientFlags) printStoreStatus(ctx context.Context, cmd *cobra.Command, rawURL string) error {
	if err := f.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	s, err := inspectStore(ctx, rawURL)
	if err != nil {
		return err
	}
	if !s.NoTables {
		b, err := backend.Open(ctx, rawURL)
		if err != nil {
			return store.Explain("open the store", err)
		}
		defer b.Close(context.WithoutCancel(ctx)) // its error does not matter: no change is pending
		if s, err = s.counted(ctx, b); err != nil {
			return store.Explain("ask for the status", err)
		}
	}
	return s.report(cmd.OutOrStdout(), f.output)
}

// inspectStore says what store a URL names, without its names, and creates nothing. It refuses a SQLite file that does not
// exist. A store without an inspector has no version here.
func inspectStore(ctx context.Context, rawURL string) (*storeStatus, error) {
	s := &storeStatus{Store: shownStore(rawURL), Kind: schemeOf(rawURL), Health: healthy, Troubles: []string{}, Cautions: []string{}}
	if path, missing := store.MissingFile(rawURL); missing {
		return nil, &command.Error{Code: command.ExitTrouble, Cause: fmt.Errorf("%s does not exist: correct the path in --store; the first claim of a name creates the file", path)}
	}
	found, err := backend.Inspect(ctx, rawURL)
	switch {
	case errors.Is(err, backend.ErrUnsupported):
	case err != nil:
		return nil, store.Explain("open the store", err)
	default:
		s.Server, s.NoTables = found.Server, found.Newest > 0 && found.Schema == 0
		s.RoundTripUs, s.Cautions = found.RoundTrip.Microseconds(), append(s.Cautions, found.Cautions...)
	}
	return s, nil
}

// counted returns the status with the names of the store, at most maxCounted, and with the time of a request for them.
func (s storeStatus) counted(ctx context.Context, b backend.Backend) (*storeStatus, error) {
	s.Kind, s.Troubles, s.Cautions = b.Scheme(), []string{}, []string{}
	if c, ok := b.(backend.Cautious); ok {
		s.Cautions = append(s.Cautions, c.Cautions()...)
	}
	began := time.Now()
	if _, err := b.List(ctx, "", "", 1); err != nil {
		return nil, err
	}
	s.RoundTripUs = time.Since(began).Microseconds()
	unreadable := 0
	for after := ""; ; {
		page, err := b.List(ctx, "", after, countedPage)
		if err != nil {
			return nil, err
		}
		for _, i := range page {
			after = i.Name
			if i.Err != nil {
				unreadable++
			}
			s.count(i)
		}
		if len(page) < countedPage {
			break
		}
		if s.Names >= maxCounted {
			s.More = true
			break
		}
	}
	if unreadable > 0 {
		s.Health = "unhealthy"
		s.Troubles = append(s.Troubles, console.Plural(unreadable, "record", "records")+" cannot be read: `leasekeeper ls` says which")
	}
	return &s, nil
}

func (s *storeStatus) count(i backend.Info) {
	s.Names++
	if i.Held {
		s.Held++
	}
	s.Waiting += max(0, i.Waiting)
	s.HighestToken = max(s.HighestToken, uint64(i.Token))
}

// kindInWords returns the kind of backend, with the version of its program if it is known.
func (s *storeStatus) kindInWords() string {
	if s.Server == "" {
		return s.Kind
	}
	return s.Kind + " (" + s.Server + ")"
}

// report prints the status. Its error carries the exit code.
func (s *storeStatus) report(w io.Writer, output string) error {
	err := s.print(w, output)
	if err == nil && len(s.Troubles) > 0 {
		err = &command.Error{Code: command.ExitFailed}
	}
	return store.NotAnAnswer(err)
}

func (s *storeStatus) print(w io.Writer, output string) error {
	if output == console.JSON {
		return console.PrintJSON(w, s)
	}
	health, names := s.Health, strconv.Itoa(s.Names)
	if len(s.Troubles) > 0 {
		health += ": " + strings.Join(s.Troubles, "; ")
	}
	if s.NoTables {
		names = "no tables yet: the first claim creates them"
	}
	if s.More {
		names = fmt.Sprintf("more than %d; the numbers below are of the first %d", s.Names, s.Names)
	}
	rows := [][]string{
		{"store", s.Store},
		{"kind", s.kindInWords()},
		{"health", health},
		{"round trip", (time.Duration(s.RoundTripUs) * time.Microsecond).String()},
		{"names", names},
		{"held", strconv.Itoa(s.Held)},
		{"waiting", strconv.Itoa(s.Waiting)},
		{"highest token", strconv.FormatUint(s.HighestToken, 10)},
	}
	for _, caution := range s.Cautions {
		rows = append(rows, []string{"caution", caution})
	}
	return console.PrintTable(w, rows, console.Wrap(), console.Paint(healthTone))
}

// shownStore returns the URL of a store without what may be secret: the user, the password and the parameters.
func shownStore(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "" // opening the store has reported it
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
