package server

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"regexp"
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

// The examples of the page are tried as written, but for the port.
func TestExamplesOfEtcdJSONWork(t *testing.T) {
	required.Program(t, "curl", "curl")
	page, err := os.ReadFile("../docs/reference/etcd-json.md")
	wantOK(t, err)
	f := startWithUsers(t)
	tried, token := 0, ""
	for i, block := range strings.Split(string(page), "\n```\n") {
		if i%2 == 0 && !strings.HasPrefix(block, "$ ") {
			continue
		}
		for _, example := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(example, "\n")
			command = strings.ReplaceAll(command, "127.0.0.1:2379", f.server.Addr())
			if strings.Contains(command, "/v3/watch") {
				command += " --max-time 2" // the stream has no end
			}
			if strings.Contains(command, "/v3/auth/authenticate") {
				f.enableAccess(map[string]string{"root": "secret", "alice": "wonderland"}, "alice", "jobs", "jobs/", "jobs0")
			}
			command = simpleToken.ReplaceAllString(command, token)
			out, _ := exec.CommandContext(f.ctx(), "sh", "-c", command+" 2>/dev/null").Output()
			if got := answerOf(t, string(out)); !reflect.DeepEqual(got, answerOf(t, want)) {
				t.Errorf("%s answers %s, and the page says %s", command, out, want)
			}
			if found := simpleToken.Find(out); found != nil {
				token = string(found)
			}
			tried++
		}
	}
	wantEqual(t, "examples", tried, 13)
}
