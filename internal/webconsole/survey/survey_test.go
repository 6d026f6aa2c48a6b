package survey

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

var start = clock.Instant{Raw: 1, Boot: 1}

func held(name, holder string, token backend.Token) backend.Info {
	return backend.Info{Name: name, Held: true, Holder: backend.Holder{ID: holder}, Token: token, TTL: 10 * time.Second, Remaining: 4 * time.Second}
}

func surveyOf(t *testing.T, most int, names ...backend.Info) *Survey {
	t.Helper()
	c := Collect(start, most)
	if _, err := c.Add(names, start); err != nil {
		t.Fatal(err)
	}
	return c.Finish(start)
}

func TestRemainingTimeRunsDownFromTheStoresAnswer(t *testing.T) {
	n := Observe(held("a", "me", 1), start)
	for after, want := range map[time.Duration]time.Duration{0: 4 * time.Second, time.Second: 3 * time.Second, time.Minute: 0} {
		if got := n.Left(start.Add(after)); got != want {
			t.Errorf("%v after the answer %v are left, not %v", after, got, want)
		}
	}
	unknown := held("a", "me", 1)
	unknown.Remaining = -1
	if got := Observe(unknown, start).Left(start); got >= 0 {
		t.Errorf("a store that does not tell leaves %v", got)
	}
}

func TestSurveyCountsNames(t *testing.T) {
	waited, pinned, unread := held("b", "me", 2), held("c", "me", 3), backend.Info{Name: "e", Err: errors.New("damaged")}
	waited.Waiting, pinned.Pinned = 5, "why"
	got := surveyOf(t, 9, held("a", "me", 1), waited, pinned, backend.Info{Name: "d"}, unread).Counts
	want := Counts{Held: 3, Free: 1, Waiting: 5, WaitingKnown: true, Contended: 1, Pinned: 1, Unreadable: 1}
	if got != want {
		t.Errorf("the counts are %+v, not %+v", got, want)
	}
	quiet := held("a", "me", 1)
	quiet.Waiting = -1
	if surveyOf(t, 9, quiet).Counts.WaitingKnown {
		t.Error("a store that does not tell the length of queues has known queues")
	}
}

func TestNamesOutOfOrderAreRefused(t *testing.T) {
	c := Collect(start, 9)
	if _, err := c.Add([]backend.Info{{Name: "b"}, {Name: "a"}}, start); !errors.Is(err, backend.ErrCorrupt) {
		t.Errorf("names out of order return %v", err)
	}
}

func TestSurveyOfTooManyNamesIsTruncated(t *testing.T) {
	c := Collect(start, 2)
	room, err := c.Add([]backend.Info{{Name: "a"}, {Name: "b"}, {Name: "c"}}, start)
	if err != nil || room {
		t.Errorf("the third name of two is added: %v %v", room, err)
	}
	if s := c.Finish(start); len(s.Names) != 2 || !s.Truncated {
		t.Errorf("the survey has %d names, truncated: %v", len(s.Names), s.Truncated)
	}
}

func TestCompareFindsEachTenureThatEndedOrBegan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (map[string]backend.Info, *Survey) {
			all := make(map[string]backend.Info)
			c := Collect(start, 100)
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				var i backend.Info
				switch rapid.IntRange(0, 3).Draw(t, label+name) {
				case 0:
					continue
				case 1:
					i = backend.Info{Name: name}
				default:
					i = held(name, "me", backend.Token(rapid.IntRange(1, 2).Draw(t, label+name+" token")))
				}
				all[name] = i
				if _, err := c.Add([]backend.Info{i}, start); err != nil {
					t.Fatal(err)
				}
			}
			return all, c.Finish(start)
		}
		was, before := draw("before ")
		is, after := draw("after ")
		var want, got []string
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			w, i := was[name], is[name]
			ended := w.Held && (!i.Held || i.Token != w.Token)
			began := i.Held && (!w.Held || i.Token != w.Token)
			if ended || began {
				want = append(want, fmt.Sprint(name, ended, began, w.Token, i.Token))
			}
		}
		for _, c := range Compare(before, after) {
			got = append(got, fmt.Sprint(c.Is.Name, c.Ended, c.Began, c.Was.Token, c.Is.Token))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the changes are %v, not %v", got, want)
		}
	})
}

func TestNamesBeyondATruncatedSurveyDoNotChange(t *testing.T) {
	whole, short := surveyOf(t, 9, held("a", "me", 1), held("b", "me", 2)), surveyOf(t, 1, held("a", "me", 1), held("b", "me", 2))
	if got := Compare(whole, short); len(got) != 0 {
		t.Errorf("the name beyond the end has changed: %v", got)
	}
	if got := Compare(short, whole); len(got) != 0 {
		t.Errorf("the name beyond the end has changed: %v", got)
	}
}

func TestSelectReturnsEachNameOfAQueryOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []backend.Info
		var want []string
		text := rapid.SampledFrom([]string{"", "1", "me", "zz"}).Draw(t, "text")
		state := rapid.SampledFrom([]State{Any, Held, Free, Contended, Pinned}).Draw(t, "state")
		for i := range rapid.IntRange(0, 40).Draw(t, "names") {
			n := held(fmt.Sprintf("n%03d", i), "me", 1)
			n.Held = rapid.Bool().Draw(t, "held")
			if n.Waiting = rapid.IntRange(-1, 1).Draw(t, "waiting"); rapid.Bool().Draw(t, "pinned") {
				n.Pinned = "why"
			}
			all = append(all, n)
			is := map[State]bool{Any: true, Held: n.Held, Free: !n.Held, Contended: n.Held && n.Waiting > 0, Pinned: n.Held && n.Pinned != ""}[state]
			if is && (strings.Contains(n.Name, text) || n.Held && strings.Contains("me", text)) {
				want = append(want, n.Name)
			}
		}
		c := Collect(start, 100)
		if _, err := c.Add(all, start); err != nil {
			t.Fatal(err)
		}
		s := c.Finish(start)
		most := rapid.IntRange(1, 7).Draw(t, "most")
		var got []string
		for from := 0; ; from += most {
			p := s.Select(Query{Text: text, State: state, From: from, Most: most})
			if p.Total != len(want) {
				t.Fatalf("%d names match, not %d", p.Total, len(want))
			}
			if from >= len(want) {
				// Beyond the end is the last page.
				if len(want) > 0 && (len(p.Names) == 0 || p.Names[len(p.Names)-1].Name != want[len(want)-1] || p.From+len(p.Names) != len(want)) {
					t.Fatalf("beyond the end is %d names from %d", len(p.Names), p.From)
				}
				break
			}
			for _, n := range p.Names {
				got = append(got, n.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the pages have %v, not %v", got, want)
		}
	})
}

func TestLongestQueuesComeFirst(t *testing.T) {
	var all []backend.Info
	for i, waiting := range []int{3, 0, 9, 1, 4} {
		n := held(fmt.Sprint("n", i), "me", 1)
		n.Waiting = waiting
		all = append(all, n)
	}
	var got []int
	for _, n := range surveyOf(t, 9, all...).Longest(3) {
		got = append(got, n.Waiting)
	}
	if !slices.Equal(got, []int{9, 4, 3}) {
		t.Errorf("the longest queues are %v", got)
	}
}

// The model keeps every figure with its slot.
func TestRingKeepsTheFiguresOfItsSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length, slots = time.Second, 5
		r, now := NewRing(start, length, slots), start
		model := make(map[int64]float64)
		sum := rapid.Bool().Draw(t, "sum")
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2500).Draw(t, "ms")) * time.Millisecond)
			number := int64(now.Elapsed(start) / length)
			v := float64(rapid.IntRange(0, 9).Draw(t, "figure"))
			if rapid.IntRange(0, 5).Draw(t, "missing") == 0 {
				v = Missing
			}
			was, known := model[number]
			switch {
			case sum:
				r.Add(now, v)
				if known {
					v += was
				}
				model[number] = v
			default:
				r.Set(now, v)
				if !IsMissing(v) {
					model[number] = v
				}
			}
		}
		number := int64(now.Elapsed(start) / length)
		for i, got := range r.Values(now) {
			want, known := model[number-slots+1+int64(i)]
			if !known {
				want = Missing
			}
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				t.Fatalf("the figure of slot %d is %v, not %v", i, got, want)
			}
		}
	})
}
