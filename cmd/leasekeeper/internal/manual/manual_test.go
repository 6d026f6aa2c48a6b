package manual

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// example is a command with everything that a page shows.
func example() *cobra.Command {
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	sub := &cobra.Command{
		Use:     "work NAME",
		Short:   "Work on a name",
		Long:    "Work on a name.\n\n.dots and 'quotes' begin no request: \\n\n  kept as it is\nthe end",
		Example: "  tool work a-b",
		Run:     func(*cobra.Command, []string) {},
	}
	sub.Flags().StringP("store", "s", "here", "the `url` of a store")
	sub.Flags().Bool("secret", false, "not shown")
	sub.Flags().MarkHidden("secret")
	hidden := &cobra.Command{Use: "inner", Hidden: true, Run: func(*cobra.Command, []string) {}}
	root.AddCommand(sub, hidden)
	root.AddCommand(Commands("v1")...)
	return root
}

func TestPageShowsWhatHelpShows(t *testing.T) {
	cmd, _, err := example().Find([]string{"work"})
	if err != nil {
		t.Fatal(err)
	}
	want := `.TH TOOL\-WORK 1 "" "leasekeeper v1" "Leasekeeper"
.SH NAME
tool\-work \- Work on a name
.SH SYNOPSIS
.B tool work NAME [flags]
.SH DESCRIPTION
Work on a name.
.PP
\&.dots and 'quotes' begin no request: \en
.nf
  kept as it is
.fi
the end
.SH OPTIONS
.TP
\fB\-h, \-\-help\fR
help for work
.TP
\fB\-s, \-\-store\fR \fIurl\fR
the url of a store (default here)
.SH EXAMPLES
.nf
  tool work a\-b
.fi
.SH SEE ALSO
.BR tool (1)
`
	if got := page(cmd, "v1"); got != want {
		t.Errorf("the page is\n%s\nand should be\n%s", got, want)
	}
}

func TestEveryCommandThatHelpListsHasAPage(t *testing.T) {
	root, dir := example(), t.TempDir()
	root.SetArgs([]string{"manpages", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for name, wanted := range map[string]bool{"tool": true, "tool-work": true, "tool-manpages": true, "tool-inner": false} {
		if _, err := os.Stat(filepath.Join(dir, name+".1")); (err == nil) != wanted {
			t.Errorf("the page of %s: %v", name, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "tool.1"))
	if err != nil || !strings.Contains(string(text), ".SH COMMANDS\n") || strings.Contains(string(text), "inner") {
		t.Errorf("the page of the program: %s, %v", text, err)
	}
}

func TestDirectoryMustExist(t *testing.T) {
	root := example()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs([]string{"manpages", filepath.Join(t.TempDir(), "absent")})
	if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "could not write the man pages") {
		t.Errorf("without the directory: %v", err)
	}
}
