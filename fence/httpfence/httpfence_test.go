package httpfence

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/fence"
)

func byPath(r *http.Request) string { return r.URL.Path }

// ask sends a request with the given tokens straight to a handler.
func ask(h http.Handler, path string, tokens ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodPut, "http://resource"+path, strings.NewReader("body")), httptest.NewRecorder()
	for _, token := range tokens {
		r.Header.Add(Header, token)
	}
	h.ServeHTTP(w, r)
	return w
}

type broken struct{}

func (broken) Raise(context.Context, string, fence.Token) (fence.Token, error) {
	return 0, errors.New("secret path /dev/sdb")
}

func TestMiddlewareAnswersWithTheDocumentedStatus(t *testing.T) {
	reached, refused := 0, 0
	h := Middleware(Config{Guard: fence.NewGuard(fence.Config{}), Name: byPath,
		Refused: func(*http.Request, error) { refused++ }})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reached++; w.WriteHeader(http.StatusCreated) }))
	for _, c := range []struct {
		path    string
		tokens  []string
		status  int
		highest string
		says    string
	}{
		{"/a", nil, 428, "", "send the token"},
		{"/a", []string{"7"}, 201, "", ""},
		{"/a", []string{"7"}, 201, "", ""},
		{"/a", []string{"6"}, 412, "7", "do not repeat"},
		{"/b", []string{"6"}, 201, "", ""},
		{"/a", []string{"8"}, 201, "", ""},
		{"/a", []string{"7"}, 412, "8", "token 8"},
		{"/a", []string{"9", "9"}, 400, "", "once"},
		{"/a", []string{"9", "10"}, 400, "", "once"},
		{"/a", []string{"9, 10"}, 400, "", "decimal"},
		{"/a", []string{""}, 400, "", "decimal"},
		{"/a", []string{"0"}, 400, "", "decimal"},
		{"/a", []string{"-1"}, 400, "", "decimal"},
		{"/a", []string{"18446744073709551616"}, 400, "", "decimal"},
		{"/a", []string{"9"}, 201, "", ""}, // none of the refused tokens raised the mark
		{"/a", []string{"18446744073709551615"}, 201, "", ""},
	} {
		before, refusedBefore := reached, refused
		w := ask(h, c.path, c.tokens...)
		if w.Code != c.status || w.Header().Get(HighestHeader) != c.highest || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %q: got %d, highest %q, %s", c.path, c.tokens, w.Code, w.Header().Get(HighestHeader), w.Body)
		}
		if (reached > before) != (c.status == 201) || (refused > refusedBefore) == (c.status == 201) {
			t.Errorf("%s %q: answered %d, but the handler ran %d times and Refused %d times", c.path, c.tokens, w.Code, reached-before, refused-refusedBefore)
		}
	}
}

func TestMiddlewareHidesTheErrorOfTheMarks(t *testing.T) {
	var refused error
	h := Middleware(Config{Guard: fence.NewGuard(fence.Config{Marks: broken{}}), Name: byPath,
		Refused: func(_ *http.Request, err error) { refused = err }})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	w := ask(h, "/a", "7")
	if w.Code != 503 || !strings.Contains(w.Body.String(), "same token") || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if !errors.Is(refused, fence.ErrUnsaved) {
		t.Errorf("Refused received %v", refused)
	}
}

func TestMiddlewareFailsClosed(t *testing.T) {
	h := Middleware(Config{Guard: fence.NewGuard(fence.Config{}), Name: func(*http.Request) string { return "" }})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler ran") }))
	if w := ask(h, "/a", "7"); w.Code != 400 {
		t.Errorf("got %d", w.Code)
	}
	for _, c := range []Config{{}, {Name: byPath}, {Guard: fence.NewGuard(fence.Config{})}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Middleware accepted an incomplete Config")
				}
			}()
			Middleware(c)
		}()
	}
}

func TestTokenOptionalAdmitsRequestsWithoutToken(t *testing.T) {
	h := Middleware(Config{Guard: fence.NewGuard(fence.Config{}), Name: byPath, TokenOptional: true})(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		tokens []string
		status int
	}{{[]string{"7"}, 200}, {nil, 200}, {[]string{"6"}, 412}, {[]string{"x"}, 400}, {[]string{""}, 400}} {
		if w := ask(h, "/a", c.tokens...); w.Code != c.status {
			t.Errorf("%q: got %d, want %d", c.tokens, w.Code, c.status)
		}
	}
}

// A handler reads the body of a client that has been replaced and sends nothing further. The handler must not delay
// the new holder, and what it does after its failed read must come before the new holder's write.
func TestSlowReplacedClientDoesNotDelayTheNewHolder(t *testing.T) {
	var order []string
	var cause error
	begun := make(chan struct{})
	server := httptest.NewServer(Middleware(Config{Guard: fence.NewGuard(fence.Config{}), Name: byPath})(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get(Header) == "7" {
				close(begun)
			}
			body, err := io.ReadAll(r.Body)
			order = append(order, r.Header.Get(Header))
			if err != nil {
				cause = context.Cause(r.Context())
				return // the handler writes nothing of a body that it could not read
			}
			order = append(order, string(body))
		})))
	defer server.Close()
	send := func(token fence.Token, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/a", body)
		if err != nil {
			t.Error(err)
		}
		client := http.Client{Transport: &Transport{Token: func(context.Context) (fence.Token, error) { return token, nil }}}
		return client.Do(r)
	}
	slow, write := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if answer, err := send(7, slow); err == nil {
			answer.Body.Close()
		}
	}()
	if _, err := write.Write([]byte("half a bo")); err != nil {
		t.Fatal(err)
	}
	<-begun
	answer, err := send(8, strings.NewReader("new"))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	write.CloseWithError(io.ErrUnexpectedEOF)
	<-done
	if got := strings.Join(order, " "); got != "7 8 new" {
		t.Errorf("got %q", got)
	}
	if !errors.Is(cause, fence.ErrStale) {
		t.Errorf("the old request was ended by %v", cause)
	}
}

// recorded is a base transport that remembers the requests.
type recorded struct {
	sent   []*http.Request
	answer http.Response
	body   closing
}

func (b *recorded) RoundTrip(r *http.Request) (*http.Response, error) {
	b.sent = append(b.sent, r)
	answer := b.answer
	b.body.Reader = strings.NewReader("answer")
	answer.Body = &b.body
	return &answer, nil
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }

func TestTransportSendsTheToken(t *testing.T) {
	base := &recorded{answer: http.Response{StatusCode: 200}}
	tr := &Transport{Base: base, Token: func(context.Context) (fence.Token, error) { return 1<<64 - 1, nil }}
	r := httptest.NewRequest(http.MethodPut, "http://resource/a", nil)
	r.Header[Header] = []string{"1", "2"}
	if _, err := tr.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	if got := base.sent[0].Header.Values(Header); len(got) != 1 || got[0] != "18446744073709551615" {
		t.Errorf("sent %q", got)
	}
	if got := r.Header.Values(Header); len(got) != 2 {
		t.Errorf("the caller's request was changed: %q", got)
	}
}

func TestTransportSendsNothingWithoutALease(t *testing.T) {
	lost := errors.New("lease lost")
	for name, token := range map[string]func(context.Context) (fence.Token, error){
		"lost": func(context.Context) (fence.Token, error) { return 7, lost },
		"zero": func(context.Context) (fence.Token, error) { return 0, nil },
		"none": nil,
	} {
		base, body := &recorded{}, &closing{Reader: strings.NewReader("x")}
		r := httptest.NewRequest(http.MethodPut, "http://resource/a", body)
		_, err := (&Transport{Base: base, Token: token}).RoundTrip(r)
		if err == nil || len(base.sent) != 0 {
			t.Errorf("%s: %v, sent %d", name, err, len(base.sent))
		}
		if name == "lost" && !errors.Is(err, lost) {
			t.Errorf("got %v", err)
		}
		if body.closed != 1 {
			t.Errorf("%s: the body was closed %d times", name, body.closed)
		}
	}
}

func TestTransportReturnsStaleErrorForStaleTokensOnly(t *testing.T) {
	for _, c := range []struct {
		status  int
		highest []string
		stale   fence.Token
	}{
		{412, []string{"8"}, 8},
		{412, nil, 0}, // another condition, of the caller's own
		{412, []string{"x"}, 0},
		{412, []string{"8", "9"}, 0},
		{412, []string{"7"}, 0}, // not above the sent token, so the token was not stale
		{409, []string{"8"}, 0},
		{200, []string{"8"}, 0},
	} {
		base := &recorded{answer: http.Response{StatusCode: c.status, Header: http.Header{HighestHeader: c.highest}}}
		client := http.Client{Transport: &Transport{Base: base, Token: func(context.Context) (fence.Token, error) { return 7, nil }}}
		answer, err := client.Get("http://resource:80/a?secret=x")
		var stale *fence.StaleError
		if c.stale == 0 {
			if err != nil || answer.StatusCode != c.status {
				t.Errorf("%d %q: %v", c.status, c.highest, err)
			}
			continue
		}
		if !errors.As(err, &stale) || *stale != (fence.StaleError{Name: "resource:80/a", Token: 7, Highest: c.stale}) {
			t.Errorf("%d %q: got %v", c.status, c.highest, err)
		}
		if base.body.closed != 1 {
			t.Errorf("the body of an answer that RoundTrip did not return was closed %d times", base.body.closed)
		}
	}
}

// FuzzTokenHeader sends arbitrary headers to the middleware. A handler may run only if the header holds exactly one
// token, and then the mark must be that token.
func FuzzTokenHeader(f *testing.F) {
	for _, s := range []string{"7", "0", "007", "", "18446744073709551615", "18446744073709551616", "7,8", "+7", " 7", "\x00", "٧"} {
		f.Add(s, s == "7,8")
	}
	f.Fuzz(func(t *testing.T, value string, twice bool) {
		ran := false
		h := Middleware(Config{Guard: fence.NewGuard(fence.Config{}), Name: byPath})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
		values := []string{value}
		if twice {
			values = append(values, value)
		}
		w := ask(h, "/a", values...)
		n, err := strconv.ParseUint(value, 10, 64)
		ok := err == nil && n > 0 && strconv.FormatUint(n, 10) == value && !twice
		if ran != ok || ok != (w.Code == 200) || !ok && w.Code != 400 {
			t.Fatalf("%q: ran %v, answered %d", values, ran, w.Code)
		}
		if !ok {
			return
		}
		if n > 1 {
			if w := ask(h, "/a", strconv.FormatUint(n-1, 10)); w.Code != 412 || w.Header().Get(HighestHeader) != value {
				t.Fatalf("%d after %d: answered %d", n-1, n, w.Code)
			}
		}
		if bytes.Contains(w.Body.Bytes(), []byte("\x00")) {
			t.Fatal("a control character came back")
		}
	})
}
