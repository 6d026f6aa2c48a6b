package fence

// verdict is what a lane says to a token.
type verdict int

const (
	refuse verdict = iota // a newer token was seen
	admit
	raise // the caller, and nobody else, has to save this token as the mark and then say what came of it
	wait  // ask again when the lane has changed
)

// lane is all that is decided about one resource. It neither locks nor waits: its guard does.
type lane struct {
	// mark is the highest token that was saved and is believed; 0 if it is not known.
	mark Token
	// raising says that somebody was told to raise and has not come back.
	raising bool
	// writers counts the writes that are under way. All of them carry the token writer, and writer ≤ mark:
	// only mark may enter, and it only grows.
	writers int
	writer  Token
}

// check decides whether a write may be admitted. An older token is refused, the mark itself passes, and a
// newer token must first become the mark, by one caller at a time.
func (l *lane) check(t Token) verdict {
	switch {
	case t < l.mark:
		return refuse
	case t == l.mark:
		return admit
	case l.raising:
		return wait
	}
	l.raising = true
	return raise
}

// raised takes in what is saved now. Several guards may save to one place, so it may be more than was asked.
func (l *lane) raised(highest Token) {
	l.raising = false
	l.mark = max(l.mark, highest)
}

// notRaised takes in that saving failed. The mark may have been saved all the same; until that is known
// nobody was admitted with it, so the old mark is still right.
func (l *lane) notRaised() { l.raising = false }

// enter begins a write whose token check admitted. It is refused if a newer token was admitted since, and
// waits while older writes are under way.
func (l *lane) enter(t Token) verdict {
	if t < l.mark {
		return refuse
	}
	if l.writers > 0 && l.writer != t {
		return wait
	}
	l.writers++
	l.writer = t
	return admit
}

// leave ends a write that entered.
func (l *lane) leave() { l.writers-- }
