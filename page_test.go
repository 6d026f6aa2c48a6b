package leasekeeper_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper"
	_ "github.com/leasekeeper/leasekeeper/backend/remote" // the tutorial's program uses it
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

// pagesWithGo are the pages that show Go, and the test file that compiles what each shows.
var pagesWithGo = map[string]string{
	"README.md":                                 "page_test.go",
	"docs/compare/client-go.md":                 "contrib/client-go/move_test.go",
	"docs/compare/consul.md":                    "internal/test/otherlocks/consul_test.go",
	"docs/compare/etcd-concurrency.md":          "internal/test/otherlocks/etcd_test.go",
	"docs/compare/postgresql-advisory-locks.md": "internal/test/otherlocks/postgresql_test.go",
	"docs/compare/redsync.md":                   "internal/test/otherlocks/redsync_test.go",
	"docs/contrib/asynq.md":                     "contrib/asynq/page_test.go",
	"docs/contrib/client-go.md":                 "contrib/client-go/page_test.go",
	"docs/contrib/controller-runtime.md":        "contrib/controller-runtime/page_test.go",
	"docs/contrib/gocron.md":                    "contrib/gocron/page_test.go",
	"docs/contrib/goose.md":                     "contrib/goose/page_test.go",
	"docs/contrib/migrate.md":                   "contrib/migrate/page_test.go",
	"docs/contrib/otel.md":                      "contrib/otel/page_test.go",
	"docs/contrib/prometheus.md":                "contrib/prometheus/page_test.go",
	"docs/contrib/robfig-cron.md":               "contrib/cron/page_test.go",
	"docs/how-to/cron-job.md":                   "page_test.go",
	"docs/how-to/database-sql.md":               "internal/test/libpq/howto_test.go",
	"docs/how-to/from-other-locks.md":           "backend/postgres/page_test.go",
	"docs/how-to/leader-election.md":            "page_test.go",
	"docs/how-to/protect-a-sql-row.md":          "fence/sqlfence/page_test.go",
	"docs/how-to/shard-ownership.md":            "page_test.go",
	"docs/tutorial.md":                          "page_test.go",
	"docs/users-and-roles.md":                   "page_test.go",
}

// runBackup has the code of README.md.
func runBackup(ctx context.Context, backup func(context.Context, leasekeeper.Token) error) error {
	keeper, err := leasekeeper.Open(ctx, "postgres://db.example.org/app")
	if err != nil {
		return err
	}
	defer keeper.Close()
	return keeper.Run(ctx, "jobs/nightly", func(ctx context.Context, lease *leasekeeper.Lease) error {
		return backup(ctx, lease.Token()) // ctx ends before anyone else can hold the name
	})
}

// openAsUser has the code of docs/users-and-roles.md.
func openAsUser(ctx context.Context) (*leasekeeper.Keeper, error) {
	keeper, err := leasekeeper.Open(ctx, "leasekeeper://alice:wonderland@host1:2379,host2:2379/")
	return keeper, err
}

// The tests compile these functions, and do not call them: the stores do not exist.
var _, _ = runBackup, openAsUser

func TestHowTosShowCodeThatCompiles(t *testing.T) {
	for _, page := range []string{"docs/how-to/cron-job.md", "docs/how-to/leader-election.md", "docs/how-to/shard-ownership.md"} {
		pageprogram.Shows(t, page, "howto_test.go")
	}
	pageprogram.Shows(t, "README.md", "page_test.go")
	pageprogram.Shows(t, "docs/users-and-roles.md", "page_test.go")
	pageprogram.Vet(t, "docs/tutorial.md", nil)
}

func TestEveryPageWithGoHasATestThatCompilesIt(t *testing.T) {
	shows := map[string]bool{}
	look := func(page string) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("```go\n")) {
			shows[filepath.ToSlash(page)] = true
		}
	}
	look("README.md")
	err := filepath.WalkDir("docs", func(page string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(page) == ".md" && page != "docs/contributing/language.md" { // its Go is two comments
			look(page)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page := range shows {
		file := pagesWithGo[page]
		if file == "" {
			t.Errorf("%s shows Go that no test compiles: add one, and name it here", page)
			continue
		}
		test, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(test), path.Base(page)+`"`) {
			t.Errorf("%s does not test %s: %v", file, page, err)
		}
	}
	for page := range pagesWithGo {
		if !shows[page] {
			t.Errorf("%s shows no Go: remove it here", page)
		}
	}
}
