package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

var (
	descRole         = desc("cluster_role", "1 for the role that the member has in its cluster, 0 for the others.", "role")
	descHasLeader    = desc("cluster_has_leader", "1 if the member knows who leads, else 0.")
	descLeaders      = desc("cluster_leader_changes_total", "How often the member has seen a member begin to lead.")
	descHandovers    = desc("cluster_handovers_total", "Hand-overs that the member decided as a leader, because its disk was slow or full and another member was better off.")
	descCampaigns    = desc("cluster_campaigns_total", "Attempts of the member to be elected.")
	descRejected     = desc("cluster_rejected_messages_total", "Messages that were dropped because their sender is no member, or has another data directory than before.")
	descMalformed    = desc("cluster_malformed_total", "Messages of members that could not be read.")
	descOverrun      = desc("cluster_overrun_total", "Messages of members that were dropped because they came too fast.")
	descForwarded    = desc("cluster_forwarded_total", "Requests and streams of clients that were sent on to the leader.")
	descForwardBad   = desc("cluster_forward_failures_total", "Of those the ones that did not arrive, or whose answer was lost.")
	descPeerRequests = desc("cluster_peer_requests_total", "Requests and streams that other members have sent on to this one.")

	descLease    = desc("master_lease_remaining_seconds", "How long the leader may still answer from memory; 0 on others.")
	descWithout  = desc("master_lease_without_seconds_total", "Time that the member has led without being allowed to answer from memory.")
	descChecks   = desc("master_lease_checks_total", "How often the leader looked whether it may answer from memory.")
	descMisses   = desc("master_lease_misses_total", "How often it might not, and had to ask a majority.")
	descRounds   = desc("master_lease_rounds_total", "Rounds of messages in which a majority was asked.")
	descGrants   = desc("master_lease_grants_total", "Promises that the leader has got, by what became of them.", "outcome")
	descFault    = desc("master_lease_clock_fault", "1 if the leader does not trust the clocks, and asks a majority before each answer, else 0.")
	descPromise  = desc("promise_remaining_seconds", "How long the member has promised its leader not to help elect another.")
	descHoldOff  = desc("vote_hold_off_seconds", "How long the member still does not vote because it has just started.")
	descPromises = desc("promises_total", "Promises that the member has made.")
	descReleased = desc("promises_released_total", "Promises that ended early because the leader gave them back.")
	descParked   = desc("votes_parked_total", "Requests for votes that had to wait for the end of a promise.")
	descWaiting  = desc("votes_parked", "Candidates whose requests wait now.")

	descPeer        = desc("peer_connected", "1 if the member can send to that other one, else 0.", "peer")
	descPeerDropped = desc("peer_dropped_total", "Messages for that other member that were dropped because too many waited.", "peer")
	descPeerRound   = desc("peer_round_trip_seconds", "How long the last ping to that other member took.", "peer")
	descPeerLag     = desc("peer_lag_entries", "Entries of the log that the other member lacks, as the leader knows; missing on others.", "peer")
	descPeerRate    = desc("peer_clock_rate_ppm", "By how many millionths the other member's clock seems to run faster than the leader's; missing on others.", "peer", "clock")
)

// collectGroup collects what concerns the other members.
func (s *Server) collectGroup(ctx context.Context, out chan<- prometheus.Metric) {
	c := &collector{out}
	c.counter(descForwarded, s.forwarder.Sent())
	c.counter(descForwardBad, s.forwarder.Failed())
	c.counter(descPeerRequests, s.incoming.Served())
	c.counter(descLeaders, s.life.Leaderships())
	names := make(map[uint64]string)
	for _, m := range s.cfg.Cluster.Members {
		names[m.ID] = m.Name
	}
	for _, p := range s.cfg.Cluster.Peers.Status() {
		c.gauge(descPeer, oneIf(p.Connected), names[p.Member])
		c.counter(descPeerDropped, p.Urgent.Dropped+p.Bulk.Dropped+p.Oversized, names[p.Member])
		c.gauge(descPeerRound, p.RoundTrip.Seconds(), names[p.Member])
	}
	st, err := s.leading.Cluster(ctx)
	if err != nil {
		return // counters that fall to zero would look like a restart
	}
	for role := replica.RoleFollower; role <= replica.RoleLeader; role++ {
		c.gauge(descRole, oneIf(st.Role == role), role.String())
	}
	c.gauge(descHasLeader, oneIf(st.Leader != 0))
	c.counter(descCampaigns, st.Counts.Campaigns)
	c.counter(descHandovers, st.Counts.Yields)
	c.counter(descRejected, st.Counts.RejectedPeers)
	c.counter(descMalformed, st.Malformed)
	c.counter(descOverrun, st.Overrun)
	c.collectPromises(&st)
	if st.Role != replica.RoleLeader {
		return
	}
	for _, m := range st.Members {
		if m.ID == st.Self {
			continue
		}
		c.gauge(descPeerLag, float64(m.Lag), names[m.ID])
		if m.Rate.Over > 0 {
			c.gauge(descPeerRate, float64(m.Rate.Raw), names[m.ID], "raw")
			c.gauge(descPeerRate, float64(m.Rate.Boot), names[m.ID], "boot")
		}
	}
}

// collectPromises collects what the member has promised, and was promised.
func (c *collector) collectPromises(st *replica.ClusterStatus) {
	h, g := &st.Holder, &st.Grantor
	c.gauge(descLease, st.Lease.Seconds())
	c.gauge(descFault, oneIf(h.Fault != masterlease.NoFault))
	c.seconds(descWithout, h.Without.Seconds())
	c.counter(descChecks, h.Checks)
	c.counter(descMisses, h.Misses)
	c.counter(descRounds, h.Rounds)
	for outcome, n := range map[string]uint64{
		"accepted": h.Accepted, "stale": h.Stale, "other_epoch": h.OtherEpoch, "other_term": h.OtherTerm, "unknown": h.Unknown,
	} {
		c.counter(descGrants, n, outcome)
	}
	c.gauge(descPromise, st.Promise.Seconds())
	c.gauge(descHoldOff, st.HoldOff.Seconds())
	c.counter(descPromises, g.Sent)
	c.counter(descReleased, g.Released)
	c.counter(descParked, g.Parked)
	c.gauge(descWaiting, float64(g.InParked))
}

// collector collects for one scrape.
type collector struct{ out chan<- prometheus.Metric }

func (c *collector) gauge(d *prometheus.Desc, v float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c *collector) counter(d *prometheus.Desc, n uint64, labels ...string) {
	c.seconds(d, float64(n), labels...)
}

// seconds is counter for what is no whole number.
func (c *collector) seconds(d *prometheus.Desc, v float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
