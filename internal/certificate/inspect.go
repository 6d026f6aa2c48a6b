package certificate

import "time"

// Inspection is what the files hold at one time, for a program that judges them and makes no connections.
type Inspection struct {
	*InForce
	// NextUpdate is the earliest time at which a list in the file of revoked certificates should have a successor. It is the zero
	// time without a file, or if no list says it.
	NextUpdate time.Time
	// Revoked reports whether the file of revoked certificates has the certificate itself.
	Revoked bool
}

// Inspect reads the files. Its errors are those of [Files.Check].
func (f Files) Inspect() (Inspection, error) {
	read, err := f.read()
	if err != nil {
		return Inspection{}, err
	}
	list, err := f.readRevoked(read)
	if err != nil {
		return Inspection{}, err
	}
	leaf := read.Pair.Leaf
	_, has := list.serials[serialOf(leaf.RawIssuer, leaf.SerialNumber)]
	return Inspection{InForce: read, NextUpdate: list.due, Revoked: has}, nil
}
