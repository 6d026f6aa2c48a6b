package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// usersPage runs what docs/users-and-roles.md shows, on a server of its own.
type usersPage struct {
	*page
	server *running
}

func newUsersPage(t *testing.T) *usersPage {
	t.Helper()
	p := &usersPage{page: readPage(t, "users-and-roles.md")}
	p.env = []string{"CURL_HOME=" + p.dir}
	for file, text := range map[string]string{
		"root.password": "secret\n", "alice.password": "wonderland\n",
		".curlrc": "silent\nshow-error\n", // as on a terminal, where curl shows no progress
	} {
		if err := os.WriteFile(filepath.Join(p.dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.serve("leasekeeper")
	return p
}

// serve starts a server on a data directory, in place of the one before, which it kills.
func (p *usersPage) serve(data string) {
	p.t.Helper()
	if p.server != nil {
		p.server.kill()
	}
	var err error
	if p.server, err = launch(launchOptions{dir: p.dir, env: os.Environ(), args: []string{"--bcrypt-cost", "4", "--data-dir", data}}); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(p.server.kill)
	p.places = strings.NewReplacer("127.0.0.1:2379", p.server.endpoint, "127.0.0.1:2381", strings.TrimPrefix(p.server.http, "http://"), "/var/lib/", p.dir+"/")
	p.env = append(p.env, settings.EndpointVariable+"="+p.server.endpoint) // of several, the last one counts
}

// transcript runs the commands of a block that shows their output, apart from etcdctl's. Plain removes what differs from one
// run to the next.
func (p *usersPage) transcript(block string, plain func(output string) string) {
	p.t.Helper()
	ran := 0
	for _, command := range shownCommands(block) {
		if strings.HasPrefix(command.line, "etcdctl ") {
			continue
		}
		out, _ := p.shell(command.line)
		if !strings.HasSuffix(out, "\n") {
			out += "\n" // answers over HTTP end without one
		}
		if plain(out) != plain(command.output) {
			p.t.Errorf("%s\nprints\n%sand in docs/users-and-roles.md\n%s", command.line, out, command.output)
		}
		ran++
	}
	if ran == 0 {
		p.t.Errorf("no command of this block was run:\n%s", block)
	}
}

// asItIs is a function for transcript if the output is the same in each run.
func asItIs(output string) string { return output }

// plainJSON removes the spaces between the parts of JSON, which differ from one build to the next.
func plainJSON(output string) string {
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(output)) != nil {
		return output
	}
	return compact.String()
}

var (
	auditNumber = regexp.MustCompile(`(?m)^\d+ `)
	auditTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	blanks      = regexp.MustCompile(` +`)
)

// plainAudit replaces the numbers and times of audit records, and the width of columns.
func plainAudit(output string) string {
	return blanks.ReplaceAllString(auditTime.ReplaceAllString(auditNumber.ReplaceAllString(output, "N "), "TIME"), " ")
}

// asRoot makes all commands from now on those of the user root. The page says so of the variables.
func (p *usersPage) asRoot() {
	p.env = append(p.env, settings.UserVariable+"=root", settings.PasswordFileVariable+"=root.password")
}

// The command lines of docs/users-and-roles.md do what it says.
func TestCommandsOfTheUsersPageWork(t *testing.T) {
	p := newUsersPage(t)
	p.succeed(p.block("leasekeeper access unowned\n"))
	p.transcript(p.block("$ leasekeeper run "), asItIs)
	p.transcript(p.block("$ leasekeeper role show "), asItIs)
	script := p.block("leasekeeper renew ")
	p.succeed(script)
	p.succeed(fmt.Sprintf("%s\nleasekeeper acquire jobs/nightly\n", script)) // it is free again
	p.succeed(p.block("leasekeeper access disable "))
}

// The requests for rights in docs/users-and-roles.md get the answers that it shows.
func TestCurlLinesOfTheUsersPageWork(t *testing.T) {
	required.Program(t, "curl", "curl")
	p := newUsersPage(t)
	p.succeed(p.block("leasekeeper access unowned\n"))
	p.succeed("leasekeeper role revoke jobs --name-prefix jobs/ --user root --password-file root.password") // the page's lines grant it again
	var login struct{ Token string }
	out := p.succeed(`curl http://127.0.0.1:2379/v3/auth/authenticate -d '{"name": "root", "password": "secret"}'`)
	if err := json.Unmarshal([]byte(out), &login); err != nil || login.Token == "" {
		t.Fatalf("the login of root is answered with %s: %v", out, err)
	}
	p.env = append(p.env, "TOKEN="+login.Token)
	p.transcript(p.block("/v1/grant-right"), plainJSON)
	p.transcript(p.block("$ leasekeeper role show "), asItIs)
}

// The limits that the commands of docs/users-and-roles.md set are in force.
func TestQuotasOfTheUsersPageAreSet(t *testing.T) {
	p := newUsersPage(t)
	p.succeed(p.block("leasekeeper access unowned\n"))
	p.asRoot()
	out := p.succeed(p.block("leasekeeper user set-quota "))
	for _, row := range []string{`leases +default +1000 +0`, `names +10 +none +0`, `watchers +default +none`, `requests +default +200`} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(out) {
			t.Errorf("the lines print no row %q:\n%s", row, out)
		}
	}
}

// The audit log shows the acts that docs/users-and-roles.md has in its example.
func TestAuditLogOfTheUsersPageIsPrinted(t *testing.T) {
	p := newUsersPage(t)
	p.succeed(p.block("leasekeeper access unowned\n"))
	p.succeed("leasekeeper acquire jobs/a --store leasekeeper://alice:wonderland@127.0.0.1:2379/ --ttl 60s")
	p.asRoot()
	p.succeed("leasekeeper revoke jobs/a --now --reason 'it hangs' --store leasekeeper://127.0.0.1:2379/")
	p.succeed("leasekeeper user remove alice")
	p.transcript(p.block("$ leasekeeper audit "), plainAudit)
}

// The steps of docs/users-and-roles.md for a lost password of root work, on the data directory and on a snapshot.
func TestLostPasswordOfRootIsReplacedAsTheUsersPageSays(t *testing.T) {
	for _, step := range []string{"leasekeeper recover ", "leasekeeper snapshot restore "} {
		p := newUsersPage(t)
		p.succeed(p.block("leasekeeper access unowned\n"))
		p.succeed("leasekeeper snapshot save leases.snapshot --user root --password-file root.password; mv root.password lost.password; echo found > root.password")
		p.server.kill()
		p.succeed(p.block(step))
		p.serve("leasekeeper-new")
		p.succeed(p.block("leasekeeper user password root "))
		if out, err := p.shell("leasekeeper user list --user root --password-file lost.password"); err == nil {
			t.Errorf("after `%s` the lost password is valid:\n%s", step, out)
		}
		out, err := p.shell("leasekeeper audit --user root --password-file root.password")
		if err != nil || !regexp.MustCompile(`- +- +access\.disable +- +--disable-access`).MatchString(out) || !strings.Contains(out, "user.add") {
			t.Errorf("after `%s` the audit log is\n%s%v", step, out, err)
		}
		p.succeed("leasekeeper user show alice --user alice --password-file alice.password")
	}
}
