package pageprogram

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var getCommand = regexp.MustCompile(`go get [\w./-]+`)

// Resolve checks that the program of a page finds all that it imports in an empty module, by the commands `go get` of
// the page alone. The repository is at root. It takes the place of its module, and of those in the named directories,
// as the pages say while no version is published. The files, by their paths, lie next to the program. No proxy
// is asked for the module itself; `go get .` may download what the cache lacks.
func Resolve(t *testing.T, page string, files map[string]string, root string, modules ...string) {
	t.Helper()
	const module = "github.com/leasekeeper/leasekeeper"
	root, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeProgram(t, page, dir, files)
	commands := [][]string{{"mod", "init", "example.com/try"}, {"mod", "edit", "-replace", module + "=" + root}}
	for _, m := range modules {
		commands = append(commands, []string{"mod", "edit", "-replace", module + "/" + m + "=" + filepath.Join(root, filepath.FromSlash(m))})
	}
	for _, get := range getCommand.FindAll(text, -1) {
		commands = append(commands, []string{"get", string(get[len("go get "):])})
	}
	commands = append(commands, []string{"list", "-deps", "."})
	for _, args := range commands {
		cmd := goCommand(args...)
		cmd.Dir, cmd.Env = dir, append(cmd.Env, "GOSUMDB=off", "GOWORK=off", "GOFLAGS=")
		if args[0] != "get" || args[1] != "." {
			cmd.Env = append(cmd.Env, "GOPROXY=off")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s in an empty module: go %q: %v\n%s", page, args, err, out)
		}
	}
}
