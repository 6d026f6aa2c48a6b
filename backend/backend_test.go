package backend

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// none is a backend without any ability, and without optional interfaces.
type none struct{ Backend }

func (none) Scheme() string { return "none" }

func TestInvalidNamesAreRefused(t *testing.T) {
	for _, name := range []string{"a", "jobs/nightly", "jobs/nightly backup", "ünïcode/名", "a/.b/...", strings.Repeat("x", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/.", "a\nb", "a\x00", "a\x7f", "a\u0085", "\xff", "a\u202e", strings.Repeat("x", MaxName+1), strings.Repeat("x", 10<<10)} {
		err := CheckName(name)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		} else if len(err.Error()) > 4*MaxName+200 {
			t.Errorf("the error for a name of %d bytes has %d", len(name), len(err.Error()))
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"jobs/nightly", "", "a//b", "..", "\xff", "a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := CheckName(name)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %q", name, err)
			}
			return
		}
		// An accepted name fits into a path and on a line unchanged.
		if name != strings.TrimSpace(name) && strings.ContainsAny(name, "\n\r\t") || len(name) > MaxName || !utf8.ValidString(name) {
			t.Fatalf("accepted %q", name)
		}
		if strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//") || slices.Contains(strings.Split(name, "/"), "..") {
			t.Fatalf("accepted %q", name)
		}
	})
}

func TestInvalidHoldersAreRefused(t *testing.T) {
	good := Holder{ID: "a", Card: Card{Host: "h", Text: "lines\nare fine"}}
	if err := CheckHolder(good); err != nil {
		t.Error(err)
	}
	for _, h := range []Holder{
		{}, {ID: "\xff"}, {ID: "a\nb"}, {ID: strings.Repeat("x", MaxHolderID+1)},
		{ID: "a", Card: Card{Host: "\x00"}}, {ID: "a", Card: Card{Host: strings.Repeat("x", MaxHolderID+1)}},
		{ID: "a", Card: Card{Text: "\xff"}}, {ID: "a", Card: Card{Text: strings.Repeat("x", MaxCardText+1)}},
	} {
		if err := CheckHolder(h); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.20q: %v", h.ID, err)
		}
	}
}

func TestErrorsHaveTheirKinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind error
		says []string
	}{
		{&HeldError{Name: "n", Holder: Holder{ID: "b"}, Token: 7}, ErrHeld, []string{"n is held by b (token 7)"}},
		{&HeldError{Name: "n", Holder: Holder{ID: "b", Card: Card{Host: "h", PID: 3}}, Token: 7, Ends: 1500e6}, ErrHeld, []string{"b (pid 3 on h)", "1.5s"}},
		{&HeldError{Name: "n", Token: 7, Self: true}, ErrHeld, []string{"this keeper", "release"}},
		{&UnsupportedError{Backend: "etcd", What: "history"}, ErrUnsupported, []string{"history", "etcd"}},
		{&UnsupportedError{Backend: "etcd", What: "history", Instead: "look elsewhere"}, ErrUnsupported, []string{"look elsewhere"}},
	} {
		wrapped := fmt.Errorf("on the way: %w", c.err)
		for _, kind := range []error{ErrHeld, ErrLost, ErrStale, ErrContention, ErrUnknownOutcome, ErrPinned, ErrInvalid, ErrCorrupt, ErrUnsupported, ErrUnavailable, ErrClosed} {
			if errors.Is(wrapped, kind) != (kind == c.kind) {
				t.Errorf("%v: is %v: %v", c.err, kind, errors.Is(wrapped, kind))
			}
		}
		for _, part := range c.says {
			if !strings.Contains(c.err.Error(), part) {
				t.Errorf("%q does not say %q", c.err, part)
			}
		}
	}
}

func asked[T any](t *testing.T, what string) {
	t.Helper()
	_, err := Can[T](none{})
	var u *UnsupportedError
	if !errors.As(err, &u) || u.Backend != "none" || u.What != what {
		t.Errorf("%s: %v", what, err)
	}
}

func TestCanNamesAMissingAbility(t *testing.T) {
	asked[Watcher](t, Watch)
	asked[Historian](t, History)
	asked[Announcer](t, Announce)
	asked[Resumer](t, Resume)
	asked[Revoker](t, Revoke)
	asked[Pinner](t, Pin)
	asked[Transferrer](t, Transfer)
	defer func() {
		if recover() == nil {
			t.Error("Can for an interface of another package did not panic")
		}
	}()
	_, _ = Can[fmt.Stringer](none{})
}

func TestSchemeIsRegisteredOnce(t *testing.T) {
	open := func(context.Context, *url.URL) (Backend, error) { return none{}, nil }
	Register("backend-test-once", open)
	if !slices.Contains(Schemes(), "backend-test-once") || !slices.IsSorted(Schemes()) {
		t.Error(Schemes())
	}
	if b, err := Open(t.Context(), "backend-test-once://x"); err != nil || b != (none{}) {
		t.Error(b, err)
	}
	for _, bad := range []func(){
		func() { Register("backend-test-once", open) },
		func() { Register("Upper", open) },
		func() { Register("", open) },
		func() { Register("backend-test-nil", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("did not panic")
				}
			}()
			bad()
		}()
	}
}

func TestNoErrorShowsAPassword(t *testing.T) {
	const secret = "hunter2/x y"
	cause := fmt.Errorf("%w: refused", ErrUnavailable)
	Register("backend-test-leaky", func(_ context.Context, u *url.URL) (Backend, error) {
		password, _ := u.User.Password()
		return nil, fmt.Errorf("%w: %s and %s and %s", cause, u, password, u.Query().Get("Password"))
	})
	Register("backend-test-quiet", func(_ context.Context, u *url.URL) (Backend, error) {
		return nil, fmt.Errorf("%w: %s", cause, u.Redacted())
	})
	escaped := "hunter2%2Fx%20y"
	for _, raw := range []string{
		"backend-test-leaky://u:" + escaped + "@h/x",
		"backend-test-leaky://h/x?Password=" + escaped,
		"backend-test-quiet://u:" + escaped + "@h/x",
		"backend-test-leaky://u:" + secret + "@h/x",
		"backend-test-leaky://u:hunter2/x@h:1/x",
		"nobody://u:" + escaped + "@h/x",
		"u:hunter2",
		"hunter2",
		"u:hunter2@h:%zz",
		"://hunter2",
		"\x7fhunter2",
	} {
		_, err := Open(t.Context(), raw)
		if err == nil {
			t.Fatalf("%q was opened", raw)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			if strings.Contains(e.Error(), "hunter2") {
				t.Errorf("%q: %v", raw, e)
			}
		}
		if errors.Is(err, ErrInvalid) == errors.Is(err, ErrUnavailable) {
			t.Errorf("%q: of no kind, or of two: %v", raw, err)
		}
	}
	_, err := Open(t.Context(), "backend-test-quiet://u:p@h/x")
	if err == nil || !strings.Contains(err.Error(), "backend-test-quiet://u:xxxxx@h/x") {
		t.Errorf("an error without the password was changed: %v", err)
	}
}
