package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
)

// Commands returns the commands of this package. version stands at the foot of each page.
func Commands(version string) []*cobra.Command {
	return []*cobra.Command{{
		Use:   "manpages DIRECTORY",
		Short: "Write man pages of all commands",
		Long: `Write man pages of all commands into a directory, which must exist. Each command has a page of its own, such as
leasekeeper-run.1. Pages that are there already are replaced.`,
		Example: `  leasekeeper manpages /usr/local/share/man/man1`,
		Args:    command.Exactly(1, "the directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := writeAll(cmd.Root(), version, args[0]); err != nil {
				return command.Failed("could not write the man pages: %v", err)
			}
			return nil
		},
	}}
}

// writeAll writes the page of a command and those of all commands below it.
func writeAll(cmd *cobra.Command, version, dir string) error {
	if cmd.Hidden || cmd.IsAdditionalHelpTopicCommand() {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, pageName(cmd)+".1"), []byte(page(cmd, version)), 0o644); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if err := writeAll(sub, version, dir); err != nil {
			return err
		}
	}
	return nil
}

// pageName returns the name of a command's page, such as leasekeeper-run.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page returns the man page of a command in roff.
func page(cmd *cobra.Command, version string) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"leasekeeper %s\" \"Leasekeeper\"\n", quoted(strings.ToUpper(name)), quoted(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(cmd.UseLine()))
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(text))
	b.WriteString(commandSection(cmd))
	b.WriteString(flagSection(cmd.Flags()))
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", escape(cmd.Example))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", escape(pageName(cmd.Parent())))
	}
	return b.String()
}

// commandSection returns the section about the commands below a command.
func commandSection(cmd *cobra.Command) string {
	var b strings.Builder
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if b.Len() == 0 {
			b.WriteString(".SH COMMANDS\n")
		}
		fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(pageName(sub)), escape(sub.Short))
	}
	return b.String()
}

// flagSection returns the section about the flags of a command, without the hidden ones.
func flagSection(set *pflag.FlagSet) string {
	var b strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		if b.Len() == 0 {
			b.WriteString(".SH OPTIONS\n")
		}
		value, usage := pflag.UnquoteUsage(f)
		title := "--" + f.Name
		if f.Shorthand != "" {
			title = "-" + f.Shorthand + ", " + title
		}
		title = `\fB` + escape(title) + `\fR`
		if value != "" {
			title += ` \fI` + escape(value) + `\fR`
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && !strings.Contains(usage, "(default") {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, ".TP\n%s\n%s\n", title, escape(usage))
	})
	return b.String()
}

// paragraphs returns a text whose empty lines separate paragraphs. Lines with spaces before them keep their form.
func paragraphs(text string) string {
	var b strings.Builder
	kept := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, " ")
		if indented != kept && line != "" {
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[indented])
			kept = indented
		}
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(escape(line) + "\n")
	}
	if kept {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// escape returns text that roff prints as it is.
func escape(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// quoted returns text for an argument in quotation marks.
func quoted(text string) string { return escape(strings.ReplaceAll(text, `"`, "")) }
