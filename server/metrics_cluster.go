package server

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

var (
	descRole         = desc("cluster_role", "1 for the role that the member has in its cluster, 0 for the others.", "role")
	descHasLeader    = desc("cluster_has_leader", "1 if the member knows a leader, else 0.")
	descLeaders      = desc("cluster_leader_changes_total", "How often the member has seen a leadership begin.")
	descHandovers    = desc("cluster_handovers_total", "Hand-overs that the member started as a leader because its disk was slow or full, and another member's was not.")
	descCampaigns    = desc("cluster_campaigns_total", "Elections in which the member was a candidate.")
	descRejected     = desc("cluster_rejected_messages_total", "Messages dropped because their sender is not a member, or has a different data directory than before.")
	descMalformed    = desc("cluster_malformed_total", "Messages of members that could not be decoded.")
	descOverrun      = desc("cluster_overrun_total", "Messages of members that were dropped because they arrived too fast.")
	descForwarded    = desc("cluster_forwarded_total", "Requests and streams of clients that were forwarded to the leader.")
	descForwardBad   = desc("cluster_forward_failures_total", "Forwarded requests and streams that did not reach the leader, or whose answer was lost.")
	descPeerRequests = desc("cluster_peer_requests_total", "Requests and streams that other members have forwarded to this one.")

	descLease    = desc("master_lease_remaining_seconds", "How long the leader may still answer reads from memory; 0 on other members.")
	descWithout  = desc("master_lease_without_seconds_total", "Time for which the member led without a valid master lease.")
	descChecks   = desc("master_lease_checks_total", "How often the leader checked whether its master lease was valid.")
	descMisses   = desc("master_lease_misses_total", "How often the master lease was not valid, so that the leader had to ask a majority.")
	descRounds   = desc("master_lease_rounds_total", "Rounds of messages in which the leader asked a majority.")
	descGrants   = desc("master_lease_grants_total", "Promises that the leader has received, by outcome.", "outcome")
	descFault    = desc("master_lease_clock_fault", "1 if the leader does not trust the clocks, and asks a majority before each answer, else 0.")
	descPromise  = desc("promise_remaining_seconds", "How long the member has promised not to vote for another leader.")
	descHoldOff  = desc("vote_hold_off_seconds", "How much longer the member does not vote because it has just started.")
	descPromises = desc("promises_total", "Promises that the member has made.")
	descReleased = desc("promises_released_total", "Promises that ended early because the leader released them.")
	descParked   = desc("votes_parked_total", "Requests for votes that had to wait for the end of a promise.")
	descWaiting  = desc("votes_parked", "Candidates whose requests for votes wait now.")

	descPeer        = desc("peer_connected", "1 if the member can send to the peer, else 0.", "peer")
	descPeerDropped = desc("peer_dropped_total", "Messages for the peer that were dropped because too many waited.", "peer")
	descPeerRound   = desc("peer_round_trip_seconds", "How long the last ping to the peer took.", "peer")
	descPeerLag     = desc("peer_lag_entries", "Log entries that the peer lacks, as far as the leader knows; missing on other members.", "peer")
	descPeerRate    = desc("peer_clock_rate_ppm", "How much faster the peer's clock runs than the leader's, in parts per million; missing on other members.", "peer", "clock")
)

// collectCluster collects the metrics of the cluster and of the connections to other members.
func (s *Server) collectCluster(ctx context.Context, out chan<- prometheus.Metric) {
	c := &collector{out}
	c.counter(descForwarded, s.forwarder.Sent())
	c.counter(descForwardBad, s.forwarder.Failed())
	c.counter(descPeerRequests, s.incoming.Served())
	c.counter(descLeaders, s.life.Leaderships())
	name := s.memberLabels()
	for _, p := range s.cfg.Cluster.Peers.Status() {
		c.gauge(descPeer, oneIf(p.Connected), name(p.Member))
		c.counter(descPeerDropped, p.Urgent.Dropped+p.Bulk.Dropped+p.Oversized, name(p.Member))
		c.gauge(descPeerRound, p.RoundTrip.Seconds(), name(p.Member))
	}
	st, err := s.clusterNode.Cluster(ctx)
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
		c.gauge(descPeerLag, float64(m.Lag), name(m.ID))
		if m.Rate.Over > 0 {
			c.gauge(descPeerRate, float64(m.Rate.Raw), name(m.ID), "raw")
			c.gauge(descPeerRate, float64(m.Rate.Boot), name(m.ID), "boot")
		}
	}
}

// collectPromises collects the metrics of the master lease: the promises that this member received as a leader, and
// those that it made.
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

// collector sends metrics to one scrape.
type collector struct{ out chan<- prometheus.Metric }

func (c *collector) gauge(d *prometheus.Desc, v float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (c *collector) counter(d *prometheus.Desc, n uint64, labels ...string) {
	c.seconds(d, float64(n), labels...)
}

// seconds sends a counter with a fractional value.
func (c *collector) seconds(d *prometheus.Desc, v float64, labels ...string) {
	c.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// memberLabels returns the labels of members: their names. A member without a name, or with that of another member, has its
// id in the label, because two series must not have the same labels.
func (s *Server) memberLabels() func(id uint64) string {
	members := s.listed()
	return func(id uint64) string {
		label := ""
		for _, m := range members {
			if m.ID == id {
				label = m.Name
			}
		}
		if label == "" || slices.ContainsFunc(members, func(m roster.Member) bool { return m.ID != id && m.Name == label }) {
			return strings.TrimPrefix(fmt.Sprintf("%s-%016x", label, id), "-")
		}
		return label
	}
}
