package record

import "fmt"

// A DamagedError means that the data directory contains data that this program did not write. Nothing repairs such
// data by a guess.
type DamagedError struct {
	What string
	Err  error // the cause; may be nil
}

func (e *DamagedError) Error() string {
	if e.Err == nil {
		return "data is damaged: " + e.What
	}
	return fmt.Sprintf("data is damaged: %s: %v", e.What, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }
