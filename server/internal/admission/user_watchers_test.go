package admission

import "testing"

// TestUserWatchersEndWithTheirStream checks that the watchers of a user are those of its open streams, whichever connection
// they are on.
func TestUserWatchersEndWithTheirStream(t *testing.T) {
	w := NewWatchers(2)
	join := func() (*ConnectionWatchers, func()) { return w.Join(t.Context()) }
	want := func(what string, got, want int64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d watchers, want %d", what, got, want)
		}
	}
	first, leaveFirst := join()
	second, leaveSecond := join()
	if !first.Admit() || !second.Admit() || second.Admit() {
		t.Fatal("the connection may have two watchers")
	}
	want("the first stream, with a watcher from before", first.Belong("u"), 1)
	want("two streams", second.Belong("u"), 2)
	second.Discharge(1)
	want("after one ended", first.Belong("u"), 1)
	if !second.Admit() {
		t.Fatal("the connection may have two watchers")
	}
	want("another on the second stream", second.Belong("u"), 2)
	second.Discharge(1)
	leaveSecond()
	third, leaveThird := join()
	want("another user", third.Belong("v"), 0)
	leaveThird()
	leaveFirst()
	if n := w.users.Len(); n != 0 {
		t.Errorf("%d users without a stream are remembered", n)
	}
}
