package transcript

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// Play answers one command; "" means that there is no output.
type Play func(t *testing.T, d *datadriven.TestData) string

// Run plays each file of testdata. begin returns the player for the file of that name. The transcript shows done for an
// empty answer. Directories belong to fuzzers and property tests, and are skipped.
func Run(t *testing.T, done string, begin func(t *testing.T, name string) Play) {
	t.Helper()
	entries, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		played++
		t.Run(entry.Name(), func(t *testing.T) {
			play := begin(t, entry.Name())
			datadriven.RunTest(t, filepath.Join("testdata", entry.Name()), func(t *testing.T, d *datadriven.TestData) string {
				t.Helper()
				if answer := play(t, d); answer != "" {
					return answer
				}
				return done
			})
		})
	}
	if played == 0 {
		t.Fatal("testdata has no transcripts")
	}
}

// Word returns an argument by its place.
func Word(d *datadriven.TestData, i int) string { return d.CmdArgs[i].Key }

// Words returns the arguments that have no value.
func Words(d *datadriven.TestData) (words []string) {
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			words = append(words, arg.Key)
		}
	}
	return words
}

// Duration reads a duration, such as 10s.
func Duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Scan reads the argument name=value into what dest points to, which may be a duration. It leaves dest alone if the command
// has no such argument.
func Scan(t *testing.T, d *datadriven.TestData, name string, dest any) {
	t.Helper()
	arg, ok := d.Arg(name)
	if !ok || len(arg.Vals) == 0 {
		return
	}
	if dest, ok := dest.(*time.Duration); ok {
		*dest = Duration(t, arg.Vals[0])
		return
	}
	d.ScanArgs(t, name, dest)
}
