package entry

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/wire"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Payload is an entry with undecoded commands.
type Payload struct {
	Header
	// Commands are the encoded commands, for [Decode]. They share the entry's memory.
	Commands [][]byte
}

// Decode splits an entry into its commands. It reuses the memory of Commands.
func (p *Payload) Decode(text []byte) error {
	clear(p.Commands) // releases the memory of the previous entry
	p.Header, p.Commands = Header{}, p.Commands[:0]
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeField(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		_, _, tag := protowire.ConsumeTag(text)
		value := text[tag:n]
		switch {
		case field == entrySequence && kind == protowire.VarintType:
			p.Sequence, _ = protowire.ConsumeVarint(value)
		case field == entryWall && kind == protowire.VarintType:
			wall, _ := protowire.ConsumeVarint(value)
			p.Wall = int64(wall)
		case field == entryStates && kind == protowire.VarintType:
			version, _ := protowire.ConsumeVarint(value)
			p.States = gate.Version(version)
		case field == entryNeeds && kind == protowire.VarintType:
			version, _ := protowire.ConsumeVarint(value)
			p.Needs = gate.Version(version)
		case field == entryCommands && kind == protowire.BytesType:
			command, _ := protowire.ConsumeBytes(value)
			p.Commands = append(p.Commands, command)
		}
		text = text[n:]
	}
	return nil
}

// Decode decodes one command of a payload, and the user on whose behalf it is applied. It fails for commands that this
// version does not know.
func Decode(text []byte) (Command, access.Caller, error) {
	if op, by, ok := cutCaller(text); ok {
		if claim, ok := decodeClaim(op); ok {
			return claim, by, nil
		}
		if grant, ok := decodeGrant(op); ok {
			return grant, by, nil
		}
		if release, ok := decodeRelease(op); ok {
			return release, by, nil
		}
	}
	m := new(logpb.Command)
	if err := proto.Unmarshal(text, m); err != nil {
		return nil, access.Caller{}, fmt.Errorf("it cannot be read: %w", err)
	}
	if c := commandOf(m); c != nil {
		return c, roster.CallerOf(m.Caller), nil
	}
	return nil, access.Caller{}, fmt.Errorf("unknown command %T: was the data written by a newer version?", m.Op)
}

// cutCaller splits a command into its operation and its caller. ok is false if it has something else.
func cutCaller(text []byte) (op []byte, by access.Caller, ok bool) {
	_, _, n := protowire.ConsumeField(text)
	if n < 0 {
		return nil, by, false
	}
	if n == len(text) {
		return text, by, true
	}
	inside, ok := only(text[n:], commandCaller)
	ok = ok && eachField(inside, func(field protowire.Number, number uint64, value []byte) bool {
		switch {
		case value != nil && field == callerUser:
			by.User = string(value)
		case value == nil && field == callerRevision:
			by.Revision = number
		default:
			return false
		}
		return true
	})
	return text[:n], by, ok
}

// only returns the bytes of the operation with a field number if the command consists of that operation only.
func only(text []byte, field protowire.Number) (inside []byte, ok bool) {
	at, kind, n := protowire.ConsumeTag(text)
	if n < 0 || at != field || kind != protowire.BytesType {
		return nil, false
	}
	inside, m := protowire.ConsumeBytes(text[n:])
	return inside, m >= 0 && n+m == len(text)
}

// eachField calls read with each field of a message: with its number if it is a varint, and with its bytes otherwise, which are then
// not nil. It returns false as soon as read does, and where a field cannot be read.
func eachField(text []byte, read func(field protowire.Number, number uint64, value []byte) bool) bool {
	for len(text) > 0 {
		field, number, value, rest, ok := wire.Next(text)
		if !ok || !read(field, number, value) {
			return false
		}
		text = rest
	}
	return true
}

// decodeClaim decodes a claim. ok is false for every other command, and for a claim with a field unknown to this
// version.
func decodeClaim(text []byte) (c ownership.Claim, ok bool) {
	text, ok = only(text, commandClaim)
	ok = ok && eachField(text, func(field protowire.Number, number uint64, value []byte) bool {
		switch {
		case value == nil && field == claimID:
			c.Lease = lessor.ID(number)
		case value == nil && field == claimTTL:
			c.TTL = time.Duration(number)
		case value == nil && field == claimWait:
			c.Wait = protowire.DecodeBool(number)
		case value != nil && field == claimName:
			c.Name = string(value)
		case value != nil && field == claimHolder:
			c.Holder = append([]byte{}, value...) // the claim outlives the entry
		default:
			return false
		}
		return true
	})
	return c, ok
}

// decodeGrant decodes a grant, like decodeClaim.
func decodeGrant(text []byte) (g Grant, ok bool) {
	text, ok = only(text, commandGrant)
	ok = ok && eachField(text, func(field protowire.Number, number uint64, value []byte) bool {
		switch {
		case value == nil && field == grantID:
			g.Lease = lessor.ID(number)
		case value == nil && field == grantTTL:
			g.TTL = time.Duration(number)
		default:
			return false
		}
		return true
	})
	return g, ok
}

// decodeRelease decodes a release, like decodeClaim.
func decodeRelease(text []byte) (c ownership.Release, ok bool) {
	text, ok = only(text, commandRelease)
	ok = ok && eachField(text, func(field protowire.Number, number uint64, value []byte) bool {
		switch {
		case value == nil && field == releaseID:
			c.Lease = lessor.ID(number)
		case value != nil && field == releaseName:
			c.Name = string(value)
		default:
			return false
		}
		return true
	})
	return c, ok
}
