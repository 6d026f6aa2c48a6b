package entry

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

// Field numbers of logpb that this package encodes and decodes itself.
const (
	entrySequence, entryCommands, entryWall              = 1, 2, 3
	commandClaim, commandRelease                         = 9, 10
	claimID, claimTTL, claimName, claimHolder, claimWait = 1, 2, 3, 4, 5
	releaseName, releaseID                               = 1, 2
)

// Prepared is a command whose encoded size is known.
type Prepared struct {
	Command Command
	// Size is the number of bytes of the encoded command.
	Size int
	// text is the encoded command. It is nil for a claim without a priority and a release: New encodes those directly
	// into the entry, which saves an allocation.
	text []byte
}

// Prepare encodes a command as far as is useful before its entry is made. The caller must not change the command
// afterwards.
func Prepare(c Command) Prepared {
	switch typed := c.(type) { // c itself goes on: typed in an interface would be allocated again
	case ownership.Claim:
		if typed.Priority == 0 {
			return Prepared{Command: c, Size: wire.EnclosedSize(commandClaim, claimSize(typed))}
		}
	case ownership.Release:
		return Prepared{Command: c, Size: wire.EnclosedSize(commandRelease, releaseSize(typed))}
	}
	text := wire.Marshal(messageOf(c))
	return Prepared{Command: c, Size: len(text), text: text}
}

// New returns the encoding of an entry. sequence is the proposer's number of the entry within its term. wall is the
// proposer's time of day in milliseconds since 1970, for display; 0 means unknown. New iterates over commands twice.
func New(sequence uint64, wall int64, commands iter.Seq[*Prepared]) []byte {
	size := wire.NumberSize(entrySequence, sequence) + wire.NumberSize(entryWall, uint64(wall))
	for c := range commands {
		size += wire.EnclosedSize(entryCommands, c.Size)
	}
	text := wire.AppendNumber(make([]byte, 0, size), entrySequence, sequence)
	for c := range commands {
		text = c.appendTo(wire.AppendEnclosed(text, entryCommands, c.Size))
	}
	return wire.AppendNumber(text, entryWall, uint64(wall))
}

// appendTo appends the command's bytes.
func (p *Prepared) appendTo(text []byte) []byte {
	if p.text != nil {
		return append(text, p.text...)
	}
	switch c := p.Command.(type) {
	case ownership.Claim:
		text = wire.AppendEnclosed(text, commandClaim, claimSize(c))
		text = wire.AppendNumber(text, claimID, uint64(c.Lease))
		text = wire.AppendNumber(text, claimTTL, uint64(c.TTL))
		text = wire.AppendText(text, claimName, c.Name)
		text = wire.AppendText(text, claimHolder, c.Holder)
		return wire.AppendNumber(text, claimWait, protowire.EncodeBool(c.Wait))
	case ownership.Release:
		text = wire.AppendEnclosed(text, commandRelease, releaseSize(c))
		text = wire.AppendText(text, releaseName, c.Name)
		return wire.AppendNumber(text, releaseID, uint64(c.Lease))
	}
	return text
}

func claimSize(c ownership.Claim) int {
	return wire.NumberSize(claimID, uint64(c.Lease)) + wire.NumberSize(claimTTL, uint64(c.TTL)) +
		wire.TextSize(claimName, len(c.Name)) + wire.TextSize(claimHolder, len(c.Holder)) +
		wire.NumberSize(claimWait, protowire.EncodeBool(c.Wait))
}

func releaseSize(c ownership.Release) int {
	return wire.TextSize(releaseName, len(c.Name)) + wire.NumberSize(releaseID, uint64(c.Lease))
}
