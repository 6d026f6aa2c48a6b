//go:build unix

package databases

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Plan is a node of a plan in the JSON of PostgreSQL's auto_explain. Rows are those of one loop.
type Plan struct {
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Joined  float64 `json:"Rows Removed by Join Filter"`
	Dropped float64 `json:"Rows Removed by Filter"`
	Plans   []Plan  `json:"Plans"`
}

// ParsePlan returns the top node of a plan.
func ParsePlan(t testing.TB, plan string) Plan {
	t.Helper()
	var top struct{ Plan Plan }
	if err := json.Unmarshal([]byte(plan), &top); err != nil {
		t.Fatalf("%v in %s", err, plan)
	}
	return top.Plan
}

// Most returns the largest number of rows that a node of the plan read.
func (n Plan) Most() float64 {
	most := (n.Rows + n.Joined + n.Dropped) * max(1, n.Loops)
	for _, below := range n.Plans {
		most = max(most, below.Most())
	}
	return most
}

// Plans collects the plans of the statements that a pool executes. Its methods are safe for concurrent use.
type Plans struct {
	mu  sync.Mutex
	all []string
}

// Explain makes the connections of a pool send the plan of each statement that they execute. settings are statements that
// each connection executes first.
func (p *Plans) Explain(c *pgxpool.Config, settings string) {
	c.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, found := strings.Cut(n.Message, "plan:\n"); found {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.all = append(p.all, plan)
		}
	}
	c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `LOAD 'auto_explain'; SET auto_explain.log_analyze = on; SET auto_explain.log_format = json;
			SET auto_explain.log_level = notice; SET auto_explain.log_min_duration = 0; `+settings, pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

// Take returns the plans since the last call.
func (p *Plans) Take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}
