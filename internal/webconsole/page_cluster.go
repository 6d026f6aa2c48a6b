package webconsole

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/memberjson"
)

// cluster is the view of the members of the server's cluster.
type cluster struct {
	// rows are the ids of the members on the page, once it was made.
	rows []string
	made bool
}

func newCluster(url.Values) (view, error) { return new(cluster), nil }

// clusterJSON is the cluster for programs.
type clusterJSON struct {
	Leader string `json:"leader,omitempty"` // the id of the leader; missing if none is known
	// Alarms are sentences about what an operator should look at.
	Alarms  []string            `json:"alarms"`
	Members []memberjson.Member `json:"members"`
	Error   string              `json:"error,omitempty"` // why the members cannot be read
}

// clusterBody is what the template of the cluster needs.
type clusterBody struct {
	Server bool // the store is a server
	Rows   []memberBody
}

// memberBody is one row of the table of members.
type memberBody struct{ Key, Name, ID string }

func (v *cluster) before() []want { return []want{{topic: clusterTopic}} }

func (v *cluster) make(k *knowledge, now moment) page {
	c := make(cells)
	frame(c, k)
	addCluster(c, k, now)
	p := page{kind: "cluster", title: "Cluster", cells: c, wants: v.before()}
	body := clusterBody{Server: k.store.server}
	f := k.cluster
	if f == nil {
		f = new(clusterFacts)
	}
	if !v.made && f.members != nil {
		v.made = true
		for _, m := range f.members {
			v.rows = append(v.rows, m.MemberID)
		}
	}
	leader := f.leader()
	for _, id := range v.rows {
		m := memberjson.Member{MemberID: id, State: "removed"}
		if at := slices.IndexFunc(f.members, func(m memberjson.Member) bool { return m.MemberID == id }); at >= 0 {
			m = f.members[at]
		}
		key := "member." + id + "."
		body.Rows = append(body.Rows, memberBody{key, nameOfMember(&m), id})
		addMember(c, key, &m, leader, f, now)
	}
	v.addOthers(c, f)
	c.text("versions", "", plain)
	if leader != nil {
		c.text("versions", leader.VersionsInWords(), plain)
	}
	p.body, p.data = body, clusterJSONOf(k)
	return p
}

// clusterJSONOf returns the cluster for programs.
func clusterJSONOf(k *knowledge) *clusterJSON {
	data := &clusterJSON{Alarms: []string{}, Members: []memberjson.Member{}}
	switch {
	case !k.store.server:
		data.Error = noServer(k).Error()
		return data
	case k.cluster == nil:
		return data
	case k.cluster.err != nil:
		data.Error = k.cluster.err.Error()
	}
	data.Alarms = append(data.Alarms, k.cluster.alarms()...)
	data.Members = append(data.Members, k.cluster.members...)
	if leader := k.cluster.leader(); leader != nil {
		data.Leader = leader.MemberID
	}
	return data
}

// addOthers adds the link that loads the page again if there are members that it does not show.
func (v *cluster) addOthers(c cells, f *clusterFacts) {
	c["added"] = cell{}
	for _, m := range f.members {
		if !slices.Contains(v.rows, m.MemberID) {
			c["added"] = cell{Text: "There are more members: show them", Link: "cluster", Tone: live}
		}
	}
}

// addMember adds the cells of one member. leader is nil if none is known.
func addMember(c cells, key string, m, leader *memberjson.Member, f *clusterFacts, now moment) {
	state := map[string]tone{memberjson.Up: live, memberjson.NotServing: warn, memberjson.Down: bad}[m.State]
	c.text(key+"state", m.State, state)
	c.text(key+"role", m.Role, plain)
	up := m.State == memberjson.Up || m.State == memberjson.NotServing
	c.text(key+"detail", backend.Printable(m.Detail), warn)
	for _, column := range []string{"term", "applied", "lag", "version", "disk", "clock", "lease", "promise", "connected"} {
		c.text(key+column, "", plain)
	}
	c.text(key+"clients", backend.Printable(strings.Join(m.ClientURLs, ", ")), plain)
	c.text(key+"peer", backend.Printable(m.PeerURL), plain)
	if !up {
		return
	}
	c.text(key+"term", strconv.FormatUint(m.Term, 10), plain)
	c.text(key+"applied", strconv.FormatUint(m.AppliedIndex, 10), plain)
	c.text(key+"lag", entriesInWords(m.Lag), toneIf(m.Lag > farBehind, warn))
	c.text(key+"version", backend.Printable(m.Version), plain)
	c.text(key+"disk", spaceInWords(m), toneIf(m.Shortage != "", bad))
	c.duration(key+"promise", m.PromiseMs, f.wholePromise, f.readAt, now)
	if m.Role == memberjson.Leader {
		c.duration(key+"lease", m.MasterLeaseMs, f.wholeLease, f.readAt, now)
	}
	clocks, t := "trusted", plain
	if !m.ClocksTrusted {
		clocks, t = "not trusted", bad
	}
	c.text(key+"clock", clocks, t)
	if leader == nil {
		return
	}
	for i := range leader.Peers {
		if p := &leader.Peers[i]; p.MemberID == m.MemberID {
			c.text(key+"connected", map[bool]string{true: "yes", false: "no"}[p.Connected], toneIf(!p.Connected, warn))
			c.text(key+"clock", p.RateInWords(), toneIf(p.ClockSuspect, bad))
		}
	}
}

// spaceInWords says how much data a member has, and how much room. It is empty if the member does not tell.
func spaceInWords(m *memberjson.Member) string {
	if m.DataBytes == 0 && m.FreeBytes <= 0 {
		return ""
	}
	text := bytesInWords(m.DataBytes) + " of data"
	if m.QuotaBytes > 0 {
		text += " (quota " + bytesInWords(m.QuotaBytes) + ")"
	}
	if m.FreeBytes >= 0 {
		text += ", " + bytesInWords(m.FreeBytes) + " free on the disk"
	}
	return text
}

// bytesInWords formats a number of bytes in a binary unit.
func bytesInWords(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// farBehind is the number of missing entries from which the lag of a member is marked.
const farBehind = 1000

func entriesInWords(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return grouped(int(min(n, 1<<53))) + " entries"
}

// noServer is the error of pages about the server for a store that is none.
func noServer(k *knowledge) error {
	return errors.New("the store is " + k.store.scheme + ", which is no Leasekeeper server: it has no members and no audit log")
}
