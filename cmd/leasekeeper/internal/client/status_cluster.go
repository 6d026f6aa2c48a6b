package client

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// members asks the server for the members of its cluster. It returns nil if the server is not in a cluster, or has no
// such service.
func (c *client) members(ctx context.Context) ([]memberjson.Member, error) {
	answer, err := leasekeeperv1.NewMembersClient(c.conn).List(ctx, &leasekeeperv1.ListMembersRequest{})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil // etcd, for example
	}
	if err != nil || len(answer.Members) < 2 {
		return nil, err
	}
	return memberjson.OfMembers(answer.Members), nil
}

func memberID(id uint64) string { return memberjson.ID(id) }

// stateTone returns the tone of a cell in the table of the members.
func stateTone(row []string, column int) console.Tone {
	if column != 2 {
		return console.Plain
	}
	return map[string]console.Tone{"up": console.Held, "not serving": console.Alert, memberjson.Down: console.Lost}[row[column]]
}

// peerTone returns the tone of a cell in the table of the members that the leader sees.
func peerTone(row []string, column int) console.Tone {
	switch {
	case column == 1 && row[column] == "no":
		return console.Lost
	case column == 4 && strings.HasSuffix(row[column], ", outside the bound"):
		return console.Alert
	}
	return console.Plain
}

// printMembers prints a table of the members, a table of their promises, and a table of the other members as the leader sees them.
func printMembers(w io.Writer, members []memberjson.Member) error {
	rows := [][]string{{"MEMBER", "ID", "STATE", "ROLE", "TERM", "APPLIED", "LAG", "CLIENTS"}}
	promises := [][]string{{"MEMBER", "MASTER LEASE", "PROMISE", "VOTE HOLD-OFF"}}
	var leader *memberjson.Member
	for i := range members {
		m := &members[i]
		clients := clientsInWords(m.ClientURLs)
		if m.State == memberjson.Down {
			rows = append(rows, []string{m.Name, m.MemberID, m.State, "-", "-", "-", "-", clients})
			promises = append(promises, []string{m.Name, "-", "-", "-"})
			continue
		}
		lease := "-"
		if m.Role == memberjson.Leader {
			leader, lease = m, millisInWords(m.MasterLeaseMs)
		}
		rows = append(rows, []string{m.Name, m.MemberID, m.State, m.Role, strconv.FormatUint(m.Term, 10),
			strconv.FormatUint(m.AppliedIndex, 10), strconv.FormatUint(m.Lag, 10), clients})
		promises = append(promises, []string{m.Name, lease, millisInWords(m.PromiseMs), millisInWords(m.VoteHoldOffMs)})
	}
	console.PrintLine(w, "") // PrintTable returns the error
	if err := console.PrintTable(w, rows, console.Shorten(7), console.Paint(stateTone)); err != nil {
		return err
	}
	for _, m := range members {
		if m.Detail != "" {
			console.PrintLine(w, "%s is %s: %s", m.Name, m.State, m.Detail)
		}
	}
	console.PrintLine(w, "")
	if err := console.PrintTable(w, promises); err != nil {
		return err
	}
	if leader == nil {
		return console.PrintLines(w, "\nno leader: none of the members that answer leads\n")
	}
	console.PrintLine(w, "")
	console.PrintLine(w, "how the leader %s sees the other members:", leader.Name)
	rows = [][]string{{"PEER", "CONNECTED", "MATCH", "LAG", "CLOCK RATE"}}
	for _, p := range leader.Peers {
		rows = append(rows, []string{p.Name, yesOrNo(p.Connected), strconv.FormatUint(p.MatchIndex, 10), strconv.FormatUint(p.Lag, 10), p.RateInWords()})
	}
	if err := console.PrintTable(w, rows, console.Paint(peerTone)); err != nil {
		return err
	}
	return console.PrintLines(w, "\n"+leader.VersionsInWords()+"\n")
}

func clientsInWords(urls []string) string {
	if len(urls) == 0 {
		return "unknown"
	}
	return strings.Join(urls, ",")
}

func millisInWords(ms int64) string {
	if ms == 0 {
		return "none"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func yesOrNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
