package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// usersPage runs what docs/users-and-roles.md shows, on a server of its own.
type usersPage struct {
	t      *testing.T
	dir    string
	server *running
	blocks []string
}

func newUsersPage(t *testing.T) *usersPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "users-and-roles.md"))
	if err != nil {
		t.Fatal(err)
	}
	p := &usersPage{t: t, dir: t.TempDir()}
	for _, block := range regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		p.blocks = append(p.blocks, block[1])
	}
	for file, password := range map[string]string{"root.password": "secret", "alice.password": "wonderland"} {
		if err := os.WriteFile(filepath.Join(p.dir, file), []byte(password+"\n"), 0o600); err != nil {
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
}

// block returns the only block of the page with this text.
func (p *usersPage) block(text string) string {
	p.t.Helper()
	found := ""
	for _, b := range p.blocks {
		switch {
		case strings.Contains(b, text) && found != "":
			p.t.Fatalf("docs/users-and-roles.md has several blocks with %q", text)
		case strings.Contains(b, text):
			found = b
		}
	}
	if found == "" {
		p.t.Fatalf("docs/users-and-roles.md has no block with %q", text)
	}
	return found
}

// shell runs lines, and returns their output and whether all succeeded.
func (p *usersPage) shell(lines string) (string, error) {
	lines = strings.NewReplacer("127.0.0.1:2379", p.server.endpoint, "127.0.0.1:2381", p.server.http, "/var/lib/", p.dir+"/").Replace(lines)
	cmd := exec.Command("sh", "-eu", "-c", lines)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), settings.EndpointVariable+"="+p.server.endpoint)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *usersPage) succeed(lines string) {
	p.t.Helper()
	if out, err := p.shell(lines); err != nil {
		p.t.Fatalf("%s\n%s%v", lines, out, err)
	}
}

// transcript runs the commands of a block that shows their output, apart from those of other programs.
func (p *usersPage) transcript(block string) {
	p.t.Helper()
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(block, -1)[1:] {
		line, want, _ := strings.Cut(part, "\n")
		if !strings.HasPrefix(line, "leasekeeper ") {
			continue
		}
		if out, _ := p.shell(line); out != want {
			p.t.Errorf("%s\nprints\n%sand in docs/users-and-roles.md\n%s", line, out, want)
		}
	}
}

// The command lines of docs/users-and-roles.md do what it says.
func TestCommandsOfTheUsersPageWork(t *testing.T) {
	p := newUsersPage(t)
	p.succeed(p.block("leasekeeper access unowned\n"))
	p.transcript(p.block("$ leasekeeper run "))
	p.transcript(p.block("$ leasekeeper role show "))
	script := p.block("leasekeeper renew ")
	p.succeed(script)
	p.succeed(fmt.Sprintf("%s\nleasekeeper acquire jobs/nightly\n", script)) // it is free again
	p.succeed(p.block("leasekeeper access disable "))
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
