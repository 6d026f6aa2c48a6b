package names

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
	"github.com/leasekeeper/leasekeeper/internal/webconsole"
)

// consoleInfo is the JSON output of `console`.
type consoleInfo struct {
	URL   string `json:"url"`
	Write bool   `json:"write"`
}

func newConsole() *cobra.Command {
	var flags store.Flags
	listen, write := "", false
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Show the names of a store in a browser",
		Long: `Serve web pages about a store until Ctrl-C: names, holders, remaining times, queues and history, updated as they
change, and for a server its cluster and its audit log. The command prints the link to open. The pages are served to
this machine only, and to browsers that have shown the token in the link. While no page is open, the store is not read.

A server serves the same pages itself: see "leasekeeper serve --help" about --console.

The pages are read-only, unless --write is given. Anyone with the link can then revoke, pin and transfer names.`,
		Example: `  leasekeeper console
  leasekeeper console --store postgres://localhost/app --write`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.Complete(cmd); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return store.NotAnAnswer(serveConsole(ctx, cmd, &flags, listen, write))
		},
	}
	flags.Register(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "the `address` on this machine; port 0 chooses a free one")
	cmd.Flags().BoolVar(&write, "write", false, "let the pages revoke, pin and transfer names")
	return cmd
}

func serveConsole(ctx context.Context, cmd *cobra.Command, flags *store.Flags, listen string, write bool) error {
	listener, err := webconsole.Listen(listen)
	if err != nil {
		return command.WrongUsage("--listen: %v", err)
	}
	opening, cancel := context.WithTimeout(ctx, flags.Timeout)
	b, err := backend.Open(opening, flags.Store)
	cancel()
	if err != nil {
		listener.Close() // nothing uses it
		return store.Explain("open the store", err)
	}
	defer b.Close(context.WithoutCancel(ctx)) // its error does not matter: no change is pending
	c, err := webconsole.New(webconsole.Config{
		Store: b, Label: backend.WithoutSecrets(flags.Store), Write: write, Hosts: webconsole.HostsOf(listener),
		Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)),
	})
	if err != nil {
		listener.Close()
		return store.Explain("start the console", err)
	}
	info := consoleInfo{URL: "http://" + listener.Addr().String() + "/?token=" + c.Token(), Write: write}
	if flags.Output == console.JSON {
		err = console.PrintJSONLine(cmd.OutOrStdout(), info)
	} else {
		err = console.PrintLine(cmd.OutOrStdout(), "open %s", info.URL)
	}
	if err != nil {
		listener.Close()
		c.Close()
		return err
	}
	return webconsole.Serve(ctx, listener, c)
}
