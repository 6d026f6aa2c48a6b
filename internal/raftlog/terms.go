package raftlog

import (
	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// maxTerms bounds the terms whose first entry is remembered.
const maxTerms = 1024

// Terms are the first entries of the terms that were applied, ascending. They outlive the entries themselves, so a member
// finds out whether another log has the same past.
type Terms []Mark

// LoadTerms reads the terms. A data directory of an earlier version has no record of them; then only applied is known.
func LoadTerms(db pebble.Reader, applied Mark) (Terms, error) {
	m := new(logpb.Terms)
	if _, err := record.Load(db, record.KeyTerms, m); err != nil {
		return nil, err
	}
	terms := termsOf(m)
	if len(terms) == 0 && applied.Index > 0 {
		terms = Terms{applied}
	}
	return terms, nil
}

// Begin returns the terms with one more. The oldest is forgotten if there are too many.
func (t Terms) Begin(first Mark) Terms {
	t = append(t, first)
	return t[max(0, len(t)-maxTerms):]
}

// Record returns the terms as they are stored, and sent together with a snapshot.
func (t Terms) Record() *logpb.Terms {
	m := new(logpb.Terms)
	for _, first := range t {
		m.Starts = append(m.Starts, &logpb.TermStart{Index: first.Index, Term: first.Term})
	}
	return m
}

// Ends calls show for the entries from first to last at which a term begins or ends. Terms only rise, so a log with the
// same terms at these entries has the same terms at all of them.
func (t Terms) Ends(first, last uint64, show func(index, term uint64)) {
	for i, start := range t {
		end := last
		if i+1 < len(t) {
			end = min(end, t[i+1].Index-1)
		}
		if begin := max(start.Index, first); begin <= end {
			show(begin, start.Term)
			show(end, start.Term)
		}
	}
}

func termsOf(m *logpb.Terms) (t Terms) {
	for _, first := range m.Starts {
		t = append(t, Mark{Index: first.Index, Term: first.Term})
	}
	return t
}

// MarkOf returns the last entry that a snapshot holds.
func MarkOf(snapshot *raftpb.Snapshot) Mark {
	return Mark{Index: snapshot.GetMetadata().GetIndex(), Term: snapshot.GetMetadata().GetTerm()}
}

// SnapshotTerms returns the terms that a snapshot came with. If they make no sense, or none came, only the snapshot's own
// mark is known.
func SnapshotTerms(snapshot *raftpb.Snapshot) Terms {
	at := MarkOf(snapshot)
	sent := new(logpb.Terms)
	if proto.Unmarshal(snapshot.GetData(), sent) != nil {
		return Terms{at}
	}
	terms := termsOf(sent)
	for i, next := range terms {
		if next.Index > at.Index || i > 0 && (next.Index <= terms[i-1].Index || next.Term <= terms[i-1].Term) {
			return Terms{at}
		}
	}
	if len(terms) == 0 || terms[len(terms)-1].Term != at.Term {
		return Terms{at}
	}
	return terms
}
