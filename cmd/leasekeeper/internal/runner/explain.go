package runner

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
)

// explanation holds the consequences of a configuration. Durations assume a network without delay: a round trip makes
// takeovers longer and tolerated pauses shorter.
type explanation struct {
	TTLMS       int64   `json:"ttl_ms"`
	ReliedOnMS  int64   `json:"relied_on_ms"`
	RenewedMS   int64   `json:"renewed_after_ms"` // the longest time between renewals
	DriftPPM    int64   `json:"drift_ppm"`
	RatePercent float64 `json:"rate_difference_percent"`
	PauseMS     int64   `json:"pause_ms"`     // the longest pause that is safe at any moment
	RunPauseMS  int64   `json:"run_pause_ms"` // the longest pause before `run` begins to end its command; 0 for none
	KillAfterMS int64   `json:"kill_after_ms"`
	KillLeadMS  int64   `json:"kill_lead_ms"` // the time from SIGKILL to the deadline
	BestMS      int64   `json:"takeover_best_ms"`
	WorstMS     int64   `json:"takeover_worst_ms"`
	RestartMS   int64   `json:"takeover_restart_ms"` // without the time in which no server runs
	// Takeovers of a dead holder's name in a database: by a waiter on the same machine, by one on another machine, and
	// by a program that reads the record for the first time, counted from that read.
	HereBestMS      int64 `json:"database_same_machine_best_ms"`
	HereWorstMS     int64 `json:"database_same_machine_worst_ms"`
	ElsewhereBestMS int64 `json:"database_other_machine_best_ms"`
	ElsewhereMS     int64 `json:"database_other_machine_worst_ms"`
	FirstSightMS    int64 `json:"database_first_observation_ms"`
}

// The timing of other packages, as parts of the TTL or as durations.
const (
	renewalShare  = 3                      // a lease is renewed after a third of its TTL, or a little earlier
	silenceShare  = 0.55                   // the part of the TTL after which a server begins to write down the remaining time of a silent holder
	silenceMost   = 0.8                    // the latest time for that, as a part of the TTL
	silenceExtra  = time.Second            // the least time for that after a renewal was due
	partsPerPoint = 10_000                 // parts per million in a per cent
	pollEvery     = 500 * time.Millisecond // the time between two reads of a waiter in a database
	pollMost      = pollEvery * 5 / 4      // the longest time between two reads, which have random jitter
)

func newExplain() *cobra.Command {
	var f runFlags
	output := ""
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show what follows from a TTL and other settings",
		Long: `Show what follows from a TTL: how far clocks may be wrong, how long a holder may be paused without losing its lease,
and how long it takes until another process can hold the name, on a server and in a database. The command contacts no
store. Durations assume a network without delay.`,
		Example: `  leasekeeper explain --ttl 15s
  leasekeeper explain --ttl 60s --kill-after 10s -o json`,
		Args: command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.Names, err = settings.LoadNames(cmd.Flags(), os.Environ()); err != nil {
				return err
			}
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			if f.ttl, err = settings.ParseDuration("ttl", f.Names.TTL); err != nil {
				return err
			}
			if err := f.agree(f.ttl); err != nil {
				return err
			}
			e := explain(f)
			if output == console.JSON {
				return console.PrintJSON(cmd.OutOrStdout(), e)
			}
			return console.PrintTable(cmd.OutOrStdout(), e.rows(), console.Wrap())
		},
	}
	settings.RegisterNames(cmd.Flags(), "ttl", "kill-after")
	cmd.Flags().StringVarP(&output, "output", "o", console.Table, "`table` or json")
	return cmd
}

// explain computes the consequences of the flags.
func explain(f runFlags) explanation {
	const drift = clock.DefaultDrift
	ttl, relied := f.ttl, f.terms.TTL
	renewed := ttl / renewalShare
	silence := min(max(time.Duration(silenceShare*float64(ttl)), ttl/renewalShare+silenceExtra), time.Duration(silenceMost*float64(ttl)))
	rate := float64(drift) / 1e6
	waited := drift.WaitRemote(ttl)
	return explanation{
		TTLMS:       ttl.Milliseconds(),
		ReliedOnMS:  relied.Milliseconds(),
		RenewedMS:   renewed.Milliseconds(),
		DriftPPM:    int64(drift),
		RatePercent: float64(int64(((1+rate)/(1-rate)-1)*partsPerPoint)) / 100,
		PauseMS:     (relied - renewed).Milliseconds(),
		RunPauseMS:  max(0, relied-renewed-f.terms.KillAfter).Milliseconds(),
		KillAfterMS: f.terms.KillAfter.Milliseconds(),
		KillLeadMS:  f.terms.Lead().Milliseconds(),
		BestMS:      (ttl - renewed).Milliseconds(),
		WorstMS:     ttl.Milliseconds(),
		RestartMS:   (ttl + silence).Milliseconds(),

		HereBestMS:      (ttl - renewed).Milliseconds(),
		HereWorstMS:     ttl.Milliseconds(),
		ElsewhereBestMS: (waited - renewed).Milliseconds(),
		ElsewhereMS:     (waited + pollMost).Milliseconds(),
		FirstSightMS:    waited.Milliseconds(),
	}
}

func (e explanation) rows() [][]string {
	length := func(ms int64) string { return (time.Duration(ms) * time.Millisecond).String() }
	return [][]string{
		{"ttl", length(e.TTLMS), "how long the store keeps a lease without renewal"},
		{"relied on", length(e.ReliedOnMS), "how much of the TTL the holder relies on, from before it sent the request"},
		{"renewed after", length(e.RenewedMS), "the time between renewals, at most"},
		{"clock rates", fmt.Sprintf("%.2f%%", e.RatePercent), fmt.Sprintf("how far the clock rates of holder and store may differ (each %d%% from real time)", e.DriftPPM/partsPerPoint)},
		{"pause", length(e.PauseMS), "the longest pause of holder, network or store that never costs a lease"},
		{"pause with run", length(e.RunPauseMS), fmt.Sprintf("the same before `run` ends its command (SIGTERM %s, SIGKILL %s before the lease is lost)", length(e.KillAfterMS), length(e.KillLeadMS))},
		{"takeover, best", "0s", "the holder releases the name"},
		{"takeover after a death", length(e.BestMS), "the holder died just before a renewal"},
		{"takeover, worst", length(e.WorstMS), "the holder died just after a renewal"},
		{"and a restart", length(e.RestartMS), "the server also restarts at the worst moment; add the time without a server"},
		{"in a database, best", length(e.HereBestMS), "the holder died just before a renewal, and the waiter is on the same machine"},
		{"same machine, worst", length(e.HereWorstMS), "the holder died just after a renewal"},
		{"other machine, best", length(e.ElsewhereBestMS), "the waiter counts from its observation of the last renewal, and longer because clocks differ"},
		{"other machine, worst", length(e.ElsewhereMS), fmt.Sprintf("the holder died just after a renewal, and the waiter reads every %v, or up to %v", pollEvery, pollMost)},
		{"first observation", length(e.FirstSightMS), "from the first read by another machine, however long ago the holder died; with ?clock=store at most the ttl"},
	}
}
