package forwarding

import (
	"strconv"

	"google.golang.org/grpc/metadata"
)

// A member adds its verdict to the trailer of each error that it returns.
const (
	verdictKey       = "leasekeeper-member"
	verdictAnswered  = "said"      // the client receives the status
	verdictElsewhere = "elsewhere" // nothing has changed; the leader may serve the request
)

// verdictTrailer returns the trailer for an error.
func verdictTrailer(err error) metadata.MD {
	if leaderMayServe(err) {
		return metadata.Pairs(verdictKey, verdictElsewhere)
	}
	return metadata.Pairs(verdictKey, verdictAnswered)
}

// verdictOf returns the verdict in a trailer, "" if the answer is not a member's.
func verdictOf(trailer metadata.MD) string { return trailerValue(trailer, verdictKey) }

// trailerValue returns the only value of a key. It returns "" if there is none, or more than one.
func trailerValue(trailer metadata.MD, key string) string {
	if values := trailer.Get(key); len(values) == 1 {
		return values[0]
	}
	return ""
}

// appliedKey is the trailer with the index of the last log entry that the leader had applied when it answered.
const appliedKey = "leasekeeper-applied"

func appliedTrailer(index uint64) metadata.MD {
	return metadata.Pairs(appliedKey, strconv.FormatUint(index, 10))
}

// appliedIn returns the index in the trailer appliedKey, 0 if there is none.
func appliedIn(trailer metadata.MD) uint64 {
	index, err := strconv.ParseUint(trailerValue(trailer, appliedKey), 10, 64)
	if err != nil {
		return 0
	}
	return index
}
