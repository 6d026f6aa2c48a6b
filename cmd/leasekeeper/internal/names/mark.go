package names

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

// markInfo is the JSON output of `mark`.
type markInfo struct {
	Name  string `json:"name"`
	Tick  string `json:"tick,omitempty"`  // a time or a number; missing if no tick was completed
	Token uint64 `json:"token,omitempty"` // the token under which the tick was completed; missing if the mark was set by hand
}

func newMark() *cobra.Command {
	var flags store.Flags
	set, unset := "", false
	cmd := &cobra.Command{
		Use:   "mark NAME",
		Short: "Show or correct the last completed tick of a name",
		Long: `Show the mark of a name: the highest tick that ` + "`run --once`" + ` or a program has completed. With --set or --unset, change
it. That is needed if a mark was set too far ahead by mistake, because no tick up to the mark runs again. A change is
refused, with exit code 1, if a holder completes a tick at the same moment: look at the mark again.`,
		Example: `  leasekeeper mark jobs/nightly
  leasekeeper mark jobs/nightly --set 2026-03-01T00:00:00Z`,
		Args: store.OneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			replacement, err := replacementOf(set, unset)
			if err != nil {
				return err
			}
			return store.With(cmd, &flags, func(ctx context.Context, b backend.Backend) error {
				m, err := changeMark(ctx, b, args[0], replacement)
				if err != nil {
					return err
				}
				return printMark(cmd, flags.Output, args[0], m)
			})
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&set, "set", "", "make this `tick` the last completed one: a number, or a time such as 2026-03-01T12:00:00Z")
	cmd.Flags().BoolVar(&unset, "unset", false, "remove the mark, as if no tick had been completed")
	return cmd
}

// replacementOf returns the mark that the flags ask for, or nil.
func replacementOf(set string, unset bool) (*backend.Mark, error) {
	switch {
	case set != "" && unset:
		return nil, command.WrongUsage("--set and --unset contradict each other: omit one of them")
	case unset:
		return &backend.Mark{}, nil
	case set == "":
		return nil, nil
	}
	tick, err := leasekeeper.ParseTick(set)
	if err != nil {
		return nil, command.WrongUsage("--set: %v", err)
	}
	return &backend.Mark{Tick: tick}, nil
}

// changeMark replaces the mark of a name, unless the replacement is nil, and returns the mark.
func changeMark(ctx context.Context, b backend.Backend, name string, replacement *backend.Mark) (backend.Mark, error) {
	marker, err := backend.Can[backend.Marker](b)
	if err != nil {
		return backend.Mark{}, store.Explain("read the mark of "+name, err)
	}
	m, err := marker.Mark(ctx, name)
	if err != nil {
		return m, store.Explain("read the mark of "+name, err)
	}
	if replacement == nil || *replacement == m {
		return m, nil
	}
	done, err := marker.ReplaceMark(ctx, name, m, *replacement)
	switch {
	case err != nil:
		return m, store.Explain("change the mark of "+name, err)
	case !done:
		return m, command.Failed("the mark of %s has changed meanwhile: look at it again", name)
	}
	return *replacement, nil
}

func printMark(cmd *cobra.Command, output, name string, m backend.Mark) error {
	if output == console.JSON {
		info := markInfo{Name: name, Token: uint64(m.Token)}
		if !m.IsZero() {
			info.Tick = m.Tick.String()
		}
		return console.PrintJSON(cmd.OutOrStdout(), info)
	}
	text := fmt.Sprintf("%s: no tick is completed", name)
	switch {
	case m.Token != 0:
		text = fmt.Sprintf("%s: the last completed tick is %v (token %d)", name, m.Tick, m.Token)
	case !m.IsZero():
		text = fmt.Sprintf("%s: the last completed tick is %v", name, m.Tick)
	}
	return console.PrintLine(cmd.OutOrStdout(), "%s", text)
}
