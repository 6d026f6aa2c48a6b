package supervise

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestOnlyChildIsFoundInTheListsOfThreads(t *testing.T) {
	for name, c := range map[string]struct {
		lists []string // the children of each thread
		want  bool
	}{
		"only child":                {[]string{"", "42 "}, true},
		"sibling":                   {[]string{"42 43 "}, false},
		"sibling of another thread": {[]string{"42 ", "43 "}, false},
		"number that begins so":     {[]string{"421 "}, false},
		"no child":                  {[]string{""}, false},
	} {
		if got := isOnlyChild(listThreads(t, c.lists...), 42); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	without := listThreads(t, "42 ")
	if err := os.Mkdir(filepath.Join(without, "1001"), 0o700); err != nil {
		t.Fatal(err)
	}
	if isOnlyChild(without, 42) {
		t.Error("a thread without a list of children is taken for one without children")
	}
}

// listThreads returns a directory like /proc/PID/task, with one thread for each list of children.
func listThreads(t *testing.T, lists ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, list := range lists {
		thread := filepath.Join(dir, string(rune('1'+i)))
		if err := os.Mkdir(thread, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(thread, "children"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOtherDescendantsLackOneChild(t *testing.T) {
	var children []int
	for range 2 {
		c := exec.Command("sleep", "100")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
		children = append(children, c.Process.Pid)
	}
	others := otherDescendants(children[0])
	if slices.Contains(others, children[0]) || !slices.Contains(others, children[1]) {
		t.Errorf("the descendants without %d are %v, want %d among them", children[0], others, children[1])
	}
}
