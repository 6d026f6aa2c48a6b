package entry

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/wire"
)

// Field numbers of logpb that this package encodes and decodes itself.
const (
	entrySequence, entryCommands, entryWall              = 1, 2, 3
	entryStates, entryNeeds                              = 4, 5
	commandGrant, commandClaim, commandRelease           = 3, 9, 10
	commandCaller                                        = 100
	callerUser, callerRevision                           = 1, 2
	callerAddress, callerCertificate                     = 3, 4
	claimID, claimTTL, claimName, claimHolder, claimWait = 1, 2, 3, 4, 5
	releaseName, releaseID                               = 1, 2
	grantID, grantTTL                                    = 1, 2
)

// Prepared is a command whose encoded size is known.
type Prepared struct {
	Command Command
	// Caller is the user on whose behalf the command is applied; zero for nobody.
	Caller access.Caller
	// Size is the number of bytes of the encoded command.
	Size int
	// text is the encoded command. It is nil for a grant, a release and a claim without a priority: New encodes those
	// directly into the entry, which saves an allocation.
	text []byte
}

// Prepare encodes a command as far as is useful before its entry is made. The command must not be changed afterwards. by is
// the user on whose behalf it is applied.
func Prepare(c Command, by access.Caller) Prepared {
	p := encode(c)
	if by != (access.Caller{}) {
		p.Caller = by
		p.Size += wire.EnclosedSize(commandCaller, callerSize(by))
	}
	return p
}

// encode prepares a command without its caller.
func encode(c Command) Prepared {
	switch typed := c.(type) { // c itself goes on: typed in an interface would be allocated again
	case ownership.Claim:
		if typed.Priority == 0 {
			return Prepared{Command: c, Size: wire.EnclosedSize(commandClaim, claimSize(typed))}
		}
	case Grant:
		return Prepared{Command: c, Size: wire.EnclosedSize(commandGrant, grantSize(typed))}
	case ownership.Release:
		return Prepared{Command: c, Size: wire.EnclosedSize(commandRelease, releaseSize(typed))}
	}
	text := wire.Marshal(messageOf(c))
	return Prepared{Command: c, Size: len(text), text: text}
}

// Header is what an entry has besides its commands.
type Header struct {
	// Sequence is the proposer's number of the entry within its term.
	Sequence uint64
	// Wall is the proposer's time of day in milliseconds since 1970, for display; 0 means unknown.
	Wall int64
	// States is the cluster version that the leader states; 0 means none.
	States gate.Version
	// Needs is the version that a member needs to apply the entry, if its commands do not say more. 0 means none.
	Needs gate.Version
}

// New returns the encoding of an entry. It iterates over commands twice.
func New(h Header, commands iter.Seq[*Prepared]) []byte {
	size := 0
	for c := range commands {
		size += wire.EnclosedSize(entryCommands, c.Size)
		h.Needs = max(h.Needs, Gate(c.Command))
		h.Needs = max(h.Needs, callerGate(c))
	}
	if h.Needs < gate.Statements {
		h.Needs = 0 // members that read the field understand as much
	}
	size += wire.NumberSize(entrySequence, h.Sequence) + wire.NumberSize(entryWall, uint64(h.Wall)) +
		wire.NumberSize(entryStates, uint64(h.States)) + wire.NumberSize(entryNeeds, uint64(h.Needs))
	text := wire.AppendNumber(make([]byte, 0, size), entrySequence, h.Sequence)
	for c := range commands {
		text = c.appendTo(wire.AppendEnclosed(text, entryCommands, c.Size))
	}
	text = wire.AppendNumber(text, entryWall, uint64(h.Wall))
	text = wire.AppendNumber(text, entryStates, uint64(h.States))
	return wire.AppendNumber(text, entryNeeds, uint64(h.Needs))
}

// appendTo appends the bytes of the command and its caller.
func (p *Prepared) appendTo(text []byte) []byte {
	text = p.appendCommand(text)
	if p.Caller == (access.Caller{}) {
		return text
	}
	text = wire.AppendEnclosed(text, commandCaller, callerSize(p.Caller))
	text = wire.AppendText(text, callerUser, p.Caller.User)
	text = wire.AppendNumber(text, callerRevision, p.Caller.Revision)
	text = wire.AppendText(text, callerAddress, p.Caller.Origin.Address)
	return wire.AppendText(text, callerCertificate, p.Caller.Origin.Certificate)
}

func callerSize(c access.Caller) int {
	return wire.TextSize(callerUser, len(c.User)) + wire.NumberSize(callerRevision, c.Revision) +
		wire.TextSize(callerAddress, len(c.Origin.Address)) + wire.TextSize(callerCertificate, len(c.Origin.Certificate))
}

func (p *Prepared) appendCommand(text []byte) []byte {
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
	case Grant:
		text = wire.AppendEnclosed(text, commandGrant, grantSize(c))
		text = wire.AppendNumber(text, grantID, uint64(c.Lease))
		return wire.AppendNumber(text, grantTTL, uint64(c.TTL))
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

func grantSize(g Grant) int {
	return wire.NumberSize(grantID, uint64(g.Lease)) + wire.NumberSize(grantTTL, uint64(g.TTL))
}

func releaseSize(c ownership.Release) int {
	return wire.TextSize(releaseName, len(c.Name)) + wire.NumberSize(releaseID, uint64(c.Lease))
}
