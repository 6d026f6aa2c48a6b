package fence

// verdict is what a lane decides about a token.
type verdict int

const (
	refuse verdict = iota // a newer token was seen
	admit
	raise // the caller saves this token as the mark, and then calls raised or notRaised; no other call gets raise meanwhile
	wait  // the caller asks again when the lane has changed
)

// lane decides about the tokens of one resource. It neither locks nor waits: its guard does.
type lane struct {
	// mark is the highest token that was saved; 0 if it is not known.
	mark Token
	// raising is true while a call saves a higher mark: from the verdict raise to raised or notRaised.
	raising bool
	// writers counts the writes in progress. All of them carry the token writer. writer ≤ mark, because only
	// the mark may enter, and the mark only grows.
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

// raised takes the mark that Marks has now. It may be higher than the token that was saved, because several guards
// may share Marks.
func (l *lane) raised(highest Token) {
	l.raising = false
	l.mark = max(l.mark, highest)
}

// notRaised is called when saving failed. Marks may have saved the token nevertheless. The old mark stays valid,
// because no write was admitted with the new one.
func (l *lane) notRaised() { l.raising = false }

// enter begins a write whose token check admitted. It refuses the write if a newer token was admitted since, and
// makes it wait while older writes are in progress.
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
