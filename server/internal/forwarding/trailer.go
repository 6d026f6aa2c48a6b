package forwarding

import (
	"strconv"

	"google.golang.org/grpc/metadata"
)

// The verdict of a member stands in the trailer that it sends with an error.
const (
	verdictKey       = "leasekeeper-member"
	verdictSaid      = "said"      // the client receives the status
	verdictElsewhere = "elsewhere" // nothing has happened; the leader may serve the request
)

// verdict is the trailer of an error.
func verdict(err error) metadata.MD {
	if isElsewhere(err) {
		return metadata.Pairs(verdictKey, verdictElsewhere)
	}
	return metadata.Pairs(verdictKey, verdictSaid)
}

// verdictOf returns the verdict in a trailer, "" if no member has spoken.
func verdictOf(trailer metadata.MD) string { return said(trailer, verdictKey) }

// said returns the one value of a key, "" if there is none, or more.
func said(trailer metadata.MD, key string) string {
	if values := trailer.Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// appliedKey is what the trailer of an answer calls the log entry that the leader's state was at then.
const appliedKey = "leasekeeper-applied"

func appliedMark(index uint64) metadata.MD {
	return metadata.Pairs(appliedKey, strconv.FormatUint(index, 10))
}

// appliedIn returns that entry, 0 if the leader does not say.
func appliedIn(trailer metadata.MD) uint64 {
	index, err := strconv.ParseUint(said(trailer, appliedKey), 10, 64)
	if err != nil {
		return 0
	}
	return index
}
