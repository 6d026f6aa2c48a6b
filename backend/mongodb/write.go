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
	if w.Alone && s.waiting(ctx, w.Record.Name) {
		return false, nil
	}
	p := new(commandBatch)
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

// commandBatch is some swaps that are sent in one command.
type commandBatch struct {
	size     int // in bytes
	inserts  bson.A
	updates  bson.A
	inserted []int // the indexes of the swaps, in their order
	updated  []int
}

// The size limits of one command. A command is one document, of at most 16 MiB.
const (
	parcelBytes = 8 << 20
	parcelSwaps = 500
)

func (p *commandBatch) isFull() bool {
	return p.size >= parcelBytes || len(p.inserts)+len(p.updates) >= parcelSwaps
}

// pack adds swap i to the batch.
func (s *Store) pack(p *commandBatch, i int, w claim.Swap) error {
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

// extends reports whether a swap can write only what an extension changes. The other fields are not sent: they
// may be long.
func extends(w claim.Swap) bool { return w.Extends && !w.Owner && !w.Ended && w.Old != (claim.Op{}) }

// update returns one statement of an update command. raw is the document, or its fields that an extension
// changes.
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
	// Only an update can read the clock. It matches no document, so it inserts one, or fails as a duplicate.
	none := bson.D{{Key: "_id", Value: id}, {Key: "op", Value: bson.D{{Key: "$in", Value: bson.A{}}}}}
	return bson.D{{Key: "q", Value: none}, {Key: "u", Value: to}, {Key: "upsert", Value: true}}
}

// stamped returns the stage that replaces a document, or changes it, with the primary's time. A renewal never
// shortens, by whatever it prolongs.
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
		bson.D{{Key: "$literal", Value: raw}}, // a holder's id may be $$ROOT
		bson.D{{Key: "wrote", Value: "$$NOW"}, {Key: "ends", Value: ends}})
	return bson.D{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: parts}}}}
}

// promised returns how long a record lasts from its write: the longest of the record's statements.
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

func (s *Store) inserts(p *commandBatch) bson.D {
	return bson.D{{Key: "insert", Value: s.records.Name()}, {Key: "documents", Value: p.inserts}, {Key: "ordered", Value: false}}
}

func (s *Store) updates(p *commandBatch) bson.D {
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
		p := new(commandBatch)
		first := i
		for ; i < len(swaps) && !p.isFull(); i++ {
			if err := s.pack(p, i, swaps[i]); err != nil {
				return nil, after(first, err)
			}
		}
		if err := s.sendBatch(ctx, swaps, p, done); err != nil {
			return nil, after(first, err)
		}
	}
	return done, nil
}

// after returns the error if swaps failed with err after others were sent.
func after(sent int, err error) error {
	if sent == 0 {
		return err
	}
	return fmt.Errorf("%w: the first %d were sent: %w", backend.ErrUnknownOutcome, sent, err)
}

// sendBatch sends one batch, and finds out which of its swaps were done.
func (s *Store) sendBatch(ctx context.Context, swaps []claim.Swap, p *commandBatch, done []bool) error {
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
	// The read below must see this write, even if the primary changes in between.
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
	return s.findDone(within, swaps, p, a, done)
}

// trace has the ops of the last two writes of a document.
type trace struct {
	ID       string `bson:"_id"`
	Op       string `bson:"op"`
	Replaced string `bson:"replaced"`
}

// findDone finds out which of the updates were done: the server only counts them.
func (s *Store) findDone(ctx context.Context, swaps []claim.Swap, p *commandBatch, a answer, done []bool) error {
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
		case is.Op == old, is.Replaced == old: // another write has replaced it since
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
	return fmt.Errorf("mongodb: %w: of %d writes among many some were done and then overwritten twice, and it is unknown which", backend.ErrUnknownOutcome, len(open))
}

// traces reads the last writes of some documents, by _id.
func (s *Store) traces(ctx context.Context, swaps []claim.Swap, which []int) (map[string]trace, error) {
	ids := make(bson.A, len(which))
	for j, i := range which {
		ids[j] = s.key(swaps[i].Record.Name)
	}
	return s.ops(ctx, ids)
}

// ops reads the last writes of the documents with these _ids.
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
		// The op never returns, so the observation only takes up space until the name is removed again.
		s.config.Log.Warn("mongodb: a record was removed, but not its observations", "name", name, "error", err)
	}
	return true, nil
}

func (s *Store) deletion(c *mongo.Collection, limit int, q bson.D) bson.D {
	return bson.D{{Key: "delete", Value: c.Name()}, {Key: "deletes", Value: bson.A{bson.D{{Key: "q", Value: q}, {Key: "limit", Value: limit}}}}}
}
