package record

import "fmt"

// A DamagedError says that the data directory holds something that this program did not write like that. Nothing is
// repaired on a guess.
type DamagedError struct {
	What string
	Err  error // may be nil
}

func (e *DamagedError) Error() string {
	if e.Err == nil {
		return "data is damaged: " + e.What
	}
	return fmt.Sprintf("data is damaged: %s: %v", e.What, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
