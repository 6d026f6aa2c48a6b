package mongodb

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// Swap implements [claim.Store].
func (s *Store) Swap(ctx context.Context, w claim.Swap) (bool, error) {
	what := "write " + w.Record.Name
	p := new(parcel)
	if err := s.pack(p, 0, w); err != nil {
		return false, err
	}
	command := s.inserts(p)
	if len(p.updates) > 0 {
		command = s.updates(p)
	}
	answer, err := s.write(ctx, what, command)
	return err == nil && answer.N == 1, err
}

// parcel is some swaps that are sent together.
type parcel struct {
	size     int // in bytes
	inserts  bson.A
	updates  bson.A
	inserted []int // which swaps they are, in their order
	updated  []int
}

// How much is sent in one command. A command is one document, of 16 MiB at the most.
const (
	parcelBytes = 8 << 20
	parcelSwaps = 500
)

func (p *parcel) isFull() bool {
	return p.size >= parcelBytes || len(p.inserts)+len(p.updates) >= parcelSwaps
}

// pack puts swap i into the parcel.
func (s *Store) pack(p *parcel, i int, w claim.Swap) error {
	if w.Ended && !s.config.StoreClock {
		return fmt.Errorf("mongodb: %w: the namespace %s is not in store-clock mode, so the store cannot judge ends", backend.ErrInvalid, s.config.Namespace)
	}
	d, err := s.document(w)
	if err != nil {
		return err
	}
	var written any = d
	if extends(w) {
		written = d.extended()
	}
	raw, err := bson.Marshal(written)
	if err != nil {
		return fmt.Errorf("mongodb: %w: the record of %q: %w", backend.ErrInvalid, w.Record.Name, err)
	}
	p.size += len(raw)
	if w.Old == (claim.Op{}) && !s.config.StoreClock {
		p.inserts, p.inserted = append(p.inserts, bson.Raw(raw)), append(p.inserted, i)
		return nil
	}
	p.updates, p.updated = append(p.updates, s.update(w, d.ID, raw)), append(p.updated, i)
	return nil
}

// extends says whether a swap can be one that only extends. Of such a record the rest is not sent: it may be long.
func extends(w claim.Swap) bool { return w.Extends && !w.Owner && !w.Ended && w.Old != (claim.Op{}) }

// update is one statement of an update command. raw is the document, or what of it an extension changes.
func (s *Store) update(w claim.Swap, id string, raw bson.Raw) bson.D {
	from := bson.D{{Key: "_id", Value: id}, {Key: "op", Value: w.Old.String()}, {Key: "mode", Value: s.mode()}}
	if w.Ended {
		from = append(from, bson.E{Key: "$expr", Value: bson.D{{Key: "$gt", Value: bson.A{"$$NOW", "$ends"}}}})
	}
	switch {
	case s.config.StoreClock:
	case extends(w):
		return bson.D{{Key: "q", Value: from}, {Key: "u", Value: bson.D{{Key: "$set", Value: raw}}}}
	default:
		return bson.D{{Key: "q", Value: from}, {Key: "u", Value: raw}}
	}
	to := bson.A{s.stamped(w, raw)}
	if w.Old != (claim.Op{}) {
		return bson.D{{Key: "q", Value: from}, {Key: "u", Value: to}}
	}
	// Only an update can ask for the time. It matches no document, so it makes one, or fails as a duplicate.
	none := bson.D{{Key: "_id", Value: id}, {Key: "op", Value: bson.D{{Key: "$in", Value: bson.A{}}}}}
	return bson.D{{Key: "q", Value: none}, {Key: "u", Value: to}, {Key: "upsert", Value: true}}
}

// stamped is the stage that puts a document in place of another, or changes it, with the primary's time. A renewal, by
// whatever it prolongs, never shortens.
func (s *Store) stamped(w claim.Swap, raw bson.Raw) bson.D {
	ends := bson.D{{Key: "$add", Value: bson.A{"$$NOW", inMilliseconds(promised(w.Record))}}}
	if !w.Owner {
		ends = bson.D{{Key: "$max", Value: bson.A{"$ends", ends}}}
	}
	parts := bson.A{}
	if extends(w) {
		parts = append(parts, "$$ROOT")
	}
	parts = append(parts,
		bson.D{{Key: "$literal", Value: raw}}, // a holder may be called $$ROOT
		bson.D{{Key: "wrote", Value: "$$NOW"}, {Key: "ends", Value: ends}})
	return bson.D{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: parts}}}}
}

// promised is how long a record lasts from when it is written, by whichever account is the longest.
func promised(r claim.Record) time.Duration {
	return max(r.TTL, r.Written.Until(r.Expiry))
}

// inMilliseconds rounds up.
func inMilliseconds(d time.Duration) int64 {
	n := int64(d / time.Millisecond)
	if d > time.Duration(n)*time.Millisecond {
		n++
	}
	return max(0, n)
}

func (s *Store) inserts(p *parcel) bson.D {
	return bson.D{{Key: "insert", Value: s.records.Name()}, {Key: "documents", Value: p.inserts}, {Key: "ordered", Value: false}}
}

func (s *Store) updates(p *parcel) bson.D {
	return bson.D{{Key: "update", Value: s.records.Name()}, {Key: "updates", Value: p.updates}, {Key: "ordered", Value: false}}
}

// SwapAll implements [claim.Batcher].
func (s *Store) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	ctx, finish, err := s.begin(ctx, "write many")
	if err != nil {
		return nil, err
	}
	defer finish()
	done := make([]bool, len(swaps))
	for i := 0; i < len(swaps); {
		p := new(parcel)
		first := i
		for ; i < len(swaps) && !p.isFull(); i++ {
			if err := s.pack(p, i, swaps[i]); err != nil {
				return nil, after(first, err)
			}
		}
		if err := s.deliver(ctx, swaps, p, done); err != nil {
			return nil, after(first, err)
		}
	}
	return done, nil
}

// after is what an error means if so many swaps were sent before.
func after(sent int, err error) error {
	if sent == 0 {
		return err
	}
	return fmt.Errorf("%w: the first %d were sent: %w", backend.ErrUnknownOutcome, sent, err)
}

// deliver sends one parcel, and finds out what was done.
func (s *Store) deliver(ctx context.Context, swaps []claim.Swap, p *parcel, done []bool) error {
	if len(p.inserts) > 0 {
		a, err := s.run(ctx, "write many", s.inserts(p))
		if err != nil {
			return err
		}
		for _, i := range p.inserted {
			done[i] = true
		}
		for _, e := range a.Errors {
			done[p.inserted[e.Index]] = false
		}
	}
	if len(p.updates) == 0 {
		return nil
	}
	// The read below must see what is written here, even if the primary changes in between.
	session, err := s.db.Client().StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return after(len(p.inserts), s.unwritten("write many", err))
	}
	defer session.EndSession(ctx)
	within := mongo.NewSessionContext(ctx, session)
	a, err := s.run(within, "write many", s.updates(p))
	if err != nil {
		return after(len(p.inserts), err)
	}
	if a.N == len(p.updates) {
		for _, i := range p.updated {
			done[i] = true
		}
		return nil
	}
	if a.N == 0 {
		return nil
	}
	return s.tell(within, swaps, p, a, done)
}

// trace is what a document says of its last two writes.
type trace struct {
	ID       string `bson:"_id"`
	Op       string `bson:"op"`
	Replaced string `bson:"replaced"`
}

// tell finds out which of the updates were done: the server only counts them.
func (s *Store) tell(ctx context.Context, swaps []claim.Swap, p *parcel, a answer, done []bool) error {
	traces, err := s.traces(ctx, swaps, p.updated)
	if err != nil {
		return fmt.Errorf("mongodb: %w: which of many were written cannot be read: %w", s.unknown(), err)
	}
	duplicates := make(map[int]bool)
	for _, e := range a.Errors {
		duplicates[e.Index] = true
	}
	var sure int
	var open []int
	for j, i := range p.updated {
		w, is := swaps[i], traces[s.key(swaps[i].Record.Name)]
		written, old := w.Record.Op.String(), w.Old.String()
		switch {
		case duplicates[j]:
		case is.Op == written, is.Replaced == written:
			done[i] = true
			sure++
		case is.Op == old, is.Replaced == old: // from there another has written
		default:
			open = append(open, i)
		}
	}
	switch a.N {
	case sure:
		return nil
	case sure + len(open):
		for _, i := range open {
			done[i] = true
		}
		return nil
	}
	return fmt.Errorf("mongodb: %w: of %d writes among many some were done and then overwritten twice, and which cannot be told", backend.ErrUnknownOutcome, len(open))
}

// traces reads what some documents say of their last writes, by _id.
func (s *Store) traces(ctx context.Context, swaps []claim.Swap, which []int) (map[string]trace, error) {
	ids := make(bson.A, len(which))
	for j, i := range which {
		ids[j] = s.key(swaps[i].Record.Name)
	}
	return s.ops(ctx, ids)
}

// ops reads what the documents of those _ids say of their last writes.
func (s *Store) ops(ctx context.Context, ids bson.A) (map[string]trace, error) {
	cursor, err := s.records.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: "op", Value: 1}, {Key: "replaced", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var all []trace
	if err := cursor.All(ctx, &all); err != nil {
		return nil, err
	}
	traces := make(map[string]trace, len(all))
	for _, t := range all {
		traces[t.ID] = t
	}
	return traces, nil
}

// Remove implements [claim.Store].
func (s *Store) Remove(ctx context.Context, name string, old claim.Op) (bool, error) {
	what := "remove " + name
	answer, err := s.write(ctx, what, s.deletion(s.records, 1, bson.D{
		{Key: "_id", Value: s.key(name)}, {Key: "op", Value: old.String()}, {Key: "mode", Value: s.mode()},
	}))
	if err != nil || answer.N == 0 {
		return false, err
	}
	observed := bson.D{{Key: "$gte", Value: s.observationKey(name, "")}, {Key: "$lt", Value: successor(s.observationKey(name, ""))}}
	if _, err := s.write(ctx, what, s.deletion(s.observations, 0, bson.D{{Key: "_id", Value: observed}})); err != nil {
		// It is of an op that never comes again, so it only takes up room until the name is removed again.
		s.config.Log.Warn("mongodb: a record was removed, but not what was observed of it", "name", name, "error", err)
	}
	return true, nil
}

func (s *Store) deletion(c *mongo.Collection, limit int, q bson.D) bson.D {
	return bson.D{{Key: "delete", Value: c.Name()}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: q}, {Key: "limit", Value: limit}}}}}
}
