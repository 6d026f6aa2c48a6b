package names

import (
	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/store"
)

func newSchema() *cobra.Command {
	prefix := ""
	cmd := &cobra.Command{
		Use:   "schema postgres|sqlite",
		Short: "Print the SQL that creates the tables for leases",
		Long: `Print the SQL that creates the tables for leases in a database. Programs create them when they first open the
database, if they have the right to. Otherwise the database's owner runs this SQL first, and grants them the right to
read and write the tables. The SQL can be run again: it keeps existing tables.`,
		Example: `  leasekeeper schema postgres | psql app
  leasekeeper schema sqlite | sqlite3 leases.db`,
		Args: command.Exactly(1, "the kind of database, postgres or sqlite"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, d := range []sqlstore.Dialect{sqlstore.PostgreSQL, sqlstore.SQLite} {
				if d.Scheme() != args[0] {
					continue
				}
				text, err := sqlstore.Schema(d, prefix)
				if err != nil {
					return store.Explain("print the schema", err)
				}
				return console.PrintLines(cmd.OutOrStdout(), text)
			}
			return command.WrongUsage("there is no schema for %q: write postgres or sqlite; other stores need none", args[0])
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", sqlstore.DefaultPrefix, "the `text` that the tables' names begin with; the same as ?prefix= in the URL")
	return cmd
}
