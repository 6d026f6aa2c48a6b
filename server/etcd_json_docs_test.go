package server

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// longNumber is an id in an answer, which differs from run to run.
var longNumber = regexp.MustCompile(`"\d{12,}"`)

// simpleToken is a token of a user, which differs from run to run.
var simpleToken = regexp.MustCompile(`[A-Z2-7]{26}\.\d+`)

// answerOf decodes the answer on the page or that of the server.
func answerOf(t *testing.T, text string) (values []any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(simpleToken.ReplaceAllString(longNumber.ReplaceAllString(text, `"id"`), "token")))
	for decoder.More() {
		var value any
		wantOK(t, decoder.Decode(&value))
		if object, ok := value.(map[string]any); ok {
			delete(object, "details") // shown by etcd's form of errors only if there are some
		}
		values = append(values, value)
	}
	return values
}

// example is a command of a page, with the answer that the page shows.
type example struct{ command, answer string }

// examplesOf returns the examples of a page, in their order.
func examplesOf(t *testing.T, path string) (examples []example) {
	t.Helper()
	required.Program(t, "curl", "curl")
	page, err := os.ReadFile(path)
	wantOK(t, err)
	for i, block := range strings.Split(string(page), "\n```\n") {
		if i%2 == 0 && !strings.HasPrefix(block, "$ ") {
			continue
		}
		for _, text := range strings.Split("\n"+block, "\n$ ")[1:] {
			// A command of several lines ends with the first line that does not end with a backslash.
			lines := strings.Split(text, "\n")
			n := slices.IndexFunc(lines, func(line string) bool { return !strings.HasSuffix(line, "\\") }) + 1
			examples = append(examples, example{strings.Join(lines[:n], "\n"), strings.Join(lines[n:], "\n")})
		}
	}
	return examples
}

// curl runs the command of an example, and returns what it prints.
func (f *front) curl(command string) string {
	out, _ := exec.CommandContext(f.ctx(), "sh", "-c", command+" 2>/dev/null").Output()
	return string(out)
}

// The examples of the page are tried as written, but for the port.
func TestExamplesOfEtcdJSONWork(t *testing.T) {
	f := startWithUsers(t)
	examples, token := examplesOf(t, "../docs/reference/etcd-json.md"), ""
	for _, e := range examples {
		command := strings.ReplaceAll(e.command, "127.0.0.1:2379", f.server.Addr())
		if strings.Contains(command, "/v3/watch") {
			command += " --max-time 2" // the stream has no end
		}
		if strings.Contains(command, "/v3/auth/authenticate") {
			f.enableAccess(map[string]string{"root": "secret", "alice": "wonderland"}, "alice", "jobs", "jobs/", "jobs0")
		}
		out := f.curl(simpleToken.ReplaceAllString(command, token))
		if got := answerOf(t, out); !reflect.DeepEqual(got, answerOf(t, e.answer)) {
			t.Errorf("%s answers %s, and the page says %s", command, out, e.answer)
		}
		if found := simpleToken.FindString(out); found != "" {
			token = found
		}
	}
	wantEqual(t, "examples", len(examples), 13)
}

// So are those of names over HTTP.
func TestExamplesOfHTTPWork(t *testing.T) {
	f := startFront(t)
	examples := examplesOf(t, "../docs/reference/http.md")
	for _, e := range examples {
		command := strings.ReplaceAll(e.command, "127.0.0.1:2381", f.server.HTTPAddr())
		out := f.curl(command)
		if got := object(t, []byte(out)); !reflect.DeepEqual(got, object(t, []byte(e.answer))) {
			t.Errorf("%s answers %s, and the page says %s", command, out, e.answer)
		}
	}
	wantEqual(t, "examples", len(examples), 4)
}
