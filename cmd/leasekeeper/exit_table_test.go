//go:build linux || darwin

package main

import (
	"database/sql"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// The kinds of stores in TestEveryCommandExitsWithItsDocumentedCodes.
const (
	free     = "free"          // NAME is free
	held     = "held"          // NAME is held under TOKEN
	fenced   = "pinned"        // NAME is held and pinned
	lossy    = "lossy"         // NAME is held, and the answers to changes are lost
	damaged  = "damaged"       // a file that is not a database
	corrupt  = "corrupt"       // a database in which the record of NAME cannot be read
	absent   = "absent"        // no server listens
	limited  = "limited"       // a store without history, pins and transfer
	fullDisk = "full disk"     // NAME is held, and standard output is on a full disk
	serving  = "server"        // a server without leases, for --endpoint
	peopled  = "with a user"   // the same server, after the user exitUser was added
	refusing = "refusing"      // a server that refuses all requests
	nothing  = "nothing asked" // no store: the command line is wrong
)

// exitUser is the user of a server in TestEveryCommandExitsWithItsDocumentedCodes.
const exitUser = "somebody"

// exitRow is a command line, the kind of its store, and its exit code.
type exitRow struct {
	args  string
	store string
	code  int
}

// exitRows has for every command a row for each of its exit codes. Some rows choose a conflict exit code that also has
// another meaning: the command must not map it.
var exitRows = map[string][]exitRow{
	"acquire": {
		{"NAME -n", free, 0}, {"NAME -n", held, 1}, {"NAME -w 0.05", held, 1}, {"NAME -n -E 99", held, 99}, {"NAME -w 0.05 -E 99", held, 99},
		{"NAME -n -E 2", held, 2}, {"NAME -n -E 3", held, 3}, {"NAME -n -E 0", held, 0}, {"/ -n", free, 2}, {"NAME -n -w 3", nothing, 2}, {"NAME -E 256", nothing, 2},
		{"NAME -w 0.1", absent, 3}, {"NAME -n -E 99 --ttl 1s", absent, 3}, {"NAME -n -E 99", damaged, 4}, {"NAME -w 0.1 -E 99", damaged, 4},
		{"NAME -n -E 99", corrupt, 4}, {"NAME -w 0.1 -E 99", corrupt, 4}, {"other -n", fullDisk, 4},
	},
	"renew": {
		{"NAME TOKEN", held, 0}, {"NAME 999999", held, 1}, {"NAME 1", free, 1}, {"NAME soon", nothing, 2}, {"NAME TOKEN", lossy, 3}, {"NAME 1", absent, 3},
		{"NAME 1", damaged, 4}, {"NAME 1", corrupt, 4}, {"NAME TOKEN", fullDisk, 4},
	},
	"release": {
		{"NAME TOKEN", held, 0}, {"NAME 999999", held, 1}, {"NAME 1", free, 1}, {"NAME", nothing, 2}, {"NAME TOKEN", lossy, 3}, {"NAME 1", absent, 3},
		{"NAME 1", damaged, 4}, {"NAME 1", corrupt, 4}, {"NAME TOKEN", fullDisk, 4},
	},
	"token check": {
		{"NAME TOKEN", held, 0}, {"NAME 999999", held, 1}, {"NAME 1", free, 1}, {"NAME 0", nothing, 2}, {"NAME 1", absent, 3},
		{"NAME 1", damaged, 4}, {"NAME 1", corrupt, 4}, {"NAME TOKEN", fullDisk, 4}, {"NAME 1", fullDisk, 4},
	},
	"token": {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"run": {
		{"NAME -n -- true", free, 0}, {"NAME -- sh -c exit\\ 7", free, 7}, {"NAME -c 'kill -9 $$'", free, 128 + 9}, {"NAME -n -- true", held, 1},
		{"NAME -n -E 99 -- true", held, 99}, {"NAME -n -E 2 -- true", held, 2}, {"NAME -n -E 3 -- true", held, 3}, {"NAME -n -E 4 -- true", held, 4},
		{"NAME -w 0.05 -E 99 -- true", held, 99}, {"NAME true", nothing, 125}, {"NAME --nonsense -- true", nothing, 125}, {"NAME --ttl 1ms -- true", nothing, 125},
		{"NAME -w 0.1 -- true", absent, 125}, {"NAME -n -E 99 -- true", damaged, 125}, {"NAME -n -E 99 -- true", corrupt, 125},
		{"NAME --hold-at-most 100ms -- sleep 60", free, 75}, {"NAME --once 5 -- true", free, 0}, {"NAME --once soon -- true", nothing, 125},
		{"NAME -- /dev/null", free, 126}, {"NAME -- no-such-command", free, 127},
	},
	"ls":      {{"", held, 0}, {"x y", nothing, 2}, {"", absent, 3}, {"", damaged, 4}, {"", corrupt, 1}, {"", fullDisk, 4}},
	"show":    {{"NAME", held, 0}, {"NAME", free, 0}, {"/", nothing, 2}, {"NAME", absent, 3}, {"NAME", damaged, 4}, {"NAME", corrupt, 4}, {"NAME", fullDisk, 4}},
	"history": {{"NAME", held, 0}, {"NAME --limit 0", nothing, 2}, {"NAME", absent, 3}, {"NAME", damaged, 4}, {"NAME", corrupt, 4}, {"NAME", limited, 4}, {"NAME", fullDisk, 4}},
	"watch":   {{"-o yaml", nothing, 2}, {"--store postgres://127.0.0.1:1/x", nothing, 3}, {"", damaged, 4}, {"", fullDisk, 4}},
	"console": {{"x", nothing, 2}, {"--listen 0.0.0.0:0", held, 2}, {"", damaged, 4}, {"", fullDisk, 4}},
	"transfer": {
		{"NAME", held, 1}, {"NAME 999999", held, 1}, {"NAME", free, 1}, {"NAME 0", nothing, 2}, {"NAME", absent, 3}, {"NAME", damaged, 4}, {"NAME", limited, 4},
		{"NAME --to x", held, 1}, {"NAME --to x", absent, 3}, {"NAME --to x", limited, 4},
	},
	"pin": {
		{"NAME --reason x", held, 0}, {"/ --reason x", nothing, 2}, {"NAME --reason x", lossy, 3}, {"NAME --reason x", absent, 3},
		{"NAME --reason x", damaged, 4}, {"NAME --reason x", corrupt, 4}, {"NAME --reason x", limited, 4}, {"NAME --reason x", fullDisk, 4},
	},
	"unpin": {
		{"NAME", fenced, 0}, {"/", nothing, 2}, {"NAME", lossy, 3}, {"NAME", absent, 3}, {"NAME", damaged, 4}, {"NAME", corrupt, 4}, {"NAME", limited, 4}, {"NAME", fullDisk, 4},
	},
	"revoke": {
		{"NAME --reason x", held, 0}, {"NAME TOKEN --reason x --now", held, 0}, {"NAME 999999 --reason x", held, 1}, {"NAME --reason x --now", fenced, 1}, {"NAME --reason x", free, 1},
		{"NAME", nothing, 2}, {"NAME --reason x", lossy, 3}, {"NAME --reason x", absent, 3}, {"NAME --reason x", damaged, 4}, {"NAME --reason x", corrupt, 4}, {"NAME --reason x", fullDisk, 4},
	},
	"mark": {
		{"NAME", held, 0}, {"NAME --set 5", free, 0}, {"NAME --set soon", nothing, 2}, {"NAME --set 5", lossy, 3}, {"NAME", absent, 3},
		{"NAME", damaged, 4}, {"NAME", corrupt, 4}, {"NAME", fullDisk, 4},
	},
	"floor":       {{"", nothing, 0}, {"sink", nothing, 2}},
	"floor show":  {{"x", nothing, 2}, {"", absent, 4}, {"", damaged, 4}, {"", corrupt, 0}, {"", held, 4}},
	"floor raise": {{"7", corrupt, 0}, {"", nothing, 2}, {"7", absent, 4}, {"7", damaged, 4}, {"7", held, 4}},
	"collect":     {{"--older-than -1h", nothing, 2}, {"", absent, 4}, {"", damaged, 4}, {"", corrupt, 0}, {"", held, 4}},
	"schema":      {{"sqlite", nothing, 0}, {"postgres", nothing, 0}, {"mongodb", nothing, 2}, {"", nothing, 2}},
	"move": {
		{"--from OTHER --to NEW", free, 0}, {"--from STORE --to NEW", corrupt, 1}, {"--from STORE", nothing, 2}, {"--from STORE --to STORE", held, 2},
		{"--from STORE --to NEW --timeout 100ms", absent, 3}, {"--from STORE --to NEW", damaged, 4}, {"--from NEW --to STORE", damaged, 4}, {"--from STORE --to NEW", held, 4},
	},
	"explain": {{"", nothing, 0}, {"--ttl 0s", nothing, 2}, {"x", nothing, 2}},
	"doctor": {
		{"--clock-interval 1ms", free, 0}, {"--clock-interval 1ms", absent, 1}, {"--clock-interval 1ms", damaged, 1}, {"x", nothing, 2}, {"--clock-interval 0s", nothing, 2},
		{"--store ftp://x", nothing, 2}, {"--clock-interval 1ms", fullDisk, 4},
	},
	"help":             {{"", nothing, 0}, {"lease list", nothing, 0}, {"statsu", nothing, 2}},
	"version":          {{"", nothing, 0}, {"x", nothing, 2}},
	"snapshot":         {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"snapshot save":    {{"-", serving, 0}, {"x y", nothing, 2}, {"-", absent, 3}, {"-", refusing, 1}},
	"snapshot inspect": {{"", nothing, 2}, {"/no/such/snapshot", nothing, 1}, {"/no/such/snapshot -o x", nothing, 2}},
	"snapshot restore": {{"x", nothing, 2}, {"/no/such/snapshot --data-dir DIR", nothing, 1}},
	"recover":          {{"", nothing, 2}, {"DIR", nothing, 2}, {"DIR --data-dir DIR", nothing, 1}},
	"restore":          {{"x", nothing, 2}, {"/no/such/snapshot --data-dir DIR", nothing, 1}, {"x --data-dir DIR --hold-off soon", nothing, 2}, {"x --data-dir DIR --revision-above -1", nothing, 2}},
	"import":           {{"x", nothing, 2}, {"--from-etcd x", nothing, 2}, {"--data-dir DIR", nothing, 2}, {"--from-etcd /no/such/file --data-dir DIR", nothing, 1}},
	"serve":            {{"x", nothing, 2}, {"--listen nonsense", nothing, 2}, {"--listen 203.0.113.1:0 --data-dir DIR", nothing, 1}},
	"manpages":         {{"DIR", nothing, 0}, {"", nothing, 2}, {"/no/such/directory", nothing, 1}},
	"health":           {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}, {"--live", serving, 0}},
	"status": {
		{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}, {"--store memory:status --endpoint x", nothing, 2},
		{"--store STORE", held, 0}, {"--store STORE", corrupt, 1}, {"--store STORE", damaged, 4}, {"--store leasekeeper://127.0.0.1:1/", nothing, 3}, {"--store STORE", fullDisk, 4},
	},
	"demo":                {{"x", nothing, 2}, {"--keep=maybe", nothing, 2}}, // demo_test.go covers 0 and 1
	"demo scenario":       {{"", nothing, 2}, {"DIR", nothing, 1}},
	"demo tied":           {{"", nothing, 2}},
	"demo worker":         {{"x", nothing, 2}, {"--store nonsense", nothing, 1}},
	"found":               {{"", serving, 1}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"transfer-leadership": {{"", serving, 1}, {"x y", nothing, 2}, {"nobody", serving, 2}, {"", absent, 3}, {"", refusing, 1}},
	"member":              {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"member list":         {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"member add":          {{"x --peer h:1", serving, 1}, {"x", nothing, 2}, {"x --peer h", nothing, 2}, {"x --peer h:1", absent, 3}, {"x --peer h:1", refusing, 1}},
	"member promote":      {{"7", serving, 2}, {"", nothing, 2}, {"7", absent, 3}, {"7", refusing, 1}},
	"member update":       {{"7 --peer h:1", serving, 2}, {"7", nothing, 2}, {"7 --peer h:1", absent, 3}, {"7 --peer h:1", refusing, 1}},
	"member remove":       {{"7", serving, 2}, {"", nothing, 2}, {"7", absent, 3}, {"7", refusing, 1}},
	"lease":               {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"lease grant":         {{"60", serving, 0}, {"soon", nothing, 2}, {"60", absent, 3}, {"60", refusing, 1}},
	"lease list":          {{"--store memory:x", nothing, 2}, {"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"lease show":          {{"7", serving, 1}, {"zz", nothing, 2}, {"7", absent, 3}, {"7", refusing, 1}},
	"lease revoke":        {{"7", serving, 1}, {"", nothing, 2}, {"7", absent, 3}, {"7", refusing, 1}},
	"audit":               {{"", peopled, 0}, {"x", nothing, 2}, {"--limit 0", nothing, 2}, {"--since -1h", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"user":                {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"role":                {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"access":              {{"", nothing, 0}, {"nonsense", nothing, 2}},
	"user list":           {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"user show":           {{"nobody", serving, 1}, {"nobody x y z", nothing, 2}, {"nobody", absent, 3}, {"nobody", refusing, 1}},
	"user add":            {{"new --no-password", serving, 0}, {"new --no-password x y z", nothing, 2}, {"new --no-password", absent, 3}, {"new --no-password", refusing, 1}},
	"user remove":         {{"nobody", serving, 1}, {"nobody x y z", nothing, 2}, {"nobody", absent, 3}, {"nobody", refusing, 1}},
	"user grant":          {{"nobody none", serving, 1}, {"nobody none x y z", nothing, 2}, {"nobody none", absent, 3}, {"nobody none", refusing, 1}},
	"user revoke":         {{"nobody none", serving, 1}, {"nobody none x y z", nothing, 2}, {"nobody none", absent, 3}, {"nobody none", refusing, 1}},
	"role list":           {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"role show":           {{"none", serving, 1}, {"none x y z", nothing, 2}, {"none", absent, 3}, {"none", refusing, 1}},
	"role add":            {{"new", serving, 0}, {"new x y z", nothing, 2}, {"new", absent, 3}, {"new", refusing, 1}},
	"role remove":         {{"none", serving, 1}, {"none x y z", nothing, 2}, {"none", absent, 3}, {"none", refusing, 1}},
	"role grant":          {{"none --name-prefix a --right hold", serving, 1}, {"none --name-prefix a --right hold x y z", nothing, 2}, {"none --name-prefix a --right hold", absent, 3}, {"none --name-prefix a --right hold", refusing, 1}},
	"role revoke":         {{"none --name-prefix a", serving, 1}, {"none --name-prefix a x y z", nothing, 2}, {"none --name-prefix a", absent, 3}, {"none --name-prefix a", refusing, 1}},
	"access status":       {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"access unowned":      {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"user quota":          {{"", serving, 0}, {"nobody", serving, 1}, {"x y", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"user set-quota":      {{"--leases 5", serving, 0}, {"nobody --leases 5", serving, 1}, {"x", nothing, 2}, {"--leases x", nothing, 2}, {"x y --leases 5", nothing, 2}, {"--leases 5", absent, 3}, {"--leases 5", refusing, 1}},
	"access enable":       {{"", serving, 1}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"access disable":      {{"", serving, 0}, {"x", nothing, 2}, {"", absent, 3}, {"", refusing, 1}},
	"user password":       {{exitUser, peopled, 0}, {"nobody", peopled, 1}, {"nobody", nothing, 2}, {"x y", nothing, 2}, {exitUser, absent, 3}, {exitUser, refusing, 1}},
}

func TestEveryCommandExitsWithItsDocumentedCodes(t *testing.T) {
	var visit func(c *cobra.Command, path string)
	visit = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			visit(sub, strings.TrimSpace(path+" "+sub.Name()))
		}
		if path != "" && exitRows[path] == nil {
			t.Errorf("exitRows has no rows of `%s`", path)
		}
	}
	visit(newRoot(), "")

	w := &exitWorld{endpoint: launchAt(t, t.TempDir()).endpoint}
	for command, rows := range exitRows {
		t.Run(command, func(t *testing.T) {
			for _, row := range rows {
				w.try(t, command, row)
			}
		})
	}
}

// exitWorld is shared by the rows.
type exitWorld struct {
	endpoint string // of a server
	peopled  bool   // the server has exitUser
	stores   int    // number of stores made, for unique names
}

// try runs one row on a store of its own.
func (w *exitWorld) try(t *testing.T, command string, row exitRow) {
	t.Helper()
	url, token := w.store(t, command, row.store)
	words := strings.Fields(command)
	for _, word := range shellWords(row.args) {
		dir := t.TempDir()
		words = append(words, strings.NewReplacer("NAME", "jobs/x", "TOKEN", token, "STORE", url, "DIR", dir,
			"NEW", settings.FileStore(filepath.Join(dir, "new.db")), "OTHER", settings.FileStore(filepath.Join(dir, "other.db"))).Replace(word))
	}
	flags := []string{}
	switch {
	case url == "" || command == "move" || slices.Contains(words, "--store"):
	case row.store == serving || row.store == peopled || row.store == refusing || newRoot().Commands() != nil && hasFlag(command, "endpoint"):
		flags = append(flags, "--endpoint", url, "--timeout", "5s")
	case hasFlag(command, "store"):
		flags = append(flags, "--store", url)
	}
	if i := slices.Index(words, "--"); i >= 0 {
		words = slices.Insert(words, i, flags...)
	} else {
		words = append(words, flags...)
	}
	var stdout, stderr strings.Builder
	if command == "user password" && row.store != nothing {
		typePassword(t)
	}
	var code int
	switch {
	case command == "run":
		cmd := exec.Command("leasekeeper", words...)
		cmd.Stderr = &stderr
		err := cmd.Run()
		var ended *exec.ExitError
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		code = cmd.ProcessState.ExitCode()
	case row.store == fullDisk:
		code = run(words, fullWriter{}, &stderr)
	default:
		code = run(words, &stdout, &stderr)
	}
	if code != row.code {
		t.Errorf("`%s %s` on a store that is %s: exit code %d, want %d; it wrote %q", command, row.args, row.store, code, row.code, &stderr)
	}
}

// typePassword writes a password to the standard input of the commands that this test runs, until the test ends.
func typePassword(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdin
	os.Stdin = in
	t.Cleanup(func() {
		os.Stdin = before
		in.Close()
	})
}

// shellWords splits a line at spaces that are neither in single quotes nor after a backslash.
func shellWords(line string) []string {
	var words []string
	var word strings.Builder
	quoted, escaped := false, false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted = !quoted
		case r == '\\':
			escaped = true
			continue
		case r == ' ' && !quoted && !escaped:
			if word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
		default:
			word.WriteRune(r)
		}
		escaped = false
	}
	return words
}

func hasFlag(path, name string) bool {
	found, _, err := newRoot().Find(strings.Fields(path))
	return err == nil && found.Flags().Lookup(name) != nil
}

// fullWriter is a standard output on a full disk.
type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// store makes a store for one row. The store of `run` is a file, because `run` runs in another process.
func (w *exitWorld) store(t *testing.T, words, like string) (url, token string) {
	t.Helper()
	w.stores++
	name := t.Name() + strconv.Itoa(w.stores)
	path := filepath.Join(t.TempDir(), "leases.db")
	file := words == "run" || like == damaged || like == corrupt
	if url = "memory:" + name; file {
		url = settings.FileStore(path)
	}
	switch like {
	case nothing:
		return "", "1"
	case damaged:
		if err := os.WriteFile(path, []byte(strings.Repeat("this is no database\n", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		return url, "1"
	case absent:
		if hasFlag(words, "endpoint") {
			return "127.0.0.1:1", "1"
		}
		return "leasekeeper://127.0.0.1:1/", "1"
	case limited:
		return "etcd://" + w.endpoint + "/", "1"
	case serving:
		return w.endpoint, "1"
	case peopled:
		if !w.peopled {
			typePassword(t)
			if code := run([]string{"user", "add", exitUser, "--endpoint", w.endpoint}, io.Discard, os.Stderr); code != command.ExitDone {
				t.Fatalf("adding a user: exit code %d", code)
			}
			w.peopled = true
		}
		return w.endpoint, "1"
	case refusing:
		return hostileServer(t, 9), "1"
	case free:
		return url, "1"
	}
	var stdout, stderr strings.Builder
	if run([]string{"acquire", "jobs/x", "--ttl", "60s", "--store", url}, &stdout, &stderr) != command.ExitDone {
		t.Fatal(stderr.String())
	}
	token = strings.TrimSpace(stdout.String())
	switch like {
	case fenced:
		if run([]string{"pin", "jobs/x", "--reason", "x", "--store", url}, io.Discard, &stderr) != command.ExitDone {
			t.Fatal(stderr.String())
		}
	case lossy:
		for _, op := range []memory.Op{memory.Resume, memory.Release, memory.Pin, memory.Revoke, memory.SetMark} {
			t.Cleanup(memory.Named(name).Inject(memory.Fault{Kind: memory.LoseAnswer, Op: op}))
		}
	case corrupt:
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("UPDATE leasekeeper_lease SET pins = 'nonsense'"); err != nil {
			t.Fatal(err)
		}
	}
	return url, token
}
