package peer

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestFramesArriveInOrder(t *testing.T) {
	a, b := pair(t, nil)
	const frames = 3000
	for i := range frames {
		for _, kind := range []string{"bulk", "urgent"} {
			a.Send(2, kind == "urgent", []byte(numbered(kind, i)))
			b.Send(1, kind == "urgent", []byte(numbered(kind, i)))
		}
	}
	for _, end := range []struct {
		*member
		from uint64
	}{{a, 2}, {b, 1}} {
		next := map[string]int{}
		for range 2 * frames {
			f := end.next()
			kind, _, _ := strings.Cut(f.text, " ")
			if f.text != numbered(kind, next[kind]) || f.from != end.from || f.incarnation != end.from*100 {
				t.Fatalf("got %+v, want %s of %x", f, numbered(kind, next[kind]), end.from)
			}
			next[kind]++
		}
	}
	s := a.peer(2)
	if s.Urgent.Sent != frames || s.Bulk.Sent != frames || s.Urgent.Dropped+s.Bulk.Dropped != 0 || s.Incarnation != 200 {
		t.Errorf("unexpected status %+v", s)
	}
	a.await("listening", 2, func(s PeerStatus) bool { return s.Listening && !s.Heard.IsZero() })
	a.await("round trip", 2, func(s PeerStatus) bool { return s.RoundTrip > 0 })
}

func TestFramesToUnknownMembersAreDropped(t *testing.T) {
	a, _ := pair(t, nil)
	a.Send(1, true, []byte("to itself"))
	a.Send(9, true, []byte("to nobody"))
	if a.Conn(9) != nil || a.Conn(1) != nil || a.Conn(2) == nil {
		t.Error("there is a connection to every other member, and to no other")
	}
}

func TestUrgentFramesOvertakeBulkFrames(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	a, b := g.start(1, nil), g.start(2, nil)
	a.awaitConnected(2)
	p.stall()
	// More than the streams' windows and all buffers in between.
	const frames, size = 600, 64 << 10
	padding := strings.Repeat(".", size)
	for i := range frames {
		a.Send(2, false, []byte(numbered("bulk", i)+padding))
	}
	a.Send(2, true, []byte("urgent"))
	p.resume()
	for i := 0; i < frames; {
		f := b.next()
		if f.text == "urgent" {
			if i == frames {
				break
			}
			return
		}
		i++
	}
	t.Errorf("%d frames have come before the urgent one", frames)
}

func TestStalledMemberHasBoundedQueueAndDelaysNoOther(t *testing.T) {
	g := newCluster(t, 1, 2, 3)
	p := g.behind(2)
	const limit = 100
	a := g.start(1, func(c *Config, _ *member) {
		c.UrgentFrames, c.UrgentBytes, c.BulkFrames, c.BulkBytes = limit, 8<<20, limit, 8<<20
	})
	g.start(2, nil)
	c := g.start(3, nil)
	a.awaitConnected(2)
	a.awaitConnected(3)
	p.stall()
	frame := make([]byte, 64<<10)
	for i := range 1000 {
		a.Send(2, true, frame)
		a.Send(2, false, frame)
		if s := a.peer(2); s.Urgent.Frames > limit || s.Bulk.Frames > limit || s.Urgent.Bytes > 8<<20 || s.Bulk.Bytes > 8<<20 {
			t.Fatalf("more waits than may: %+v", s)
		}
		a.Send(3, i%2 == 0, []byte("through"))
		c.wantNext(1, "through")
	}
	if s := a.peer(2); !s.Connected || s.Urgent.Dropped == 0 || s.Bulk.Dropped == 0 {
		t.Errorf("nothing was dropped: %+v", s)
	}
	a.awaitUnreachable(2)
}

func TestSilentMemberIsDisconnectedAndReachedAgain(t *testing.T) {
	for name, cut := range map[string]func(*proxy){
		"both ways": (*proxy).stall,
		"there":     func(p *proxy) { p.set(func() { p.there = true }) },
		"back":      func(p *proxy) { p.set(func() { p.back = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			g := newCluster(t, 1, 2)
			p := g.behind(2)
			a := g.start(1, func(c *Config, _ *member) { c.Silence = 300 * time.Millisecond })
			b := g.start(2, nil)
			a.awaitConnected(2)
			cut(p)
			a.await("given up", 2, func(s PeerStatus) bool { return !s.Connected })
			a.awaitUnreachable(2)
			p.resume()
			a.await("connected again", 2, func(s PeerStatus) bool { return s.Connected })
			a.Send(2, true, []byte("again"))
			for b.next().text != "again" { // frames that were sent during the stall may come first
			}
		})
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	a, b := g.start(1, nil), g.start(2, nil)
	before := a.awaitConnected(2)
	for i := range 3 {
		p.reset()
		a.awaitUnreachable(2)
		before = a.await("connected again", 2, func(s PeerStatus) bool { return s.Connected && s.Since.After(before.Since) })
		a.Send(2, false, fmt.Append(nil, i))
		b.wantNext(1, fmt.Sprint(i))
	}
}

func TestBulkFramesAreDroppedWithoutConnection(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	p.refuse()
	a, b := g.start(1, nil), g.start(2, nil)
	a.Send(2, false, []byte("bulk"))
	a.awaitUnreachable(2)
	a.Send(2, true, []byte("urgent"))
	p.resume()
	b.wantNext(1, "urgent")
	a.Send(2, false, []byte("later"))
	b.wantNext(1, "later")
}

func TestRestartedMemberIsReached(t *testing.T) {
	g := newCluster(t, 1, 2)
	a, b := g.start(1, nil), g.start(2, nil)
	a.awaitConnected(2)
	b.stop()
	a.awaitUnreachable(2)
	g.listeners[2] = again(t, g.members[2])
	b = g.start(2, func(c *Config, _ *member) { c.Incarnation = 201 })
	a.await("met", 2, func(s PeerStatus) bool { return s.Connected && s.Incarnation == 201 })
	a.Send(2, false, []byte("hello"))
	b.wantNext(1, "hello")
	b.awaitConnected(1)
	b.Send(1, false, []byte("back"))
	if f := a.next(); f != (frame{2, 201, "back"}) {
		t.Errorf("got %+v", f)
	}
}

// The next attempt of this member would be made in an hour. The other member's connection triggers it at once.
func TestMemberThatConnectsIsReachedAtOnce(t *testing.T) {
	g := newCluster(t, 1, 2)
	toA := g.behind(1)
	toA.refuse()
	slow := func(c *Config, _ *member) { c.retryLimit = time.Hour }
	p := g.behind(2)
	p.refuse()
	a := g.start(1, slow)
	a.await("refused often", 2, func(PeerStatus) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.accepted >= 5
	})
	p.resume()
	b := g.start(2, nil)
	b.await("refused", 1, func(s PeerStatus) bool { return s.Err != nil })
	toA.resume()
	a.awaitConnected(2)
}

func TestOversizedFrameIsDroppedAndLogged(t *testing.T) {
	a, b := pair(t, func(c *Config, _ *member) { c.MaxFrame = 1 << 20 })
	a.Send(2, false, make([]byte, 1<<20+1))
	a.Send(2, false, make([]byte, 1<<20+1))
	a.awaitUnreachable(2)
	a.Send(2, false, make([]byte, 1<<20))
	if f := b.next(); len(f.text) != 1<<20 {
		t.Errorf("got %d bytes", len(f.text))
	}
	if s := a.peer(2); s.Oversized != 2 || a.log.count("too large") != 1 {
		t.Errorf("%d were counted, and logged %d times", s.Oversized, a.log.count("too large"))
	}
}

func TestNewStreamReplacesOldOne(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	a := g.start(1, nil)
	b := g.start(2, nil)
	a.awaitConnected(2)
	p.set(func() { p.there = true })
	a.Send(2, true, []byte("held up"))
	// Another process acts as the same member, as after a move or an undetected restart.
	g.members[1], g.listeners[1] = "127.0.0.1:1", listen(t)
	g.members[2] = p.target
	twin := g.start(1, nil)
	twin.awaitConnected(2)
	a.await("replaced", 2, func(s PeerStatus) bool { return !s.Connected })
	if a.log.count("opened this stream again") != 1 {
		t.Errorf("the log does not say why:\n%s", a.log.text.String())
	}
	p.refuse() // otherwise the two streams would replace each other in turn
	twin.Send(2, true, []byte("new"))
	b.wantNext(1, "new")
}

func TestCloseSendsQueuedFrames(t *testing.T) {
	a, b := pair(t, nil)
	const frames = 500
	for i := range frames {
		a.Send(2, true, []byte(numbered("last", i)))
	}
	a.stop()
	for i := range frames {
		b.wantNext(1, numbered("last", i))
	}
	a.Send(2, true, []byte("too late"))
}

func TestCloseDoesNotWaitForStalledMember(t *testing.T) {
	g := newCluster(t, 1, 2)
	p := g.behind(2)
	a := g.start(1, nil)
	g.start(2, nil)
	a.awaitConnected(2)
	p.stall()
	a.Send(2, true, make([]byte, 8<<20))
	a.stop()
}

func TestTransportClosedBeforeStartCannotStart(t *testing.T) {
	g := newCluster(t, 1, 2)
	for _, l := range g.listeners {
		defer l.Close()
	}
	a, err := New(Config{
		Self: 1, ClusterID: 1, Incarnation: 1, Members: g.members, Listener: g.listeners[1],
		Receive: func(uint64, uint64, []byte) {}, ReceiveState: (&member{}).receiveNothing,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(within(t)); err != nil {
		t.Error(err)
	}
	if err := a.Start(); err == nil {
		t.Error("it was started after it was closed")
	}
}
