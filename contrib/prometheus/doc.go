// Package prometheuslease makes metrics for Prometheus of what happens to the leases of a program. A [Collector] is a hook
// of keepers and a [prometheus.Collector]:
//
//	metrics := prometheuslease.New()
//	prometheus.MustRegister(metrics)
//	keeper, err := leasekeeper.Open(ctx, url, leasekeeper.WithHook(metrics.Hook))
//
// # Metrics
//
//   - leasekeeper_client_wait_seconds, a histogram: how long calls waited for a name. Its label outcome is held if the call
//     got the name, ended if its context ended or its keeper was closed before, and failed for all other errors. Calls with
//     [leasekeeper.NoWait] do not wait and do not count.
//   - leasekeeper_client_tenures_total: tenures that began.
//   - leasekeeper_client_renewal_margin_ratio, a histogram: at each acknowledged renewal, how long the lease would still
//     have lasted, as a part of its TTL. With a fast store it is near two thirds. Near 0, leases are almost lost.
//   - leasekeeper_client_doubts_total: how often a lease was not renewed for half of its time.
//   - leasekeeper_client_recoveries_total: how often such a lease was renewed again.
//   - leasekeeper_client_early_ends_total: tenures that [leasekeeper.WithHealth] or [leasekeeper.HoldAtMost] ended.
//   - leasekeeper_client_losses_total: tenures that ended against their holder's will.
//   - leasekeeper_client_unconfirmed_releases_total: releases that the store did not confirm.
//   - leasekeeper_client_hold_seconds, a histogram: how long names were held, at their release or loss.
//   - leasekeeper_client_missed_reports_total: reports that no other metric counts, because hooks were too slow.
//
// # What is promised
//
//   - The number of series is bounded, whatever names the program uses. No series belongs to a lease, a name or a token.
//     [WithGroups] adds the label group, with at most [MaxGroups] values besides other.
//   - All series of counters and histograms exist from the beginning, at 0. So rate and increase see the first event.
//   - One collector takes the reports of several keepers.
//
// # What it never does
//
// It starts no goroutine and never talks to a store. It does not say which leases are held now: reports may be left out,
// so a sum of them would drift. It does not say why leases were lost: the log of [leasekeeper.WithLogger] does.
package prometheuslease
