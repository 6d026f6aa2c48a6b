package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The user and the password of the environment belong together, and go to our server only.
func TestUserOfAStoreComesFromTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("in/file\r\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ user, password, file, store, want string }{
		{"", "", "", "leasekeeper://h/ns", "leasekeeper://h/ns"},
		{"", "p", "", "leasekeeper://h/ns", "leasekeeper://h/ns"},
		{"", "p@", "", "leasekeeper://alice@h/ns", "leasekeeper://alice:p%40@h/ns"},
		{"", "", "", "leasekeeper://alice@h/ns", "leasekeeper://alice@h/ns"},
		{"alice", "p", "", "leasekeepers://h1,h2:1/ns?ca=x", "leasekeepers://alice:p@h1,h2:1/ns?ca=x"},
		{"alice", "p", "", "leasekeeper://alice@h/", "leasekeeper://alice:p@h/"},
		{"alice", "p", file, "leasekeeper://h/", "leasekeeper://alice:in%2Ffile@h/"},
		{"bob", "p", "", "leasekeeper://alice@h/", "leasekeeper://alice@h/"},
		{"bob", "p", "", "leasekeeper://alice:own@h/", "leasekeeper://alice:own@h/"},
		{"alice", "p", "", "leasekeeper://alice:@h/", "leasekeeper://alice:@h/"},
		{"alice", "p", "", "etcd://h/", "etcd://h/"},
		{"alice", "p", "", "postgres://h/db", "postgres://h/db"},
		{"alice", "p", "", "leasekeeper://%zz/", "leasekeeper://%zz/"},
	} {
		t.Setenv(UserVariable, c.user)
		t.Setenv(PasswordVariable, c.password)
		t.Setenv(PasswordFileVariable, c.file)
		if got, err := WithUser(c.store); err != nil || got != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestUserWithoutAPasswordIsWrongUsage(t *testing.T) {
	t.Setenv(PasswordVariable, "")
	for file, want := range map[string]string{"": "the user alice has no password", "/nowhere": "cannot read the password"} {
		t.Setenv(UserVariable, "alice")
		t.Setenv(PasswordFileVariable, file)
		if _, err := WithUser("leasekeeper://h/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}

func TestPasswordIsOneLine(t *testing.T) {
	long := strings.Repeat("x", maxPassword)
	for text, want := range map[string]string{"a": "a", "a\n": "a", "a\r\nb": "a", " a \n": " a ", long + "\r\n": long, "": "", "\nb": "", long + "x": "", long + "xx\n": ""} {
		if got, err := ReadPassword(strings.NewReader(text), "it"); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
