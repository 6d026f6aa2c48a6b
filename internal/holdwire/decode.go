package holdwire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

const (
	// MaxReused bounds the claims, and the releases, that a message keeps for the next decoding. So a message that was large
	// once does not keep its memory.
	MaxReused = 64
	// maxSharedText is the size of the largest message whose names share one copy of it. A name that is kept keeps that
	// copy.
	maxSharedText = 1 << 10
)

// DecodeRequest decodes a message into req and reuses the memory of its claims and releases. Names do not share the memory
// of text. It returns false unless the message consists of claims and releases without holders. Then what req holds is void, and package
// proto must decode the message.
func DecodeRequest(text []byte, req *leasekeeperv1.HoldRequest) bool {
	releases, claims := reused(req.Releases), reused(req.Claims)
	req.Reset()
	names := nameSource{text: text}
	if len(text) <= maxSharedText {
		names.shared = string(text)
	}
	for rest := text; len(rest) > 0; {
		field, _, inside, behind, ok := wire.Next(rest)
		if !ok || inside == nil {
			return false
		}
		rest = behind
		names.end = len(text) - len(rest)
		switch field {
		case requestReleases:
			var r *leasekeeperv1.HoldRelease
			releases, r = extended(releases)
			ok = decodeRelease(inside, r, &names)
		case requestClaims:
			var c *leasekeeperv1.HoldClaim
			claims, c = extended(claims)
			ok = decodeClaim(inside, c, &names)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	req.Releases, req.Claims = releases, claims
	return true
}

// decodeClaim decodes a claim into c, which is empty. It returns false for a claim with a holder or an unknown field.
func decodeClaim(text []byte, c *leasekeeperv1.HoldClaim, names *nameSource) bool {
	for len(text) > 0 {
		field, number, value, rest, ok := wire.Next(text)
		if !ok {
			return false
		}
		switch text = rest; {
		case value != nil && field == namedName:
			if c.Name, ok = names.cut(len(value), len(rest)); !ok {
				return false
			}
		case value != nil && field == claimTraceparent:
			if c.Traceparent, ok = names.cut(len(value), len(rest)); !ok {
				return false
			}
		case value != nil:
			return false
		case field == namedNumber:
			c.Number = number
		case field == namedLease:
			c.Lease = int64(number)
		case field == claimTTL:
			c.TtlMs = int64(number)
		case field == claimWait:
			c.Wait = protowire.DecodeBool(number)
		case field == claimPriority:
			c.Priority = int32(number)
		default:
			return false
		}
	}
	return true
}

// decodeRelease decodes a release into r, which is empty. It returns false for a release with an unknown field.
func decodeRelease(text []byte, r *leasekeeperv1.HoldRelease, names *nameSource) bool {
	for len(text) > 0 {
		field, number, value, rest, ok := wire.Next(text)
		if !ok {
			return false
		}
		switch text = rest; {
		case value != nil && field == namedName:
			if r.Name, ok = names.cut(len(value), len(rest)); !ok {
				return false
			}
		case value != nil && field == releaseTraceparent:
			if r.Traceparent, ok = names.cut(len(value), len(rest)); !ok {
				return false
			}
		case value != nil:
			return false
		case field == namedNumber:
			r.Number = number
		case field == namedLease:
			r.Lease = int64(number)
		default:
			return false
		}
	}
	return true
}

// nameSource cuts names, and other texts, out of a message.
type nameSource struct {
	text   []byte // the whole message
	shared string // a copy of text; empty if text is longer than maxSharedText
	end    int    // where the claim or release that is being decoded ends in text
}

// cut returns the text of that size which ends the given number of bytes before the end of the claim or release. It returns
// false if the text is not UTF-8.
func (s *nameSource) cut(size, before int) (string, bool) {
	to := s.end - before
	var name string
	if s.shared != "" {
		name = s.shared[to-size : to]
	} else {
		name = string(s.text[to-size : to])
	}
	return name, utf8.ValidString(name)
}

// reused returns the slice without elements. Its elements are empty, and extended returns them again.
func reused[M interface{ Reset() }](all []M) []M {
	if cap(all) > MaxReused {
		return nil
	}
	for _, m := range all {
		m.Reset()
	}
	return all[:0]
}

// extended appends an empty element, and returns it too. It reuses an element behind the end of the slice.
func extended[T any](all []*T) ([]*T, *T) {
	if len(all) < cap(all) {
		all = all[:len(all)+1]
	} else {
		all = append(all, nil)
	}
	last := &all[len(all)-1]
	if *last == nil {
		*last = new(T)
	}
	return all, *last
}

// DecodeResponse decodes a message into resp and reuses the memory of its answers. It returns false if an answer names the
// current holder, or reports a failure. Then what resp holds is void, and package proto must decode the message.
func DecodeResponse(text []byte, resp *leasekeeperv1.HoldResponse) bool {
	answers := resp.Answers[:0]
	for len(text) > 0 {
		field, _, inside, rest, ok := wire.Next(text)
		if !ok || inside == nil || field != responseAnswers {
			return false
		}
		text = rest
		var a *leasekeeperv1.HoldAnswer
		answers, a = extended(answers)
		a.Reset()
		if !decodeAnswer(inside, a) {
			return false
		}
	}
	resp.Answers = answers
	return true
}

// decodeAnswer decodes an answer into a, which is empty. It returns false for an answer with any field besides the numbers
// of a success.
func decodeAnswer(text []byte, a *leasekeeperv1.HoldAnswer) bool {
	for len(text) > 0 {
		field, number, value, rest, ok := wire.Next(text)
		if !ok || value != nil {
			return false
		}
		switch text = rest; field {
		case answerNumber:
			a.Number = number
		case answerState:
			a.State = leasekeeperv1.HoldAnswer_State(number)
		case answerTTL:
			a.TtlMs = int64(number)
		case answerToken:
			a.Token = number
		case answerPlace:
			a.Place = int32(number)
		case answerEnded:
			a.Ended = protowire.DecodeBool(number)
		case answerOvertaken:
			a.Overtaken = protowire.DecodeBool(number)
		default:
			return false
		}
	}
	return true
}
