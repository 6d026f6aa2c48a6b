package simulation

import (
	"bytes"
	"context"
	"io"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/statexfer"
)

// stagingDirectory is the directory of a member's file system for states that it is receiving.
const stagingDirectory = "staging"

// ship sends a message with the whole state.
func (m *member) ship(e replica.Ship) {
	w := m.w
	to := w.memberOf(e.Message.To)
	w.mark("a state was shipped")
	if m.replica.Store().CompactRevision() > 0 {
		w.mark("a state was shipped of which history had been compacted")
	}
	reader, err := statexfer.NewReader(e.State)
	m.must(err)
	state, err := io.ReadAll(reader)
	m.must(err)
	m.must(reader.Close())
	m.must(e.State.Close())
	w.facts.sent(m, to, e.Message)
	w.note(m.name, "ships a state", to.id, hashBytes(state))
	message, incarnation := e.Message.AppendTo(nil), m.incarnation
	delay, ok := w.network.delay(m, to, e.Message)
	delay += w.upTo(w.dice.network, 100*time.Millisecond)
	life := m.life
	w.after(delay, func() {
		err := errLink
		if ok {
			err = to.stage(m.id, incarnation, message, state)
		}
		w.after(w.delay, func() {
			if m.alive(life) {
				m.event(replica.Shipped{To: to.id, Err: err})
			}
		})
	})
}

// stage takes a state that another member sent.
func (m *member) stage(from, incarnation uint64, frame, state []byte) error {
	if !m.up || m.w.now < m.stopped {
		return errLink
	}
	parsed, err := message.Parse(from, m.id, frame)
	m.must(err)
	receipt := statexfer.Receipt{ClusterID: m.replica.Header().ClusterID, Domain: m.replica.ClockDomain(), Now: m.now}
	m.staged++
	staged, err := statexfer.Stage(context.Background(), m.fs, stagingDirectory, m.staged, bytes.NewReader(state), receipt)
	m.must(err)
	m.event(replica.Received{Message: parsed, Incarnation: incarnation, State: staged})
	return nil
}

// install replaces the contents of the database.
func (m *member) install(e replica.Install) {
	m.w.mark("a state was installed")
	m.w.note(m.name, "installs", e.Sequence, uint64(len(e.Own)))
	m.later(m.w.upTo(m.w.dice.disk, 50*time.Millisecond), func() {
		m.must(statexfer.Install(context.Background(), m.db, e.State.(*statexfer.Staged), e.Own))
		m.event(replica.Installed{Sequence: e.Sequence})
	})
}

func (m *member) discard(e replica.Discard) {
	m.must(e.State.Discard())
}
