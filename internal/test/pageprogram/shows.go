package pageprogram

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var anyBlock = regexp.MustCompile("(?ms)^ *```go\n(.*?)^ *```$")

// Shows checks that each block of Go on a page is a part of the source file, which the test compiles. Blocks that are
// programs do not count. The test fails unless there is another one. Indentation does not count, because a page shows
// what is in a function without the function. A line of only … stands for what the page leaves out.
func Shows(t *testing.T, page, source string) {
	t.Helper()
	code, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	for _, block := range anyBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], "package main\n") {
			continue
		}
		for part := range strings.SplitSeq(unindented(block[1]), "\n…\n") {
			parts++
			if !strings.Contains(unindented(string(code)), "\n"+strings.Trim(part, "\n")+"\n") {
				t.Errorf("%s shows code that is not in %s:\n%s", page, source, part)
			}
		}
	}
	if parts == 0 {
		t.Errorf("%s shows no code but programs", page)
	}
}

// unindented returns the code without the white space at the beginning of its lines, with a newline before the first.
func unindented(code string) string {
	lines := strings.Split(code, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t ")
	}
	return "\n" + strings.Join(lines, "\n")
}
