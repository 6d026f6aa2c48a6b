package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// consoleVisitor is a browser at a console that `leasekeeper console` serves.
type consoleVisitor struct {
	t      *testing.T
	link   string // as printed
	write  bool   // as printed
	client *http.Client
}

// visitConsole starts the command on the store in memory of the test. It ends with the test, by an interrupt.
func visitConsole(t *testing.T, args ...string) *consoleVisitor {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	printed, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		defer out.Close()
		root := newRoot()
		root.SetArgs(append([]string{"console", "--store", memoryOf(t), "-o", "json"}, args...))
		root.SetOut(out)
		root.SetErr(out)
		code <- command.Report(root.ExecuteContext(ctx), out)
	}()
	t.Cleanup(func() {
		cancel()
		if got := <-code; got != 0 {
			t.Errorf("code %d after the end", got)
		}
	})
	var info struct {
		URL   string
		Write bool
	}
	if err := json.NewDecoder(printed).Decode(&info); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, printed) // or the console could not print
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	v := &consoleVisitor{t: t, link: info.URL, write: info.Write, client: &http.Client{Jar: jar}}
	v.get(v.link) // lets the browser in from now on
	return v
}

// page returns the address of a page.
func (v *consoleVisitor) page(path string) string {
	root, _, _ := strings.Cut(v.link, "?")
	return root + path
}

// get returns what is at an address, which must be there.
func (v *consoleVisitor) get(address string) string {
	v.t.Helper()
	r, err := v.client.Get(address)
	if err != nil {
		v.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		v.t.Fatalf("GET %s: %d %s, %v", address, r.StatusCode, body, err)
	}
	return string(body)
}

// The console prints a link, by which a browser sees the names of the store.
func TestConsoleServesTheStore(t *testing.T) {
	inMemory(t, 0, "acquire", "jobs/nightly", "--ttl", "60s", "--holder", "first")
	v := visitConsole(t)
	says(t, v.get(v.page("names?format=json")), `"name": "jobs/nightly"`, `"id": "first"`)
	v.get(strings.Replace(v.link, "/?token=", "/names?format=json&token=", 1))
	says(t, inMemory(t, 2, "console", "--listen", "0.0.0.0:0"), "is not on loopback")
}

func TestConsoleIsReadOnlyUnlessToldToWrite(t *testing.T) {
	inMemory(t, 0, "acquire", "jobs/nightly", "--ttl", "60s")
	for _, write := range []bool{false, true} {
		var args []string
		if write {
			args = []string{"--write"}
		}
		v := visitConsole(t, args...)
		page := v.get(v.page("name?name=jobs/nightly"))
		if v.write != write || strings.Contains(page, `action="revoke"`) != write {
			t.Errorf("with %q the command says write: %v, and the page of a held name is\n%s", args, v.write, page)
		}
	}
}

func TestServerServesTheConsoleUnlessToldNotTo(t *testing.T) {
	for arg, want := range map[string]int{"--console": http.StatusOK, "--console=false": http.StatusNotFound} {
		answer, err := http.Get(launchAt(t, t.TempDir(), arg).http + "/console/")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("with %s the console answers %s", arg, answer.Status)
		}
	}
}
