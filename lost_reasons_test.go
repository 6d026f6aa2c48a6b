package leasekeeper_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page about lost leases has a heading for every reason in the source.
func TestPageExplainsEveryReason(t *testing.T) {
	page, err := os.ReadFile("docs/why-was-my-lease-lost.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reason := regexp.MustCompile(`\bwhy: "([^"]+)"|\.retire\((?:fmt\.Sprintf\()?"([^"]+)"|^\t\treturn "([a-z][^"]+)"`)
	found := make(map[string]bool)
	for _, file := range append(files, "internal/keepalive/effect.go") {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for line := range strings.SplitSeq(string(source), "\n") {
			match := reason.FindStringSubmatch(line)
			if match == nil || match[3] != "" && !strings.HasPrefix(file, "internal/") {
				continue
			}
			text := strings.ReplaceAll(match[1]+match[2]+match[3], "%v", "…")
			found[text] = true
			if !regexp.MustCompile("(?m)^### `" + regexp.QuoteMeta(text) + "…?`$").Match(page) {
				t.Errorf("the page has no heading for %q, which %s gives", text, file)
			}
		}
	}
	if len(found) != 10 {
		t.Errorf("%d reasons are found, and the page has 10: %v", len(found), found)
	}
}
