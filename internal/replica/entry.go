package replica

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/wire"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// The payload of a log entry is a logpb.Entry. A claim and a release are small, and most of what a busy member
// writes and reads, so these two are put into bytes and taken out of them by hand; the bytes are the same.

// The fields of logpb.
const (
	entrySequence, entryCommands, entryWall              = 1, 2, 3
	commandClaim, commandRelease                         = 9, 10
	claimID, claimTTL, claimName, claimHolder, claimWait = 1, 2, 3, 4, 5
	releaseName, releaseID                               = 1, 2
)

// encoded is an operation on its way to be a logpb.Command. A claim and a release become bytes only in their entry,
// which saves memory of its own for each.
type encoded struct {
	text []byte // nil for those two
	size int    // in bytes
}

func encodeOp(op any) encoded {
	switch op := op.(type) {
	case ownership.Claim:
		return encoded{size: wire.EnclosedSize(commandClaim, claimSize(op))}
	case ownership.Release:
		return encoded{size: wire.EnclosedSize(commandRelease, releaseSize(op))}
	}
	text := wire.Marshal(encode(op))
	return encoded{text, len(text)}
}

// appendOp appends what encodeOp made of an operation.
func appendOp(text []byte, op any, e encoded) []byte {
	switch op := op.(type) {
	case ownership.Claim:
		text = wire.AppendEnclosed(text, commandClaim, claimSize(op))
		text = wire.AppendNumber(text, claimID, uint64(op.Lease))
		text = wire.AppendNumber(text, claimTTL, uint64(op.TTL))
		text = wire.AppendText(text, claimName, op.Name)
		text = wire.AppendText(text, claimHolder, op.Holder)
		return wire.AppendNumber(text, claimWait, protowire.EncodeBool(op.Wait))
	case ownership.Release:
		text = wire.AppendEnclosed(text, commandRelease, releaseSize(op))
		text = wire.AppendText(text, releaseName, op.Name)
		return wire.AppendNumber(text, releaseID, uint64(op.Lease))
	}
	return append(text, e.text...)
}

func claimSize(op ownership.Claim) int {
	return wire.NumberSize(claimID, uint64(op.Lease)) + wire.NumberSize(claimTTL, uint64(op.TTL)) +
		wire.TextSize(claimName, len(op.Name)) + wire.TextSize(claimHolder, len(op.Holder)) +
		wire.NumberSize(claimWait, protowire.EncodeBool(op.Wait))
}

func releaseSize(op ownership.Release) int {
	return wire.TextSize(releaseName, len(op.Name)) + wire.NumberSize(releaseID, uint64(op.Lease))
}

// encodeEntry returns a payload.
func encodeEntry(sequence uint64, wall int64, commands []pending) []byte {
	size := wire.NumberSize(entrySequence, sequence) + wire.NumberSize(entryWall, uint64(wall))
	for i := range commands {
		size += wire.EnclosedSize(entryCommands, commands[i].size)
	}
	text := wire.AppendNumber(make([]byte, 0, size), entrySequence, sequence)
	for i := range commands {
		text = wire.AppendEnclosed(text, entryCommands, commands[i].size)
		text = appendOp(text, commands[i].op, commands[i].encoded)
	}
	return wire.AppendNumber(text, entryWall, uint64(wall))
}

// payload is an entry taken apart.
type payload struct {
	sequence uint64
	wall     int64
	commands [][]byte // each a logpb.Command; they share the entry's memory
}

// decode takes a payload apart, into memory that is used again.
func (p *payload) decode(text []byte) error {
	clear(p.commands) // the entries before need not stay in memory for them
	p.sequence, p.wall, p.commands = 0, 0, p.commands[:0]
	for len(text) > 0 {
		field, kind, n := protowire.ConsumeField(text)
		if n < 0 {
			return protowire.ParseError(n)
		}
		_, _, tag := protowire.ConsumeTag(text)
		value := text[tag:n]
		switch {
		case field == entrySequence && kind == protowire.VarintType:
			p.sequence, _ = protowire.ConsumeVarint(value)
		case field == entryWall && kind == protowire.VarintType:
			wall, _ := protowire.ConsumeVarint(value)
			p.wall = int64(wall)
		case field == entryCommands && kind == protowire.BytesType:
			command, _ := protowire.ConsumeBytes(value)
			p.commands = append(p.commands, command)
		}
		text = text[n:]
	}
	return nil
}

// only returns what is inside a command that is nothing but this operation.
func only(command []byte, field protowire.Number) (inside []byte, ok bool) {
	at, kind, n := protowire.ConsumeTag(command)
	if n < 0 || at != field || kind != protowire.BytesType {
		return nil, false
	}
	inside, m := protowire.ConsumeBytes(command[n:])
	return inside, m >= 0 && n+m == len(command)
}

// decodeClaim takes a claim out of a command. It is false for every other, and for a claim that has something in it
// which is not known here.
func decodeClaim(command []byte) (op ownership.Claim, ok bool) {
	text, ok := only(command, commandClaim)
	for ok && len(text) > 0 {
		var number uint64
		var value []byte
		var field protowire.Number
		if field, number, value, text, ok = wire.Next(text); !ok {
			break
		}
		switch {
		case value == nil && field == claimID:
			op.Lease = lessor.ID(number)
		case value == nil && field == claimTTL:
			op.TTL = time.Duration(number)
		case value == nil && field == claimWait:
			op.Wait = protowire.DecodeBool(number)
		case value != nil && field == claimName:
			op.Name = string(value)
		case value != nil && field == claimHolder:
			op.Holder = append([]byte{}, value...) // others keep it for longer than the entry
		default:
			ok = false
		}
	}
	return op, ok
}

// decodeRelease is decodeClaim for releases.
func decodeRelease(command []byte) (op ownership.Release, ok bool) {
	text, ok := only(command, commandRelease)
	for ok && len(text) > 0 {
		var number uint64
		var value []byte
		var field protowire.Number
		if field, number, value, text, ok = wire.Next(text); !ok {
			break
		}
		switch {
		case value == nil && field == releaseID:
			op.Lease = lessor.ID(number)
		case value != nil && field == releaseName:
			op.Name = string(value)
		default:
			ok = false
		}
	}
	return op, ok
}
