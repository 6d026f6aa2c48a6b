package command

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxSlips is the largest number of mistyped letters for which a word is suggested.
const maxSlips = 2

// Nearest returns the words that a mistyped word may mean: those with the fewest wrong letters, of which at most two and
// fewer than half may be wrong, or else those that begin with the mistyped word. It returns nil if no word is near.
func Nearest(mistyped string, words []string) []string {
	mistyped = strings.ToLower(mistyped)
	best, near := maxSlips+1, []string(nil)
	for _, word := range words {
		slips := distance(mistyped, strings.ToLower(word))
		if slips > maxSlips || 2*slips >= len(word) || slips > best {
			continue
		}
		if slips < best {
			best, near = slips, nil
		}
		near = append(near, word)
	}
	if near == nil && len(mistyped) > 1 {
		for _, word := range words {
			if strings.HasPrefix(strings.ToLower(word), mistyped) {
				near = append(near, word)
			}
		}
	}
	return near
}

// DidYouMean returns a question about the words that a mistyped word may mean, with a space before it. It returns "" if no
// word is near.
func DidYouMean(mistyped string, words []string) string {
	if near := Nearest(mistyped, words); len(near) > 0 {
		return " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return ""
}

// distance returns how many letters were inserted, deleted, replaced, or swapped with their neighbour to make b from a.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	rows := make([][]int, len(from)+1)
	for i := range rows {
		rows[i] = make([]int, len(to)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(from); i++ {
		for j := 1; j <= len(to); j++ {
			wrong := 1
			if from[i-1] == to[j-1] {
				wrong = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+wrong)
			if i > 1 && j > 1 && from[i-1] == to[j-2] && from[i-2] == to[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(from)][len(to)]
}

// WrongFlag returns the error of a command line whose flags cannot be parsed. For an unknown flag it suggests the flags of
// the command with similar names, and for an unknown letter what to write if it is the beginning of a name.
func WrongFlag(cmd *cobra.Command, err error) error {
	hint, operand := "", ""
	unknown := (*pflag.NotExistError)(nil)
	switch {
	case !errors.As(err, &unknown):
	case unknown.GetSpecifiedShortnames() != "":
		if takesName.MatchString(cmd.Use) {
			operand = ", and -- goes before a name that begins with -"
		}
	default:
		var known []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, "--"+f.Name)
			}
		})
		slices.Sort(known)
		hint = DidYouMean("--"+unknown.GetSpecifiedName(), known)
	}
	return WrongUsage("%s; `%s --help` lists the flags%s", fmt.Sprint(err)+hint, cmd.CommandPath(), operand)
}

// takesName matches the usage of commands with an argument that users choose, and that may begin with -.
var takesName = regexp.MustCompile(`\b(NAME|PREFIX)\b`)

// available returns the names of the commands below cmd that help lists.
func available(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// unknownCommand returns the error for a word that is no command below cmd.
func unknownCommand(cmd *cobra.Command, word string) error {
	return WrongUsage("there is no command %q%s; `%s --help` lists the commands",
		cmd.CommandPath()+" "+word, DidYouMean(word, available(cmd)), cmd.CommandPath())
}
